//! The gateway's end of a connection with a guest: a state machine (RFC 9293 §3.10) without sockets.
//!
//! A [`TcpEndpoint`] is driven by segments ([`TcpEndpoint::hear`] returns what was heard), by the other connection at
//! the host's side, and by time. [`TcpEndpoint::next_segment`] says what to send; it is asked until it says nothing.
//! What a guest sends in order is given to the caller, which has room for what the window promised. What comes out of
//! order is not kept: the guest is told so, and sends it again.

mod hear;
mod send;

use std::time::Instant;

use netvale_wire::tcp::{ACK, RST};

use super::path::PathState;
use super::queue::UnackedQueue;
use super::segment::{MIN_MSS, SegmentOut, TcpSegment};
use super::seq::TcpSeq;

/// Bytes that a guest may send before they are acknowledged, if it can scale its window, and the shift for that.
pub const ROOM: u32 = 512 << 10;
const SCALE: u8 = 4;
/// The same without.
const PLAIN_ROOM: u32 = 65_535;
/// How often something is sent without an answer, before and after a connection is open.
const SYN_TRIES: u32 = 6;
const TRIES: u32 = 12;

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// The guest's SYN waits for the host's side.
    Connecting,
    /// It has been answered.
    SynReceived,
    /// The gateway's SYN waits for an answer.
    SynSent,
    /// Open, in one direction at least.
    Open,
    /// At its end.
    Closed,
}

/// What a guest's segment has brought ([`TcpHeard`]).
#[derive(Debug, Default)]
pub struct TcpHeard<'a> {
    /// Bytes in order; the caller takes them all.
    pub data: &'a [u8],
    /// The connection is open now.
    pub opened: bool,
    /// The guest has reset it.
    pub reset: bool,
    /// A segment to be sent instead of one of the connection's.
    pub refusal: Option<SegmentOut>,
}

/// A connection.
#[derive(Debug)]
pub struct TcpEndpoint {
    pub(super) state: TcpState,
    /// Our first number; the oldest that is not acknowledged; the next; the highest sent so far.
    first: TcpSeq,
    una: TcpSeq,
    next: TcpSeq,
    max: TcpSeq,
    /// The guest's window, what it was said with, and its shift.
    window: u32,
    window_seq: TcpSeq,
    window_ack: TcpSeq,
    window_scale: u8,
    mss: u16,
    queue: UnackedQueue,
    /// The host's side has ended; our FIN is acknowledged.
    ended: bool,
    end_acked: bool,
    /// The number that is expected next; the end of the window that was offered; what the caller has room for.
    expected: TcpSeq,
    edge: TcpSeq,
    room: u32,
    scaled: bool,
    guest_ended: bool,
    /// Segments to be sent: a SYN, an acknowledgement, further ones, the first bytes again, a byte into a closed
    /// window.
    syn_due: bool,
    owed: bool,
    duplicates: u32,
    resend: bool,
    probe: bool,
    path: PathState,
    timer: Option<Instant>,
    /// How often time has run out since the guest was heard.
    silent: u32,
    heard: Instant,
}

impl TcpEndpoint {
    /// The answering end: `syn` waits for [`TcpEndpoint::connected`]. `mss` is the longest payload that fits the MTU.
    pub fn answering(syn: &TcpSegment<'_>, first: TcpSeq, mss: u16, now: Instant) -> Self {
        let mut endpoint = Self::new(TcpState::Connecting, first, mss, now);
        endpoint.take_syn(syn);
        endpoint
    }

    /// The calling end.
    pub fn calling(first: TcpSeq, mss: u16, now: Instant) -> Self {
        TcpEndpoint { syn_due: true, ..Self::new(TcpState::SynSent, first, mss, now) }
    }

    fn new(state: TcpState, first: TcpSeq, mss: u16, now: Instant) -> Self {
        TcpEndpoint {
            state,
            first,
            una: first,
            next: first,
            max: first,
            window: 0,
            window_seq: TcpSeq(0),
            window_ack: first,
            window_scale: 0,
            mss,
            queue: UnackedQueue::default(),
            ended: false,
            end_acked: false,
            expected: TcpSeq(0),
            edge: TcpSeq(0),
            room: PLAIN_ROOM,
            scaled: true,
            guest_ended: false,
            syn_due: false,
            owed: false,
            duplicates: 0,
            resend: false,
            probe: false,
            path: PathState::new(mss),
            timer: None,
            silent: 0,
            heard: now,
        }
    }

