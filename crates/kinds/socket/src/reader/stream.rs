//! Reads frames from a stream.
//!
//! Bytes that this process took from a socket would be lost if it were killed, and its successor would start in the
//! middle of a frame. The reader therefore peeks at a stream (`MSG_PEEK`) and takes only whole frames. A frame that is
//! still incomplete at the second peek may be larger than the socket's buffer: the reader then takes its first part,
//! and records this, so that a successor detects that the start is missing.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::OwnedFd;

use netvale_mem::noted::{NUMBERS, NotedCounts};
use netvale_port::MAX_FRAME;
use rustix::io::Errno;

use super::ReadStep;
use crate::news::{PASSED, PeerNews};
use crate::rules::{PREFIX, PeerIntake, StreamFront, front};
use crate::sys::{HEAD, Skipper, peek};

/// Number of bytes per peek, at least the longest frame.
const LOOK: usize = 256 * 1024;

const _: () = assert!(LOOK > HEAD + MAX_FRAME);

/// A reader of a stream's frames.
pub struct StreamReader {
    /// Bytes seen by the last peek; the bytes from `at` to `end` are still in the socket.
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// Start of a frame that was taken from the socket before the frame was complete, including its length prefix.
    begun: Vec<u8>,
    /// Whether the frame in `begun` is complete now, and in the batch.
    is_whole: bool,
    /// Whether the last peek found the first frame incomplete.
    has_looked: bool,
    /// Location in `buffer` of each frame in the batch.
    frames: Vec<Range<usize>>,
    longest: usize,
    skipper: Skipper,
    noted: NotedCounts,
}

/// Returns the record for a successor: whether the start of a frame is missing in the stream.
fn numbers(lacks: bool) -> [u64; NUMBERS] {
    let mut numbers = [0; NUMBERS];
    numbers[0] = lacks.into();
    numbers
}

/// Returns whether the recording process was killed in the middle of a frame.
pub fn was_in_a_frame(noted: &NotedCounts) -> bool {
    noted.read()[0] != 0
}

impl StreamReader {
    /// Creates a reader for frames of at most `longest` bytes. `begun` has the bytes that a predecessor took from the
    /// socket, with which the first frame starts.
    pub fn new(longest: usize, begun: &[u8], mut noted: NotedCounts) -> StreamReader {
        let mut beginning = Vec::with_capacity(PREFIX + longest);
        beginning.extend_from_slice(begun);
        noted.write(numbers(!begun.is_empty()));
        StreamReader {
            buffer: vec![0; LOOK].into_boxed_slice(),
            at: 0,
            end: 0,
            begun: beginning,
            is_whole: false,
            has_looked: false,
            frames: Vec::with_capacity(netvale_port::BATCH),
            longest,
            skipper: Skipper::default(),
            noted,
        }
    }

    /// Returns the start of a frame that was taken from the socket before the frame was complete; empty if there is no
    /// such frame. All other frames must have been released.
    pub fn begun(&self) -> &[u8] {
        if self.is_whole { &[] } else { &self.begun }
    }

    pub(super) fn take(&mut self, socket: &OwnedFd, intake: &mut PeerIntake<'_>, news: &PeerNews) -> ReadStep {
        if self.is_whole {
            self.begun.clear();
            self.is_whole = false;
        }
        match self.read(socket, intake) {
            Ok(on) => on,
            Err(StreamEnd::HungUp) => {
                news.gone();
                ReadStep::Wait
            }
            Err(StreamEnd::Broke(why)) => {
                news.report(why);
                ReadStep::Wait
            }
        }
    }

    fn read(&mut self, socket: &OwnedFd, intake: &mut PeerIntake<'_>) -> Result<ReadStep, StreamEnd> {
        if self.cut(socket, intake)? {
            return Ok(ReadStep::Again);
        }
        let known = self.end - self.at;
        self.look(socket)?;
        if self.end == 0 {
            return Ok(ReadStep::Wait);
        }
        if self.cut(socket, intake)? {
            return Ok(ReadStep::Again);
        }
        if self.end > known || !self.has_looked {
            self.has_looked = true;
            return Ok(ReadStep::Later);
        }
        self.begin(socket)?;
        Ok(ReadStep::Again)
    }

