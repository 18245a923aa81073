//! Links: a link delays, loses, damages or rate-limits frames between its near end and its far end, according to its
//! settings.
//!
//! Frames are copied into the link's own memory, so no sender waits for frames in flight. A worker writes into a lane,
//! a ring of bytes with one writer at a time and one reader, and takes another lane if that lane is being written. The
//! reader decides with the link's [`Model`], in order of arrival, whether and when each frame arrives, and hands out
//! frames that are due. No thread sleeps for a single frame: [`LinkEnd`] reports to its worker how long the worker may
//! sleep.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use netvale_mem::notify::{self, Doorbell};
use netvale_mem::steps::{Step, step};
use netvale_policy::bucket::{Bucket, RateLimit};
use netvale_policy::impair::{Model, Spec};

use crate::batch::MAX_FRAME;
use crate::{Batch, DropReason, Egress, RingCounters, Scratch};

mod end;
mod lane;
mod schedule;
#[cfg(test)]
mod tests;

pub use end::LinkEnd;
use lane::{LanePut, LinkLane};
use schedule::Schedule;

/// Settings of an impaired link.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// Delay, loss, duplication, damage and reordering of frames; `None`: no impairment.
    pub impair: Option<Spec>,
    /// Rate limits, which are applied at the far end.
    pub rates: Vec<RateLimit>,
    /// Maximum number of bytes in flight, including the record kept for each frame.
    pub bytes: u64,
    /// Maximum number of frames in flight, used only if `impair` is `None` (`impair` has a limit of its own); without a
    /// number, the limit is 2^20 frames. `bytes` may allow fewer frames.
    pub frames: Option<u32>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Maximum number of checks for a lane (a ring of bytes) to which no other thread is writing.
const LOOKS: u32 = 1000;
/// Maximum number of frames in flight if the settings have no limit.
const MOST_FRAMES: u32 = 1 << 20;

impl LinkSettings {
    /// Maximum number of frames in flight, limited also by `bytes`.
    fn frames(&self) -> usize {
        let frames = self.impair.as_ref().map(Spec::limit).or(self.frames).unwrap_or(MOST_FRAMES);
        let fit = LinkLane::capacity_for(self.bytes) / lane::LEAST_FRAME;
        u64::from(frames).min(fit) as usize
    }

    /// Memory in bytes of a link to which `threads` threads deliver. Each lane is as large as the limit for all lanes
    /// together, because one lane may contain all frames; over time every page of each lane is written.
    #[must_use]
    pub fn memory(&self, threads: usize) -> u64 {
        let lanes = lanes_for(threads) as u64 * LinkLane::capacity_for(self.bytes);
        lanes + self.frames() as u64 * Schedule::BYTES + MAX_FRAME as u64
    }
}

/// Number of lanes: one more than threads, so that each thread finds a free lane.
fn lanes_for(threads: usize) -> usize {
    threads + 1
}

/// The settings in use, and the model made from them, so that the far end's thread adopts both without allocating.
struct CurrentSettings {
    settings: LinkSettings,
    model: Option<Model>,
}

impl CurrentSettings {
    fn new(settings: LinkSettings) -> CurrentSettings {
        let model = settings.impair.as_ref().map(|spec| Model::new(spec, settings.seed));
        CurrentSettings { settings, model }
    }
}

/// The state shared by both ends of a link.
struct LinkState {
    lanes: Box<[LinkLane]>,
    /// Number of bytes in flight, in all lanes together.
    used: AtomicU64,
    /// Maximum of `used`, in bytes.
    most: AtomicU64,
    /// Number of frames in flight, i.e. neither delivered nor lost yet.
    frames: AtomicU64,
    /// Non-zero while the far end sleeps.
    need_kick: AtomicU32,
    doorbell: Doorbell,
    current: ArcSwap<CurrentSettings>,
    /// Number of changes of the settings. The far end adopts the settings when this number differs from its own.
    changes: AtomicU32,
    /// Whether all delays have ended, see [`Link::flush`].
    is_flushed: AtomicBool,
    buckets: [Bucket; 2],
    base: Instant,
    counters: Arc<RingCounters>,
}

impl Drop for LinkState {
    /// Counts the frames that a worker with a stale reference delivered after the far end was dropped: they are lost.
    fn drop(&mut self) {
        let left = *self.frames.get_mut();
        if left > 0 {
            self.counters.dropped(DropReason::NoPort, left);
        }
    }
}

impl LinkState {
    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }
}

/// The near end of an impaired link: the egress that puts frames on the link.
pub struct Link {
    shared: Arc<LinkState>,
    /// Egress for frames that need not wait; `None` if all frames leave through the far end.
    to: Option<Arc<dyn Egress>>,
    /// The maximum numbers of bytes and of frames in flight for which memory was allocated.
    room: (u64, usize),
    memory: u64,
}

/// Reason why a link cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The link's memory cannot be allocated.
    #[error("cannot allocate memory for the link's frames")]
    Memory,
    /// The link's doorbell cannot be created.
    #[error("cannot create an eventfd: {0}")]
    Doorbell(#[from] rustix::io::Errno),
}

