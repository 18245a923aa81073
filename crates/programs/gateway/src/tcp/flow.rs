//! A TCP flow: a guest's connection and the socket on the host's side, with the bytes carried between them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use netvale_wire::MacAddr;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::endpoint::{TcpEndpoint, TcpHeard, TcpState};
use super::hold::FlowHolds;
use super::segment::{SegmentOut, SegmentWriter, TcpSegment};
use super::waiting::WaitingBytes;
use crate::core::GatewayCore;
use crate::flows::{FlowBytes, FlowEnds, OpenFlow};
use crate::frame::VNET_LEN;
use crate::link::GatewayLink;
use crate::poller::Readiness;
use crate::rates::RateWay;

/// Maximum number of bytes that one call reads from a socket.
const CHUNK: usize = 64 << 10;
/// The flow's socket is not read while at least this many bytes for the guest are unsent.
const AHEAD: usize = 128 << 10;
/// Maximum number of bytes queued for the guest per flow, if the guest's limit of buffered bytes leaves that much.
const MOST: usize = 4 << 20;
/// Number of bytes that a flow may queue for the guest even if the guest's limit of buffered bytes is reached.
const LEAST: usize = 16 << 10;
/// Maximum number of segments that a flow sends in one [turn](TcpFlow::take_turn).
const TURN: usize = 16;

/// The reason why a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpClosing {
    /// Both directions have been closed in order.
    End,
    /// The guest has reset the connection.
    GuestReset,
    /// The host's socket has failed, usually because its peer has reset the connection.
    HostReset,
    /// The guest no longer acknowledges segments.
    GuestGone,
    /// The guest has sent nothing for longer than the idle limit.
    Idle,
    /// The guest of a published port has not answered the SYN.
    Unanswered,
    /// The rules have changed and do not allow the flow.
    Policy,
    /// The guest's private port was removed.
    PortGone,
    /// The gateway is stopping.
    Stopped,
}

impl TcpClosing {
    /// Returns the word for this reason in the flow log.
    pub fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::GuestReset => "guest-reset",
            Self::HostReset => "host-reset",
            Self::GuestGone => "guest-gone",
            Self::Idle => "idle",
            Self::Unanswered => "unanswered",
            Self::Policy => "policy",
            Self::PortGone => "port-gone",
            Self::Stopped => "stopped",
        }
    }
}

/// A guest's connection and its socket.
pub struct TcpFlow {
    /// The endpoints, which identify the flow.
    pub ends: FlowEnds,
    /// The DNS name that the guest resolved to the destination's address.
    pub(super) name: Option<Arc<str>>,
    /// The gateway's end of the connection with the guest.
    pub endpoint: TcpEndpoint,
    pub(super) socket: OwnedFd,
    /// The first bytes of the packet with the guest's SYN, for an ICMP error about that packet; empty once the SYN is
    /// answered.
    pub(super) first_packet: Vec<u8>,
    pub(super) began: Instant,
    pub(super) bytes: FlowBytes,
    /// Whether the socket may have bytes to read.
    readable: bool,
    /// Whether the socket may accept bytes.
    writable: bool,
    /// The guest's bytes that wait until the socket accepts them and the guest's rate limit lets them pass.
    waiting: WaitingBytes,
    /// Whether the connection waits for its guest's rate limit, in each direction.
    pub(super) holds: FlowHolds,
    /// Whether the socket's sending direction is shut down, after the guest's FIN.
    is_shut: bool,
    /// Number of bytes of memory that count against the guest's limit for this flow.
    pub(super) charged: usize,
    /// Whether the flow is in [`TcpFlows`](super::TcpFlows)' list of busy flows.
    pub(super) is_busy: bool,
    /// The time of this flow's earliest timer in the heap.
    pub(super) timed: Option<Instant>,
    /// Whether the flow counts against the guest's limit of flows that are not open yet.
    pub(super) is_half_open: bool,
}

/// The outcome of [`TcpFlow::take_turn`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnResult {
    /// Nothing is left to do until an event occurs.
    Rests,
    /// Work is left for another call.
    GoesOn,
    /// The connection has ended.
    Closed(TcpClosing),
}