    /// What a guest's SYN says.
    fn take_syn(&mut self, syn: &TcpSegment<'_>) {
        self.mss = syn.mss.unwrap_or(536).clamp(MIN_MSS, self.mss.max(MIN_MSS));
        self.path = PathState::new(self.mss);
        self.scaled = syn.scale.is_some();
        self.window_scale = syn.scale.unwrap_or(0);
        self.room = self.most_room();
        self.expected = syn.seq.plus(1);
        self.edge = self.expected;
        self.window_seq = syn.seq;
        self.window = syn.window.into();
    }

    fn most_room(&self) -> u32 {
        if self.scaled { ROOM } else { PLAIN_ROOM }
    }

    /// The host's side is connected: the guest's SYN is answered.
    pub fn connected(&mut self) {
        if self.state == TcpState::Connecting {
            self.state = TcpState::SynReceived;
            self.syn_due = true;
        }
    }

    /// Where the connection is.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// The longest payload of one packet to the guest.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// When the guest was heard last.
    pub fn heard_at(&self) -> Instant {
        self.heard
    }

    /// Whether the guest has ended its direction.
    pub fn has_guest_ended(&self) -> bool {
        self.guest_ended
    }

    /// Whether both directions have ended, and the guest knows.
    pub fn is_done(&self) -> bool {
        self.state == TcpState::Open && self.guest_ended && self.end_acked
    }

    /// Bytes for the guest that could not be sent yet.
    pub fn unsent(&self) -> usize {
        self.queue.len() - self.in_flight()
    }

    /// Bytes for the guest.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Memory for the guest's bytes.
    pub fn memory(&self) -> usize {
        self.queue.memory()
    }

    /// The queue, for the payload of segments.
    pub fn queue(&self) -> &UnackedQueue {
        &self.queue
    }

    /// Bytes from the host's side.
    pub fn push(&mut self, bytes: Vec<u8>) {
        self.queue.push(bytes);
    }

    /// The host's side has ended its direction.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether [`TcpEndpoint::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// `waiting` bytes of the guest's wait for room at the host's side.
    pub fn set_waiting(&mut self, waiting: usize) {
        let room = self.most_room().saturating_sub(u32::try_from(waiting).unwrap_or(u32::MAX));
        let was_closed = self.offered() < self.most_room() / 4;
        self.room = room;
        // A guest whose window was nearly closed is told when it opens, as nothing else would tell it.
        if was_closed && room >= self.most_room() / 2 && self.state == TcpState::Open {
            self.owed = true;
        }
    }

    /// Bytes of the window that the guest knows of.
    fn offered(&self) -> u32 {
        self.edge.since(self.expected)
    }

    /// When [`TcpEndpoint::on_time`] must be called, if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        self.timer
    }

    /// Time has passed. Returns whether the guest has been silent for so long that it is gone.
    pub fn on_time(&mut self, now: Instant) -> bool {
        if self.timer.is_none_or(|timer| timer > now) {
            return false;
        }
        self.timer = None;
        self.silent += 1;
        match self.state {
            TcpState::SynReceived | TcpState::SynSent => {
                self.syn_due = true;
                self.path.timed_out(0);
                self.silent > SYN_TRIES
            }
            TcpState::Open => {
                let flight = self.next.since(self.una);
                if flight == 0 || self.window == 0 {
                    // Nothing is lost: the guest has no room.
                    self.path.back_off();
                } else {
                    self.path.timed_out(flight);
                }
                self.next = self.una;
                self.probe = self.window == 0;
                self.silent > TRIES
            }
            TcpState::Connecting | TcpState::Closed => false,
        }
    }

    /// Ends the connection. The segment tells the guest.
    pub fn reset(&mut self) -> Option<SegmentOut> {
        let seq = if self.state == TcpState::Connecting { TcpSeq(0) } else { self.max };
        let known = !matches!(self.state, TcpState::Closed | TcpState::SynSent);
        self.state = TcpState::Closed;
        known.then(|| SegmentOut { flags: RST | ACK, window: 0, ..self.bare(seq) })
    }

    /// A segment without window and payload.
    fn bare(&self, seq: TcpSeq) -> SegmentOut {
        SegmentOut { seq, ack: self.expected, flags: ACK, window: 0, syn: None, data: 0..0 }
    }
}

#[cfg(test)]
mod tests;
