//! A capture file as an ingress.
//!
//! A separate thread, the feeder, reads ahead, so that no worker waits for a disk. The feeder passes chunks of frames
//! to the ingress, which returns each chunk once the switch has released its frames:
//!
//! ```text
//!             ── filled ──►             push
//!   feeder                 PcapIngress ─────► Batch
//!     ▲                        │ release
//!     └─────── empty ◄─────────┘
//! ```
//!
//! One timer wakes the worker. The feeder fires it after passing a chunk, and the ingress sets it to the next frame's
//! send time. No wake-up is lost: the ingress sets the timer only while it has frames, and whenever it has no frames,
//! it checks for a chunk; the feeder fires the timer for a chunk that arrives after that check.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use netvale_mem::noted::NotedCounts;
use netvale_port::{Batch, Ingress, RingCounters};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use thiserror::Error;

use crate::chunk::Chunk;
use crate::pace::ReplayPace;
use crate::reader::{PcapReader, ReadError};

mod feeder;
mod state;

use feeder::PositionedFile;
pub use state::ReplayState;

/// The position of a frame in a replay, and the base of its send time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameMark {
    /// Number of passes before the frame's pass.
    pass: u64,
    /// Index of the frame in its pass.
    frame: u64,
    /// Number of frames in earlier passes.
    before: u64,
    /// Start of this pass, since the start of the replay.
    begins: Duration,
}

/// A file to replay, its path for error messages, and the position of the first byte to replay.
struct ReplayInput<'a> {
    file: Arc<File>,
    path: &'a Path,
    at: u64,
}

/// Number of chunks.
const CHUNKS: usize = 8;
/// Size of a chunk in bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Maximum number of frames of a chunk.
const CHUNK_FRAMES: usize = 1024;

/// The options of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Number of times to send the file; 0: endlessly.
    pub passes: u64,
    /// Speed at which frames are sent.
    pub pace: ReplayPace,
}

impl Default for ReplayOptions {
    /// One pass, as fast as possible.
    fn default() -> Self {
        ReplayOptions { passes: 1, pace: ReplayPace::Fast }
    }
}

/// An error in starting a replay.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The file is not a capture, or cannot be opened.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// The file is a pipe or a device: reading it might block forever, and further passes are impossible.
    #[error("{} is not a regular file; pipe it into `netvale replay - PORT` instead", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A timer or thread could not be created.
    #[error("cannot start a replay: {0}")]
    System(#[from] std::io::Error),
}

/// Progress of a replay, which any thread can read.
#[derive(Debug, Default)]
pub struct ReplayStatus {
    finished: AtomicBool,
    passes: AtomicU64,
    error: OnceLock<ReadError>,
    /// State saved when the worker last paused.
    settled: Mutex<ReplayState>,
}

impl ReplayStatus {
    /// Whether the replay is over: all frames, or all frames before an error, have entered the switch.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Number of times that the file was read to its end.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// The error that ended the replay early, if any. All whole frames before it were sent.
    pub fn error(&self) -> Option<&ReadError> {
        self.error.get()
    }
}

/// The timer that wakes the worker.
#[derive(Debug)]
struct Alarm(OwnedFd);

impl Alarm {
    /// Longest time to which the timer is set. One early wake-up a day costs nothing.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);

    fn new() -> rustix::io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map(Alarm)
    }

    /// Sets the timer to fire after `wait`, and replaces its earlier setting.
    fn set(&self, wait: Duration) {
        // Zero would stop the timer.
        let wait = wait.clamp(Duration::from_nanos(1), Self::LONGEST);
        let value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Cannot fail for a valid descriptor and time.
        let _ = rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    fn go_off(&self) {
        self.set(Duration::ZERO);
    }

    fn drain(&self) {
        let mut times = [0; 8];
        // Fails if the timer has not fired.
        let _ = rustix::io::read(&self.0, &mut times);
    }
}

/// A capture file as an ingress. After the last pass, or after an error, it stays idle.
///
/// Checking for frames may need a system call, so the ingress is not cheap ([`Ingress::is_cheap`]): a worker polls the
/// ingress after its timer has fired, and then as long as the ingress has frames.
pub struct PcapIngress {
    filled: Receiver<(FrameMark, Chunk)>,
    empty: SyncSender<Chunk>,
    /// The current chunk, if there is one, and the number of its frames that were taken.
    current: Option<(Chunk, usize)>,
    /// Position of the current chunk's first frame; if there is no chunk, position of the next frame.
    mark: FrameMark,
    alarm: Arc<Alarm>,
    /// When the first frame arrived from the feeder: as an `Instant`, to measure with, and as `CLOCK_MONOTONIC` time,
    /// for a successor. `None` before that.
    began: Option<(Instant, Duration)>,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    /// Memory with the notes from which a successor restores the replay after a kill.
    noted: NotedCounts,
    /// The position noted last.
    noted_at: FrameMark,
}

