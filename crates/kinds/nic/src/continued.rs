//! Accounts for each buffer of a queue when the daemon's successor restores the queue.
//!
//! | a buffer to receive into is | a buffer to send from is |
//! |---|---|
//! | in the fill ring | free |
//! | with the kernel | in the transmit ring |
//! | in the receive ring | with the kernel |
//! | taken, while its frame passes | in the completion ring |
//!
//! The rings show the buffers that are in them; the predecessor's state shows the other buffers. A buffer in two places
//! would contain two frames.
//!
//! If the predecessor was killed, the other buffers are computed ([`find_taken`], [`find_free`]): the rings' indices
//! show the number of buffers that have ever passed through each ring, and each buffer that leaves a ring enters the
//! next ring.

use std::ops::Range;
use std::time::{Duration, Instant};

use netvale_afxdp::socket::{BufferLayout, HEADROOM, XdpReceiver, XdpSender};
use netvale_fdio::state::BadState;

/// State of a paused ingress that its rings do not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedIngress {
    /// Indices of buffers still to be returned to the kernel.
    pub taken: Vec<u32>,
    /// Offset and length in bytes of each piece of an incomplete frame.
    pub pieces: Vec<(u64, u32)>,
}

/// Records which buffers of a queue have been found, to detect a buffer in two places. `own` are the indices of the
/// queue's buffers.
struct SeenBuffers {
    own: Range<u32>,
    buffers: Box<[bool]>,
}

impl SeenBuffers {
    fn new(own: Range<u32>) -> SeenBuffers {
        SeenBuffers { buffers: vec![false; own.len()].into(), own }
    }

    fn add(&mut self, index: Option<u32>) -> Result<(), BadState> {
        let place = index.and_then(|index| self.buffers.get_mut(index.checked_sub(self.own.start)? as usize));
        match place.map(|seen| std::mem::replace(seen, true)) {
            Some(false) => Ok(()),
            Some(true) => Err(BadState::new("a buffer is in two places")),
            None => Err(BadState::new("a buffer does not belong to the queue")),
        }
    }
}

fn no_ring() -> BadState {
    BadState::new("a ring has inconsistent indices")
}

impl PausedIngress {
    /// Checks that each buffer of `own` is in at most one place, and that there are no other buffers.
    ///
    /// # Errors
    /// [`BadState`] if a buffer is in two places, or a buffer outside `own` is found.
    pub fn check(&self, receiver: &XdpReceiver, buffers: &BufferLayout, own: Range<u32>) -> Result<(), BadState> {
        let mut seen = SeenBuffers::new(own);
        self.taken.iter().try_for_each(|&index| seen.add(Some(index)))?;
        // Read the rings in this order, so that buffers that the kernel moves meanwhile are not seen twice.
        let filled = receiver.rx.published().ok_or_else(no_ring)?;
        let empty = receiver.fill.published().ok_or_else(no_ring)?;
        filled.iter().try_for_each(|desc| seen.add(buffers.index(desc.begin())))?;
        empty.iter().try_for_each(|at| seen.add(at.checked_add(HEADROOM).and_then(|at| buffers.index(at))))
    }
}

/// Checks that each buffer of `own` is in at most one place, including `free`, and that there are no other buffers.
///
/// # Errors
/// [`BadState`] if a buffer is in two places, or a buffer outside `own` is found.
pub fn check_sending(
    free: &[u32],
    sender: &XdpSender,
    buffers: &BufferLayout,
    own: Range<u32>,
) -> Result<(), BadState> {
    let mut seen = SeenBuffers::new(own);
    free.iter().try_for_each(|&index| seen.add(Some(index)))?;
    // Read the rings in this order, so that buffers that the kernel moves meanwhile are not seen twice.
    let sent = sender.completion.published().ok_or_else(no_ring)?;
    let unsent = sender.tx.published().ok_or_else(no_ring)?;
    sent.iter().try_for_each(|&at| seen.add(buffers.index(at)))?;
    unsent.iter().try_for_each(|desc| seen.add(buffers.index(desc.addr)))
}

