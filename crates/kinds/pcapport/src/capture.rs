//! A capture file as an egress.
//!
//! Workers copy frames to buffers of a bounded pool; a separate thread, the recorder, writes them to the file. No
//! worker waits for a disk: while all buffers are in use, frames are dropped as `no-room`.
//!
//! ```text
//!   workers ── deliver: copy ──► buffer ── full, in order ──► recorder ──► file
//!      ▲                                                         │
//!      └───────────────────────── pool ◄─────────────────────────┘
//! ```
//!
//! Each call of `deliver` fills buffers of its own and passes them to the recorder before it returns, so frames of one
//! source ring stay in order. Small buffers are for single frames, large buffers for batches.
//!
//! A frame with a pending checksum or segmentation (`Offload`) is written unchanged: unsegmented, up to 64 KiB long,
//! and without its checksum, as `tcpdump` shows the host's own traffic.

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use crossbeam_queue::ArrayQueue;
use netvale_mem::noted::NotedCounts;
use netvale_port::{BATCH, Batch, DropReason, Egress, FrameRef, RingCounters, Scratch};

use crate::chunk::Chunk;
use crate::limit::{CaptureLimit, CaptureProgress, ReachedLimit};
use crate::writer::{PcapFormat, PcapWriter, WriteError};

mod state;

pub use state::CaptureState;

/// Size in bytes and number of buffers for single frames.
const SMALL: (usize, usize) = (2048, 2048);
/// Size in bytes and number of buffers for batches and long frames. The longest frame fits into one buffer.
const LARGE: (usize, usize) = (128 * 1024, 128);
/// Size in bytes of all buffers of a capture.
pub const CAPTURE_MEMORY: u64 = (SMALL.0 * SMALL.1 + LARGE.0 * LARGE.1) as u64;
/// Maximum number of frames in a small buffer.
const SMALL_FRAMES: usize = 32;

/// The options of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The file's format.
    pub format: PcapFormat,
    /// Maximum number of bytes to keep of each frame.
    pub snaplen: u32,
}

impl CaptureOptions {
    /// Options to keep whole frames, in the format that the file's name implies.
    pub fn of(path: &Path) -> Self {
        CaptureOptions { format: PcapFormat::of(path), snaplen: u32::MAX }
    }
}

/// Progress of a capture. Any thread can read it, even after the egress is dropped.
#[derive(Debug, Default)]
pub struct CaptureStatus {
    written: AtomicU64,
    lost: AtomicU64,
    portions: AtomicU64,
    stopped: AtomicBool,
    ended: OnceLock<ReachedLimit>,
    error: OnceLock<WriteError>,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl CaptureStatus {
    /// Creates the status of a finished capture.
    pub fn over() -> CaptureStatus {
        CaptureStatus { closed: Mutex::new(true), ..CaptureStatus::default() }
    }

    /// Number of frames written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Number of frames that were accepted and then lost because of an error or a limit.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Number of portions, of [`PORTION`](crate::limit::PORTION) bytes each, that the capture has taken from its user's
    /// [`Allowance`](crate::limit::Allowance).
    pub fn portions(&self) -> u64 {
        self.portions.load(Ordering::Relaxed)
    }

    /// The limit that ended the capture, if any. Later frames are dropped as `capture-full`.
    pub fn ended(&self) -> Option<ReachedLimit> {
        self.ended.get().copied()
    }

    /// The error that ended the capture, if any. Later frames are dropped as `device`.
    pub fn error(&self) -> Option<&WriteError> {
        self.error.get()
    }

    /// Waits until the egress is dropped and its last frame is in the file, at most for `limit`. Returns false if the
    /// limit was reached first.
    pub fn wait_closed(&self, limit: Duration) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.closing.wait_timeout_while(closed, limit, |closed| !*closed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, error: WriteError) {
        // Cannot fail: the writer returns only one error.
        let _ = self.error.set(error);
        self.stopped.store(true, Ordering::Release);
    }

    fn end(&self, why: ReachedLimit) {
        // Only the first reason is kept.
        let _ = self.ended.set(why);
        self.stopped.store(true, Ordering::Release);
    }

    fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.notify_all();
    }
}

/// The free buffers.
struct ChunkPool {
    small: ArrayQueue<Chunk>,
    large: ArrayQueue<Chunk>,
}

impl ChunkPool {
    fn new() -> Self {
        let pool = ChunkPool { small: ArrayQueue::new(SMALL.1), large: ArrayQueue::new(LARGE.1) };
        (0..SMALL.1).for_each(|_| pool.put(Chunk::new(SMALL.0, SMALL_FRAMES)));
        (0..LARGE.1).for_each(|_| pool.put(Chunk::new(LARGE.0, BATCH)));
        pool
    }

    /// Takes a buffer with room for at least `first` bytes, and for `all` bytes if possible. `None` if no such buffer
    /// is free.
    fn get(&self, first: usize, all: usize) -> Option<Chunk> {
        if all <= SMALL.0 {
            return self.small.pop().or_else(|| self.large.pop());
        }
        self.large.pop().or_else(|| if first <= SMALL.0 { self.small.pop() } else { None })
    }

    fn put(&self, mut chunk: Chunk) {
        chunk.clear();
        let queue = if chunk.size() > SMALL.0 { &self.large } else { &self.small };
        // Cannot fail: the queue has room for each buffer.
        let _ = queue.push(chunk);
    }
}

enum RecorderJob {
    Write(Chunk),
    Settle(SyncSender<CaptureState>),
}

