//! Packs frames into datagrams and sends them: frames of equal length to one VTEP from one socket become a single
//! message, which the kernel cuts into datagrams (UDP GSO).
//!
//! ```text
//!   frames ──▶ lanes (VTEP, socket, ECN), each in order ──▶ messages: header, frame, header, frame, … ──▶ sendmmsg
//! ```
//!
//! The result of a delivery contains the numbers of sent frames and bytes.
//!
//! Frames are sent from their buffers. Private memory holds only bytes that are generated for a frame: a copy of the
//! frame if its checksum must be filled in or it must be cut, and the headers of its segments.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;

use netvale_mem::steps::{Step, step};
use netvale_port::batch::MAX_FRAME;
use netvale_port::pace::QueuePace;
use netvale_port::{Batch, DropReason, FrameRef, RingCounters};
use netvale_wire::offload::{MAX_HEADERS, Offload};
use netvale_wire::segment::{Segmenter, complete_checksum};
use netvale_wire::{Gso, Sum};

use crate::endpoint::{ECN_SHIFT, SendSockets};
use crate::header;
use crate::ip::{self, IpWords};
use crate::peers::VtepPeers;
use crate::sys::Outbox;

/// Maximum number of complete messages that wait until they are sent.
const MESSAGES: usize = 128;
/// Maximum number of parts of all messages that wait until they are sent.
const PARTS: usize = 2048;
/// Maximum number of parts in one message (linux/uio.h, `UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;
/// Maximum number of messages per system call. The number is small because a call cannot be interrupted if sending is
/// slow.
const MESSAGES_A_CALL: usize = 32;
/// Maximum number of datagrams in a message (linux/udp.h, `UDP_MAX_SEGMENTS` of older kernels).
const DATAGRAMS: usize = 64;
/// Maximum number of bytes in a message.
const BYTES: usize = 65_000;
/// Maximum number of runs (consecutive picks for one lane) that wait until they are packed into messages.
const RUNS: usize = 512;
/// Maximum number of lanes. A lane is a destination of runs: a VTEP, a socket and an ECN codepoint.
const LANES: usize = 32;
/// Size of the private memory in bytes: room for two frames of the maximum length and the headers of their segments.
const PRIVATE: usize = 2 * (MAX_FRAME + DATAGRAMS * MAX_HEADERS);
const END: u16 = u16::MAX;

/// A lane: the destination, socket and ECN codepoint of frames, and the first and the last of these frames' runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SendLane {
    to: IpWords,
    source: u8,
    first: u16,
    last: u16,
}

/// A run: consecutive picks for one lane, and the index of the lane's next run.
#[derive(Clone, Copy, Debug)]
struct PickRun {
    from: u16,
    end: u16,
    next: u16,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, Default)]
pub struct TunnelSendResult {
    /// Number of sent frames.
    pub frames: u64,
    /// Number of sent bytes.
    pub bytes: u64,
    /// A VTEP whose path accepts only shorter packets than assumed; `None` if there is no such VTEP.
    pub too_long_to: Option<IpWords>,
}

/// A message being packed.
#[derive(Clone, Copy, Debug, Default)]
struct OpenMessage {
    /// Size of each datagram in bytes; the last datagram may be shorter.
    each: usize,
    count: usize,
    /// Maximum number of datagrams.
    most: usize,
    bytes: usize,
    parts: usize,
    /// Maximum number of parts.
    most_parts: usize,
}

/// A complete message.
#[derive(Clone, Copy, Debug)]
struct CompleteMessage {
    to: IpWords,
    source: u8,
    frames: u64,
    bytes: u64,
}

/// Memory for sending, which one worker uses at a time.
pub struct TunnelSender {
    outbox: Outbox,
    done: Vec<CompleteMessage>,
    runs: Vec<PickRun>,
    lanes: Vec<SendLane>,
    /// The lane of the last frame added.
    recent: usize,
    /// Private memory for bytes that are generated for a frame.
    private: Vec<u8>,
    /// Number of bytes of the private memory in use.
    used: usize,
    /// The lane that is being packed.
    lane: SendLane,
    /// The open message of that lane.
    open: OpenMessage,
    outcome: TunnelSendResult,
}

impl CompleteMessage {
    /// Returns the cost of sending the message, in frames. A datagram that the kernel cuts from a message costs less
    /// than a message of its own.
    fn weight(&self) -> usize {
        1 + self.frames as usize / 8
    }
}

