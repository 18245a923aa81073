//! The far end of a link: decides whether each frame is lost, damaged or duplicated and when it is due, and hands out
//! frames that are due.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netvale_mem::notify;
use netvale_policy::bucket::Weight;
use netvale_policy::impair::{Fate, Model};

use super::lane::{FramePlace, LaneFrame, LaneReader};
use super::schedule::{FrameInFlight, NO_FLIP, Schedule};
use super::{CurrentSettings, LinkState, until};
use crate::batch::{BATCH, MAX_FRAME};
use crate::{Batch, DropReason, Ingress, RingCounters};

/// Maximum number of frames that enter the schedule in one pass, so that the worker's other tasks are not delayed.
const MOST_DECIDED: usize = 2 * BATCH;

/// The far end of an impaired link: the ingress that returns frames once they are due.
pub struct LinkEnd {
    shared: Arc<LinkState>,
    readers: Vec<LaneReader>,
    model: Option<Model>,
    /// Current limit of frames in flight.
    most: usize,
    /// Maximum of `most`: the number of frames for which there is memory.
    room: usize,
    /// Number of the last adopted change of the settings (`LinkState::changes`).
    changes: u32,
    schedule: Schedule,
    /// The frames handed out in the current batch.
    taken: Vec<FrameInFlight>,
    /// A copy of the batch's damaged frame; a batch contains at most one damaged frame.
    damaged: Box<[u8]>,
    is_hurried: bool,
}

impl LinkEnd {
    /// Creates the far end of a link with at most `room` frames in flight. `None` if there is no memory.
    pub(super) fn new(shared: Arc<LinkState>, room: usize) -> Option<LinkEnd> {
        let readers = shared.lanes.iter().map(|_| LaneReader::default()).collect();
        let damaged = vec![0; MAX_FRAME].into_boxed_slice();
        let taken = Vec::with_capacity(BATCH);
        let schedule = Schedule::new(room)?;
        let current = shared.current.load_full();
        let model = None;
        let most = 0;
        let changes = 0;
        let is_hurried = false;
        let mut end = LinkEnd { shared, readers, model, most, room, changes, schedule, taken, damaged, is_hurried };
        end.adopt(&current);
        Some(end)
    }

    fn adopt(&mut self, current: &CurrentSettings) {
        self.model.clone_from(&current.model);
        self.most = current.settings.frames().min(self.room);
    }

    /// Adopts the current settings. `changes` is the number of the last change that the settings include.
    #[cold]
    fn look_at_settings(&mut self, changes: u32) {
        let current = self.shared.current.load_full();
        self.changes = changes;
        self.adopt(&current);
    }

    /// Returns the frame that arrived first among the frames that are neither scheduled nor dropped yet, with the index
    /// of the frame's lane; `None` if there is no such frame.
    fn earliest(&mut self) -> Option<(usize, LaneFrame)> {
        let lanes = self.shared.lanes.iter().zip(&mut self.readers).enumerate();
        let found = lanes.filter_map(|(number, (lane, reader))| Some((number, reader.peek(lane)?)));
        found.min_by_key(|(_, found)| found.arrived)
    }

    /// Schedules or drops each new frame, as the model decides.
    fn decide(&mut self) {
        let mut lost = 0;
        let mut full = 0;
        for _ in 0..MOST_DECIDED {
            let Some((number, found)) = self.earliest() else { break };
            let has_room = self.schedule.len() < self.most;
            let fate = match &mut self.model {
                _ if !has_room => Fate::Lost,
                Some(model) => model.decide(found.arrived, found.on_wire),
                None => Fate::Sent { due_ns: found.arrived, again: false, flip: None },
            };
            let uses = match fate {
                Fate::Lost => 0,
                Fate::Sent { due_ns, again, flip } => {
                    self.send(number, &found, due_ns, flip);
                    1 + u16::from(again && self.send_again(number, &found))
                }
            };
            self.readers[number].take(&self.shared.lanes[number], &found, uses);
            if uses == 0 {
                self.forget(1, found.size);
                *(if has_room { &mut lost } else { &mut full }) += 1;
            }
        }
        for (reason, count) in [(DropReason::LinkLoss, lost), (DropReason::LinkFull, full)] {
            if count > 0 {
                self.shared.counters.dropped(reason, count);
            }
        }
    }

    fn send(&mut self, number: usize, found: &LaneFrame, due: u64, flip: Option<u32>) {
        let LaneFrame { position, size, len, .. } = *found;
        let lane = number as u16;
        let size = size as u32;
        // `flip` may exceed the segment: the model counts the bits of all frames into which the segment is cut.
        let flip = flip.and_then(|flip| flip.checked_rem(len * 8)).unwrap_or(NO_FLIP);
        self.schedule.push(FrameInFlight { due, lane, position, size, flip });
    }

    /// Schedules a frame's duplicate, unless the model loses the duplicate or there is no room. Returns whether the
    /// duplicate is in flight.
    fn send_again(&mut self, number: usize, found: &LaneFrame) -> bool {
        let fate = self.model.as_mut().map(|model| model.copy(found.arrived, found.on_wire));
        let Some(Fate::Sent { due_ns, flip, .. }) = fate.filter(|_| self.schedule.len() < self.most) else {
            return false;
        };
        self.send(number, found, due_ns, flip);
        true
    }

