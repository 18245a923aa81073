//! Delivery of a batch to many destinations, step by step for all of them at a time.
//!
//! What makes many small deliveries dear is waiting: for a cache line that the receiver's core holds, each time a fence or an atomic
//! instruction stands behind a store to it. So all room is made first, then all frames are copied, then all tails are published, then
//! all flags are looked at, with one fence between two steps.

use std::ops::Range;

use netvale_mem::notify::full_fence;
use netvale_port::{Lease, Reserved, Staged};

use super::{Held, Work, deliver, queue_of, settle};
use crate::table::{PortId, Table};

/// A destination on its way through the steps.
pub(super) struct Open {
    to: PortId,
    /// Its frames: a part of the list of all picks.
    picks: Range<usize>,
    /// Until it is filled.
    lease: Option<Lease>,
    /// How many of its frames found room.
    done: usize,
    publishing: bool,
}

/// Takes a step with each destination.
#[inline]
fn each(table: &Table, ring: usize, open: &mut [Open], mut step: impl FnMut(&dyn Staged, &mut Open)) {
    for one in open {
        if let Some(staged) = table.get(one.to).and_then(|to| queue_of(to, ring)?.1.staged()) {
            step(staged, one);
        }
    }
}

/// Delivers frames that each go to one port, from ring `ring` of the sender.
pub(super) fn scatter(table: &Table, ring: usize, work: &mut Work, held: &mut Held) {
    reserve(table, ring, work, held);
    let Work { batch, picks, scratch, open, .. } = work;
    each(table, ring, open, |staged, one| {
        if let Some(lease) = one.lease.take() {
            staged.fill(batch, &picks[one.picks.clone()], lease);
        }
    });
    full_fence();
    each(table, ring, open, |staged, one| one.publishing = staged.publish());
    full_fence();
    each(table, ring, open, |staged, one| {
        if one.publishing {
            staged.kick_and_stop();
        }
    });
    full_fence();
    each(table, ring, open, |staged, one| {
        if one.publishing {
            staged.look_after();
        }
    });
    for one in open.drain(..) {
        if let Some((to, queue)) = table.get(one.to).and_then(|to| Some((to, queue_of(to, ring)?))) {
            settle(to, queue, batch, &picks[one.picks], one.done, true, scratch, held);
        }
    }
}

/// First step: lists of frames, and room for them. Destinations that know no steps are dealt with at once.
fn reserve(table: &Table, ring: usize, work: &mut Work, held: &mut Held) {
    let Work { batch, groups, picks, scratch, open } = work;
    let mut used = 0;
    for to in groups.active().iter().filter_map(|&id| table.get(id)) {
        let Some(queue) = queue_of(to, ring) else { continue };
        let mine = groups.picks(to.id, true, false, &mut picks[used..]);
        let range = used..used + mine.len();
        match queue.1.staged().and_then(|staged| staged.reserve(batch, mine)) {
            None => deliver(to, ring, batch, mine, true, scratch, held),
            Some(Reserved::Full) => settle(to, queue, batch, mine, 0, true, scratch, held),
            Some(Reserved::Room(lease)) => {
                let done = lease.count as usize;
                open.push(Open { to: to.id, picks: range.clone(), lease: Some(lease), done, publishing: false });
            }
        }
        used = range.end;
    }
}
