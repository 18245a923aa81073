//! Restores the rings of a killed driver. Only the killed process knew the driver's position and the owner of each
//! buffer. This module recovers the position and the owners from the rings, while the device continues.
//!
//! A driver notes its position ([`QueueRam::note`]) before it posts returned buffers again. All ring entries that were
//! shown to the device after that position are therefore intact, whether or not the device has used them, and all other
//! buffers are free. Frames that were taken after the last note are received again: at most one batch.
//!
//! This holds for devices that return buffers in order, as devices that copy frames do. With any other device, frames
//! in flight may be lost or damaged. If the rings are inconsistent, or the device later returns a buffer that it should
//! not have, the driver reconnects to the device.

use super::ids::BuffersState;
use super::ram::QueueRam;
use super::{DriverFeatures, DriverQueue, DriverQueueState};
use crate::queue::ring_index::{AVAIL, WrapIndex};

/// Flag in the second word of a split ring's descriptor: another descriptor follows.
const NEXT: u64 = 1 << 32;

/// The chains of buffers shown to the device, in order, and the position after them.
struct ShownChains {
    chains: Vec<Vec<u16>>,
    next: u16,
}

/// Returns whether a queue's saved state is current, i.e. no process has used the queue since the state was saved.
pub fn is_there(ram: &QueueRam, features: DriverFeatures, state: &DriverQueueState) -> bool {
    let (done, _) = ram.noted();
    let shown = if features.queue.packed { packed(ram, done).map(|shown| shown.next) } else { Some(ram.avail_idx()) };
    (shown, done) == (Some(state.next), state.done)
}

/// Restores a killed driver's queue from the queue's ring and the driver's note. Returns `None` if these are
/// inconsistent.
pub fn continued(ram: &QueueRam, features: DriverFeatures) -> Option<DriverQueue> {
    let size = ram.size();
    let (done, turn) = ram.noted();
    let shown = if features.queue.packed { packed(ram, done) } else { split(ram, done) };
    let ShownChains { chains, next } = shown?;
    let buffers = if features.in_order { in_order(size, &chains, turn)? } else { in_any_order(size, chains)? };
    let queue = DriverQueue::continued(ram, features, &DriverQueueState { size, next, done, buffers })?;
    match &queue {
        DriverQueue::Packed(queue) => queue.forget_unshown(),
        DriverQueue::PackedOrdered(queue) => queue.forget_unshown(),
        DriverQueue::Split(_) | DriverQueue::SplitOrdered(_) => {}
    }
    Some(queue)
}

fn split(ram: &QueueRam, done: u16) -> Option<ShownChains> {
    let n = ram.size();
    let next = ram.avail_idx();
    let mut chains = Vec::new();
    let mut left = n;
    for i in 0..next.wrapping_sub(done) {
        let mut id = ram.avail_entry(done.wrapping_add(i));
        let mut chain = Vec::new();
        loop {
            left = left.checked_sub(1)?;
            let (_, rest) = (id < n).then(|| ram.descriptor(id))?;
            chain.push(id);
            if rest & NEXT == 0 {
                break;
            }
            id = (rest >> 48) as u16;
        }
        chains.push(chain);
    }
    Some(ShownChains { chains, next })
}

/// Recovers the chains of a packed ring. All descriptors of a chain contain the number of the chain's first buffer, and
/// the chain begins at the descriptor that points to this buffer. The device may have overwritten the first descriptor
/// except for its address.
fn packed(ram: &QueueRam, done: u16) -> Option<ShownChains> {
    let n = ram.size();
    let mut at = WrapIndex::of(done);
    if at.at >= n {
        return None;
    }
    let mut chains: Vec<Vec<u16>> = Vec::new();
    for _ in 0..n {
        let (addr, rest) = ram.descriptor(at.at);
        if ((rest >> 48) as u16 & AVAIL != 0) != at.wrap {
            break;
        }
        let id = (rest >> 32) as u16;
        let buffer = ram.id_at(addr)?;
        match chains.last_mut() {
            Some(chain) if chain.first() == Some(&id) => chain.push(buffer),
            _ => chains.push(vec![buffer]),
        }
        at = at.after(1, n);
    }
    Some(ShownChains { chains, next: at.bits() })
}

fn in_any_order(n: u16, posted: Vec<Vec<u16>>) -> Option<BuffersState> {
    let mut is_free = vec![true; usize::from(n)];
    for id in posted.iter().flatten() {
        *is_free.get_mut(usize::from(*id))? = false;
    }
    let free = (0..n).rev().filter(|id| is_free.get(usize::from(*id)) == Some(&true)).collect();
    Some(BuffersState::Any { free, posted })
}

/// Returns the state of buffers that are posted in the order of their numbers, beginning with `oldest`; `None` if they
/// are posted in another order.
fn in_order(n: u16, chains: &[Vec<u16>], oldest: u16) -> Option<BuffersState> {
    let mut ids = chains.iter().flatten().zip(0..);
    ids.all(|(id, i)| *id == oldest.wrapping_add(i) & (n - 1)).then_some(())?;
    Some(BuffersState::Ordered { oldest, posted: chains.iter().map(|chain| chain.len() as u16).collect() })
}
