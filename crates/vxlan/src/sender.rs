//! Puts frames together to datagrams, and sends them: frames to one VTEP that leave from one socket and have one length become a
//! single message, which the kernel cuts into datagrams (UDP GSO).
//!
//! ```text
//!   frames ──▶ lanes (VTEP, socket), each in order ──▶ messages: header, frame, header, frame, … ──▶ sendmmsg
//! ```
//!
//! The outcome of a delivery says how many frames left, and how many were dropped for which reason.
//!
//! Frames are sent from where they lie. Only what has to be written for a frame is private: its headers, if it is one of the
//! segments of a longer one, or all of it, if its checksum is missing.
#![allow(unsafe_code)]

use std::io;

use netvale_port::batch::MAX_FRAME;
use netvale_port::{Batch, DropReason, FrameRef};
use netvale_wire::offload::{MAX_HEADERS, Offload};
use netvale_wire::segment::{Segmenter, complete_checksum};
use netvale_wire::{Gso, Sum};

use crate::endpoint::Sources;
use crate::header;
use crate::ip::Words;
use crate::peers::Peers;
use crate::sys::Outbox;

/// Messages, and their parts, of a system call; parts of one message (linux/uio.h, `UIO_MAXIOV`).
const MESSAGES: usize = 128;
const PARTS: usize = 2048;
const MOST_PARTS: usize = 1024;
/// Datagrams of a message (linux/udp.h, `UDP_MAX_SEGMENTS` of older kernels), and their bytes.
const DATAGRAMS: usize = 64;
const BYTES: usize = 65_000;
/// Frames that wait to be put together, and different destinations of them.
const FRAMES: usize = 512;
const LANES: usize = 32;
/// Private memory: room for two of the longest frames and the headers of their segments.
const PRIVATE: usize = 2 * (MAX_FRAME + DATAGRAMS * MAX_HEADERS);
const END: u16 = u16::MAX;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    to: Words,
    source: u8,
    first: u16,
    last: u16,
}

/// What was sent, and what was not.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Frames that left, and their bytes.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What was dropped.
    pub drops: [u64; 4],
    /// A VTEP on whose path packets are shorter than was thought.
    pub too_long_to: Option<Words>,
}

/// Why frames were not sent: the indices of [`Outcome::drops`].
pub const REASONS: [DropReason; 4] =
    [DropReason::NoRoom, DropReason::Unreachable, DropReason::BadVnetHeader, DropReason::TooLong];
const NO_ROOM: usize = 0;
const UNREACHABLE: usize = 1;
const BAD: usize = 2;
/// The path takes less than was thought.
const TOO_LONG: usize = 3;

/// A message that is put together.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Bytes of each datagram.
    each: usize,
    count: usize,
    bytes: usize,
    parts: usize,
}

/// A message that is complete.
#[derive(Clone, Copy, Debug)]
struct Done {
    to: Words,
    source: u8,
    frames: u32,
    bytes: u32,
}

/// Memory for sending, used by one worker at a time.
pub struct Sender {
    outbox: Outbox,
    done: Vec<Done>,
    /// The frame of the batch, and the next one of its lane.
    waiting: Vec<(u16, u16)>,
    lanes: Vec<Lane>,
    private: Vec<u8>,
    /// Bytes of it in use.
    used: usize,
}

/// What all frames of a delivery have in common.
pub struct Job<'a> {
    /// The frames.
    pub batch: &'a Batch,
    /// The VTEPs that count them.
    pub peers: &'a Peers,
    /// Where they leave from.
    pub sources: &'a Sources,
    /// The header in front of each.
    pub header: &'a [u8; header::LEN],
    /// The longest frame that a packet of the path takes.
    pub whole: usize,
}

impl Sender {
    /// Memory for datagrams to that port.
    pub fn new(port: u16) -> Sender {
        Sender {
            outbox: Outbox::new(MESSAGES, PARTS, port),
            done: Vec::with_capacity(MESSAGES),
            waiting: Vec::with_capacity(FRAMES),
            lanes: Vec::with_capacity(LANES),
            private: vec![0; PRIVATE],
            used: 0,
        }
    }

    /// Adds frame `pick` of the batch, which goes to a VTEP.
    #[inline]
    pub fn add(&mut self, job: &Job<'_>, pick: u16, to: Words, source: u8, outcome: &mut Outcome) {
        if self.waiting.len() == FRAMES {
            self.flush(job, outcome);
        }
        let number = self.waiting.len() as u16;
        let known = self.lanes.iter().rposition(|lane| lane.to == to && lane.source == source);
        match known {
            Some(i) => {
                let last = std::mem::replace(&mut self.lanes[i].last, number);
                self.waiting[usize::from(last)].1 = number;
            }
            None if self.lanes.len() == LANES => {
                self.flush(job, outcome);
                return self.add(job, pick, to, source, outcome);
            }
            None => self.lanes.push(Lane { to, source, first: number, last: number }),
        }
        self.waiting.push((pick, END));
    }

