//! Frames that wait for room at their destinations, and the limits of these waits.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use netvale_mem::steps::{Step, step};
use netvale_port::kept::KeptFrames;
use netvale_port::{BATCH, Batch, DropReason, Egress, Scratch};

use super::{NumberedQueue, mirror};
use crate::entry::PortEntry;
use crate::holding::{FOR_A_BATCH, FOR_A_WAKE_UP, WITHOUT_PROGRESS};
use crate::owners::OwnerId;

/// The frames of a batch that wait for room at their destinations. Memory is allocated only when this value is created.
pub(super) struct HeldFrames {
    waiting: Vec<WaitingPort>,
    /// The picks (indices of frames in the batch) of all entries of `waiting`, one entry after another. A flooded frame
    /// may wait at several ports.
    picks: Vec<u16>,
    /// Owner of the port that sent the waiting frames.
    pub(super) from: OwnerId,
    begun: Instant,
    /// The destination that was asked to signal room; `None` if no destination was asked.
    asked: Option<Arc<dyn Egress>>,
    /// Whether the sending port is being removed. If so, frames that find no room are dropped instead of waiting.
    is_last: bool,
    /// Whether a control thread waits to remove the queue that holds the frames. If so, progress of the receiver does
    /// not prolong the wait.
    pub(super) is_wanted: bool,
}

/// The reason why frames wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The port is lossless.
    Lossless,
    /// The receiver was woken and has not run yet. On a busy machine a wake-up takes a while; if the frames did not
    /// wait, all frames beyond the ring's room would be lost.
    Waking,
}

/// A destination for which frames wait, and the frames' part of [`HeldFrames::picks`].
struct WaitingPort {
    to: Arc<PortEntry>,
    ring: usize,
    egress: Arc<dyn Egress>,
    picks: Range<usize>,
    why: WaitReason,
    /// Number of frames that the ring had received from all senders at the last check.
    received: u64,
    /// Time at which `received` last grew. Frames from other senders also count as progress of the receiver.
    moved: Instant,
}

/// Copies of frames that wait for room at one ring of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingFrames {
    /// The name of the port on its switch.
    pub port: String,
    /// Index of the ring.
    pub ring: usize,
    /// The frames, each preceded by a virtio-net header of 12 bytes ([`KeptFrames::frame`]).
    pub frames: Vec<Vec<u8>>,
}

/// Decides whether frames that owner `from` sent and that found no room may wait: returns why they wait, or the reason
/// for dropping them.
pub(super) fn waits_for(
    to: &PortEntry,
    egress: &dyn Egress,
    may_hold: bool,
    from: OwnerId,
) -> Result<WaitReason, DropReason> {
    if !(may_hold && to.may_hold(from)) {
        return Err(DropReason::NoRoom);
    }
    if to.port.lossless {
        return if to.holding.is_allowed() { Ok(WaitReason::Lossless) } else { Err(DropReason::Stalled) };
    }
    let is_waking = egress.room().is_some_and(|room| room.is_waking() && to.holding.is_awaited(room.progress()));
    if is_waking { Ok(WaitReason::Waking) } else { Err(DropReason::NoRoom) }
}

/// Maximum number of waiting frames. It exceeds a batch because a flooded frame that waits at several ports counts once
/// for each port.
const ROOM: usize = 4 * BATCH;

