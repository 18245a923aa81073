//! A link that delays, loses, damages or limits frames on their way from its near end to its far end, as its settings
//! say.
//!
//! Frames are copied into the link's own memory: no sender waits for frames in flight. Each delivering worker has a
//! lane, a ring of bytes with one writer and one reader; a worker does not wait for a lane that another is writing. The
//! reader decides about each frame in order of arrival, as the link's [`Model`] says, and hands out those that are due.
//! No thread sleeps for a frame: the far end's worker knows when to look next.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use netvale_mem::notify::{self, Doorbell};
use netvale_mem::steps::{Step, step};
use netvale_policy::bucket::{Bucket, Limit};
use netvale_policy::impair::{Model, Spec};

use crate::batch::MAX_FRAME;
use crate::{Batch, DropReason, Egress, RingCounters, Scratch};

mod end;
mod lane;
mod schedule;
#[cfg(test)]
mod tests;

pub use end::LinkEnd;
use lane::{Lane, Put};
use schedule::Schedule;

/// Settings of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// Impairments of frames on it.
    pub impair: Option<Spec>,
    /// Rate limits at its exit.
    pub rates: Vec<Limit>,
    /// Bytes that may be in flight, including the record kept for each frame.
    pub bytes: u64,
    /// Frames that may be in flight, if fewer than `bytes` allows.
    pub frames: Option<u32>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Attempts to find a free lane.
const LOOKS: u32 = 1000;
/// Frames in flight on a link without another limit.
const MOST_FRAMES: u32 = 1 << 20;

impl LinkSettings {
    /// Frames that may be in flight: no more than the bytes allow.
    fn frames(&self) -> usize {
        let frames = self.impair.as_ref().map(Spec::limit).or(self.frames).unwrap_or(MOST_FRAMES);
        let fit = Lane::capacity_for(self.bytes) / lane::LEAST_FRAME;
        u64::from(frames).min(fit) as usize
    }

    /// Bytes of memory of a link with `threads` delivering threads. Each lane holds as much as all together may, as one
    /// lane may hold all frames; sooner or later every page of it has been written.
    #[must_use]
    pub fn memory(&self, threads: usize) -> u64 {
        let lanes = lanes_for(threads) as u64 * Lane::capacity_for(self.bytes);
        lanes + self.frames() as u64 * Schedule::BYTES + MAX_FRAME as u64
    }
}

/// One lane more than threads, so that each finds a free one.
fn lanes_for(threads: usize) -> usize {
    threads + 1
}

/// Settings in use, with values derived from them. The far end's thread takes them over without allocating.
struct Current {
    settings: LinkSettings,
    model: Option<Model>,
}

impl Current {
    fn new(settings: LinkSettings) -> Current {
        let model = settings.impair.as_ref().map(|spec| Model::new(spec, settings.seed));
        Current { settings, model }
    }
}

/// The state shared by both ends of a link.
struct Shared {
    lanes: Box<[Lane]>,
    /// Bytes in all lanes, and their limit.
    used: AtomicU64,
    most: AtomicU64,
    /// Frames not yet delivered or lost.
    frames: AtomicU64,
    /// Whether the far end sleeps.
    need_kick: AtomicU32,
    doorbell: Doorbell,
    current: ArcSwap<Current>,
    /// Counts changes of the settings; the far end reads it.
    changes: AtomicU32,
    /// Whether frames pass without delay.
    is_flushed: AtomicBool,
    buckets: [Bucket; 2],
    base: Instant,
    counters: Arc<RingCounters>,
}

impl Drop for Shared {
    /// Counts frames that a worker, which knew the link for a moment longer, delivered after the reader had gone: they
    /// are lost.
    fn drop(&mut self) {
        let left = *self.frames.get_mut();
        if left > 0 {
            self.counters.dropped(DropReason::NoPort, left);
        }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }
}

/// The near end of a link: the egress.
pub struct Link {
    shared: Arc<Shared>,
    /// Egress of frames that need not wait; `None` if frames leave by an ingress.
    to: Option<Arc<dyn Egress>>,
    /// Bytes and frames in flight that the memory allows.
    room: (u64, usize),
    memory: u64,
}

/// Why a link cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Its memory cannot be allocated.
    #[error("no memory for frames under way")]
    Memory,
    /// Its doorbell cannot be created.
    #[error("no descriptor for a doorbell: {0}")]
    Doorbell(#[from] rustix::io::Errno),
}

impl Link {
    /// Creates a link with `threads` delivering threads. Frames that need not wait go to `to`, if set. Drops are
    /// counted in `counters`.
    ///
    /// # Errors
    /// [`LinkError`] if the memory or the doorbell cannot be created.
    pub fn new(
        settings: LinkSettings,
        threads: usize,
        to: Option<Arc<dyn Egress>>,
        counters: Arc<RingCounters>,
    ) -> Result<(Arc<Link>, LinkEnd), LinkError> {
        let lanes = (0..lanes_for(threads)).map(|_| Lane::new(settings.bytes).ok_or(LinkError::Memory));
        let bytes = settings.bytes;
        let frames = settings.frames();
        let memory = settings.memory(threads);
        let shared = Arc::new(Shared {
            lanes: lanes.collect::<Result<_, _>>()?,
            used: AtomicU64::new(0),
            most: AtomicU64::new(bytes),
            frames: AtomicU64::new(0),
            need_kick: AtomicU32::new(0),
            doorbell: Doorbell::new()?,
            current: ArcSwap::from_pointee(Current::new(settings)),
            changes: AtomicU32::new(0),
            is_flushed: AtomicBool::new(false),
            buckets: Default::default(),
            base: Instant::now(),
            counters,
        });
        let end = LinkEnd::new(Arc::clone(&shared), frames).ok_or(LinkError::Memory)?;
        Ok((Arc::new(Link { shared, to, room: (bytes, frames), memory }), end))
    }

