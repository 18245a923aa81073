//! Delivery of a batch to many destinations, taking each step for all of them.
//!
//! Many small deliveries are expensive because each waits for a cache line in the receiver's core, whenever a fence or
//! an atomic instruction follows a store to it. So first all room is reserved, then all frames are copied, then all
//! tails published, then all flags checked, with one fence between two steps.

use std::sync::Arc;

use netvale_mem::notify::full_fence;
use netvale_port::{Batch, Reservation};

use super::{Held, Queue, Sender, Work, deliver, queue_of, settle};
use crate::entry::Entry;
use crate::table::Table;

/// A destination on its way through the steps.
pub(super) struct Open<'b> {
    to: &'b Arc<Entry>,
    queue: Queue<'b>,
    room: Reservation<'b>,
}

/// Drops all reservations, and keeps the memory for another batch's.
fn recycled(mut open: Vec<Open<'_>>) -> Vec<Open<'static>> {
    open.clear();
    // Collected in place: the types differ only in their lifetimes.
    open.into_iter().map_while(|_| None).collect()
}

/// Delivers frames that each go to one port.
pub(super) fn scatter(table: &Table, sender: Sender<'_>, batch: &Batch, work: &mut Work, held: &mut Held) {
    let Work { groups, picks, scratch, open: kept, stepless, .. } = work;
    let mut open: Vec<Open<'_>> = std::mem::take(kept);
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
            Some(room) => open.push(Open { to, queue, room }),
        }
    }
    open.iter_mut().for_each(|one| one.room.fill());
    full_fence();
    open.iter_mut().for_each(|one| one.room.publish());
    full_fence();
    open.iter_mut().for_each(|one| one.room.kick_and_stop());
    full_fence();
    open.iter_mut().for_each(|one| one.room.look_after());
    for Open { to, queue, room } in &open {
        let (picks, done) = room.picks();
        settle(to, *queue, batch, picks, done, true, scratch, held);
    }
    *kept = recycled(open);
    // Destinations without support for steps, or with several queues in use: one that blocks does so when no other ring
    // is held any more.
    for to in stepless.drain(..).filter_map(|id| table.get(id)) {
        deliver(to, sender, batch, groups.own(to.id, picks), true, scratch, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: lists of destinations are allocated once, whatever they borrow from.
    #[test]
    fn recycling_keeps_the_memory() {
        let open: Vec<Open<'static>> = Vec::with_capacity(254);
        let memory = (open.as_ptr().addr(), open.capacity());
        let open = recycled(open);
        assert_eq!((open.as_ptr().addr(), open.capacity()), memory);
    }
}