impl HeldFrames {
    pub(super) fn new() -> Self {
        // Flooded frames wait only on a switch of two ports, so a batch waits for at most one port per frame.
        let waiting = Vec::with_capacity(BATCH);
        let picks = Vec::with_capacity(ROOM);
        let from = OwnerId::new(0);
        let now = Instant::now();
        HeldFrames { waiting, picks, from, begun: now, asked: None, is_last: false, is_wanted: false }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends all waiting: frames that find no room at the next attempt are dropped.
    pub(super) fn stop_waiting(&mut self) {
        self.is_last = true;
    }

    /// Whether there is memory for `frames` more frames to wait.
    pub(super) fn has_room(&self, frames: usize) -> bool {
        self.picks.len() + frames <= ROOM && self.waiting.len() < self.waiting.capacity()
    }

    pub(super) fn hold(
        &mut self,
        to: &Arc<PortEntry>,
        (ring, egress): NumberedQueue<'_>,
        picks: &[u16],
        why: WaitReason,
    ) {
        let now = Instant::now();
        if self.waiting.is_empty() {
            self.begun = now;
        }
        let start = self.picks.len();
        self.picks.extend_from_slice(picks);
        let picks = start..self.picks.len();
        let received = egress.counters().frames();
        let to = Arc::clone(to);
        let egress = Arc::clone(egress);
        self.waiting.push(WaitingPort { to, ring, egress, picks, why, received, moved: now });
    }

    pub(super) fn frames(&self) -> usize {
        self.waiting.iter().map(|w| w.picks.len()).sum()
    }

    /// Delivers the waiting frames that now find room, and drops the frames whose receivers are too slow.
    pub(super) fn retry(&mut self, batch: &Batch, scratch: &mut Scratch) {
        let HeldFrames { waiting, picks: all, begun, is_last, is_wanted, .. } = self;
        waiting.retain_mut(|w| {
            let picks = &all[w.picks.clone()];
            scratch.may_wait(w.why == WaitReason::Lossless);
            let done = w.egress.deliver(batch, picks, scratch);
            mirror(&w.to, w.ring, batch, &picks[..done], scratch);
            w.picks.start += done;
            if done > 0 {
                step(Step::Taken);
            }
            !w.picks.is_empty()
                && !if *is_last { w.drop_rest(DropReason::NoRoom) } else { w.gives_up(*begun, *is_wanted) }
        });
        if waiting.is_empty() {
            all.clear();
        }
    }

    /// Returns copies of the waiting frames: one element for each destination.
    pub(super) fn copies(&self, batch: &Batch) -> Vec<WaitingFrames> {
        let frames = |w: &WaitingPort| self.picks[w.picks.clone()].iter().filter_map(|&pick| batch.get(pick.into()));
        let copy = |w: &WaitingPort| WaitingFrames {
            port: w.to.port.name.clone(),
            ring: w.ring,
            frames: frames(w).map(|frame| KeptFrames::frame(&frame)).collect(),
        };
        self.waiting.iter().map(copy).collect()
    }

    /// Lets the frames `picks` wait for room at ring `ring` of port `to`. These frames already waited for that ring in
    /// another process.
    pub(super) fn go_on(&mut self, to: &Arc<PortEntry>, ring: usize, picks: Range<u16>) {
        let Some(egress) = to.port.egresses.get(ring) else { return };
        let picks: Vec<u16> = picks.collect();
        self.hold(to, (ring, egress), &picks, if to.port.lossless { WaitReason::Lossless } else { WaitReason::Waking });
    }

    /// Asks the first destination to signal room. Returns the descriptor that becomes readable when there is room, or
    /// `None` if the destination cannot signal. The worker polls the other destinations.
    pub(super) fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        self.asked = Some(Arc::clone(&self.waiting.first()?.egress));
        self.asked.as_ref()?.room()?.ask()
    }

    pub(super) fn stop_asking(&mut self, forget: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(asked) = self.asked.take()
            && let Some(bell) = asked.room().and_then(|room| room.stop_asking())
        {
            forget(bell);
        }
    }
}

impl WaitingPort {
    /// If the receiver is too slow, drops the remaining frames and returns true.
    fn gives_up(&mut self, begun: Instant, is_wanted: bool) -> bool {
        let held_for = begun.elapsed();
        let is_too_slow = held_for > FOR_A_BATCH || self.stands_still(is_wanted);
        let reason = match self.why {
            WaitReason::Lossless if is_too_slow => {
                self.to.holding.suspend(held_for);
                DropReason::Stalled
            }
            WaitReason::Waking => match self.egress.room() {
                Some(room) if room.is_waking() && held_for <= FOR_A_WAKE_UP => return false,
                Some(room) if room.is_waking() => {
                    self.to.holding.await_no_more(room.progress());
                    DropReason::NoRoom
                }
                // The receiver runs, but is slower than its senders.
                _ => DropReason::NoRoom,
            },
            WaitReason::Lossless => return false,
        };
        self.drop_rest(reason)
    }

    /// Whether the ring has received no frames for too long.
    fn stands_still(&mut self, is_wanted: bool) -> bool {
        let received = self.egress.counters().frames();
        if received != self.received && !is_wanted {
            self.received = received;
            self.moved = Instant::now();
        }
        self.moved.elapsed() > WITHOUT_PROGRESS
    }

    /// Counts the remaining frames as dropped. Returns true, which ends the wait.
    fn drop_rest(&self, reason: DropReason) -> bool {
        self.egress.counters().dropped(reason, self.picks.len() as u64);
        true
    }
}
