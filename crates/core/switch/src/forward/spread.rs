//! Chooses a port's queue for a frame.
//!
//! A port has a fixed number of queues, of which its receiver opens some: a guest enables one queue for each of its
//! processors, a program opens single rings. Frames from ring *i* of a sender go to open queue *i* modulo the number of
//! open queues (virtio 1.3 §5.1.6.5.6 lets a device use any queue that the driver has enabled). If more queues are open
//! than the sender has rings, IP packets are spread over the open queues by flow, each flow in order; other frames stay
//! on their ring's queue.

use std::sync::Arc;

use netvale_mem::steps::{Step, step};
use netvale_port::{BATCH, Batch, Scratch};

use super::{HeldFrames, settle};
use crate::entry::PortEntry;

/// Maximum number of queues over which frames are spread; further queues get no frames.
const MOST: usize = 64;
/// Number of bytes at the start of a frame that suffice to find its flow: addresses and ports, after tags and options.
const HEAD: usize = 128;

/// The port and ring from which a batch comes.
#[derive(Clone, Copy)]
pub(super) struct BatchSender<'a> {
    pub(super) port: &'a PortEntry,
    pub(super) ring: usize,
}

impl BatchSender<'_> {
    /// Index of the queue of `to` that gets this sender's frames if they are not spread over several queues.
    #[inline]
    pub(super) fn queue_of(self, to: &PortEntry) -> usize {
        match to.port.egresses.len() {
            0 | 1 => 0,
            _ => to.open_queue(self.ring),
        }
    }

    /// Whether this sender's frames are spread over the queues of `to`.
    #[inline]
    pub(super) fn spreads(self, to: &PortEntry) -> bool {
        to.port.egresses.len() > 1 && to.open_queues() > self.port.rings_in_use()
    }

    /// Whether the frames addressed to `to` and the flooded frames use the same queue of `to`, so that they are
    /// delivered together.
    #[inline]
    pub(super) fn joins_flood(self, to: &PortEntry) -> bool {
        to.port.egresses.len() < 2 || self.spreads(to) || self.queue_of(to) == to.open_queue(0)
    }

    /// Index of the queue of `to` that a frame uses, as recorded in a trace.
    pub(super) fn queue_for(self, to: &PortEntry, batch: &Batch, pick: u16) -> usize {
        if self.spreads(to) { to.open_queue(self.number_of(to, batch, pick)) } else { self.queue_of(to) }
    }

    /// The number that selects one of the open queues of `to` for a frame: a hash of its flow, or the sender's ring.
    fn number_of(self, to: &PortEntry, batch: &Batch, pick: u16) -> usize {
        let Some(frame) = batch.get(usize::from(pick)) else { return 0 };
        let mut head = [0; HEAD];
        let len = frame.copy_out(0, &mut head).min(HEAD);
        to.flows.hash_of_packet(&head[..len]).map_or(self.ring, |hash| hash as usize)
    }
}

impl PortEntry {
    pub(super) fn open_queues(&self) -> usize {
        self.port.egresses.iter().filter(|queue| queue.is_open()).count()
    }

    /// Index of the open queue that `number` selects, modulo the number of open queues. If none is open, all queues
    /// count as open.
    pub(super) fn open_queue(&self, number: usize) -> usize {
        let queues = &self.port.egresses;
        let open = self.open_queues();
        if open == 0 || open == queues.len() {
            return number % queues.len().max(1);
        }
        let mut all = queues.iter().enumerate().filter(|(_, queue)| queue.is_open());
        all.nth(number % open).map_or(0, |(queue, _)| queue)
    }

    /// Number of rings from which the port sends. A guest that opens only some of its queues sends on the same number
    /// of rings.
    fn rings_in_use(&self) -> usize {
        let rings = self.port.rings.max(1);
        match self.open_queues() {
            open if rings == 1 || open == self.port.egresses.len() => rings,
            open => rings.min(open.max(1)),
        }
    }
}

/// Delivers each frame to the open queue of the frame's flow.
#[inline(never)]
pub(super) fn deliver_spread(
    to: &Arc<PortEntry>,
    sender: BatchSender<'_>,
    batch: &Batch,
    picks: &[u16],
    may_hold: bool,
    scratch: &mut Scratch,
    held: &mut HeldFrames,
) {
    let mut queues = [0u8; MOST];
    let open = to.port.egresses.iter().enumerate().filter(|(_, queue)| queue.is_open()).take(MOST);
    let open = queues.iter_mut().zip(open).map(|(place, (queue, _))| *place = queue as u8).count();
    // Sort the frames by queue, keeping their order within each queue: count to find each queue's start, then put each
    // frame in its place.
    let mut hashes = [0u8; BATCH];
    let mut ends = [0u16; MOST + 1];
    for (place, &pick) in hashes.iter_mut().zip(picks) {
        *place = (sender.number_of(to, batch, pick) % open.max(1)) as u8;
        ends[usize::from(*place) + 1] += 1;
    }
    for k in 1..ends.len() {
        ends[k] += ends[k - 1];
    }
    let mut sorted = [0u16; BATCH];
    for (&place, &pick) in hashes.iter().zip(picks) {
        let end = &mut ends[usize::from(place)];
        if let Some(next) = sorted.get_mut(usize::from(*end)) {
            *next = pick;
        }
        *end += 1;
    }
    let mut begin = 0;
    scratch.may_wait(may_hold && to.port.lossless);
    for (&queue, &end) in queues.iter().zip(&ends).take(open) {
        let end = usize::from(end);
        let picks = sorted.get(begin..end).unwrap_or_default();
        begin = end;
        let queue = usize::from(queue);
        let Some(egress) = to.port.egresses.get(queue).filter(|_| !picks.is_empty()) else { continue };
        let done = egress.deliver(batch, picks, scratch);
        settle(to, (queue, egress), batch, picks, done, may_hold, scratch, held);
    }
}

/// Reports the port, and the port's queue for the first frame, to a trace.
pub(super) fn step_to(to: &PortEntry, sender: BatchSender<'_>, batch: &Batch, picks: &[u16]) {
    if let Some(&first) = picks.first() {
        step(Step::To(to.id, sender.queue_for(to, batch, first) as u8));
    }
}
