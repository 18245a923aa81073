//! A capture file as an egress.
//!
//! The switch copies frames to buffers of a bounded pool; a thread writes them. No worker waits for a disk: when all
//! buffers are in use, frames are dropped for `no-room`.
//!
//! ```text
//!   workers ── deliver: copy ──► buffer ── full, in order ──► recorder ──► file
//!      ▲                                                         │
//!      └───────────────────────── pool ◄─────────────────────────┘
//! ```
//!
//! Each call of `deliver` fills buffers of its own and sends them off before it returns: frames of one source ring stay
//! in order. Small buffers serve single frames, large ones batches.
//!
//! A frame with a pending checksum or segmentation (`Offload`) is written unchanged: whole, up to 64 KiB, without its
//! checksum, just as `tcpdump` shows the host's own traffic.

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use crossbeam_queue::ArrayQueue;
use netvale_mem::noted::Noted;
use netvale_port::{BATCH, Batch, DropReason, Egress, FrameRef, RingCounters, Scratch};

use crate::chunk::Chunk;
use crate::limit::{Ended, Limit, Written};
use crate::writer::{Format, WriteError, Writer};

mod state;

pub use state::CaptureState;

/// Bytes and number of buffers for single frames.
const SMALL: (usize, usize) = (2048, 2048);
/// Bytes and number of buffers for batches and long frames; each has room for the longest frame.
const LARGE: (usize, usize) = (128 * 1024, 128);
/// Bytes of all buffers of a capture.
pub const CAPTURE_MEMORY: u64 = (SMALL.0 * SMALL.1 + LARGE.0 * LARGE.1) as u64;
/// Most frames in a small buffer.
const SMALL_FRAMES: usize = 32;

/// The options of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The file's format.
    pub format: Format,
    /// Bytes to keep of each frame.
    pub snaplen: u32,
}

impl CaptureOptions {
    /// Whole frames, in the format of the file's name.
    pub fn of(path: &Path) -> Self {
        CaptureOptions { format: Format::of(path), snaplen: u32::MAX }
    }
}

/// State of a capture. It can be read from any thread at any time, and outlives the egress.
#[derive(Debug, Default)]
pub struct CaptureStatus {
    written: AtomicU64,
    lost: AtomicU64,
    portions: AtomicU64,
    stopped: AtomicBool,
    ended: OnceLock<Ended>,
    error: OnceLock<WriteError>,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl CaptureStatus {
    /// The state of a finished capture.
    pub fn over() -> CaptureStatus {
        CaptureStatus { closed: Mutex::new(true), ..CaptureStatus::default() }
    }

    /// Frames written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Frames accepted but lost to an error or a limit on their way to the file.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Portions of its user's [`Allowance`](crate::limit::Allowance) that it has taken.
    pub fn portions(&self) -> u64 {
        self.portions.load(Ordering::Relaxed)
    }

    /// The limit that ended the capture. Later frames are dropped for `capture-full`.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }

    /// The error that ended the capture. Later frames are dropped for `device`.
    pub fn error(&self) -> Option<&WriteError> {
        self.error.get()
    }

    /// Waits until the egress is dropped and its last frame is in the file. Returns whether that was within `limit`.
    pub fn wait_closed(&self, limit: Duration) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.closing.wait_timeout_while(closed, limit, |closed| !*closed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, error: WriteError) {
        // The first error is kept; the writer returns only one.
        let _ = self.error.set(error);
        self.stopped.store(true, Ordering::Release);
    }

    fn end(&self, why: Ended) {
        // The first reason is kept.
        let _ = self.ended.set(why);
        self.stopped.store(true, Ordering::Release);
    }

    fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.notify_all();
    }
}

/// The free buffers.
struct Pool {
    small: ArrayQueue<Chunk>,
    large: ArrayQueue<Chunk>,
}

impl Pool {
    fn new() -> Self {
        let pool = Pool { small: ArrayQueue::new(SMALL.1), large: ArrayQueue::new(LARGE.1) };
        (0..SMALL.1).for_each(|_| pool.put(Chunk::new(SMALL.0, SMALL_FRAMES)));
        (0..LARGE.1).for_each(|_| pool.put(Chunk::new(LARGE.0, BATCH)));
        pool
    }

