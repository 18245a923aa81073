//! Which buffers of a queue are whose when another process continues it.
//!
//! | a buffer to receive into is | a buffer to send from is |
//! |---|---|
//! | in the fill ring | free |
//! | with the kernel | in the transmit ring |
//! | in the receive ring | with the kernel |
//! | taken, since its frame goes on | in the completion ring |
//!
//! The rings say so themselves; the rest is said by who had the queue. A buffer in two places would carry two frames.
//!
//! Nobody says the rest if who had the queue was killed. Then it is counted ([`find_taken`], [`find_free`]): the rings'
//! indices say how many buffers have ever passed each of them, and each buffer that leaves a ring comes into the next
//! one.

use std::ops::Range;
use std::time::{Duration, Instant};

use netvale_afxdp::socket::{Buffers, HEADROOM, Receiver, Sender};
use netvale_fdio::state::BadState;

/// What an ingress knows besides its rings when it pauses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The buffers that it will give back.
    pub taken: Vec<u32>,
    /// Offset and length of the pieces of a frame whose end has not arrived.
    pub pieces: Vec<(u64, u32)>,
}

/// Buffers that have been seen in one place.
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
    /// Checks that each of the buffers `own` is in one place at most, and no other one anywhere.
    ///
    /// # Errors
    /// [`BadState`] if not.
    pub fn check(&self, receiver: &Receiver, buffers: &Buffers, own: Range<u32>) -> Result<(), BadState> {
        let mut seen = Seen::new(own);
        self.taken.iter().try_for_each(|&index| seen.add(Some(index)))?;
        // In this order: what the kernel moves meanwhile is not seen twice.
        let filled = receiver.rx.published().ok_or_else(no_ring)?;
        let empty = receiver.fill.published().ok_or_else(no_ring)?;
        filled.iter().try_for_each(|desc| seen.add(buffers.index(desc.begin())))?;
        empty.iter().try_for_each(|at| seen.add(at.checked_add(HEADROOM).and_then(|at| buffers.index(at))))
    }
}

/// Checks that each of the buffers `own` is in one place at most, `free` being among the places, and no other one
/// anywhere.
///
/// # Errors
/// [`BadState`] if not.
pub fn check_sending(free: &[u32], sender: &Sender, buffers: &Buffers, own: Range<u32>) -> Result<(), BadState> {
    let mut seen = Seen::new(own);
    free.iter().try_for_each(|&index| seen.add(Some(index)))?;
    // In this order: what the kernel moves meanwhile is not seen twice.
    let sent = sender.completion.published().ok_or_else(no_ring)?;
    let unsent = sender.tx.published().ok_or_else(no_ring)?;
    sent.iter().try_for_each(|&at| seen.add(buffers.index(at)))?;
    unsent.iter().try_for_each(|desc| seen.add(buffers.index(desc.addr)))
}

/// Finds what was taken from the receive ring, and not given back, by a process that was killed: it will be taken once
/// more, since nobody knows how far its frames had come. `own` are the queue's buffers to receive into, as many as each
/// ring has entries.
///
/// All of them were put into the fill ring at first, and one for each that was taken since then. What was taken last is
/// still in the ring: the kernel has no buffer with which it could have come to these places again.
///
/// # Errors
/// [`BadState`] if the rings do not say that each buffer is in one place at most.
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

/// Between two looks at the kernel.
const PAUSE: Duration = Duration::from_micros(500);

/// Finds the buffers to send from that hold no frame, after the process that knew was killed: those of `own` that are
/// in no ring, once the kernel has none. Waits for that, at most `limit`.
///
/// # Errors
/// [`BadState`] if the kernel goes on sending, or the rings do not say that each buffer is in one place at most.
pub fn find_free(sender: &Sender, buffers: &Buffers, own: Range<u32>, limit: Duration) -> Result<Vec<u32>, BadState> {
    let begun = Instant::now();
    while !is_quiet(sender, true) {
        if begun.elapsed() >= limit {
            // An interface that is down sends nothing: then what was not sent stays in the ring.
            if is_quiet(sender, false) {
                break;
            }
            return Err(BadState::new("the kernel has not sent all frames"));
        }
        // One that is down, or gone, is found above.
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

/// Whether the kernel has no buffer to send from: as many were sent, or refused, as were taken; `all`: and all were
/// taken.
fn is_quiet(sender: &Sender, all: bool) -> bool {
    let taken = sender.tx.given_back();
    let refused = sender.socket.statistics().map_or(0, |s| s.tx_invalid_descs as u32);
    let is_empty = !all || taken == sender.tx.shown();
    is_empty && taken == sender.completion.shown().wrapping_add(refused)
}

#[cfg(test)]
mod tests;
