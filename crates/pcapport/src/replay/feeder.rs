//! The thread that reads a capture ahead of its ingress.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use netvale_port::{DropReason, MAX_FRAME, RingCounters};

use super::{Alarm, ReplayOptions, ReplayStatus};
use crate::chunk::Chunk;
use crate::pace::Pacer;
use crate::reader::{ReadError, Reader};

/// The channels to and from the ingress.
pub(super) struct Channels {
    pub(super) empty: Receiver<Chunk>,
    pub(super) filled: SyncSender<Chunk>,
    pub(super) alarm: Arc<Alarm>,
}

/// The ingress is gone.
struct Gone;

pub(super) struct Feeder {
    ways: Channels,
    options: ReplayOptions,
    pacer: Pacer,
    status: Arc<ReplayStatus>,
    counters: Arc<RingCounters>,
    chunk: Option<Chunk>,
}

/// The end of a pass over the file.
enum Pass {
    /// At the end of the file, after this many frames that can be sent.
    End(u64),
    Error(ReadError),
}

impl Feeder {
    pub(super) fn new(
        ways: Channels,
        options: ReplayOptions,
        status: Arc<ReplayStatus>,
        counters: Arc<RingCounters>,
    ) -> Self {
        Feeder { ways, options, pacer: Pacer::new(options.pace), status, counters, chunk: None }
    }

    /// Sends the file, pass by pass; what `reader` reads is `file`, which is returned to its beginning.
    pub(super) fn run(mut self, reader: Reader<Arc<File>>, file: &Arc<File>) {
        if let Err(Gone) = self.passes(reader, file) {
            return;
        }
        let Channels { filled, alarm, .. } = self.ways;
        // The ingress, woken once more, sees that nobody sends any more.
        drop(filled);
        alarm.go_off();
    }

    fn passes(&mut self, mut reader: Reader<Arc<File>>, file: &Arc<File>) -> Result<(), Gone> {
        loop {
            let pass = self.pass(&mut reader)?;
            self.hand_over()?;
            let error = match pass {
                Pass::Error(error) => error,
                Pass::End(sent) => {
                    let passes = self.status.passes.fetch_add(1, Ordering::Relaxed) + 1;
                    // A file without frames would be read over and over for nothing.
                    if passes == self.options.passes || sent == 0 {
                        return Ok(());
                    }
                    self.pacer.again();
                    match from_the_beginning(file) {
                        Ok(r) => {
                            reader = r;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            // The first one is kept; there is only one.
            let _ = self.status.error.set(error);
            return Ok(());
        }
    }

    fn pass(&mut self, reader: &mut Reader<Arc<File>>) -> Result<Pass, Gone> {
        let mut sent = 0;
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
            loop {
                let chunk = self.chunk()?;
                if let Some(place) = chunk.add(frame.bytes.len(), frame.orig_len, due) {
                    place.copy_from_slice(frame.bytes);
                    break;
                }
                self.hand_over()?;
            }
            sent += 1;
        }
    }

    /// The chunk that is being filled; waits for an empty one if there is none.
    fn chunk(&mut self) -> Result<&mut Chunk, Gone> {
        let chunk = match self.chunk.take() {
            Some(chunk) => chunk,
            None => self.ways.empty.recv().map_err(|_| Gone)?,
        };
        Ok(self.chunk.insert(chunk))
    }

    /// Gives the chunk to the ingress and wakes it: in this order.
    fn hand_over(&mut self) -> Result<(), Gone> {
        if let Some(chunk) = self.chunk.take_if(|chunk| !chunk.is_empty()) {
            self.ways.filled.send(chunk).map_err(|_| Gone)?;
            self.ways.alarm.go_off();
        }
        Ok(())
    }
}

/// The same descriptor: there may be no other one to be had.
fn from_the_beginning(file: &Arc<File>) -> Result<Reader<Arc<File>>, ReadError> {
    let mut same: &File = file;
    same.seek(SeekFrom::Start(0)).map_err(|source| ReadError::Io { at: 0, frames: 0, source })?;
    Reader::new(Arc::clone(file))
}
