//! A delivery in steps.

use netvale_mem::lease::Lease;
use netvale_mem::lent::Loan;
use netvale_mem::notify::full_fence;

use super::RingEgress;
use crate::batch::Batch;

/// Room for frames in a ring, and the frames it was reserved for ([`crate::Egress::reserve`]).
///
/// A pass takes each step for all destinations of a batch before the next step: the full fences
/// ([`netvale_mem::notify::full_fence`]) between steps are then paid for once a batch, and cache lines in other cores
/// are fetched in parallel:
///
/// ```text
///  reserve ─► fill ─► fence ─► publish ─► fence ─► kick_and_stop ─► fence ─► look_after
/// ```
///
/// The ring takes no other frames in that room, and the batch stays unchanged until then:
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
/// A lent ring stays lent until the reservation is dropped. A reservation that is dropped early takes its remaining
/// steps: the ring keeps working, and slots that were not filled arrive empty.
#[must_use = "room that is not filled costs the receiver empty slots"]
pub struct Reservation<'b> {
    egress: Loan<'b, RingEgress>,
    batch: &'b Batch,
    picks: &'b [u16],
    /// Number of picks that found room.
    room: usize,
    step: Step,
}

/// The last step taken.
enum Step {
    Reserved(Lease),
    Filled,
    /// Published; no other thread publishes.
    Published,
    /// Kicked; other threads may publish.
    Kicked,
    /// All steps are done, or there was no room, or another thread publishes.
    Done,
}

impl<'b> Reservation<'b> {
    /// Creates a reservation. `lease` has one slot for each of the first picks, and no slots for the others; all frames
    /// can be copied unchanged.
    #[inline]
    pub(super) fn new(egress: Loan<'b, RingEgress>, batch: &'b Batch, picks: &'b [u16], lease: Option<Lease>) -> Self {
        let room = lease.as_ref().map_or(0, |lease| lease.count as usize);
        Reservation { egress, batch, picks, room, step: lease.map_or(Step::Done, Step::Reserved) }
    }

    /// The picks of the reservation, and how many of them, from the first on, found room.
    #[inline]
    pub fn picks(&self) -> (&'b [u16], usize) {
        (self.picks, self.room)
    }

    /// Copies the frames that found room. A full fence must follow.
    #[inline]
    pub fn fill(&mut self) {
        if let Step::Reserved(lease) = &self.step {
            self.egress.fill_any_plain(self.batch, self.picks, lease, 0);
            self.end();
        }
    }

    /// Marks the reserved slots as filled.
    #[inline]
    fn end(&mut self) {
        if let Step::Reserved(lease) = std::mem::replace(&mut self.step, Step::Filled) {
            self.egress.rx.end(lease);
        }
    }

    /// Shows the receiver all filled slots, unless another thread does. A full fence must follow.
    #[inline]
    pub fn publish(&mut self) {
        if let Step::Filled = self.step {
            self.step = if self.egress.rx.publish() { Step::Published } else { Step::Done };
        }
    }

    /// Kicks the receiver if it asked for it, and lets other threads publish. A full fence must follow.
    #[inline]
    pub fn kick_and_stop(&mut self) {
        if let Step::Published = self.step {
            self.egress.rx.kick_and_stop();
            self.step = Step::Kicked;
        }
    }

    /// Publishes slots that others filled in between. The last step.
    #[inline]
    pub fn look_after(&mut self) {
        if let Step::Kicked = self.step {
            self.egress.rx.look_after();
            self.step = Step::Done;
        }
    }

    #[cold]
    fn give_up(&mut self) {
        if let Step::Reserved(lease) = &self.step {
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
        if !matches!(self.step, Step::Done) {
            self.give_up();
        }
    }
}

#[cfg(test)]
mod tests;