/// A capture file as an egress. When it is dropped, the recorder writes the accepted frames and closes the file
/// ([`CaptureStatus::wait_closed`]).
pub struct PcapEgress {
    pool: Arc<ChunkPool>,
    full: SyncSender<RecorderJob>,
    snaplen: usize,
    status: Arc<CaptureStatus>,
    counters: Arc<RingCounters>,
    /// Memory with the recorder's notes, from which a successor restores the capture after a kill.
    noted: OwnedFd,
}

impl PcapEgress {
    /// Captures to an open file until the capture reaches `limit`. `path` is for error messages.
    ///
    /// # Errors
    /// [`WriteError`] if the file's header cannot be written, or a thread cannot be started.
    pub fn new(
        file: File,
        path: &Path,
        options: CaptureOptions,
        limit: CaptureLimit,
        counters: Arc<RingCounters>,
    ) -> Result<Self, WriteError> {
        let named = |e| WriteError::new(Some(path.to_owned()), e);
        let mut at = file.try_clone().map_err(named)?;
        let mut writer = PcapWriter::new(file, options.format)?.named(path);
        // Write the header immediately, to detect a full disk before the first frame.
        writer.flush()?;
        // Only regular files have a position; for others, counting begins at zero.
        let written = CaptureProgress::new(limit, at.stream_position().unwrap_or(0));
        let noted = NotedCounts::new().map_err(|e| named(e.into()))?;
        Self::start(writer, written, noted, CaptureStatus::default(), options, counters).map_err(named)
    }

    /// Starts the recorder.
    fn start(
        writer: PcapWriter<File>,
        written: CaptureProgress,
        noted: NotedCounts,
        status: CaptureStatus,
        options: CaptureOptions,
        counters: Arc<RingCounters>,
    ) -> std::io::Result<Self> {
        let (full, to_recorder) = sync_channel(SMALL.1 + LARGE.1 + 1);
        let pool = Arc::new(ChunkPool::new());
        let status = Arc::new(status);
        let cut_off = status.lost().saturating_sub(writer.lost());
        let flushed = (written.bytes, writer.written());
        let kept = noted.as_fd().try_clone_to_owned()?;
        let mut recorder = RecorderThread {
            writer,
            written,
            flushed,
            cut_off,
            is_flushed: false,
            noted,
            pool: Arc::clone(&pool),
            status: Arc::clone(&status),
        };
        recorder.note();
        recorder.put_down();
        std::thread::Builder::new().name("netvale-capture".into()).spawn(move || recorder.run(&to_recorder))?;
        Ok(PcapEgress { pool, full, snaplen: options.snaplen as usize, status, counters, noted: kept })
    }

    /// Memory with the recorder's notes on its writes, for [`PcapEgress::after_a_kill`].
    pub fn noted(&self) -> BorrowedFd<'_> {
        self.noted.as_fd()
    }

    /// Progress of the capture.
    pub fn status(&self) -> &Arc<CaptureStatus> {
        &self.status
    }

    /// Number of bytes to keep of a frame.
    fn keep(&self, frame: &FrameRef<'_>) -> usize {
        frame.len().min(self.snaplen).min(LARGE.0)
    }

    /// Copies frames to one buffer and passes it to the recorder. Returns the number of frames; 0 if no buffer is free.
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
        // The channel has room for each buffer, and the recorder lives as long as `self`.
        match self.full.try_send(RecorderJob::Write(chunk)) {
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

/// The recorder: the thread that writes the file.
struct RecorderThread {
    writer: PcapWriter<File>,
    written: CaptureProgress,
    /// Number of bytes and frames in the file after the last write.
    flushed: (u64, u64),
    /// Number of frames that arrived after a limit was reached.
    cut_off: u64,
    /// Whether everything received so far is written and noted.
    is_flushed: bool,
    noted: NotedCounts,
    pool: Arc<ChunkPool>,
    status: Arc<CaptureStatus>,
}

impl RecorderThread {
    /// Writes frames until the egress is dropped. After an error, it still receives buffers, to count lost frames.
    fn run(mut self, full: &Receiver<RecorderJob>) {
        while let Some(job) = self.next(full) {
            match job {
                RecorderJob::Write(chunk) => self.write(chunk),
                RecorderJob::Settle(answer) => {
                    self.flush();
                    // Fails if the caller no longer waits.
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
        self.status.portions.store(self.written.portions, Ordering::Relaxed);
        self.status.written.store(self.writer.written(), Ordering::Relaxed);
        self.status.lost.store(self.writer.lost() + self.cut_off, Ordering::Relaxed);
    }

    /// Writes the buffered frames to the file. Before that, notes the position at which the write will end.
    fn flush(&mut self) {
        self.put_down();
        if let Err(e) = self.writer.flush() {
            self.status.fail(e);
            self.put_down();
        }
        self.flushed = (self.written.bytes, self.writer.written());
        self.is_flushed = true;
    }

    /// Whether the limits allow a frame of this length. After the first refusal, all frames are refused.
    fn may_write(&mut self, len: usize) -> bool {
        self.status.ended.get().is_none()
            && self.written.add(self.writer.size_of(len)).map_err(|why| self.status.end(why)).is_ok()
    }

    /// Receives the next job; `None` once the egress is dropped. Before it waits, writes the buffered frames, for
    /// programs that read the file meanwhile.
    fn next(&mut self, full: &Receiver<RecorderJob>) -> Option<RecorderJob> {
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
