//! A capture file as an ingress.
//!
//! A separate thread reads ahead, so no worker waits for a disk. Chunks of frames go to the ingress and come back once
//! the switch has released them:
//!
//! ```text
//!             ── filled ──►             push
//!   feeder                 PcapIngress ─────► Batch
//!     ▲                        │ release
//!     └─────── empty ◄─────────┘
//! ```
//!
//! One timer wakes the worker: the feeder fires it when it hands over a chunk, and the ingress sets it to the next
//! frame's send time. The order does not matter: the ingress sets it only while it has frames, and checks for a new
//! chunk whenever it has none; a chunk that arrives after that check fires the timer after it.
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

/// A frame of a replay, and the origin of its send time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// The number of passes before this one.
    pass: u64,
    /// The frame's number in its pass.
    frame: u64,
    /// Number of frames in earlier passes, and the start of this pass.
    before: u64,
    begins: Duration,
}

/// Number of chunks in flight in each direction, and the size of one.
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNK_FRAMES: usize = 1024;

/// The options of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Number of times to send the file; 0: without end.
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

/// An error starting a replay.
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
    /// A pipe or device: its reader might wait forever, and it has no beginning to return to.
    #[error("{} is not a regular file; pipe it into `netvale replay - PORT` instead", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A timer or thread could not be created.
    #[error("cannot start a replay: {0}")]
    System(#[from] std::io::Error),
}

/// State of a replay. It can be read from any thread at any time.
#[derive(Debug, Default)]
pub struct ReplayStatus {
    finished: AtomicBool,
    passes: AtomicU64,
    error: OnceLock<ReadError>,
    /// Position when its worker paused.
    settled: Mutex<ReplayState>,
}

impl ReplayStatus {
    /// Whether all frames, or all before an error, have entered the switch: no more follow.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Number of times that the file was read to its end.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// The error that ended the replay early. Whole frames before it were sent.
    pub fn error(&self) -> Option<&ReadError> {
        self.error.get()
    }
}

/// The timer that wakes the worker.
#[derive(Debug)]
struct Alarm(OwnedFd);

impl Alarm {
    /// Longest setting: an early wake-up at this interval costs nothing.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);

    fn new() -> rustix::io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map(Alarm)
    }

    /// Sets the timer to fire after `wait`, in place of its earlier setting.
    fn set(&self, wait: Duration) {
        // Zero would stop it.
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
        // An empty timer is fine.
        let _ = rustix::io::read(&self.0, &mut times);
    }
}

/// A capture file as an ingress. At the file's end, and after an error, it is idle for good.
///
/// It works alike at full speed and at a pace. Checking for frames may take a system call, so it is not cheap: the
/// worker polls it after its timer has fired, and then while it has frames.
pub struct PcapIngress {
    filled: Receiver<(Mark, Chunk)>,
    empty: SyncSender<Chunk>,
    /// The current chunk, and the number of frames taken from it.
    current: Option<(Chunk, usize)>,
    /// The first frame of that chunk, or the next one.
    mark: Mark,
    alarm: Arc<Alarm>,
    /// Arrival of the first frame; the same on the clock shared by all processes.
    began: Option<(Instant, Duration)>,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    /// Its notes, and the frame noted last.
    noted: Noted,
    noted_at: Mark,
}

impl PcapIngress {
    /// Opens a regular file and begins to read ahead.
    ///
    /// # Errors
    /// [`ReplayError`]; later damage of the file shows in [`ReplayStatus::error`].
    pub fn open(path: &Path, options: ReplayOptions, counters: Arc<RingCounters>) -> Result<Self, ReplayError> {
        // Opening a named pipe then does not wait; regular files ignore it.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(|source| read_error(path, ReadError::Open { path: path.to_owned(), source }))?;
        Self::new(file, path, options, counters)
    }

    /// Replays an open file from its position; further passes start at its beginning. `path` is for error messages.
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
        // Bytes before the position are not part of the replay.
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
            // The channel has room for exactly these.
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
        // Detached: it ends when the ingress is dropped, or with the file.
        std::thread::Builder::new().name("netvale-replay".into()).spawn(move || feeder.run(reader, &file))?;
        let current = None;
        let began = None;
        Ok(PcapIngress { filled, empty, current, mark, alarm, began, status, counters, noted, noted_at: mark })
    }

    /// The state of the replay.
    pub fn status(&self) -> &Arc<ReplayStatus> {
        &self.status
    }

    /// Takes the next chunk, if one has arrived and the ingress has none.
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

    /// Time since the first frame arrived.
    fn elapsed(&mut self) -> Duration {
        self.began.get_or_insert_with(|| (Instant::now(), state::now())).0.elapsed()
    }
}

fn read_error(path: &Path, source: ReadError) -> ReplayError {
    ReplayError::Read { path: path.to_owned(), source }
}

impl Ingress for PcapIngress {
    // SAFETY: frames lie in `current`'s chunk, kept until `release`; this only advances in it.
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
            // SAFETY: `data` lies in the buffer of `current`'s chunk.
            // - It stays allocated and in place: a Vec's buffer does not move with it, a chunk never grows, and self
            //   keeps the chunk until `release`.
            // - It is not written meanwhile: the feeder gets the chunk back only in `release`.
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
            // The channel has a place for each chunk. A feeder that has ended needs none.
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