    /// Peeks at the bytes that wait in the socket.
    fn look(&mut self, socket: &OwnedFd) -> Result<(), StreamEnd> {
        self.at = 0;
        self.end = 0;
        match peek(socket, &mut self.buffer) {
            Ok(peeked) if peeked.has_descriptors => Err(StreamEnd::Broke(PASSED.to_owned())),
            Ok(peeked) if peeked.bytes == 0 => Err(StreamEnd::HungUp),
            Ok(peeked) => {
                self.end = peeked.bytes;
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(_) => Err(StreamEnd::HungUp),
        }
    }

    /// Takes whole frames from the socket, as far as the batch has room. Returns whether any frame was taken.
    fn cut(&mut self, socket: &OwnedFd, intake: &mut PeerIntake<'_>) -> Result<bool, StreamEnd> {
        self.frames.clear();
        let completed = self.complete()?;
        let mut next = self.at + completed;
        if self.begun.is_empty() || self.is_whole {
            next = self.find(next, intake.batch.room() - usize::from(self.is_whole))?;
        }
        if next == self.at {
            return Ok(false);
        }
        self.skip(socket, next - self.at)?;
        if self.is_whole {
            self.noted.write(numbers(false));
            // SAFETY: neither `begun` nor `buffer` is written before the next call that adds frames, and these frames
            // are released before that call.
            unsafe { intake.add(self.begun.get(PREFIX..).unwrap_or_default()) };
        }
        for frame in &self.frames {
            // SAFETY: as above.
            unsafe { intake.add(self.buffer.get(frame.clone()).unwrap_or_default()) };
        }
        self.has_looked = false;
        Ok(true)
    }

    /// Finds at most `room` whole frames, from offset `next` on. Returns the offset after the last whole frame.
    fn find(&mut self, mut next: usize, room: usize) -> Result<usize, StreamEnd> {
        while self.frames.len() < room {
            match front(self.buffer.get(next..self.end).unwrap_or_default(), self.longest) {
                StreamFront::Whole(len) => {
                    let begin = next + PREFIX;
                    self.frames.push(begin..begin + len);
                    next = begin + len;
                }
                // The frames before the bad length are valid.
                StreamFront::Bad(len) if next == self.at => return Err(self.bad(len)),
                StreamFront::Bad(_) | StreamFront::Part => break,
            }
        }
        Ok(next)
    }

    /// If `begun` contains an incomplete frame, moves bytes from the buffer to it. Returns the number of moved bytes.
    fn complete(&mut self) -> Result<usize, StreamEnd> {
        if self.begun.is_empty() || self.is_whole {
            return Ok(0);
        }
        let mut taken = self.append(self.at, PREFIX);
        let Some(length) = self.begun.first_chunk::<PREFIX>() else { return Ok(taken) };
        let length = u32::from_be_bytes(*length);
        if length as usize > self.longest {
            return Err(self.bad(length));
        }
        let total = PREFIX + length as usize;
        taken += self.append(self.at + taken, total);
        self.is_whole = self.begun.len() == total;
        Ok(taken)
    }

    /// Appends bytes of the buffer, from offset `from` on, to `begun` until `begun` has `total` bytes. Returns the
    /// number of appended bytes.
    fn append(&mut self, from: usize, total: usize) -> usize {
        let lacks = total.saturating_sub(self.begun.len());
        let bytes = self.buffer.get(from..self.end).unwrap_or_default();
        let bytes = &bytes[..lacks.min(bytes.len())];
        self.begun.extend_from_slice(bytes);
        bytes.len()
    }

    /// Takes the available part of the first frame from the socket.
    fn begin(&mut self, socket: &OwnedFd) -> Result<(), StreamEnd> {
        self.has_looked = false;
        self.noted.write(numbers(true));
        let bytes = self.buffer.get(self.at..self.end).unwrap_or_default();
        self.begun.extend_from_slice(bytes);
        let count = bytes.len();
        self.skip(socket, count)
    }

    fn skip(&mut self, socket: &OwnedFd, count: usize) -> Result<(), StreamEnd> {
        self.skipper.skip(socket, count).map_err(|_| StreamEnd::HungUp)?;
        self.at += count;
        Ok(())
    }

    fn bad(&self, len: u32) -> StreamEnd {
        StreamEnd::Broke(format!("the peer sent a frame of {len} bytes: expected at most {}", self.longest))
    }
}

/// The reason why a stream has ended.
enum StreamEnd {
    HungUp,
    Broke(String),
}
