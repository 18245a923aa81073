//! The owner of each buffer of a queue when another process restores the queue.
//!
//! | a buffer to receive into is | a buffer to send from is |
//! |---|---|
//! | in the fill ring | free |
//! | with the kernel | in the transmit ring |
//! | in the receive ring | with the kernel |
//! | taken, while its frame passes | in the completion ring |
//!
//! The rings show this themselves; the predecessor's state has the rest. A buffer in two places would carry two frames.
//!
//! If the predecessor was killed, the rest is counted ([`find_taken`], [`find_free`]): the rings' indices show the
//! number of buffers that have ever passed each ring, and each buffer that leaves a ring enters the next one.

use std::ops::Range;
use std::time::{Duration, Instant};

use netvale_afxdp::socket::{Buffers, HEADROOM, Receiver, Sender};
use netvale_fdio::state::BadState;

/// State of a paused ingress, in addition to its rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Buffers still to give back.
    pub taken: Vec<u32>,
    /// Offset and length of the pieces of an incomplete frame.
    pub pieces: Vec<(u64, u32)>,
}

/// Buffers seen in one place.
struct Seen {
    own: Range<u32>,
    buffers: Box<[bool]>,
}

impl Seen {
    fn new(own: Range<u32>) -> Seen {
        Seen { buffers: vec![false; own.len()].into(), own }
    }

    fn add(&mut self, index: Option<u32>) -> Result<(), BadState> {
        let place = index.and_then(|index| self.buffers.get_mut(index.checked_sub(self.own.start)? as usize));
        match place.map(|seen| std::mem::replace(seen, true)) {
            Some(false) => Ok(()),
            Some(true) => Err(BadState::new("a buffer is in two places")),
            None => Err(BadState::new("a buffer is not the queue's")),
        }
    }
}

fn no_ring() -> BadState {
    BadState::new("the indices of a ring cannot be right")
}

impl Settled {
    /// Checks that each buffer of `own` is in at most one place, and no other buffer anywhere.
    ///
    /// # Errors
    /// [`BadState`] otherwise.
    pub fn check(&self, receiver: &Receiver, buffers: &Buffers, own: Range<u32>) -> Result<(), BadState> {
        let mut seen = Seen::new(own);
        self.taken.iter().try_for_each(|&index| seen.add(Some(index)))?;
        // In this order, buffers that the kernel moves meanwhile are not seen twice.
        let filled = receiver.rx.published().ok_or_else(no_ring)?;
        let empty = receiver.fill.published().ok_or_else(no_ring)?;
        filled.iter().try_for_each(|desc| seen.add(buffers.index(desc.begin())))?;
        empty.iter().try_for_each(|at| seen.add(at.checked_add(HEADROOM).and_then(|at| buffers.index(at))))
    }
}

/// Checks that each buffer of `own` is in at most one place, with `free` as one of the places, and no other buffer
/// anywhere.
///
/// # Errors
/// [`BadState`] otherwise.
pub fn check_sending(free: &[u32], sender: &Sender, buffers: &Buffers, own: Range<u32>) -> Result<(), BadState> {
    let mut seen = Seen::new(own);
    free.iter().try_for_each(|&index| seen.add(Some(index)))?;
    // In this order, buffers that the kernel moves meanwhile are not seen twice.
    let sent = sender.completion.published().ok_or_else(no_ring)?;
    let unsent = sender.tx.published().ok_or_else(no_ring)?;
    sent.iter().try_for_each(|&at| seen.add(buffers.index(at)))?;
    unsent.iter().try_for_each(|desc| seen.add(buffers.index(desc.addr)))
}

/// Finds the buffers that a killed process had taken from the receive ring and not given back. They are taken again, as
/// the progress of their frames is unknown. `own` are the queue's receive buffers, as many as each ring has entries.
///
/// All of them were in the fill ring at first, and one more was put there for each taken since. The buffers taken last
/// are still in the receive ring: the kernel has had no buffer with which to reuse their places.
///
/// # Errors
/// [`BadState`] unless the rings show each buffer in at most one place.
pub fn find_taken(receiver: &mut Receiver, buffers: &Buffers, own: Range<u32>) -> Result<(), BadState> {
    let taken = receiver.rx.given_back().wrapping_add(own.len() as u32).wrapping_sub(receiver.fill.shown());
    if taken > own.len() as u32 {
        return Err(BadState::new("the rings do not say which buffers were taken"));
    }
    receiver.rx.rewind(taken);
    let mut seen = Seen::new(own);
    // In this order, see `Settled::check`.
    let filled = receiver.rx.unread().ok_or_else(no_ring)?;
    let empty = receiver.fill.published().ok_or_else(no_ring)?;
    filled.iter().try_for_each(|desc| seen.add(buffers.index(desc.begin())))?;
    empty.iter().try_for_each(|at| seen.add(at.checked_add(HEADROOM).and_then(|at| buffers.index(at))))
}

/// Time between two checks of the kernel.
const PAUSE: Duration = Duration::from_micros(500);

/// Finds the send buffers without a frame after the process that knew them was killed: those of `own` in no ring, once
/// the kernel has none. Waits up to `limit` for that.
///
/// # Errors
/// [`BadState`] if the kernel keeps sending, or unless the rings show each buffer in at most one place.
pub fn find_free(sender: &Sender, buffers: &Buffers, own: Range<u32>, limit: Duration) -> Result<Vec<u32>, BadState> {
    let begun = Instant::now();
    while !is_quiet(sender, true) {
        if begun.elapsed() >= limit {
            // An interface that is down does not send: unsent frames stay in the ring.
            if is_quiet(sender, false) {
                break;
            }
            return Err(BadState::new("the kernel has not sent all frames"));
        }
        // An interface that is down or gone is found above.
        let _ = sender.socket.kick();
        std::thread::sleep(PAUSE);
    }
    let mut seen = Seen::new(own.clone());
    let sent = sender.completion.published().ok_or_else(no_ring)?;
    let unsent = sender.tx.published().ok_or_else(no_ring)?;
    sent.iter().try_for_each(|&at| seen.add(buffers.index(at)))?;
    unsent.iter().try_for_each(|desc| seen.add(buffers.index(desc.addr)))?;
    Ok(own.zip(&seen.buffers).filter(|(_, seen)| !**seen).map(|(index, _)| index).collect())
}

/// Whether the kernel has no send buffer: as many were sent or refused as were taken. With `all`, all must have been
/// taken, too.
fn is_quiet(sender: &Sender, all: bool) -> bool {
    let taken = sender.tx.given_back();
    let refused = sender.socket.statistics().map_or(0, |s| s.tx_invalid_descs as u32);
    let is_empty = !all || taken == sender.tx.shown();
    is_empty && taken == sender.completion.shown().wrapping_add(refused)
}

#[cfg(test)]
mod tests;
