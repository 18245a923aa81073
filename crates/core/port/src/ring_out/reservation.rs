//! Reservations: delivery in steps (reserve, fill, publish, kick) to many rings together.

use netvale_mem::lease::Lease;
use netvale_mem::lent::Loan;
use netvale_mem::notify::full_fence;

use super::RingEgress;
use crate::batch::Batch;

/// Room for frames in a ring, and the frames for which the room was reserved ([`crate::Egress::reserve`]).
///
/// A forwarder takes each step for all destinations of a batch before the next step. It then needs each full fence
/// ([`netvale_mem::notify::full_fence`]) between steps only once per batch, and cache lines of other cores are fetched
/// in parallel:
///
/// ```text
///  reserve ─► fill ─► fence ─► publish ─► fence ─► kick_and_stop ─► fence ─► look_after
/// ```
///
/// The borrow checker keeps the batch unchanged until the reservation is dropped, and no other code can create a
/// reservation:
///
/// ```compile_fail,E0502
/// # use netvale_port::{Batch, Egress, Source};
/// # fn example(egress: &dyn Egress, source: &mut Source, mut spare: Box<Batch>) {
/// let reservation = egress.reserve(source.frames(), &[0]);
/// source.release(&mut spare);
/// reservation.map(|mut room| room.fill());
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # use netvale_port::ring_out::{Reservation, RingEgress};
/// # fn example<'b>(made: Reservation<'b>, other: &'b RingEgress) -> Reservation<'b> {
/// Reservation { egress: other.into(), ..made }
/// # }
/// ```
///
/// A ring that a control thread may remove, such as a guest's, stays until the reservation is dropped. If a reservation
/// is dropped early, its drop takes the remaining steps: the ring keeps working, and slots that were not filled arrive
/// empty.
#[must_use = "room that is not filled costs the receiver empty slots"]
pub struct Reservation<'b> {
    egress: Loan<'b, RingEgress>,
    batch: &'b Batch,
    picks: &'b [u16],
    /// Number of picks that found room.
    room: usize,
    step: ReservationStep,
}

/// The last step that a reservation took.
enum ReservationStep {
    Reserved(Lease),
    Filled,
    /// Published; no other thread can publish.
    Published,
    /// Kicked; other threads can publish.
    Kicked,
    /// All steps are done, there was no room, or another thread publishes.
    Done,
}

impl<'b> Reservation<'b> {
    /// Creates a reservation. `lease` has one slot for each of the first picks; the other picks found no room. Each
    /// frame must fit into one slot unchanged.
    #[inline]
    pub(super) fn new(egress: Loan<'b, RingEgress>, batch: &'b Batch, picks: &'b [u16], lease: Option<Lease>) -> Self {
        let room = lease.as_ref().map_or(0, |lease| lease.count as usize);
        Reservation { egress, batch, picks, room, step: lease.map_or(ReservationStep::Done, ReservationStep::Reserved) }
    }

    /// The picks of the reservation, and the number of first picks that found room.
    #[inline]
    pub fn picks(&self) -> (&'b [u16], usize) {
        (self.picks, self.room)
    }

    /// Copies the frames that found room. A full fence must follow.
    #[inline]
    pub fn fill(&mut self) {
        if let ReservationStep::Reserved(lease) = &self.step {
            self.egress.fill_any_plain(self.batch, self.picks, lease, 0);
            self.end();
        }
    }

    /// Marks the reserved slots as filled.
    #[inline]
    fn end(&mut self) {
        if let ReservationStep::Reserved(lease) = std::mem::replace(&mut self.step, ReservationStep::Filled) {
            self.egress.rx.end(lease);
        }
    }

    /// Publishes all filled slots to the receiver, unless another thread is publishing. A full fence must follow.
    #[inline]
    pub fn publish(&mut self) {
        if let ReservationStep::Filled = self.step {
            self.step = if self.egress.rx.publish() { ReservationStep::Published } else { ReservationStep::Done };
        }
    }

    /// Kicks the receiver if it requested a kick, and allows other threads to publish again. A full fence must follow.
    #[inline]
    pub fn kick_and_stop(&mut self) {
        if let ReservationStep::Published = self.step {
            self.egress.rx.kick_and_stop();
            self.step = ReservationStep::Kicked;
        }
    }

    /// Publishes slots that other threads filled in the meantime. This is the last step.
    #[inline]
    pub fn look_after(&mut self) {
        if let ReservationStep::Kicked = self.step {
            self.egress.rx.look_after();
            self.step = ReservationStep::Done;
        }
    }

    #[cold]
    fn give_up(&mut self) {
        if let ReservationStep::Reserved(lease) = &self.step {
            self.egress.blank_from(lease.slot, lease.count);
            self.end();
        }
        full_fence();
        self.publish();
        full_fence();
        self.kick_and_stop();
        full_fence();
        self.look_after();
    }
}

impl Drop for Reservation<'_> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.step, ReservationStep::Done) {
            self.give_up();
        }
    }
}

#[cfg(test)]
mod tests;
