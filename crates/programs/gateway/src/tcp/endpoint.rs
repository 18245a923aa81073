//! The gateway's end of a TCP connection with a guest: a state machine (RFC 9293 §3.10) without sockets.
//!
//! A [`TcpEndpoint`] is driven by the guest's segments ([`TcpEndpoint::hear`] returns their effect, a [`TcpHeard`]), by
//! the flow's socket on the host's side, and by time. The caller sends what [`TcpEndpoint::next_segment`] returns until
//! that is `None`. Payload in order is returned to the caller, as far as it is within the window and within the maximum
//! that the caller takes from one segment ([`TcpEndpoint::set_most_taken`]). Payload out of order is dropped: duplicate
//! acknowledgements make the guest send it again.

mod hear;
mod send;

use std::time::Instant;

use netvale_wire::tcp::{ACK, RST};

use super::path::PathState;
use super::queue::UnackedQueue;
use super::segment::{MIN_MSS, SegmentOut, TcpSegment};
use super::seq::TcpSeq;

/// The maximum receive window, in bytes, if the guest supports window scaling.
pub const ROOM: u32 = 512 << 10;
/// The shift of the receive window with window scaling.
const SCALE: u8 = 4;
/// The maximum receive window, in bytes, without window scaling.
const PLAIN_ROOM: u32 = 65_535;
/// Number of retransmissions of a SYN after which the guest counts as unreachable.
const SYN_TRIES: u32 = 6;
/// Number of successive timeouts of an open connection after which the guest counts as unreachable.
const TRIES: u32 = 12;

/// The state of a connection with a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// The guest has sent a SYN, which is answered when the host's socket is connected.
    Connecting,
    /// The gateway has answered the guest's SYN with a SYN, which the guest has not acknowledged yet.
    SynReceived,
    /// The gateway has sent a SYN and waits for the guest's SYN.
    SynSent,
    /// Established; either direction may have ended.
    Open,
    /// Reset by the guest or by the gateway.
    Closed,
}

/// The effect of a guest's segment.
#[derive(Debug, Default)]
pub struct TcpHeard<'a> {
    /// Payload that is next in order; the caller must take every byte of it.
    pub data: &'a [u8],
    /// Whether the segment has established the connection.
    pub opened: bool,
    /// Whether the guest has reset the connection.
    pub reset: bool,
    /// A reset that answers an unacceptable segment; `None` if none is due.
    pub refusal: Option<SegmentOut>,
}

/// The gateway's end of a connection with a guest.
#[derive(Debug)]
pub struct TcpEndpoint {
    pub(super) state: TcpState,
    /// Our initial sequence number.
    first: TcpSeq,
    /// The oldest sequence number that the guest has not acknowledged.
    una: TcpSeq,
    /// The next sequence number to send; after a timeout, it goes back to `una`.
    next: TcpSeq,
    /// The highest sequence number that was ever sent, plus one.
    max: TcpSeq,
    /// The guest's window in bytes.
    window: u32,
    /// Sequence number of the segment that set the window.
    window_seq: TcpSeq,
    /// Acknowledgement number of the segment that set the window.
    window_ack: TcpSeq,
    /// Shift of the window field in the guest's segments.
    window_scale: u8,
    mss: u16,
    queue: UnackedQueue,
    /// Whether the host's side has ended the direction from host to guest.
    ended: bool,
    /// Whether the guest has acknowledged our FIN.
    end_acked: bool,
    /// The next sequence number expected from the guest.
    expected: TcpSeq,
    /// End of the receive window that was offered to the guest.
    edge: TcpSeq,
    /// Number of bytes for which the caller has room.
    room: u32,
    /// Maximum number of bytes that the caller takes from one segment, even if the window has offered more.
    most_taken: usize,
    scaled: bool,
    guest_ended: bool,
    /// Whether a SYN must be sent.
    syn_due: bool,
    /// Whether an acknowledgement must be sent.
    owed: bool,
    /// Number of duplicate acknowledgements that must be sent.
    duplicates: u32,
    /// Whether the first bytes in flight must be retransmitted.
    resend: bool,
    /// Whether one byte must be sent as a probe of the guest's closed window.
    probe: bool,
    path: PathState,
    timer: Option<Instant>,
    /// Number of timeouts since the guest's last valid segment.
    silent: u32,
    heard: Instant,
}

