//! Delivery of a batch to many destinations, step by step for all of them together.
//!
//! Many small deliveries are expensive: each of them waits for a cache line of the receiver's core whenever a fence or
//! an atomic instruction follows a store to that line. So all destinations take each step together: reserve room, copy
//! frames, publish tails, check kick flags. Only one fence separates two steps.

use std::sync::Arc;

use netvale_mem::notify::full_fence;
use netvale_port::{Batch, Reservation};

use super::{BatchSender, ForwardMemory, HeldFrames, NumberedQueue, deliver, queue_of, settle};
use crate::entry::PortEntry;
use crate::table::PortTable;

/// A destination, and its reservation during the delivery.
pub(super) struct OpenDestination<'b> {
    to: &'b Arc<PortEntry>,
    queue: NumberedQueue<'b>,
    room: Reservation<'b>,
}

/// Drops all reservations, and returns the empty vector for use by the next batch.
fn recycled(mut open: Vec<OpenDestination<'_>>) -> Vec<OpenDestination<'static>> {
    open.clear();
    // Collects in place, without allocating memory: the types differ only in their lifetimes.
    open.into_iter().map_while(|_| None).collect()
}

/// Delivers a batch whose frames all go to known ports: none is flooded.
pub(super) fn scatter(
    table: &PortTable,
    sender: BatchSender<'_>,
    batch: &Batch,
    work: &mut ForwardMemory,
    held: &mut HeldFrames,
) {
    let ForwardMemory { groups, picks, scratch, open: kept, stepless, .. } = work;
    let mut open: Vec<OpenDestination<'_>> = std::mem::take(kept);
    let mut rest = picks.as_mut_slice();
    for to in groups.active().iter().filter_map(|&id| table.get(id)) {
        if sender.spreads(to) {
            stepless.push(to.id);
            continue;
        }
        let Some(queue) = queue_of(to, sender) else { continue };
        let count = groups.own(to.id, rest).len();
        let (picks, behind) = rest.split_at_mut(count);
        rest = behind;
        match queue.1.reserve(batch, picks) {
            None => stepless.push(to.id),
            Some(room) => open.push(OpenDestination { to, queue, room }),
        }
    }
    open.iter_mut().for_each(|one| one.room.fill());
    full_fence();
    open.iter_mut().for_each(|one| one.room.publish());
    full_fence();
    open.iter_mut().for_each(|one| one.room.kick_and_stop());
    full_fence();
    open.iter_mut().for_each(|one| one.room.look_after());
    for OpenDestination { to, queue, room } in &open {
        let (picks, done) = room.picks();
        settle(to, *queue, batch, picks, done, true, scratch, held);
    }
    *kept = recycled(open);
    // Destinations that do not support steps, or have several queues in use, come last: if one blocks, no reservation
    // of another ring is open.
    for to in stepless.drain(..).filter_map(|id| table.get(id)) {
        deliver(to, sender, batch, groups.own(to.id, picks), true, scratch, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the list of destinations is allocated once and reused for batches with other lifetimes.
    #[test]
    fn recycling_keeps_the_memory() {
        let open: Vec<OpenDestination<'static>> = Vec::with_capacity(256);
        let memory = (open.as_ptr().addr(), open.capacity());
        let open = recycled(open);
        assert_eq!((open.as_ptr().addr(), open.capacity()), memory);
    }
}