/// Inputs common to all frames of a delivery.
pub struct TunnelSendContext<'a> {
    /// The batch of frames.
    pub batch: &'a Batch,
    /// Indices, in the batch, of the frames to send.
    pub picks: &'a [u16],
    /// The VTEPs, with their counters.
    pub peers: &'a VtepPeers,
    /// Counters of dropped frames.
    pub counters: &'a RingCounters,
    /// The sockets for sending.
    pub sources: &'a SendSockets,
    /// The VXLAN header before each frame.
    pub header: &'a [u8; header::LEN],
    /// Length in bytes of the longest frame that fits into a packet of the path's MTU.
    pub whole: usize,
}

impl TunnelSender {
    /// Creates memory for datagrams to the UDP port `port` of VTEPs.
    pub fn new(port: u16) -> TunnelSender {
        TunnelSender {
            outbox: Outbox::new(MESSAGES, PARTS, port),
            done: Vec::with_capacity(MESSAGES),
            runs: Vec::with_capacity(RUNS),
            lanes: Vec::with_capacity(LANES),
            recent: 0,
            private: vec![0; PRIVATE],
            used: 0,
            lane: SendLane { to: [0; 2], source: 0, first: END, last: END },
            open: OpenMessage::default(),
            outcome: TunnelSendResult::default(),
        }
    }

    /// Adds the frame with index `pick` in [`TunnelSendContext::picks`], which [`TunnelSender::finish`] sends to the
    /// VTEP `to`; `source` combines the number of the socket and the ECN codepoint.
    #[inline]
    pub fn add(&mut self, job: &TunnelSendContext<'_>, pick: u16, to: IpWords, source: u8) {
        if let Some(lane) = self.lanes.get(self.recent)
            && (lane.to == to && lane.source == source)
            && let Some(run) = self.runs.get_mut(usize::from(lane.last))
            && run.end == pick
        {
            run.end += 1;
            return;
        }
        self.add_run(job, pick, to, source);
    }

    /// Starts a run with this pick. If there is no room for the run, sends the earlier frames before.
    #[inline(never)]
    fn add_run(&mut self, job: &TunnelSendContext<'_>, pick: u16, to: IpWords, source: u8) {
        let mut known = self.lanes.iter().rposition(|lane| lane.to == to && lane.source == source);
        if self.runs.len() == RUNS || known.is_none() && self.lanes.len() == LANES {
            self.flush(job);
            known = None;
        }
        let number = self.runs.len() as u16;
        match known.and_then(|i| self.lanes.get_mut(i)) {
            Some(lane) => {
                let last = std::mem::replace(&mut lane.last, number);
                self.runs[usize::from(last)].next = number;
            }
            None => self.lanes.push(SendLane { to, source, first: number, last: number }),
        }
        self.recent = known.unwrap_or(self.lanes.len() - 1);
        self.runs.push(PickRun { from: pick, end: pick + 1, next: END });
    }

    /// Sends all added frames. Returns the result for all frames since the last call.
    pub fn finish(&mut self, job: &TunnelSendContext<'_>) -> TunnelSendResult {
        self.flush(job);
        std::mem::take(&mut self.outcome)
    }

    fn flush(&mut self, job: &TunnelSendContext<'_>) {
        for i in 0..self.lanes.len() {
            self.lane = self.lanes[i];
            let mut next = self.lane.first;
            while let Some(&PickRun { from, end, next: after }) = self.runs.get(usize::from(next)) {
                self.put_run(job, job.picks.get(from.into()..end.into()).unwrap_or_default());
                next = after;
            }
            self.close();
        }
        self.send(job);
        self.lanes.clear();
        self.runs.clear();
    }

    fn put_run(&mut self, job: &TunnelSendContext<'_>, picks: &[u16]) {
        for &pick in picks {
            if let Some(frame) = job.batch.get(pick.into())
                && self.put(job, &frame).is_none()
            {
                job.counters.dropped(DropReason::BadVnetHeader, 1);
            }
        }
    }

    /// Packs a frame. Returns `None` if the frame's offload contradicts the frame.
    #[inline]
    fn put(&mut self, job: &TunnelSendContext<'_>, frame: &FrameRef<'_>) -> Option<()> {
        match frame.offload() {
            Offload::None => {
                self.next_datagram(job, header::LEN + frame.len(), 1 + frame.pieces());
                // SAFETY: the header and the batch outlive the message, which is sent before `flush` returns.
                unsafe { self.outbox.add_frame(job.header, frame) };
                Some(())
            }
            Offload::CsumPartial { start, offset } => {
                let at = self.room(job, frame.len())?;
                let bytes = self.copy(frame, at)?;
                complete_checksum(&mut [bytes], start, offset).ok()?;
                step(Step::Summed);
                self.next_datagram(job, header::LEN + frame.len(), 2);
                self.add_private(job, &[(at, frame.len())]);
                Some(())
            }
            Offload::Gso(gso) => {
                // The segments of a frame that is cut here get messages of their own.
                self.close();
                let done = self.segments(job, frame, gso);
                self.close();
                done
            }
        }
    }