    /// Bytes of memory of the link, including what it has yet to allocate.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether its memory suffices for the frames in flight that these settings allow.
    #[must_use]
    pub fn has_room_for(&self, settings: &LinkSettings) -> bool {
        settings.bytes <= self.room.0 && settings.frames() <= self.room.1
    }

    /// Changes the settings. Frames in flight keep theirs. The limits in flight cannot exceed the initial ones.
    pub fn set(&self, settings: LinkSettings) {
        self.shared.most.store(settings.bytes.min(self.room.0), Ordering::Relaxed);
        self.shared.current.store(Arc::new(Current::new(settings)));
        self.shared.changes.fetch_add(1, Ordering::Release);
        self.shared.doorbell.ring();
    }

    /// Ends all delays: later frames leave on arrival, those in flight immediately.
    pub fn flush(&self) {
        self.shared.is_flushed.store(true, Ordering::Release);
        self.shared.doorbell.ring();
    }

    /// Number of frames in flight.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.shared.frames.load(Ordering::Relaxed)
    }

    /// Copies frames into a lane. Returns the number that found room.
    fn put(&self, batch: &Batch, picks: &[u16], now: u64) -> usize {
        let shared = &*self.shared;
        let room = shared.most.load(Ordering::Relaxed).saturating_sub(shared.used.load(Ordering::Relaxed));
        let Some(mut writer) =
            shared.lanes.iter().cycle().skip(lane::own()).take(shared.lanes.len()).find_map(Lane::write)
        else {
            return 0;
        };
        let put = writer.put(batch, picks, now, room);
        let Put { frames, bytes, .. } = put;
        // Must precede the publication: the reader may finish with them, and subtract them, right after it.
        shared.used.fetch_add(bytes, Ordering::Relaxed);
        shared.frames.fetch_add(frames as u64, Ordering::Relaxed);
        writer.publish(&put);
        if frames > 0 && notify::wanted(&shared.need_kick) {
            shared.doorbell.ring();
        }
        frames
    }

    /// Copies frames to the far end, whatever the settings. Returns the number that found room.
    pub(crate) fn hand_over(&self, batch: &Batch, picks: &[u16]) -> usize {
        let is_busy = |lane: &Lane| lane.is_written();
        // A worker that holds a lane finishes soon.
        for _ in 0..LOOKS {
            if !self.shared.lanes.iter().all(is_busy) {
                break;
            }
            std::hint::spin_loop();
        }
        self.put(batch, picks, self.shared.now())
    }

    /// Delivers directly what may pass now, if nothing is in flight. Returns the number of finished frames.
    fn pass_by(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let shared = &*self.shared;
        let (Some(to), 0) = (&self.to, shared.frames.load(Ordering::Relaxed)) else { return 0 };
        // Only a link with nothing but a rate lets frames pass directly.
        let current = shared.current.load();
        let settings = &current.settings;
        if settings.impair.is_some() {
            return 0;
        }
        let now = shared.now();
        let weights = || picks.iter().filter_map(|&pick| batch.get(pick.into())).map(|frame| frame.weight());
        let buckets = || settings.rates.iter().zip(&shared.buckets);
        let may = buckets().map(|(limit, bucket)| bucket.may(limit, now, weights())).min().unwrap_or(picks.len());
        let done = to.deliver(batch, &picks[..may.min(picks.len())], scratch);
        buckets().for_each(|(limit, bucket)| bucket.charge(limit, now, weights().take(done)));
        done
    }
}

impl Egress for Link {
    /// Frames without room are dropped here, by name, unless the link has nothing but a rate: then its senders may
    /// wait.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let passed = self.pass_by(batch, picks, scratch);
        let rest = &picks[passed.min(picks.len())..];
        if rest.is_empty() {
            return picks.len();
        }
        let put = self.put(batch, rest, self.shared.now());
        if put > 0 {
            step(Step::Link);
        }
        let is_full = put < rest.len();
        if is_full && self.to.is_some() && self.is_only_slow() {
            return passed + put;
        }
        if is_full {
            self.shared.counters.dropped(DropReason::LinkFull, (rest.len() - put) as u64);
        }
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.shared.counters
    }
}

impl Link {
    fn is_only_slow(&self) -> bool {
        self.shared.current.load().settings.impair.is_none()
    }
}

/// Time from `now` until `due`.
fn until(due: u64, now: u64) -> Duration {
    Duration::from_nanos(due.saturating_sub(now))
}

impl Shared {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