impl Link {
    /// Creates a link to which `threads` threads deliver. Frames that need not wait are delivered to `to`, if set.
    /// Drops are counted in `counters`.
    ///
    /// # Errors
    /// [`LinkError`] if the memory or the doorbell cannot be created.
    pub fn new(
        settings: LinkSettings,
        threads: usize,
        to: Option<Arc<dyn Egress>>,
        counters: Arc<RingCounters>,
    ) -> Result<(Arc<Link>, LinkEnd), LinkError> {
        let lanes = (0..lanes_for(threads)).map(|_| LinkLane::new(settings.bytes).ok_or(LinkError::Memory));
        let bytes = settings.bytes;
        let frames = settings.frames();
        let memory = settings.memory(threads);
        let shared = Arc::new(LinkState {
            lanes: lanes.collect::<Result<_, _>>()?,
            used: AtomicU64::new(0),
            most: AtomicU64::new(bytes),
            frames: AtomicU64::new(0),
            need_kick: AtomicU32::new(0),
            doorbell: Doorbell::new()?,
            current: ArcSwap::from_pointee(CurrentSettings::new(settings)),
            changes: AtomicU32::new(0),
            is_flushed: AtomicBool::new(false),
            buckets: Default::default(),
            base: Instant::now(),
            counters,
        });
        let end = LinkEnd::new(Arc::clone(&shared), frames).ok_or(LinkError::Memory)?;
        Ok((Arc::new(Link { shared, to, room: (bytes, frames), memory }), end))
    }

    /// Memory of the link in bytes, including pages not yet allocated.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether the link's memory suffices for the frames in flight that `settings` allow.
    #[must_use]
    pub fn has_room_for(&self, settings: &LinkSettings) -> bool {
        settings.bytes <= self.room.0 && settings.frames() <= self.room.1
    }

    /// Changes the settings for later frames; frames in flight keep their delay. The limits on bytes and frames in
    /// flight cannot exceed the initial limits.
    pub fn set(&self, settings: LinkSettings) {
        self.shared.most.store(settings.bytes.min(self.room.0), Ordering::Relaxed);
        self.shared.current.store(Arc::new(CurrentSettings::new(settings)));
        self.shared.changes.fetch_add(1, Ordering::Release);
        self.shared.doorbell.ring();
    }

    /// Ends all delays: frames in flight leave immediately, later frames leave on arrival.
    pub fn flush(&self) {
        self.shared.is_flushed.store(true, Ordering::Release);
        self.shared.doorbell.ring();
    }

    /// Number of frames in flight.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.shared.frames.load(Ordering::Relaxed)
    }

    /// Copies frames into a lane. Returns the number of frames that found room.
    fn put(&self, batch: &Batch, picks: &[u16], now: u64) -> usize {
        let shared = &*self.shared;
        let room = shared.most.load(Ordering::Relaxed).saturating_sub(shared.used.load(Ordering::Relaxed));
        let Some(mut writer) =
            shared.lanes.iter().cycle().skip(lane::own()).take(shared.lanes.len()).find_map(LinkLane::write)
        else {
            return 0;
        };
        let put = writer.put(batch, picks, now, room);
        let LanePut { frames, bytes, .. } = put;
        // Count the frames before they are published: as soon as they are published, the reader may finish them and
        // subtract them.
        shared.used.fetch_add(bytes, Ordering::Relaxed);
        shared.frames.fetch_add(frames as u64, Ordering::Relaxed);
        writer.publish(&put);
        if frames > 0 && notify::wanted(&shared.need_kick) {
            shared.doorbell.ring();
        }
        frames
    }

    /// Copies frames into a lane for the far end, even if the frames need not wait. Returns the number of frames that
    /// found room.
    pub(crate) fn hand_over(&self, batch: &Batch, picks: &[u16]) -> usize {
        let is_busy = |lane: &LinkLane| lane.is_written();
        // If all lanes are being written, wait: a write takes only a moment.
        for _ in 0..LOOKS {
            if !self.shared.lanes.iter().all(is_busy) {
                break;
            }
            std::hint::spin_loop();
        }
        self.put(batch, picks, self.shared.now())
    }

    /// If nothing is in flight, delivers the frames that the rate limits allow now, directly to `to`. Returns the
    /// number of finished frames.
    fn pass_by(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let shared = &*self.shared;
        let (Some(to), 0) = (&self.to, shared.frames.load(Ordering::Relaxed)) else { return 0 };
        // Only a link without impairments passes frames directly.
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
    /// Drops frames that find no room as `LinkFull`. Exception: a link that only limits a rate and has an egress leaves
    /// these frames to the caller, whose senders may wait.
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

/// Returns the time from `now` until `due`, both in nanoseconds; zero if `due` has passed.
fn until(due: u64, now: u64) -> Duration {
    Duration::from_nanos(due.saturating_sub(now))
}

impl LinkState {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
