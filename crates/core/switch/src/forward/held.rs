//! Frames that wait for room at their destination, with the limits of the wait.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use netvale_mem::steps::{Step, step};
use netvale_port::kept::Kept;
use netvale_port::{BATCH, Batch, DropReason, Egress, Scratch};

use super::{Queue, mirror};
use crate::entry::Entry;
use crate::holding::{FOR_A_BATCH, FOR_A_WAKE_UP, WITHOUT_PROGRESS};
use crate::owners::OwnerId;
use crate::table::MAX_PORTS;

/// Waiting frames of the batch. Allocated once.
pub(super) struct Held {
    waiting: Vec<Waiting>,
    /// The lists of `waiting`. A flooded frame may wait at several ports, besides others for those ports.
    picks: Vec<u16>,
    /// Owner of the frames.
    pub(super) from: OwnerId,
    begun: Instant,
    /// The last time a frame found room.
    since: Instant,
    /// The receiver that was asked to announce room.
    asked: Option<Arc<dyn Egress>>,
    /// Whether the sender is gone: then no frame waits any more.
    is_last: bool,
}

/// The reason for waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The port is lossless.
    Lossless,
    /// The receiver slept, was woken, and has not run yet: on a busy machine that takes a while, in which it would lose
    /// all frames beyond its ring.
    Waking,
}

/// A destination that frames wait for, and its part of [`Held::picks`].
struct Waiting {
    to: Arc<Entry>,
    ring: usize,
    egress: Arc<dyn Egress>,
    picks: Range<usize>,
    why: Why,
}

/// Frames that wait for room at one ring of a port, apart from their ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingFrames {
    /// The name of the port on its switch.
    pub port: String,
    /// The number of the ring.
    pub ring: usize,
    /// The frames, each behind a virtio-net header of 12 bytes ([`Kept::frame`]).
    pub frames: Vec<Vec<u8>>,
}

/// Decides whether frames of owner `from` without room wait for it; otherwise gives the reason for dropping them.
pub(super) fn waits_for(to: &Entry, egress: &dyn Egress, may_hold: bool, from: OwnerId) -> Result<Why, DropReason> {
    if !(may_hold && to.may_hold(from)) {
        return Err(DropReason::NoRoom);
    }
    if to.port.lossless {
        return if to.holding.is_allowed() { Ok(Why::Lossless) } else { Err(DropReason::Stalled) };
    }
    let is_waking = egress.room().is_some_and(|room| room.is_waking() && to.holding.is_awaited(room.progress()));
    if is_waking { Ok(Why::Waking) } else { Err(DropReason::NoRoom) }
}

/// Frames and copies of frames that may wait: all of a batch, and some more for floods.
const ROOM: usize = 4 * BATCH;

impl Held {
    pub(super) fn new() -> Self {
        let waiting = Vec::with_capacity(MAX_PORTS);
        let picks = Vec::with_capacity(ROOM);
        let from = OwnerId::new(0);
        let now = Instant::now();
        Held { waiting, picks, from, begun: now, since: now, asked: None, is_last: false }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends all waiting: frames without room at the next try are dropped.
    pub(super) fn stop_waiting(&mut self) {
        self.is_last = true;
    }

    fn begin(&mut self) {
        self.begun = Instant::now();
        self.since = self.begun;
    }

    /// Records progress.
    pub(super) fn goes_on(&mut self) {
        self.since = Instant::now();
    }

    /// Whether this many more frames may wait.
    pub(super) fn has_room(&self, frames: usize) -> bool {
        self.picks.len() + frames <= ROOM && self.waiting.len() < self.waiting.capacity()
    }

    pub(super) fn hold(&mut self, to: &Arc<Entry>, (ring, egress): Queue<'_>, picks: &[u16], why: Why) {
        if self.waiting.is_empty() {
            self.begin();
        }
        let start = self.picks.len();
        self.picks.extend_from_slice(picks);
        let picks = start..self.picks.len();
        self.waiting.push(Waiting { to: Arc::clone(to), ring, egress: Arc::clone(egress), picks, why });
    }

    pub(super) fn frames(&self) -> usize {
        self.waiting.iter().map(|w| w.picks.len()).sum()
    }

    /// Delivers the frames that now find room; gives up on receivers that are too slow.
    pub(super) fn retry(&mut self, batch: &Batch, scratch: &mut Scratch) {
        let Held { waiting, picks: all, begun, since, is_last, .. } = self;
        waiting.retain_mut(|w| {
            let picks = &all[w.picks.clone()];
            scratch.may_wait(w.why == Why::Lossless);
            let done = w.egress.deliver(batch, picks, scratch);
            mirror(&w.to, w.ring, batch, &picks[..done], scratch);
            w.picks.start += done;
            if done > 0 {
                step(Step::Taken);
            }
            !w.picks.is_empty()
                && !if *is_last { w.drop_rest(DropReason::NoRoom) } else { w.gives_up(done, *begun, *since) }
        });
        if waiting.is_empty() {
            all.clear();
        }
    }

    /// Copies of the waiting frames.
    pub(super) fn copies(&self, batch: &Batch) -> Vec<WaitingFrames> {
        let frames = |w: &Waiting| self.picks[w.picks.clone()].iter().filter_map(|&pick| batch.get(pick.into()));
        let copy = |w: &Waiting| WaitingFrames {
            port: w.to.port.name.clone(),
            ring: w.ring,
            frames: frames(w).map(|frame| Kept::frame(&frame)).collect(),
        };
        self.waiting.iter().map(copy).collect()
    }

    /// Waits for ring `ring` of a port with the frames `picks`, which waited for it in another process.
    pub(super) fn go_on(&mut self, to: &Arc<Entry>, ring: usize, picks: Range<u16>) {
        let Some(egress) = to.port.egresses.get(ring) else { return };
        let picks: Vec<u16> = picks.collect();
        self.hold(to, (ring, egress), &picks, if to.port.lossless { Why::Lossless } else { Why::Waking });
    }

    /// Asks the first receiver to announce room. Others are looked at again after a while.
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

impl Waiting {
    /// Whether to drop the rest of the frames, as the receiver is too slow. `done` of them just found room.
    fn gives_up(&self, done: usize, begun: Instant, since: Instant) -> bool {
        let held_for = begun.elapsed();
        let reason = match self.why {
            Why::Lossless if held_for > FOR_A_BATCH || since.elapsed() > WITHOUT_PROGRESS && done == 0 => {
                self.to.holding.suspend(held_for);
                DropReason::Stalled
            }
            Why::Waking => match self.egress.room() {
                Some(room) if room.is_waking() && held_for <= FOR_A_WAKE_UP => return false,
                Some(room) if room.is_waking() => {
                    self.to.holding.await_no_more(room.progress());
                    DropReason::NoRoom
                }
                // It runs, and is slower than its senders.
                _ => DropReason::NoRoom,
            },
            Why::Lossless => return false,
        };
        self.drop_rest(reason)
    }

    /// Counts the rest of the frames as dropped. Returns true: the wait for them ends.
    fn drop_rest(&self, reason: DropReason) -> bool {
        self.egress.counters().dropped(reason, self.picks.len() as u64);
        true
    }
}