impl TcpEndpoint {
    /// Creates the passive end for a guest's `syn`, which is answered after [`TcpEndpoint::connected`]. `first` is our
    /// initial sequence number; `mss` is the longest payload that fits the MTU.
    pub fn answering(syn: &TcpSegment<'_>, first: TcpSeq, mss: u16, now: Instant) -> Self {
        let mut endpoint = Self::new(TcpState::Connecting, first, mss, now);
        endpoint.take_syn(syn);
        endpoint
    }

    /// Creates the active end, which sends a SYN to the guest.
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
            most_taken: usize::MAX,
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

    /// Takes the initial sequence number, the options and the window from a guest's SYN.
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

    /// Records that the host's socket is connected, so that the guest's SYN is answered.
    pub fn connected(&mut self) {
        if self.state == TcpState::Connecting {
            self.state = TcpState::SynReceived;
            self.syn_due = true;
        }
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Returns the maximum length of the payload of one packet to the guest, in bytes.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// Returns when the guest's last valid segment arrived.
    pub fn heard_at(&self) -> Instant {
        self.heard
    }

    /// Returns whether the guest has ended its direction with a FIN.
    pub fn has_guest_ended(&self) -> bool {
        self.guest_ended
    }

    /// Returns whether both directions have ended, and the guest has acknowledged our FIN.
    pub fn is_done(&self) -> bool {
        self.state == TcpState::Open && self.guest_ended && self.end_acked
    }

    /// Returns the number of bytes for the guest that have not been sent yet.
    pub fn unsent(&self) -> usize {
        self.queue.len() - self.in_flight()
    }

    /// Returns the number of bytes for the guest that are unsent or unacknowledged.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of bytes of memory that the queue for the guest takes.
    pub fn memory(&self) -> usize {
        self.queue.memory()
    }

    /// Returns the bytes for the guest, to which [`SegmentOut::data`] refers.
    pub fn queue(&self) -> &UnackedQueue {
        &self.queue
    }

    /// Appends bytes from the host's side to the queue for the guest.
    pub fn push(&mut self, bytes: Vec<u8>) {
        self.queue.push(bytes);
    }

    /// Records that the host's side has ended the direction from host to guest: a FIN follows the queued bytes.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns whether [`TcpEndpoint::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sets the receive window. `waiting` is the number of the guest's bytes that still wait for the host's socket,
    /// `most` the number that may wait; a value below [`TcpEndpoint::floor`] is raised to it.
    pub fn set_waiting(&mut self, waiting: usize, most: usize) {
        let most = u32::try_from(most.max(self.floor())).unwrap_or(u32::MAX).min(self.most_room());
        let room = most.saturating_sub(u32::try_from(waiting).unwrap_or(u32::MAX));
        let was_closed = self.offered() < (most / 4).max(self.mss.into());
        self.room = room;
        // If the window was nearly closed and is now at least half open, an update is sent, since no other segment
        // would announce it.
        if was_closed && room >= most / 2 && self.state == TcpState::Open {
            self.owed = true;
        }
    }

    /// Sets how many bytes the caller takes from the next segment. The guest must retransmit the rest of the segment.
    pub fn set_most_taken(&mut self, most: usize) {
        self.most_taken = most;
    }

    /// Returns the number of bytes that may always wait for the host's socket, so that the connection never stalls: two
    /// segments.
    pub fn floor(&self) -> usize {
        2 * usize::from(self.mss)
    }

    /// Returns the number of bytes of the offered window that the guest has not used yet.
    fn offered(&self) -> u32 {
        self.edge.since(self.expected)
    }

    /// Returns when [`TcpEndpoint::on_time`] must be called; `None` if no timer is set.
    pub fn deadline(&self) -> Option<Instant> {
        self.timer
    }

    /// Handles a timeout, if the timer has expired. Returns whether the guest has been silent for so long that the
    /// connection must be closed.
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
                    // This is not a loss, since nothing is in flight or the guest's window is closed.
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

    /// Closes the connection. Returns the reset to be sent; `None` if the guest does not know of the connection, or has
    /// already closed it.
    pub fn reset(&mut self) -> Option<SegmentOut> {
        let seq = if self.state == TcpState::Connecting { TcpSeq(0) } else { self.max };
        let known = !matches!(self.state, TcpState::Closed | TcpState::SynSent);
        self.state = TcpState::Closed;
        known.then(|| SegmentOut { flags: RST | ACK, window: 0, ..self.bare(seq) })
    }

    /// Returns an acknowledgement without payload, with a window of 0.
    fn bare(&self, seq: TcpSeq) -> SegmentOut {
        SegmentOut { seq, ack: self.expected, flags: ACK, window: 0, syn: None, data: 0..0 }
    }
}

#[cfg(test)]
mod tests;
