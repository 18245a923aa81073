use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use netvale_mem::lent::{InUse, Lent, ManyWorkers};

use super::*;
use crate::tests::{SLOTS, deliver, received, ring, with_batch};
use crate::{DropReason, Egress};

fn frames(count: u8) -> Vec<Vec<u8>> {
    (1..=count).map(|i| vec![i; 60]).collect()
}

/// Takes the first `count` steps of a reservation.
fn step(room: &mut Reservation<'_>, count: usize) {
    let steps = [Reservation::fill, Reservation::publish, Reservation::kick_and_stop];
    for step in &steps[..count] {
        step(room);
        full_fence();
    }
}

/// Objective: after a reservation is dropped at any step, the ring keeps working, even for a later reservation: filled
/// slots arrive and are counted, other slots arrive empty and are not counted.
#[test]
fn a_dropped_reservation_leaves_the_ring_working() {
    for steps in 0..=3 {
        let (egress, mut receiver) = ring();
        with_batch(
            &frames(3),
            |_| {},
            |batch, picks| {
                let mut room = egress.reserve(batch, picks).unwrap();
                step(&mut room, steps);
                assert_eq!(deliver(&egress, &[vec![9; 70]], |_| {}), 1);
                drop(room);
            },
        );
        let first = if steps > 0 { frames(3) } else { vec![vec![]; 3] };
        assert_eq!(received(&mut receiver), [&first[..], &[vec![9; 70]]].concat(), "after {steps} steps");
        assert_eq!(egress.counters().frames(), if steps > 0 { 4 } else { 1 }, "after {steps} steps");
        assert_eq!(deliver(&egress, &frames(5), |_| {}), 5);
        assert_eq!(received(&mut receiver), frames(5), "after {steps} steps");
    }
}

/// Objective: a panic during a delivery drops the reservations in all rings, after which a guest's ring can be removed.
#[test]
fn an_unwinding_pass_drops_its_reservations() {
    let (own, mut receiver) = ring();
    let (egress, mut guest) = ring();
    let lent: Lent<RingEgress, ManyWorkers> = Lent::with(egress);
    let unwound = with_batch(
        &frames(2),
        |_| {},
        |batch, picks| {
            catch_unwind(AssertUnwindSafe(|| {
                let lent = RingEgress::reserve_at(lent.enter().unwrap().into(), batch, picks).unwrap();
                let mut open = [own.reserve(batch, picks).unwrap(), lent];
                open[1].fill();
                std::panic::resume_unwind(Box::new("in the middle of a pass"));
            }))
        },
    );
    assert!(unwound.is_err());
    assert_eq!((received(&mut receiver), received(&mut guest)), (vec![vec![]; 2], frames(2)));
    let counted = lent.take_within(Duration::ZERO).map(|egress| egress.unwrap().counters().frames());
    assert_eq!(counted, Ok(2));
}

/// Objective: a ring cannot be removed before its reservation is dropped, and can be removed immediately afterwards.
/// The thread that removes the ring waits no longer than the limit; the reservation may still use the ring after that,
/// but no new delivery may.
#[test]
fn a_ring_stays_lent_until_its_reservation_is_done() {
    let (egress, mut guest) = ring();
    let lent: Lent<RingEgress, ManyWorkers> = Lent::with(egress);
    let fetch = || lent.take_within(Duration::from_millis(1));
    with_batch(
        &frames(3),
        |_| {},
        |batch, picks| {
            let reserve = || RingEgress::reserve_at(lent.enter().unwrap().into(), batch, picks).unwrap();
            reserve().fill();
            lent.put(fetch().unwrap().unwrap()).unwrap();
            let mut room = reserve();
            step(&mut room, 1);
            assert!(matches!(fetch(), Err(InUse)));
            assert!(lent.enter().is_err(), "it is retired");
            step(&mut room, 3);
            room.look_after();
        },
    );
    assert_eq!(received(&mut guest), [frames(3), frames(3)].concat());
    assert!(matches!(fetch(), Ok(None)));
    let (egress, mut guest) = ring();
    lent.put(egress).unwrap();
    assert_eq!(deliver(&*lent.enter().unwrap(), &frames(1), |_| {}), 1);
    assert_eq!(received(&mut guest), frames(1));
}

/// Objective: a reservation reports how many picks found room before any slot is filled; in a ring without room, the
/// other steps do nothing.
#[test]
fn a_lack_of_room_is_reported_beforehand() {
    let (egress, mut receiver) = ring();
    with_batch(
        &frames(20),
        |_| {},
        |batch, picks| {
            let mut room = egress.reserve(batch, picks).unwrap();
            assert_eq!(room.picks(), (picks, SLOTS as usize - 1));
            let mut none = egress.reserve(batch, picks).unwrap();
            assert_eq!(none.picks().1, 0);
            step(&mut room, 3);
            step(&mut none, 3);
        },
    );
    assert_eq!(received(&mut receiver), frames(SLOTS as u8 - 1));
    assert_eq!(egress.counters().drops(DropReason::NoRoom), 0, "the caller counts the drops");
}