    /// Adds a datagram that consists of the header and pieces of private memory, which must stay unchanged until the
    /// messages are sent.
    fn add_private(&mut self, job: &TunnelSendContext<'_>, pieces: &[(usize, usize)]) {
        // SAFETY: the header outlives the message, which is sent before `flush` returns.
        unsafe { self.outbox.add(job.header.as_ptr(), header::LEN) };
        for &(at, len) in pieces {
            let Some(bytes) = self.private.get(at..at + len) else { continue };
            // SAFETY: `private` is not moved, and its bytes in use are not written before all messages are sent
            // (`send`).
            unsafe { self.outbox.add(bytes.as_ptr(), len) };
        }
    }

    /// Takes `len` bytes of the private memory, and returns their offset. If too little memory is free, sends all
    /// messages before, which frees it. Returns `None` if the whole memory is too small.
    fn room(&mut self, job: &TunnelSendContext<'_>, len: usize) -> Option<usize> {
        if len > self.private.len() {
            return None;
        }
        if self.used + len > self.private.len() {
            self.close();
            self.send(job);
        }
        let at = self.used;
        self.used += len;
        Some(at)
    }

    /// Copies a frame into private memory at offset `at`; `None` if it does not fit.
    fn copy(&mut self, frame: &FrameRef<'_>, at: usize) -> Option<&mut [u8]> {
        let place = self.private.get_mut(at..at + frame.len())?;
        (frame.copy_out(0, place) == frame.len()).then_some(place)
    }

    /// Packs the segments of a frame. TCP segments never exceed the path's MTU, even if the frame requests a larger
    /// segment size.
    fn segments(&mut self, job: &TunnelSendContext<'_>, frame: &FrameRef<'_>, gso: Gso) -> Option<()> {
        let headers = usize::from(gso.hdr_len);
        let fits = job.whole.saturating_sub(headers).clamp(1, u16::MAX.into()) as u16;
        // UDP datagrams keep their sender's length.
        let gso = if gso.kind.is_tcp() { Gso { gso_size: gso.gso_size.min(fits), ..gso } } else { gso };
        let payload = frame.len().checked_sub(headers)?;
        let count = payload.div_ceil(usize::from(gso.gso_size).max(1)).max(1);
        // The frame, followed by the headers of its segments.
        let at = self.room(job, frame.len() + count * headers)?;
        let bytes = self.copy(frame, at)?;
        let mut cutter = Segmenter::new(bytes.get(..headers)?, payload, &gso).ok()?;
        let mut head = at + frame.len();
        while let Some(segment) = cutter.next_segment() {
            let part = segment.payload();
            let from = at + headers + part.start;
            let len = part.len();
            let sum = Sum::of(self.private.get(from..from + len)?);
            let written = segment.finish_checksum(sum);
            self.private.get_mut(head..head + headers)?.copy_from_slice(written);
            self.next_datagram(job, header::LEN + headers + len, 3);
            self.add_private(job, &[(head, headers), (from, len)]);
            head += headers;
        }
        step(Step::Cut(count as u32));
        Some(())
    }

    /// Begins a datagram of `len` bytes, in the open message if the datagram fits there, otherwise in a new message.
    #[inline]
    fn next_datagram(&mut self, job: &TunnelSendContext<'_>, len: usize, parts: usize) {
        let open = &self.open;
        if open.count >= open.most || len > open.each || open.parts + parts > open.most_parts {
            self.begin(job, len, parts);
        }
        let open = &mut self.open;
        open.count += 1;
        open.bytes += len;
        open.parts += parts;
        if len < open.each {
            open.most = open.count;
        }
    }

    /// Begins a message with a datagram of `each` bytes.
    fn begin(&mut self, job: &TunnelSendContext<'_>, each: usize, parts: usize) {
        self.close();
        if !self.outbox.has_room(parts) {
            self.send_but_private(job);
        }
        self.outbox.begin(self.lane.to);
        let ecn = self.lane.source >> ECN_SHIFT;
        if ecn != 0 {
            self.outbox.set_class(ip::of(self.lane.to).is_ipv4(), job.sources.class | ecn);
        }
        let cut = job.sources.has_gso() && each <= header::LEN + job.whole;
        let most = if cut { (BYTES / each.max(1)).clamp(1, DATAGRAMS) } else { 1 };
        self.open =
            OpenMessage { each, most, most_parts: MOST_PARTS.min(self.outbox.room()), ..OpenMessage::default() };
    }