    /// Subtracts frames and bytes that are no longer in flight.
    fn forget(&self, frames: u64, bytes: u64) {
        self.shared.frames.fetch_sub(frames, Ordering::Relaxed);
        self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether frames leave without delay.
    fn is_flushed(&self) -> bool {
        self.is_hurried || self.shared.is_flushed.load(Ordering::Relaxed)
    }

    /// How long the link's rate limits delay the next frame, in nanoseconds.
    fn slowed(&self, now: u64) -> u64 {
        let current = self.shared.current.load();
        let buckets = current.settings.rates.iter().zip(&self.shared.buckets);
        buckets.map(|(limit, bucket)| bucket.wait(limit, now)).max().unwrap_or(0)
    }

    fn charge(&self, now: u64, weight: Weight) {
        let current = self.shared.current.load();
        let buckets = current.settings.rates.iter().zip(&self.shared.buckets);
        buckets.for_each(|(limit, bucket)| bucket.charge(limit, now, [weight].into_iter()));
    }

    /// Adds a due frame to a batch. Returns false if the frame must wait for the next batch, because the batch is full,
    /// or because both this frame and an earlier frame of the batch are damaged.
    ///
    /// # Safety
    /// As for [`Ingress::take`].
    unsafe fn hand_out(&mut self, frame: FrameInFlight, batch: &mut Batch, has_damaged: &mut bool) -> bool {
        let number = usize::from(frame.lane);
        let (Some(lane), Some(reader)) = (self.shared.lanes.get(number), self.readers.get(number)) else {
            return false;
        };
        let FramePlace { mut at, len, offload, no_learn } = reader.frame(lane, frame.position);
        if frame.flip != NO_FLIP {
            if std::mem::replace(has_damaged, true) {
                return false;
            }
            // SAFETY: `len` bytes of the lane, at most the capacity of `damaged`; the lane and `damaged` do not
            // overlap.
            unsafe { netvale_mem::copy::copy_bytes(at, self.damaged.as_mut_ptr(), len as usize) };
            if let Some(byte) = self.damaged.get_mut((frame.flip / 8) as usize) {
                *byte ^= 1 << (frame.flip % 8);
            }
            at = self.damaged.as_ptr();
        }
        // SAFETY: `at` points to bytes of a lane, which are given back only in `release`, or to the damaged frame,
        // which is overwritten only after `release`.
        if !unsafe { batch.push(at, len) } {
            return false;
        }
        batch.set_offload(offload);
        if no_learn {
            batch.set_no_learn();
        }
        true
    }
}

impl Ingress for LinkEnd {
    // SAFETY: frames are in lanes, whose bytes are returned in `release`, or in `damaged`, which only this method
    // writes.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.look_at_settings(changes);
        }
        self.decide();
        if self.schedule.next().is_none() {
            return;
        }
        let now = self.shared.now();
        let mut has_damaged = false;
        while let Some(&next) = self.schedule.next() {
            let may = self.is_flushed() || next.due <= now && self.slowed(now) == 0;
            // SAFETY: this method's own contract.
            if !(may && unsafe { self.hand_out(next, batch, &mut has_damaged) }) {
                break;
            }
            self.schedule.pop();
            self.taken.push(next);
            self.charge(now, batch.get(batch.len() - 1).map_or(Weight::default(), |frame| frame.weight()));
        }
    }

    fn release(&mut self) {
        let mut frames = 0;
        let mut bytes = 0;
        for frame in self.taken.drain(..) {
            let number = usize::from(frame.lane);
            let (Some(lane), Some(reader)) = (self.shared.lanes.get(number), self.readers.get_mut(number)) else {
                continue;
            };
            if reader.done(lane, frame.position) {
                frames += 1;
                bytes += u64::from(frame.size);
            }
        }
        if frames > 0 {
            self.forget(frames, bytes);
        }
    }

    fn arm(&mut self) -> bool {
        notify::arm(&self.shared.need_kick);
        let lanes = || self.shared.lanes.iter().zip(&self.readers);
        lanes().any(|(lane, reader)| reader.has_news(lane))
            || self.nap().is_some_and(|nap| nap.is_zero())
            || self.changes != self.shared.changes.load(Ordering::Acquire)
    }

    fn disarm(&mut self) {
        notify::disarm(&self.shared.need_kick);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wake_fd())
    }

    fn woken(&mut self) {
        self.shared.doorbell.drain();
    }

    fn nap(&self) -> Option<Duration> {
        let next = self.schedule.next()?;
        let now = self.shared.now();
        let slowed = Duration::from_nanos(self.slowed(now));
        Some(if self.is_flushed() { Duration::ZERO } else { until(next.due, now).max(slowed) })
    }

    fn hurry(&mut self) {
        self.is_hurried = true;
    }

    fn settle(&mut self) {
        self.is_hurried = false;
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.shared.counters
    }
}
