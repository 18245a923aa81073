//! A delivery in steps.

use netvale_mem::lease::Lease;

use super::RingEgress;
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
/// Reservation { egress: other, ..made }
/// # }
/// ```
#[must_use = "room that is not filled blocks the ring"]
pub struct Reservation<'b> {
    egress: &'b RingEgress,
    batch: &'b Batch,
    picks: &'b [u16],
    /// Until it is filled; none, if there was no room.
    lease: Option<Lease>,
    /// How many of the picks found room.
    room: usize,
    is_publishing: bool,
}

impl<'b> Reservation<'b> {
    /// `lease` has a slot for each of the first of `picks`, none for the others; all can be copied as they are.
    #[inline]
    pub(super) fn new(egress: &'b RingEgress, batch: &'b Batch, picks: &'b [u16], lease: Option<Lease>) -> Self {
        let room = lease.as_ref().map_or(0, |lease| lease.count as usize);
        Reservation { egress, batch, picks, lease, room, is_publishing: false }
    }

    /// How many of the picks found room.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Copies the frames that found room. A full fence follows.
    #[inline]
    pub fn fill(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.egress.fill_any_plain(self.batch, self.picks, &lease, 0);
            self.egress.rx.end(lease);
        }
    }

    /// Shows the receiver all that is filled, unless somebody else does. A full fence follows.
    #[inline]
    pub fn publish(&mut self) {
        self.is_publishing = self.room > 0 && self.egress.rx.publish();
    }

    /// Kicks the receiver if it wants it, and lets others publish. A full fence follows.
    #[inline]
    pub fn kick_and_stop(&self) {
        if self.is_publishing {
            self.egress.rx.kick_and_stop();
        }
    }

    /// Sees to what others filled in between.
    #[inline]
    pub fn look_after(&self) {
        if self.is_publishing {
            self.egress.rx.look_after();
        }
    }
}