    /// A buffer with room for at least `first` bytes, and for `all` if possible.
    fn get(&self, first: usize, all: usize) -> Option<Chunk> {
        if all <= SMALL.0 {
            return self.small.pop().or_else(|| self.large.pop());
        }
        self.large.pop().or_else(|| if first <= SMALL.0 { self.small.pop() } else { None })
    }

    fn put(&self, mut chunk: Chunk) {
        chunk.clear();
        let queue = if chunk.size() > SMALL.0 { &self.large } else { &self.small };
        // The queue has a place for each buffer.
        let _ = queue.push(chunk);
    }
}

/// A job for the recorder.
enum Job {
    Write(Chunk),
    Settle(SyncSender<CaptureState>),
}

/// A capture file as an egress. After it is dropped, accepted frames are still written, and the file is closed
/// ([`CaptureStatus::wait_closed`]).
pub struct PcapEgress {
    pool: Arc<Pool>,
    full: SyncSender<Job>,
    snaplen: usize,
    status: Arc<CaptureStatus>,
    counters: Arc<RingCounters>,
    /// The recorder's notes.
    noted: OwnedFd,
}

impl PcapEgress {
    /// Creates or truncates the file, and begins to capture.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be created, its header cannot be written, or a thread cannot be started.
    pub fn create(path: &Path, options: CaptureOptions, counters: Arc<RingCounters>) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|e| WriteError::new(Some(path.to_owned()), e))?;
        Self::new(file, path, options, counters)
    }

    /// Captures into an open file. `path` is for error messages.
    ///
    /// # Errors
    /// [`WriteError`] if the file's header cannot be written, or a thread cannot be started.
    pub fn new(
        file: File,
        path: &Path,
        options: CaptureOptions,
        counters: Arc<RingCounters>,
    ) -> Result<Self, WriteError> {
        Self::limited(file, path, options, Limit::default(), counters)
    }

    /// The same, up to a limit.
    ///
    /// # Errors
    /// As [`PcapEgress::new`].
    pub fn limited(
        file: File,
        path: &Path,
        options: CaptureOptions,
        limit: Limit,
        counters: Arc<RingCounters>,
    ) -> Result<Self, WriteError> {
        let named = |e| WriteError::new(Some(path.to_owned()), e);
        let mut at = file.try_clone().map_err(named)?;
        let mut writer = Writer::new(file, options.format)?.named(path);
        // Writes the header immediately: this shows a full disk before the first frame.
        writer.flush()?;
        // Anything but a regular file has no position.
        let written = Written::new(limit, at.stream_position().unwrap_or(0));
        let noted = Noted::new().map_err(|e| named(e.into()))?;
        Self::start((writer, written), noted, CaptureStatus::default(), options, counters).map_err(named)
    }

    /// Starts the recorder.
    fn start(
        (writer, written): (Writer<File>, Written),
        noted: Noted,
        status: CaptureStatus,
        options: CaptureOptions,
        counters: Arc<RingCounters>,
    ) -> std::io::Result<Self> {
        let (full, to_recorder) = sync_channel(SMALL.1 + LARGE.1 + 1);
        let pool = Arc::new(Pool::new());
        let status = Arc::new(status);
        let cut_off = status.lost().saturating_sub(writer.lost());
        let flushed = (written.bytes(), writer.written());
        let kept = noted.as_fd().try_clone_to_owned()?;
        let pool_too = Arc::clone(&pool);
        let status_too = Arc::clone(&status);
        let mut recorder = Recorder {
            writer,
            written,
            flushed,
            cut_off,
            is_flushed: false,
            noted,
            pool: pool_too,
            status: status_too,
        };
        recorder.note();
        recorder.put_down();
        std::thread::Builder::new().name("netvale-capture".into()).spawn(move || recorder.run(&to_recorder))?;
        Ok(PcapEgress { pool, full, snaplen: options.snaplen as usize, status, counters, noted: kept })
    }

    /// The recorder's notes, for [`PcapEgress::after_a_kill`].
    pub fn noted(&self) -> BorrowedFd<'_> {
        self.noted.as_fd()
    }

    /// The state of the capture.
    pub fn status(&self) -> &Arc<CaptureStatus> {
        &self.status
    }

    /// Bytes to keep of a frame.
    fn keep(&self, frame: &FrameRef<'_>) -> usize {
        frame.len().min(self.snaplen).min(LARGE.0)
    }

    /// Copies frames to one buffer and sends it off. Returns their number, 0 if no buffer is free.
    fn send(&self, batch: &Batch, picks: &[u16], now: Duration) -> usize {
        let sizes = || picks.iter().map(|&p| batch.get(p.into()).map_or(0, |f| self.keep(&f)));
        let Some(mut chunk) = self.pool.get(sizes().next().unwrap_or(0), sizes().sum()) else { return 0 };
        let mut done = 0;
        let mut bytes = 0;
        for &pick in picks {
            if let Some(frame) = batch.get(pick.into()) {
                let Some(place) = chunk.add(self.keep(&frame), frame.len() as u32, now) else { break };
                frame.copy_out(0, place);
                bytes += frame.len() as u64;
            }
            done += 1;
        }
        let frames = chunk.frames() as u64;
        // The channel has a place for each buffer, and the recorder lives as long as self.
        match self.full.try_send(Job::Write(chunk)) {
            Ok(()) => self.counters.passed(frames, bytes),
            Err(_) => self.counters.dropped(DropReason::Device, frames),
        }
        done
    }
}