    /// Sends all frames that were added.
    pub fn flush(&mut self, job: &Job<'_>, outcome: &mut Outcome) {
        for i in 0..self.lanes.len() {
            let lane = self.lanes[i];
            let (mut next, mut open) = (lane.first, Open::default());
            while next != END {
                let Some(&(pick, after)) = self.waiting.get(usize::from(next)) else { break };
                if let Some(frame) = job.batch.get(pick.into()) {
                    self.put(job, &lane, &mut open, &frame, outcome);
                }
                next = after;
            }
            self.close(&lane, &mut open);
        }
        self.send(job, outcome);
        self.lanes.clear();
        self.waiting.clear();
    }

    fn put(&mut self, job: &Job<'_>, lane: &Lane, open: &mut Open, frame: &FrameRef<'_>, outcome: &mut Outcome) {
        match frame.offload() {
            Offload::None => {
                let parts = 1 + frame.pieces();
                self.next_datagram(job, lane, open, header::LEN + frame.len(), parts, outcome);
                // SAFETY: the header and the batch outlive the message: it is sent before `flush` returns.
                unsafe {
                    self.outbox.add(job.header.as_ptr(), header::LEN);
                    self.outbox.add_frame(frame);
                }
            }
            Offload::CsumPartial { start, offset } => {
                let Some(at) = self.copy(job, lane, open, frame, outcome) else { return };
                let bytes = &mut self.private[at..at + frame.len()];
                if complete_checksum(&mut [bytes], start, offset).is_err() {
                    outcome.drops[BAD] += 1;
                    return;
                }
                self.next_datagram(job, lane, open, header::LEN + frame.len(), 2, outcome);
                self.add_private(job, &[(at, frame.len())]);
            }
            Offload::Gso(gso) => {
                self.close(lane, open);
                if self.segments(job, lane, open, frame, gso, outcome).is_none() {
                    outcome.drops[BAD] += 1;
                }
            }
        }
    }

    /// Adds a datagram: the header, and pieces of private memory, which stay as they are until the messages are sent.
    fn add_private(&mut self, job: &Job<'_>, pieces: &[(usize, usize)]) {
        // SAFETY: the header outlives the message, which is sent before `flush` returns.
        unsafe { self.outbox.add(job.header.as_ptr(), header::LEN) };
        for &(at, len) in pieces {
            let Some(bytes) = self.private.get(at..at + len) else { continue };
            // SAFETY: `private` is not moved, and what is in use is written no more before all messages are sent (`send`).
            unsafe { self.outbox.add(bytes.as_ptr(), len) };
        }
    }

    /// Takes that much of the private memory; sends what there is if it is used up.
    fn room(
        &mut self,
        job: &Job<'_>,
        lane: &Lane,
        open: &mut Open,
        len: usize,
        outcome: &mut Outcome,
    ) -> Option<usize> {
        if len > self.private.len() {
            return None;
        }
        if self.used + len > self.private.len() {
            self.close(lane, open);
            self.send(job, outcome);
        }
        let at = self.used;
        self.used += len;
        Some(at)
    }

    /// A private copy of a frame.
    fn copy(
        &mut self,
        job: &Job<'_>,
        lane: &Lane,
        open: &mut Open,
        frame: &FrameRef<'_>,
        outcome: &mut Outcome,
    ) -> Option<usize> {
        let at = self.room(job, lane, open, frame.len(), outcome)?;
        let place = self.private.get_mut(at..at + frame.len())?;
        (frame.copy_out(0, place) == frame.len()).then_some(at)
    }

    /// The segments of a frame: none is longer than a packet of the path takes, whatever length was asked for.
    fn segments(
        &mut self,
        job: &Job<'_>,
        lane: &Lane,
        open: &mut Open,
        frame: &FrameRef<'_>,
        gso: Gso,
        outcome: &mut Outcome,
    ) -> Option<()> {
        let fits = job.whole.saturating_sub(gso.hdr_len.into()).clamp(1, u16::MAX.into()) as u16;
        // Datagrams of UDP are what their sender made them.
        let gso = if gso.kind.is_tcp() { Gso { gso_size: gso.gso_size.min(fits), ..gso } } else { gso };
        let headers = usize::from(gso.hdr_len);
        let at = self.copy(job, lane, open, frame, outcome)?;
        let bytes = self.private.get(at..at + frame.len())?;
        let payload = frame.len().checked_sub(headers)?;
        let mut cutter = Segmenter::new(bytes.get(..headers)?, payload, &gso).ok()?;
        let count = cutter.remaining();
        let heads = self.heads(job, lane, open, count * headers, frame.len(), outcome)?;
        // The copy may have moved to the beginning.
        let at = self.used - count * headers - frame.len();
        let mut done = 0;
        while let Some(segment) = cutter.next_segment() {
            let part = segment.payload();
            let (from, len) = (at + headers + part.start, part.len());
            let sum = Sum::of(self.private.get(from..from + len)?);
            let head = heads + done * headers;
            let written = segment.finish_checksum(sum);
            self.private.get_mut(head..head + headers)?.copy_from_slice(written);
            self.next_datagram(job, lane, open, header::LEN + headers + len, 3, outcome);
            self.add_private(job, &[(head, headers), (from, len)]);
            done += 1;
        }
        self.close(lane, open);
        Some(())
    }

