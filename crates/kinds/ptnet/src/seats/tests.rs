#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::layout::RegionSizes;
use netvale_mem::lent::LIMIT;
use netvale_mem::notify::full_fence;
use netvale_mem::{PortMem, PortShape, Region};

use super::*;

/// Number of times that a ring is taken away and put back.
const TIMES: usize = 10_000;
const SLOTS: u32 = 64;
static BYTES: [u8; 60] = [7; 60];

fn memory() -> Arc<PortMem> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    Arc::new(Region::private(RegionSizes::for_port(2, SLOTS, 256, 0, 0)).unwrap().port(shape).unwrap())
}

fn bell() -> Doorbell {
    Doorbell::new().unwrap()
}

/// Takes the ring away and puts it back, repeatedly. Returns the longest wait.
fn take_and_put<Q>(take: impl Fn() -> Result<Option<Q>, InUse>, put: impl Fn(Q) -> Result<(), InUse>) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..TIMES {
        let began = Instant::now();
        let ring = take().unwrap().unwrap();
        longest = longest.max(began.elapsed());
        // Lets workers find the seat empty before the ring is put back.
        std::thread::yield_now();
        put(ring).unwrap();
        std::thread::yield_now();
    }
    longest
}

/// Objective: a guest's tx ring is taken away and put back 10,000 times, while the guest sends and a worker takes
/// batches at full speed. The worker gets every frame once and in order, and the control thread never waits longer than
/// a batch takes (with room for a busy machine).
///
/// Steps: the guest numbers its frames; the worker checks the numbers between taking a batch and releasing it.
#[test]
fn a_tx_ring_comes_and_goes_under_traffic() {
    let seat = Arc::new(Seat::woken().unwrap());
    let mem = memory();
    let stop = AtomicBool::new(false);
    let host = HostTx::new(mem.tx[0].clone(), bell());
    let ring = RingIngress::new(Arc::clone(&mem), host, bell(), 0, Arc::clone(&seat.counters));
    seat.put(ring).unwrap();
    let mut ingress = SeatIngress::new(Arc::clone(&seat));
    let mut guest = AppRing::new(mem.tx[0].clone(), Dir::Tx, bell());
    let (longest, sent, seen) = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                guest.sync();
                for _ in 0..guest.space() {
                    let i = guest.at(0);
                    assert!(guest.mem().write(guest.slot(i).buf_idx, 0, &[&sent.to_ne_bytes()[..], &[0; 52]].concat()));
                    guest.mem().set_len_flags(i, 60, 0);
                    guest.advance(1);
                    sent += 1;
                }
                guest.sync();
                std::thread::yield_now();
            }
            sent
        });
        let worker = s.spawn(move || {
            let mut batch = Batch::new();
            let mut seen = 0u64;
            let mut last = false;
            loop {
                batch.clear();
                // SAFETY: the batch's frames are read before the ingress is released.
                unsafe { ingress.take(&mut batch) };
                for frame in batch.iter() {
                    let mut number = [0; 8];
                    assert_eq!(frame.copy_out(0, &mut number), 8);
                    assert_eq!(u64::from_ne_bytes(number), seen, "lost, twice or out of order");
                    seen += 1;
                }
                if batch.is_empty() {
                    if last {
                        return (sender.join().unwrap(), seen);
                    }
                    // Takes one more batch after the sender has ended: the ring may still have frames.
                    last = sender.is_finished();
                    std::thread::yield_now();
                }
                ingress.release();
            }
        });
        let longest = take_and_put(|| seat.take(|_| false), |ring| seat.put(ring));
        stop.store(true, Ordering::Relaxed);
        let (sent, seen) = worker.join().unwrap();
        (longest, sent, seen)
    });
    assert_eq!(sent, seen);
    assert!(seen > 0 && longest < LIMIT / 2, "{seen} frames, {longest:?}");
}

/// Calls `show` with a batch of `count` frames.
fn with_batch<R>(count: u16, show: impl FnOnce(&Batch, &[u16]) -> R) -> R {
    let mut batch = Batch::new();
    for _ in 0..count {
        // SAFETY: the frames are in a static, which is never freed.
        assert!(unsafe { batch.push(BYTES.as_ptr(), 60) });
    }
    show(&batch, &(0..count).collect::<Vec<_>>())
}

/// Delivers in the steps of a reservation: fill, publish, kick. Returns the number of frames for which the ring had
/// room; `None` if the seat cannot deliver in steps now.
fn take_steps(seat: &RxSeat, batch: &Batch, picks: &[u16]) -> Option<usize> {
    let mut room = seat.reserve(batch, picks)?;
    let done = room.picks().1;
    room.fill();
    full_fence();
    room.publish();
    full_fence();
    room.kick_and_stop();
    full_fence();
    room.look_after();
    Some(done)
}