    /// Completes the open message.
    fn close(&mut self) {
        let OpenMessage { each, count, bytes, .. } = std::mem::take(&mut self.open);
        if count > 1 {
            self.outbox.set_segment_size(each);
        }
        if count > 0 {
            let SendLane { to, source, .. } = self.lane;
            let bytes = (bytes - count * header::LEN) as u64;
            self.done.push(CompleteMessage { to, source, frames: count as u64, bytes });
        }
    }

    /// Sends all messages, and frees private memory.
    fn send(&mut self, job: &TunnelSendContext<'_>) {
        self.send_but_private(job);
        self.used = 0;
    }

    /// Sends all messages, but keeps private memory in use.
    fn send_but_private(&mut self, job: &TunnelSendContext<'_>) {
        let mut first = 0;
        while let Some(&CompleteMessage { to, source, .. }) = self.done.get(first) {
            // After sending was slow, the messages to each VTEP have a separate time limit.
            let slow_to = job.sources.pace.looks().then_some(to);
            let is_same = |other: &&CompleteMessage| other.source == source && slow_to.is_none_or(|to| other.to == to);
            let end = first + self.done[first..].iter().take_while(is_same).count();
            let peer = slow_to.and_then(|to| job.peers.get(to));
            self.send_some(job, first..end, peer.map_or(&job.sources.pace, |peer| &peer.pace));
            if peer.is_some_and(|peer| peer.pace.looks()) {
                job.sources.pace.look();
            }
            first = end;
        }
        self.outbox.clear();
        self.done.clear();
    }

    /// Sends messages from one socket, within their time limit.
    fn send_some(&mut self, job: &TunnelSendContext<'_>, messages: Range<usize>, pace: &QueuePace) {
        let Range { start: mut first, end } = messages;
        let socket = job.sources.get(self.done[first].source.into());
        let mut meter = pace.begin(self.weight(first..end));
        while first < end {
            let count = self.fitting(first..end, meter.at_once());
            if count == 0 {
                return self.drop_rest(job, first..end);
            }
            let (sent, error) = self.outbox.send(socket, first, first + count);
            self.done[first..].iter().take(sent).for_each(|done| count_sent(job, done, &mut self.outcome));
            // A message that the kernel refuses takes time, too, so it counts.
            meter.took(self.weight(first..first + sent.max(1)) as u32);
            first += sent;
            if sent == 0 {
                self.is_refused(job, first, error.as_ref());
                first += 1;
            }
        }
        meter.end();
    }

    /// Returns the cost of these messages in frames, for a [`QueuePace`].
    fn weight(&self, messages: Range<usize>) -> usize {
        self.done[messages].iter().map(CompleteMessage::weight).sum()
    }

    /// Returns how many of these messages the next system call sends, so that their cost is at most `frames` frames. As
    /// a message is sent whole, the result is at least one unless `frames` is 0.
    fn fitting(&self, messages: Range<usize>, frames: usize) -> usize {
        let mut left = frames;
        let fits = |done: &&CompleteMessage| {
            let rest = left.checked_sub(done.weight());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let fitting = self.done[messages].iter().take(MESSAGES_A_CALL).take_while(fits).count();
        fitting.max(usize::from(frames > 0))
    }

    /// Drops messages that exceed the time limit.
    #[cold]
    fn drop_rest(&self, job: &TunnelSendContext<'_>, messages: Range<usize>) {
        job.counters.dropped(DropReason::Device, self.done[messages].iter().map(|done| done.frames).sum());
    }

    /// Counts the frames of a message that the kernel refused as dropped.
    #[cold]
    fn is_refused(&mut self, job: &TunnelSendContext<'_>, message: usize, error: Option<&io::Error>) {
        let Some(done) = self.done.get(message) else { return };
        let why = match error.and_then(io::Error::raw_os_error) {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => DropReason::NoRoom,
            // Older kernels return EINVAL for messages whose datagrams exceed the path's MTU.
            Some(libc::EMSGSIZE | libc::EINVAL) => {
                self.outcome.too_long_to = Some(done.to);
                DropReason::TooLong
            }
            Some(libc::EIO) if done.frames > 1 => {
                job.sources.disable_gso();
                DropReason::Unreachable
            }
            _ => DropReason::Unreachable,
        };
        job.counters.dropped(why, done.frames);
    }
}

fn count_sent(job: &TunnelSendContext<'_>, done: &CompleteMessage, outcome: &mut TunnelSendResult) {
    if let Some(peer) = job.peers.get(done.to) {
        peer.counters.sent(done.frames, done.bytes);
    }
    outcome.frames += done.frames;
    outcome.bytes += done.bytes;
}