/// Finds the buffers that a killed process had taken from the receive ring and not returned. They are taken again,
/// because it is unknown which of their frames were forwarded. `own` are the queue's receive buffers, as many as each
/// ring has entries.
///
/// All buffers of `own` entered the fill ring at the start, and each buffer entered that ring again whenever it had
/// been taken and returned. So the indices of the two rings give the number of buffers that were taken and not
/// returned. These buffers are the last entries taken from the receive ring, which the kernel has not overwritten,
/// because the kernel had no buffers left to put into that ring.
///
/// # Errors
/// [`BadState`] unless the rings show each buffer in at most one place.
pub fn find_taken(receiver: &mut XdpReceiver, buffers: &BufferLayout, own: Range<u32>) -> Result<(), BadState> {
    let taken = receiver.rx.given_back().wrapping_add(own.len() as u32).wrapping_sub(receiver.fill.shown());
    if taken > own.len() as u32 {
        return Err(BadState::new("the rings do not show which buffers were taken"));
    }
    receiver.rx.rewind(taken);
    let mut seen = SeenBuffers::new(own);
    // The rings are read in the same order, and for the same reason, as in `PausedIngress::check`.
    let filled = receiver.rx.unread().ok_or_else(no_ring)?;
    let empty = receiver.fill.published().ok_or_else(no_ring)?;
    filled.iter().try_for_each(|desc| seen.add(buffers.index(desc.begin())))?;
    empty.iter().try_for_each(|at| seen.add(at.checked_add(HEADROOM).and_then(|at| buffers.index(at))))
}

/// Time between two checks whether the kernel still has buffers.
const PAUSE: Duration = Duration::from_micros(500);

/// Finds the free send buffers after the process that kept their list was killed: the buffers of `own` that are in no
/// ring. A buffer that the kernel is sending is in no ring either, so this waits, up to `limit`, until the kernel has
/// sent all of them.
///
/// # Errors
/// [`BadState`] if the kernel still has buffers at the limit, or if the rings show a buffer in two places.
pub fn find_free(
    sender: &XdpSender,
    buffers: &BufferLayout,
    own: Range<u32>,
    limit: Duration,
) -> Result<Vec<u32>, BadState> {
    let begun = Instant::now();
    while !is_quiet(sender, true) {
        if begun.elapsed() >= limit {
            // An interface that is down does not send; unsent frames stay in the ring.
            if is_quiet(sender, false) {
                break;
            }
            return Err(BadState::new("the kernel has not sent all frames"));
        }
        // Errors are ignored, because an interface that is down or deleted is handled above.
        let _ = sender.socket.kick();
        std::thread::sleep(PAUSE);
    }
    let mut seen = SeenBuffers::new(own.clone());
    let sent = sender.completion.published().ok_or_else(no_ring)?;
    let unsent = sender.tx.published().ok_or_else(no_ring)?;
    sent.iter().try_for_each(|&at| seen.add(buffers.index(at)))?;
    unsent.iter().try_for_each(|desc| seen.add(buffers.index(desc.addr)))?;
    Ok(own.zip(&seen.buffers).filter(|(_, seen)| !**seen).map(|(index, _)| index).collect())
}

/// Whether the kernel has no send buffers: it has sent or refused as many as it has taken. If `all` is true, the kernel
/// must also have taken all frames from the tx ring.
fn is_quiet(sender: &XdpSender, all: bool) -> bool {
    let taken = sender.tx.given_back();
    let refused = sender.socket.statistics().map_or(0, |s| s.tx_invalid_descs as u32);
    let is_empty = !all || taken == sender.tx.shown();
    is_empty && taken == sender.completion.shown().wrapping_add(refused)
}

#[cfg(test)]
mod tests;