/// Objective: three workers deliver to an rx ring, one of them in the steps of a reservation, while the ring is taken
/// away and put back: the guest finds exactly the frames reported as delivered.
#[test]
fn an_rx_ring_comes_and_goes_under_traffic() {
    let seat = RxSeat::default();
    let mem = memory();
    let stop = AtomicBool::new(false);
    let ring = RingEgress::new(Arc::clone(&mem), HostRx::new(mem.rx[0].clone(), bell()), 0, Arc::clone(&seat.counters));
    seat.put(ring).unwrap();
    let mut guest = AppRing::new(mem.rx[0].clone(), Dir::Rx, bell());
    let (longest, found) = std::thread::scope(|s| {
        let workers: [_; 3] = std::array::from_fn(|i| {
            let seat = &seat;
            let stop = &stop;
            s.spawn(move || {
                let mut scratch = Scratch::new();
                with_batch(8, |batch, picks| {
                    while !stop.load(Ordering::Relaxed) {
                        if i > 0 || take_steps(seat, batch, picks).is_none() {
                            seat.deliver(batch, picks, &mut scratch);
                        }
                        std::thread::yield_now();
                    }
                });
            })
        });
        let receiver = s.spawn(move || {
            let mut found = 0u64;
            loop {
                let is_last = workers.iter().all(|worker| worker.is_finished());
                guest.sync();
                for k in 0..guest.space() {
                    assert_eq!(guest.slot(guest.at(k)).len, 60);
                }
                found += u64::from(guest.space());
                guest.advance(guest.space());
                guest.sync();
                if is_last {
                    return found;
                }
                std::thread::yield_now();
            }
        });
        let longest = take_and_put(|| seat.take(), |ring| seat.put(ring));
        stop.store(true, Ordering::Relaxed);
        (longest, receiver.join().unwrap())
    });
    assert_eq!(seat.counters.frames(), found);
    assert!(found > 0 && longest < LIMIT / 2, "{found} frames, {longest:?}");
}

/// A seat with a ring, and the guest's end of this ring.
fn seated() -> (RxSeat, AppRing) {
    let seat = RxSeat::default();
    let mem = memory();
    let host = HostRx::counted(mem.rx[0].clone(), bell(), Arc::clone(&seat.kicks));
    seat.put(RingEgress::new(Arc::clone(&mem), host, 0, Arc::clone(&seat.counters))).unwrap();
    (seat, AppRing::new(mem.rx[0].clone(), Dir::Rx, bell()))
}

/// Objective: a delivery in steps does not block a guest that leaves between two steps: the worker returns the ring
/// with all its frames when the delivery ends. Later frames are counted as dropped for lack of a guest.
#[test]
fn a_seat_is_emptied_between_steps() {
    let (seat, mut guest) = seated();
    with_batch(8, |batch, picks| {
        let mut room = seat.reserve(batch, picks).unwrap();
        room.fill();
        let mut taken = std::thread::scope(|s| {
            let control = s.spawn(|| seat.take());
            // From here on, the control thread waits for this worker.
            let began = Instant::now();
            while !seat.ring.is_wanted() {
                assert!(began.elapsed() < LIMIT, "the ring is not requested");
                std::thread::yield_now();
            }
            assert!(!control.is_finished());
            let began = Instant::now();
            full_fence();
            room.publish();
            drop(room);
            let taken = control.join().unwrap();
            assert!(began.elapsed() < LIMIT / 2, "the control thread waited too long");
            taken
        });
        assert_eq!(taken.as_mut().map(|ring| ring.take().map(|ring| ring.host().hwtail())), Ok(Some(8)));
        assert!(seat.reserve(batch, picks).is_none());
        assert_eq!(seat.deliver(batch, picks, &mut Scratch::new()), 8);
    });
    guest.sync();
    assert_eq!((guest.space(), seat.counters.frames(), seat.counters.idle()), (8, 8, 8));
}

/// Objective: the seat counts kicks: the kicks of a ring that was not returned in time stay counted, and the next
/// ring's kicks are added to them.
#[test]
fn kicks_of_a_retired_ring_count() {
    let (seat, _guest) = seated();
    let kicks = || (seat.kicks.sent(), seat.kicks.suppressed());
    with_batch(2, |batch, picks| {
        assert_eq!(take_steps(&seat, batch, picks), Some(2));
        assert_eq!(kicks(), (0, 1));
        let room = seat.reserve(batch, picks).unwrap();
        assert_eq!(seat.ring.take_within(Duration::ZERO).map(drop), Err(InUse));
        drop(room);
        assert_eq!(kicks(), (0, 2), "kicks in flight count, too");
        assert!(seat.reserve(batch, picks).is_none(), "the ring is retired");
        let mem = memory();
        let host = HostRx::counted(mem.rx[0].clone(), bell(), Arc::clone(&seat.kicks));
        seat.put(RingEgress::new(Arc::clone(&mem), host, 0, Arc::clone(&seat.counters))).unwrap();
        netvale_mem::notify::arm(mem.rx[0].csb.appl_need_kick());
        assert_eq!(take_steps(&seat, batch, picks), Some(2));
        assert_eq!(kicks(), (1, 2));
    });
}
