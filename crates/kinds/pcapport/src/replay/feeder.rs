//! The feeder: the thread that reads a capture ahead of the ingress.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use netvale_port::{DropReason, MAX_FRAME, RingCounters};

use super::{Alarm, FrameMark, ReplayOptions, ReplayStatus};
use crate::chunk::Chunk;
use crate::pace::Pacer;
use crate::reader::{PcapReader, ReadError};

/// The channels to and from the ingress.
pub(super) struct FeederChannels {
    pub(super) empty: Receiver<Chunk>,
    pub(super) filled: SyncSender<(FrameMark, Chunk)>,
    pub(super) alarm: Arc<Alarm>,
}

/// Error: the ingress was dropped.
struct NoIngress;

pub(super) struct Feeder {
    ways: FeederChannels,
    options: ReplayOptions,
    pacer: Pacer,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    chunk: Option<Chunk>,
    /// Position of the first frame in `chunk`; if there is no chunk, position of the next frame.
    mark: FrameMark,
}

/// A reader with its own position in a file, because other processes may share the descriptor's position.
pub(super) struct PositionedFile {
    file: Arc<File>,
    at: u64,
}

impl PositionedFile {
    pub(super) fn new(file: &Arc<File>, at: u64) -> PositionedFile {
        PositionedFile { file: Arc::clone(file), at }
    }
}

impl Read for PositionedFile {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(to, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// How a pass over the file ended.
enum ReplayPassEnd {
    /// At the end of the file, after this many frames that can be sent.
    End(u64),
    Error(ReadError),
}

impl Feeder {
    /// Creates a feeder that begins at position `mark`.
    pub(super) fn new(
        ways: FeederChannels,
        options: ReplayOptions,
        mark: FrameMark,
        status: Arc<ReplayStatus>,
        counters: Arc<RingCounters>,
    ) -> Self {
        let pacer = Pacer::after(options.pace, mark.before, mark.begins);
        status.passes.store(mark.pass, Ordering::Relaxed);
        Feeder { ways, options, pacer, status, counters, chunk: None, mark }
    }

    /// Reads the file pass by pass and passes its frames to the ingress. `reader` reads `file` in the first pass.
    pub(super) fn run(mut self, reader: PcapReader<PositionedFile>, file: &Arc<File>) {
        if let Err(NoIngress) = self.passes(reader, file) {
            return;
        }
        let FeederChannels { filled, alarm, .. } = self.ways;
        // Wake the ingress once more, which then finds the channel closed.
        drop(filled);
        alarm.go_off();
    }

    fn passes(&mut self, mut reader: PcapReader<PositionedFile>, file: &Arc<File>) -> Result<(), NoIngress> {
        loop {
            let pass = self.pass(&mut reader)?;
            self.hand_over()?;
            let error = match pass {
                ReplayPassEnd::Error(error) => error,
                ReplayPassEnd::End(sent) => {
                    let passes = self.status.passes.fetch_add(1, Ordering::Relaxed) + 1;
                    // A file without frames to send ends even an endless replay, which would otherwise only read the
                    // file over and over.
                    if passes == self.options.passes || sent == 0 {
                        return Ok(());
                    }
                    self.pacer.again();
                    let (before, begins) = self.pacer.done();
                    self.mark = FrameMark { pass: passes, frame: 0, before, begins };
                    match PcapReader::new(PositionedFile::new(file, 0)) {
                        Ok(r) => {
                            reader = r;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            // Cannot fail: the error is set only here, and the thread then ends.
            let _ = self.status.error.set(error);
            return Ok(());
        }
    }

    fn pass(&mut self, reader: &mut PcapReader<PositionedFile>) -> Result<ReplayPassEnd, NoIngress> {
        let mut sent = 0;
        let first = self.mark.frame;
        loop {
            let frame = match reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(ReplayPassEnd::End(sent)),
                Err(error) => return Ok(ReplayPassEnd::Error(error)),
            };
            if frame.bytes.len() > MAX_FRAME {
                self.counters.dropped(DropReason::TooLong, 1);
                continue;
            }
            let due = self.pacer.due(frame.time);
            sent += 1;
            if sent <= first {
                // A predecessor has sent this frame.
                continue;
            }
            loop {
                let chunk = self.chunk()?;
                if let Some(place) = chunk.add(frame.bytes.len(), frame.orig_len, due) {
                    place.copy_from_slice(frame.bytes);
                    break;
                }
                self.hand_over()?;
            }
        }
    }

    /// Returns the chunk being filled. If there is none, waits until the ingress returns an empty chunk.
    fn chunk(&mut self) -> Result<&mut Chunk, NoIngress> {
        let chunk = match self.chunk.take() {
            Some(chunk) => chunk,
            None => self.ways.empty.recv().map_err(|_| NoIngress)?,
        };
        Ok(self.chunk.insert(chunk))
    }

    /// Passes the chunk to the ingress, and then wakes it.
    fn hand_over(&mut self) -> Result<(), NoIngress> {
        if let Some(chunk) = self.chunk.take_if(|chunk| !chunk.is_empty()) {
            let frames = chunk.frames() as u64;
            self.ways.filled.send((self.mark, chunk)).map_err(|_| NoIngress)?;
            self.mark.frame += frames;
            self.ways.alarm.go_off();
        }
        Ok(())
    }
}