impl Egress for PcapEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        if self.status.stopped.load(Ordering::Acquire) {
            let why = if self.status.ended.get().is_some() { DropReason::CaptureFull } else { DropReason::Device };
            self.counters.dropped(why, picks.len() as u64);
            return picks.len();
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut done = 0;
        while let Some(rest) = picks.get(done..).filter(|rest| !rest.is_empty()) {
            match self.send(batch, rest, now) {
                0 => break,
                n => done += n,
            }
        }
        done
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// The writing thread.
struct Recorder {
    writer: Writer<File>,
    written: Written,
    /// Bytes and frames of the file on disk.
    flushed: (u64, u64),
    /// Frames that arrived after a limit.
    cut_off: u64,
    /// Whether nothing has arrived since everything was written and noted.
    is_flushed: bool,
    noted: Noted,
    pool: Arc<Pool>,
    status: Arc<CaptureStatus>,
}

impl Recorder {
    /// Writes until the egress is dropped. After an error it still takes buffers, to count lost frames.
    fn run(mut self, full: &Receiver<Job>) {
        while let Some(job) = self.next(full) {
            match job {
                Job::Write(chunk) => self.write(chunk),
                Job::Settle(answer) => {
                    self.flush();
                    // The asking thread may have given up.
                    let _ = answer.try_send(self.state());
                }
            }
        }
        self.flush();
        self.status.close();
    }

    fn write(&mut self, chunk: Chunk) {
        self.is_flushed = false;
        for (entry, frame) in chunk.iter() {
            if !self.writer.has_room(frame.len()) {
                self.flush();
            }
            if self.may_write(frame.len()) {
                self.writer.write_cut(entry.time, frame, entry.orig_len).unwrap_or_else(|e| self.status.fail(e));
            } else {
                self.cut_off += 1;
            }
        }
        self.note();
        self.pool.put(chunk);
    }

    fn note(&self) {
        self.status.portions.store(self.written.portions(), Ordering::Relaxed);
        self.status.written.store(self.writer.written(), Ordering::Relaxed);
        self.status.lost.store(self.writer.lost() + self.cut_off, Ordering::Relaxed);
    }

    /// Writes out the buffered whole frames. Before that, it notes the end position of the write.
    fn flush(&mut self) {
        self.put_down();
        if let Err(e) = self.writer.flush() {
            self.status.fail(e);
            self.put_down();
        }
        self.flushed = (self.written.bytes(), self.writer.written());
        self.is_flushed = true;
    }

    /// Whether a frame of that length may be written. After the first refusal, all are refused.
    fn may_write(&mut self, len: usize) -> bool {
        self.status.ended.get().is_none()
            && self.written.add(self.writer.size_of(len)).map_err(|why| self.status.end(why)).is_ok()
    }

    /// Receives the next buffer. Before it waits, it writes out its frames, for programs that read the file meanwhile.
    fn next(&mut self, full: &Receiver<Job>) -> Option<Job> {
        match full.try_recv() {
            Ok(job) => Some(job),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                if !self.is_flushed {
                    self.flush();
                }
                full.recv().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests;
