//! A capture file as an ingress.
//!
//! A thread of its own reads ahead, so that no worker ever waits for a disk. Chunks of frames go to the ingress and
//! come back when the switch is done with them:
//!
//! ```text
//!             ── filled ──►             push
//!   feeder                 PcapIngress ─────► Batch
//!     ▲                        │ release
//!     └─────── empty ◄─────────┘
//! ```
//!
//! One timer wakes the worker: the feeder lets it go off when it hands over a chunk, and the ingress sets it to when
//! the next frame is due. Both may do so in any order: the ingress sets it only while it holds frames, and it looks for
//! a new chunk whenever it holds none; a chunk that comes after that look lets the timer go off after it.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use netvale_mem::noted::Noted;
use netvale_port::{Batch, Ingress, RingCounters};
use rustix::fs::OFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use thiserror::Error;

use crate::chunk::Chunk;
use crate::pace::Pace;
use crate::reader::{ReadError, Reader};

mod feeder;
mod state;

use feeder::At;
pub use state::ReplayState;

/// A frame of a replay, and what its time depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// The number of passes before this one.
    pass: u64,
    /// The frame's number in its pass.
    frame: u64,
    /// The number of frames in the passes before, and when this pass begins.
    before: u64,
    begins: Duration,
}

/// Chunks on their way in each direction, and the size of one.
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNK_FRAMES: usize = 1024;

/// The options of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// The number of times to send the file; 0: without end.
    pub passes: u64,
    /// The speed.
    pub pace: Pace,
}

impl Default for ReplayOptions {
    /// Once, as fast as possible.
    fn default() -> Self {
        ReplayOptions { passes: 1, pace: Pace::Fast }
    }
}

/// Why a replay cannot begin.
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
    /// A pipe or device, which could make its reader wait forever and has no beginning to return to.
    #[error("{} is not a regular file; pipe it into `netvale replay - PORT` instead", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// No timer or thread can be created.
    #[error("cannot start a replay: {0}")]
    System(#[from] std::io::Error),
}

/// State of a replay. Read by anybody at any time.
#[derive(Debug, Default)]
pub struct ReplayStatus {
    finished: AtomicBool,
    passes: AtomicU64,
    error: OnceLock<ReadError>,
    /// Where it was when its worker paused.
    settled: Mutex<ReplayState>,
}

impl ReplayStatus {
    /// Whether all frames have entered the switch, or all up to an error: nothing will come any more.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// The number of times that the file has been read to its end.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// The error that ended the replay early. The whole frames before it were sent.
    pub fn error(&self) -> Option<&ReadError> {
        self.error.get()
    }
}

/// The timer that wakes the worker.
#[derive(Debug)]
struct Alarm(OwnedFd);

impl Alarm {
    /// Beyond this, waking up early for nothing costs nothing.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);

    fn new() -> rustix::io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map(Alarm)
    }

    /// Sets the timer to go off after `wait`, instead of when it would have.
    fn set(&self, wait: Duration) {
        // Zero would stop it.
        let wait = wait.clamp(Duration::from_nanos(1), Self::LONGEST);
        let value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Fails for no valid descriptor and time.
        let _ = rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    fn go_off(&self) {
        self.set(Duration::ZERO);
    }

    fn drain(&self) {
        let mut times = [0; 8];
        // Nothing to drain is fine.
        let _ = rustix::io::read(&self.0, &mut times);
    }
}

/// A capture file as an ingress. At the file's end, and after an error, it is idle for good.
///
/// It works the same whether it is sent fast or at a pace; looking for frames costs a system call at times, so it is
/// not cheap: the worker looks after its timer went off, and then as long as there are frames.
pub struct PcapIngress {
    filled: Receiver<(Mark, Chunk)>,
    empty: SyncSender<Chunk>,
    /// The chunk that frames are taken from, and how many were.
    current: Option<(Chunk, usize)>,
    /// The first frame of that chunk, or the next one.
    mark: Mark,
    alarm: Arc<Alarm>,
    /// When the first frame was there; the same by the clock that all processes share.
    began: Option<(Instant, Duration)>,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    /// What is noted of it, and the frame that was noted.
    noted: Noted,
    noted_at: Mark,
}

impl PcapIngress {
    /// Opens a regular file and begins to read ahead.
    ///
    /// # Errors
    /// [`ReplayError`]; a file that is cut or damaged later on shows in [`ReplayStatus::error`].
    pub fn open(path: &Path, options: ReplayOptions, counters: Arc<RingCounters>) -> Result<Self, ReplayError> {
        // So that opening a named pipe does not wait; it means nothing to regular files.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(|source| read_error(path, ReadError::Open { path: path.to_owned(), source }))?;
        Self::new(file, path, options, counters)
    }