impl PcapIngress {
    /// Replays an open file from its current position; further passes start at the beginning of the file. `path` is for
    /// error messages. Starts to read ahead.
    ///
    /// # Errors
    /// [`ReplayError`]. Damage further on in the file is reported by [`ReplayStatus::error`].
    pub fn new(
        file: File,
        path: &Path,
        options: ReplayOptions,
        counters: Arc<RingCounters>,
    ) -> Result<Self, ReplayError> {
        if !file.metadata()?.is_file() {
            return Err(ReplayError::NotAFile { path: path.to_owned() });
        }
        // Bytes before the current position are not part of the replay.
        let at = (&file).stream_position()?;
        let noted = NotedCounts::new().map_err(std::io::Error::from)?;
        let file = ReplayInput { file: Arc::new(file), path, at };
        Self::start(file, options, FrameMark::default(), noted, ReplayStatus::default(), counters)
    }

    /// Starts the feeder at position `mark`.
    fn start(
        replayed: ReplayInput<'_>,
        options: ReplayOptions,
        mark: FrameMark,
        noted: NotedCounts,
        status: ReplayStatus,
        counters: Arc<RingCounters>,
    ) -> Result<Self, ReplayError> {
        let ReplayInput { file, path, at } = replayed;
        let unread = |source| ReplayError::Read { path: path.to_owned(), source };
        let reader = PcapReader::new(PositionedFile::new(&file, at)).map_err(unread)?;
        let (to_ingress, filled) = sync_channel(CHUNKS);
        let (empty, to_feeder) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // Cannot fail: the channel has room for all chunks.
            let _ = empty.try_send(Chunk::new(CHUNK_BYTES, CHUNK_FRAMES));
        }
        let alarm = Arc::new(Alarm::new().map_err(std::io::Error::from)?);
        let status = Arc::new(status);
        let feeder = feeder::Feeder::new(
            feeder::FeederChannels { empty: to_feeder, filled: to_ingress, alarm: Arc::clone(&alarm) },
            options,
            mark,
            Arc::clone(&status),
            Arc::clone(&counters),
        );
        // The thread is detached. It ends when the ingress is dropped, or at the end of the replay.
        std::thread::Builder::new().name("netvale-replay".into()).spawn(move || feeder.run(reader, &file))?;
        let current = None;
        let began = None;
        Ok(PcapIngress { filled, empty, current, mark, alarm, began, status, counters, noted, noted_at: mark })
    }

    /// Progress of the replay.
    pub fn status(&self) -> &Arc<ReplayStatus> {
        &self.status
    }

    /// If the ingress has no chunk, takes the next chunk that has arrived.
    fn refill(&mut self) {
        if self.current.is_some() {
            return;
        }
        match self.filled.try_recv() {
            Ok((mark, chunk)) => {
                self.mark = mark;
                self.current = Some((chunk, 0));
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                if !self.status.finished.swap(true, Ordering::Release) {
                    self.note_all();
                }
            }
        }
    }

    /// Returns the time since the first frame arrived from the feeder.
    fn elapsed(&mut self) -> Duration {
        self.began.get_or_insert_with(|| (Instant::now(), state::now())).0.elapsed()
    }
}

impl Ingress for PcapIngress {
    // SAFETY: frames are in `current`'s chunk, which is kept until `release`; `take` only advances in it.
    unsafe fn take(&mut self, batch: &mut Batch) {
        self.refill();
        if self.current.is_none() {
            return;
        }
        let elapsed = self.elapsed();
        let Some((chunk, next)) = &mut self.current else { return };
        let mut frames = 0;
        let mut bytes = 0;
        while let Some((entry, data)) = chunk.get(*next) {
            if entry.time > elapsed {
                self.alarm.set(entry.time - elapsed);
                break;
            }
            // SAFETY: `data` is in the buffer of `current`'s chunk.
            // - The buffer stays allocated and in place: a Vec's buffer does not move with the Vec, a chunk never
            //   grows, and `self` keeps the chunk until `release`.
            // - The buffer is not written meanwhile: the feeder gets the chunk back only in `release`.
            // - `data.len()` fits u32: a chunk has CHUNK_BYTES bytes.
            if !unsafe { batch.push(data.as_ptr(), data.len() as u32) } {
                break;
            }
            *next += 1;
            frames += 1;
            bytes += data.len() as u64;
        }
        self.counters.passed(frames, bytes);
    }

    fn release(&mut self) {
        if let Some((mut chunk, _)) = self.current.take_if(|(chunk, next)| *next == chunk.frames()) {
            self.mark.frame += chunk.frames() as u64;
            chunk.clear();
            // Fails only if the feeder has ended: the channel has room for each chunk.
            let _ = self.empty.try_send(chunk);
        }
        self.note();
    }

    fn arm(&mut self) -> bool {
        // Arming is unnecessary: the timer is polled level-triggered.
        false
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.alarm.0.as_fd())
    }

    fn woken(&mut self) {
        self.alarm.drain();
    }

    fn settle(&mut self) {
        self.put_down();
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