    /// Room for the headers of segments behind the copy of `len` bytes that was made last, which moves to the beginning if what is
    /// before it has to be sent first.
    fn heads(
        &mut self,
        job: &Job<'_>,
        lane: &Lane,
        open: &mut Open,
        room: usize,
        len: usize,
        outcome: &mut Outcome,
    ) -> Option<usize> {
        if self.used + room > self.private.len() {
            let at = self.used - len;
            self.close(lane, open);
            self.send(job, outcome);
            self.private.copy_within(at..at + len, 0);
            self.used = len;
        }
        let at = self.used;
        if at + room > self.private.len() {
            return None;
        }
        self.used += room;
        Some(at)
    }

    /// Begins a datagram of that length: in the message that is open, if it fits there, or in a new one.
    fn next_datagram(
        &mut self,
        job: &Job<'_>,
        lane: &Lane,
        open: &mut Open,
        len: usize,
        parts: usize,
        outcome: &mut Outcome,
    ) {
        let fits = open.count > 0
            && job.sources.cut()
            && open.count < DATAGRAMS
            && open.bytes == open.count * open.each
            && len <= open.each
            && open.each <= header::LEN + job.whole
            && open.bytes + len <= BYTES
            && open.parts + parts <= MOST_PARTS
            && self.outbox.has_room(parts);
        if !fits {
            self.close(lane, open);
            if !self.outbox.has_room(parts) {
                self.send_but_private(job, outcome);
            }
            self.outbox.begin(lane.to);
            open.each = len;
        }
        open.count += 1;
        open.bytes += len;
        open.parts += parts;
    }

    /// Completes the message that is open.
    fn close(&mut self, lane: &Lane, open: &mut Open) {
        let Open { each, count, bytes, .. } = std::mem::take(open);
        if count > 1 {
            self.outbox.are_many(each);
        }
        if count > 0 {
            let frames = count as u32;
            self.done.push(Done {
                to: lane.to,
                source: lane.source,
                frames,
                bytes: (bytes - count * header::LEN) as u32,
            });
        }
    }

    /// Sends all messages; private memory is free again.
    fn send(&mut self, job: &Job<'_>, outcome: &mut Outcome) {
        self.send_but_private(job, outcome);
        self.used = 0;
    }

    /// Sends all messages, while what is in private memory is still needed.
    fn send_but_private(&mut self, job: &Job<'_>, outcome: &mut Outcome) {
        let mut first = 0;
        while let Some(source) = self.done.get(first).map(|done| done.source) {
            let same = self.done[first..].iter().take_while(|done| done.source == source).count();
            self.send_from(job, source, first, first + same, outcome);
            first += same;
        }
        self.outbox.clear();
        self.done.clear();
    }

    fn send_from(&mut self, job: &Job<'_>, source: u8, mut first: usize, end: usize, outcome: &mut Outcome) {
        let socket = job.sources.get(source.into());
        while first < end {
            let (sent, error) = self.outbox.send(socket, first, end);
            for done in self.done.iter().skip(first).take(sent) {
                if let Some(peer) = job.peers.get(done.to) {
                    peer.counters.sent(done.frames.into(), done.bytes.into());
                }
                outcome.frames += u64::from(done.frames);
                outcome.bytes += u64::from(done.bytes);
            }
            first += sent;
            if sent == 0 {
                if self.is_uncut(first, error.as_ref()) {
                    job.sources.cut_no_more();
                }
                if why(error.as_ref()) == TOO_LONG {
                    outcome.too_long_to = self.done.get(first).map(|done| done.to);
                }
                let frames = self.done.get(first).map_or(0, |done| done.frames);
                outcome.drops[why(error.as_ref())] += u64::from(frames);
                first += 1;
            }
        }
    }
}

impl Sender {
    /// Whether a message was refused because the kernel does not cut on this way.
    fn is_uncut(&self, message: usize, error: Option<&io::Error>) -> bool {
        let is_refused = matches!(error.and_then(io::Error::raw_os_error), Some(libc::EIO | libc::EINVAL));
        is_refused && self.done.get(message).is_some_and(|done| done.frames > 1)
    }
}

/// Why a message was not sent.
fn why(error: Option<&io::Error>) -> usize {
    match error.and_then(io::Error::raw_os_error) {
        // The next ones are sent one by one.
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EIO) => NO_ROOM,
        // A message of several datagrams that do not fit into the path's packets.
        Some(libc::EMSGSIZE | libc::EINVAL) => TOO_LONG,
        _ => UNREACHABLE,
    }
}