    /// Replays an open file, from where it stands; further passes from its beginning. `path` is for error messages.
    ///
    /// # Errors
    /// As [`PcapIngress::open`].
    pub fn new(
        file: File,
        path: &Path,
        options: ReplayOptions,
        counters: Arc<RingCounters>,
    ) -> Result<Self, ReplayError> {
        if !file.metadata()?.is_file() {
            return Err(ReplayError::NotAFile { path: path.to_owned() });
        }
        // What was read before is not the replay's.
        let at = (&file).stream_position()?;
        let noted = Noted::new().map_err(std::io::Error::from)?;
        Self::start((Arc::new(file), path, at), options, (Mark::default(), noted), ReplayStatus::default(), counters)
    }

    /// Starts the feeder, at `mark`.
    fn start(
        (file, path, at): (Arc<File>, &Path, u64),
        options: ReplayOptions,
        (mark, noted): (Mark, Noted),
        status: ReplayStatus,
        counters: Arc<RingCounters>,
    ) -> Result<Self, ReplayError> {
        let reader = Reader::new(At::new(&file, at)).map_err(|e| read_error(path, e))?;
        let (to_ingress, filled) = sync_channel(CHUNKS);
        let (empty, to_feeder) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // Has room for exactly these.
            let _ = empty.try_send(Chunk::new(CHUNK_BYTES, CHUNK_FRAMES));
        }
        let alarm = Arc::new(Alarm::new().map_err(std::io::Error::from)?);
        let status = Arc::new(status);
        let feeder = feeder::Feeder::new(
            feeder::Channels { empty: to_feeder, filled: to_ingress, alarm: Arc::clone(&alarm) },
            options,
            mark,
            Arc::clone(&status),
            Arc::clone(&counters),
        );
        // Detached: it ends when the ingress is gone, or with the file.
        std::thread::Builder::new().name("netvale-replay".into()).spawn(move || feeder.run(reader, &file))?;
        let (current, began) = (None, None);
        Ok(PcapIngress { filled, empty, current, mark, alarm, began, status, counters, noted, noted_at: mark })
    }

    /// The state of the replay.
    pub fn status(&self) -> &Arc<ReplayStatus> {
        &self.status
    }

    /// Makes sure that a chunk is in hand, if one has come.
    fn refill(&mut self) {
        if self.current.is_some() {
            return;
        }
        match self.filled.try_recv() {
            Ok((mark, chunk)) => (self.mark, self.current) = (mark, Some((chunk, 0))),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                if !self.status.finished.swap(true, Ordering::Release) {
                    self.note_all();
                }
            }
        }
    }

    /// The time since the first frame was there.
    fn elapsed(&mut self) -> Duration {
        self.began.get_or_insert_with(|| (Instant::now(), state::now())).0.elapsed()
    }
}

fn read_error(path: &Path, source: ReadError) -> ReplayError {
    ReplayError::Read { path: path.to_owned(), source }
}

impl Ingress for PcapIngress {
    // SAFETY: frames lie in `current`'s chunk, which is kept until `release`, and only grows older here.
    unsafe fn take(&mut self, batch: &mut Batch) {
        self.refill();
        if self.current.is_none() {
            return;
        }
        let elapsed = self.elapsed();
        let Some((chunk, next)) = &mut self.current else { return };
        let (mut frames, mut bytes) = (0, 0);
        while let Some((entry, data)) = chunk.get(*next) {
            if entry.time > elapsed {
                self.alarm.set(entry.time - elapsed);
                break;
            }
            // SAFETY: `data` lies in the buffer of `current`'s chunk.
            // - It stays allocated and in place: a Vec's buffer does not move with it, a chunk never grows, and self
            //   keeps the chunk until `release`.
            // - Nobody writes it meanwhile: the feeder gets the chunk back in `release` only.
            // - `data.len()` fits u32: a chunk has CHUNK_BYTES bytes.
            if !unsafe { batch.push(data.as_ptr(), data.len() as u32) } {
                break;
            }
            (*next, frames, bytes) = (*next + 1, frames + 1, bytes + data.len() as u64);
        }
        self.counters.passed(frames, bytes);
    }

    fn release(&mut self) {
        if let Some((mut chunk, _)) = self.current.take_if(|(chunk, next)| *next == chunk.frames()) {
            self.mark.frame += chunk.frames() as u64;
            chunk.clear();
            // There are no more chunks than places. A feeder that ended needs none.
            let _ = self.empty.try_send(chunk);
        }
        self.note();
    }

    fn arm(&mut self) -> bool {
        // The timer wakes a level-triggered sleeper.
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
