//! The thread that reads a capture ahead of its ingress.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use netvale_port::{DropReason, MAX_FRAME, RingCounters};

use super::{Alarm, Mark, ReplayOptions, ReplayStatus};
use crate::chunk::Chunk;
use crate::pace::Pacer;
use crate::reader::{ReadError, Reader};

/// The channels to and from the ingress.
pub(super) struct Channels {
    pub(super) empty: Receiver<Chunk>,
    pub(super) filled: SyncSender<(Mark, Chunk)>,
    pub(super) alarm: Arc<Alarm>,
}

/// The ingress was dropped.
struct Gone;

pub(super) struct Feeder {
    ways: Channels,
    options: ReplayOptions,
    pacer: Pacer,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    chunk: Option<Chunk>,
    /// The first frame of the chunk, or the next one.
    mark: Mark,
}

/// A file read from its own position: other processes may share the descriptor.
pub(super) struct At {
    file: Arc<File>,
    at: u64,
}

impl At {
    pub(super) fn new(file: &Arc<File>, at: u64) -> At {
        At { file: Arc::clone(file), at }
    }
}

impl Read for At {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(to, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The end of a pass over the file.
enum Pass {
    /// The end of the file, after this many frames that can be sent.
    End(u64),
    Error(ReadError),
}

impl Feeder {
    /// Creates a feeder that begins at `mark`.
    pub(super) fn new(
        ways: Channels,
        options: ReplayOptions,
        mark: Mark,
        status: Arc<ReplayStatus>,
        counters: Arc<RingCounters>,
    ) -> Self {
        let pacer = Pacer::after(options.pace, mark.before, mark.begins);
        status.passes.store(mark.pass, Ordering::Relaxed);
        Feeder { ways, options, pacer, status, counters, chunk: None, mark }
    }

    /// Sends the file, pass by pass; `reader` reads `file`.
    pub(super) fn run(mut self, reader: Reader<At>, file: &Arc<File>) {
        if let Err(Gone) = self.passes(reader, file) {
            return;
        }
        let Channels { filled, alarm, .. } = self.ways;
        // The ingress, woken once more, finds the channel closed.
        drop(filled);
        alarm.go_off();
    }

    fn passes(&mut self, mut reader: Reader<At>, file: &Arc<File>) -> Result<(), Gone> {
        loop {
            let pass = self.pass(&mut reader)?;
            self.hand_over()?;
            let error = match pass {
                Pass::Error(error) => error,
                Pass::End(sent) => {
                    let passes = self.status.passes.fetch_add(1, Ordering::Relaxed) + 1;
                    // A file without frames would be read over and over.
                    if passes == self.options.passes || sent == 0 {
                        return Ok(());
                    }
                    self.pacer.again();
                    let (before, begins) = self.pacer.done();
                    self.mark = Mark { pass: passes, frame: 0, before, begins };
                    match Reader::new(At::new(file, 0)) {
                        Ok(r) => {
                            reader = r;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            // The first error is kept; only one can occur.
            let _ = self.status.error.set(error);
            return Ok(());
        }
    }

    fn pass(&mut self, reader: &mut Reader<At>) -> Result<Pass, Gone> {
        let mut sent = 0;
        let first = self.mark.frame;
        loop {
            let frame = match reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(Pass::End(sent)),
                Err(error) => return Ok(Pass::Error(error)),
            };
            if frame.bytes.len() > MAX_FRAME {
                self.counters.dropped(DropReason::TooLong, 1);
                continue;
            }
            let due = self.pacer.due(frame.time);
            sent += 1;
            if sent <= first {
                // Another process has sent it.
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

    /// The chunk being filled; waits for an empty one if necessary.
    fn chunk(&mut self) -> Result<&mut Chunk, Gone> {
        let chunk = match self.chunk.take() {
            Some(chunk) => chunk,
            None => self.ways.empty.recv().map_err(|_| Gone)?,
        };
        Ok(self.chunk.insert(chunk))
    }

    /// Hands the chunk to the ingress, then wakes it, in this order.
    fn hand_over(&mut self) -> Result<(), Gone> {
        if let Some(chunk) = self.chunk.take_if(|chunk| !chunk.is_empty()) {
            let frames = chunk.frames() as u64;
            self.ways.filled.send((self.mark, chunk)).map_err(|_| Gone)?;
            self.mark.frame += frames;
            self.ways.alarm.go_off();
        }
        Ok(())
    }
}