impl TcpFlow {
    /// Creates a flow with a socket that is connecting or connected.
    pub fn new(ends: FlowEnds, endpoint: TcpEndpoint, socket: OwnedFd, now: Instant) -> Self {
        TcpFlow {
            ends,
            name: None,
            endpoint,
            socket,
            first_packet: Vec::new(),
            began: now,
            bytes: FlowBytes::default(),
            readable: false,
            writable: false,
            waiting: WaitingBytes::default(),
            holds: FlowHolds::default(),
            is_shut: false,
            charged: 0,
            is_busy: false,
            timed: None,
            is_half_open: true,
        }
    }

    /// Returns the flow's record for the flow log.
    pub fn record(&self) -> OpenFlow {
        let TcpFlow { ends, bytes, began, .. } = *self;
        OpenFlow { ends, name: self.name.clone(), bytes, began, waited: self.holds.waited(), dropped: 0 }
    }

    /// Records what the socket is ready for.
    pub fn note(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.writable |= readiness.writable;
    }

    /// Processes a segment from the guest. Returns the reason if the connection has ended, and the reset that the
    /// caller must send, if any.
    pub fn hear(
        &mut self,
        core: &mut GatewayCore,
        segment: &TcpSegment<'_>,
    ) -> (Option<TcpClosing>, Option<SegmentOut>) {
        let left = core.guests.bytes_left(self.ends.who);
        self.endpoint.set_most_taken(left.max(self.endpoint.floor().saturating_sub(self.waiting.len())));
        let TcpHeard { data, reset, refusal, .. } = self.endpoint.hear(segment, core.now);
        if reset {
            return (Some(TcpClosing::GuestReset), refusal);
        }
        if data.is_empty() {
            return (None, refusal);
        }
        self.bytes.sent += data.len() as u64;
        let sent = if self.waiting.is_empty() { self.pass(core, data) } else { Ok(0) };
        match sent {
            Ok(count) => {
                self.waiting.add(&data[count..]);
                self.offer(core);
                (None, refusal)
            }
            Err(_) => (Some(TcpClosing::HostReset), refusal),
        }
    }

    /// Counts the flow's memory, and sets the window that is offered to the guest: as much as the guest's limit of
    /// buffered bytes leaves and, while the connection waits for the guest's rate, at most twice the number of bytes
    /// that pass in one turn.
    fn offer(&mut self, core: &mut GatewayCore) {
        self.charge(core);
        let left = self.waiting.len().saturating_add(core.guests.bytes_left(self.ends.who));
        let held = self.holds.is_held(RateWay::Sent).then(|| 2 * self.holds.piece(core, RateWay::Sent));
        self.endpoint.set_waiting(self.waiting.len(), held.map_or(left, |held| held.min(left)));
    }

    /// Counts the memory of the flow's buffers against the guest's limit.
    pub(super) fn charge(&mut self, core: &mut GatewayCore) {
        let memory = self.memory();
        core.guests.count_bytes(self.ends.who, std::mem::replace(&mut self.charged, memory), memory);
    }

    /// Writes to the socket as much as it accepts and the guest's rate allows. Returns the number of bytes.
    fn pass(&mut self, core: &mut GatewayCore, data: &[u8]) -> Result<usize, Errno> {
        let who = self.ends.who;
        let most = self.holds.allowance(core, who, RateWay::Sent).min(data.len());
        let given = self.give(&data[..most])?;
        self.holds.spend(core, RateWay::Sent, given);
        if given == most && most < data.len() {
            self.holds.need(RateWay::Sent);
        }
        Ok(given)
    }

