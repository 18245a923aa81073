//! A delivery in steps.

use netvale_mem::lease::Lease;
use netvale_mem::lent::Loan;
use netvale_mem::notify::full_fence;

use super::{RingEgress, SlotWriter};
use crate::batch::Batch;

/// Room for frames, in the ring that it was made in, and the frames it was made for ([`crate::Egress::reserve`]).
///
/// A pass takes each step for all destinations of a batch before the next, so that the full fences
/// ([`netvale_mem::notify::full_fence`]) between them are paid for once a batch, and cache lines that other cores hold are on
/// their way at the same time:
///
/// ```text
///  reserve ─► fill ─► fence ─► publish ─► fence ─► kick_and_stop ─► fence ─► look_after
/// ```
///
/// No other frames can be put there, and the batch stays as it is until then:
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
/// A ring that is lent stays lent until the reservation is gone. One that is given up in between takes the steps that are left: the ring
/// goes on, and slots that were not filled come empty.
#[must_use = "room that is not filled costs the receiver empty slots"]
pub struct Reservation<'b> {
    egress: Loan<'b, RingEgress>,
    batch: &'b Batch,
    picks: &'b [u16],
    /// How many of the picks found room.
    room: usize,
    step: Step,
}

/// What has been done last.
enum Step {
    Reserved(Lease),
    Filled,
    /// Nobody else publishes.
    Published,
    /// Others may publish.
    Kicked,
    /// All, or there was no room; or somebody else publishes.
    Done,
}

impl<'b> Reservation<'b> {
    /// `lease` has a slot for each of the first of `picks`, none for the others; all can be copied as they are.
    #[inline]
    pub(super) fn new(egress: Loan<'b, RingEgress>, batch: &'b Batch, picks: &'b [u16], lease: Option<Lease>) -> Self {
        let room = lease.as_ref().map_or(0, |lease| lease.count as usize);
        Reservation { egress, batch, picks, room, step: lease.map_or(Step::Done, Step::Reserved) }
    }

    /// The frames it was made for, and how many of them, from the first on, found room.
    #[inline]
    pub fn picks(&self) -> (&'b [u16], usize) {
        (self.picks, self.room)
    }

    /// Copies the frames that found room. A full fence follows.
    #[inline]
    pub fn fill(&mut self) {
        if let Step::Reserved(lease) = &self.step {
            self.egress.fill_any_plain(self.batch, self.picks, lease, 0);
            self.end();
        }
    }

    /// What was reserved is filled.
    #[inline]
    fn end(&mut self) {
        if let Step::Reserved(lease) = std::mem::replace(&mut self.step, Step::Filled) {
            self.egress.rx.end(lease);
        }
    }

    /// Shows the receiver all that is filled, unless somebody else does. A full fence follows.
    #[inline]
    pub fn publish(&mut self) {
        if let Step::Filled = self.step {
            self.step = if self.egress.rx.publish() { Step::Published } else { Step::Done };
        }
    }

    /// Kicks the receiver if it wants it, and lets others publish. A full fence follows.
    #[inline]
    pub fn kick_and_stop(&mut self) {
        if let Step::Published = self.step {
            self.egress.rx.kick_and_stop();
            self.step = Step::Kicked;
        }
    }

    /// Sees to what others filled in between. Then it is done.
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
            SlotWriter::new(&self.egress, lease, 0).blank_rest();
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