    /// Writes to the socket as much as it accepts. Returns the number of bytes.
    fn give(&mut self, data: &[u8]) -> Result<usize, Errno> {
        let mut given = 0;
        while given < data.len() {
            match rustix::net::send(&self.socket, &data[given..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => given += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(given)
    }

    /// Moves bytes between socket and guest, but sends at most `TURN` segments. `most` is the number of bytes that this
    /// flow may buffer under the guest's limit.
    pub fn take_turn(&mut self, core: &mut GatewayCore, most: usize) -> TurnResult {
        if self.endpoint.state() == TcpState::Connecting {
            return TurnResult::Rests;
        }
        if self.write_waiting(core).is_err() || self.read(core, most).is_err() {
            return TurnResult::Closed(TcpClosing::HostReset);
        }
        let more = self.send(core, most);
        if self.endpoint.is_done() && self.waiting.is_empty() {
            return TurnResult::Closed(TcpClosing::End);
        }
        if more { TurnResult::GoesOn } else { TurnResult::Rests }
    }

    /// Writes waiting bytes to the socket; after the last byte and the guest's FIN, shuts down the socket's sending
    /// direction.
    fn write_waiting(&mut self, core: &mut GatewayCore) -> Result<(), Errno> {
        if !self.waiting.is_empty() && self.writable {
            let waiting = std::mem::take(&mut self.waiting);
            let given = self.pass(core, waiting.bytes());
            self.waiting = waiting;
            self.waiting.remove(given?);
            self.offer(core);
        }
        if self.endpoint.has_guest_ended() && self.waiting.is_empty() && !self.is_shut {
            self.is_shut = true;
            // If the peer has reset the connection, the next read reports it.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        Ok(())
    }

    /// Reads from the socket while the queue for the guest has room.
    fn read(&mut self, core: &mut GatewayCore, most: usize) -> Result<(), Errno> {
        let most = most.clamp(LEAST, MOST);
        let is_open = self.endpoint.state() == TcpState::Open;
        while self.readable && is_open && !self.endpoint.has_ended() {
            if self.endpoint.unsent() >= AHEAD || self.endpoint.queued() >= most {
                return Ok(());
            }
            let allowed = self.holds.allowance(core, self.ends.who, RateWay::Received);
            if allowed == 0 {
                return Ok(());
            }
            let mut piece = Vec::with_capacity(CHUNK.min(most).min(allowed));
            let room = rustix::buffer::spare_capacity(&mut piece);
            match rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.endpoint.end(),
                Ok(_) => {
                    self.bytes.received += piece.len() as u64;
                    self.holds.spend(core, RateWay::Received, piece.len());
                    self.endpoint.push(piece);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.readable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends up to `TURN` segments to the guest while the switch port has room. Returns whether another turn is needed.
    fn send(&mut self, core: &mut GatewayCore, most: usize) -> bool {
        for _ in 0..TURN {
            if !core.link.has_room() {
                return true;
            }
            let Some(segment) = self.endpoint.next_segment(core.now) else {
                // The socket may have more bytes; another turn is needed if the window and the queue have room for
                // them.
                return self.readable && self.can_read_on(most);
            };
            let writer = writer(&self.ends, core.net.mac);
            send_segment(&mut core.link, &writer, &segment, &self.endpoint);
        }
        true
    }

    fn can_read_on(&self, most: usize) -> bool {
        let is_open = self.endpoint.state() == TcpState::Open && !self.endpoint.has_ended();
        let is_held = self.holds.is_held(RateWay::Received);
        is_open && !is_held && self.endpoint.unsent() == 0 && self.endpoint.queued() < most.clamp(LEAST, MOST)
    }

    /// Returns when the flow must be closed unless its state changes or, in an open connection, a segment from the
    /// guest arrives.
    pub(super) fn limit(&self) -> Instant {
        match self.endpoint.state() {
            TcpState::Open => self.endpoint.heard_at() + super::IDLE,
            TcpState::SynSent => self.began + super::ANSWER,
            TcpState::Connecting | TcpState::SynReceived | TcpState::Closed => self.began + super::CONNECT,
        }
    }

    /// Returns the number of bytes of memory that the flow's buffers take.
    pub fn memory(&self) -> usize {
        self.endpoint.memory() + self.waiting.memory()
    }
}

/// Creates the writer of the headers of a connection's segments.
pub fn writer(ends: &FlowEnds, own_mac: MacAddr) -> SegmentWriter {
    SegmentWriter { own_mac, who: ends.who, guest: ends.guest, remote: ends.remote }
}

/// Sends a segment with its payload, which is taken from the endpoint's queue.
pub fn send_segment(link: &mut GatewayLink, writer: &SegmentWriter, segment: &SegmentOut, endpoint: &TcpEndpoint) {
    let Some(headers) = writer.headers(segment, endpoint.mss()) else { return };
    let mut parts: [&[u8]; 2 + super::queue::MAX_PARTS] = [&[]; 2 + super::queue::MAX_PARTS];
    parts[0] = headers.frame();
    parts[1] = headers.tcp();
    let payload = endpoint.queue().parts(segment.data.start, segment.data.len());
    let mut count = 2;
    for (place, part) in parts[2..].iter_mut().zip(payload) {
        *place = part;
        count += 1;
    }
    debug_assert!(parts[0].len() > VNET_LEN, "a frame has headers");
    link.send(&parts[..count]);
}
