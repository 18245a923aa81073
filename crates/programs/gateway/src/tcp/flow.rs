//! A TCP flow: a guest's connection, and the socket at the host's side to which its bytes go.

use std::os::fd::OwnedFd;
use std::time::Instant;

use netvale_wire::MacAddr;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::endpoint::{TcpEndpoint, TcpHeard, TcpState};
use super::segment::{SegmentOut, SegmentWriter, TcpSegment};
use crate::core::GatewayCore;
use crate::flows::{FlowBytes, FlowEnds};
use crate::frame::VNET_LEN;
use crate::link::GatewayLink;
use crate::poller::Readiness;

/// Bytes taken from a socket together.
const CHUNK: usize = 64 << 10;
/// Bytes that wait to be sent, beyond those under way; and in all, for a guest with and without much left of its share.
const AHEAD: usize = 128 << 10;
const MOST: usize = 4 << 20;
const LEAST: usize = 16 << 10;
/// Segments sent in a row.
const TURN: usize = 16;

/// Why a connection has ended: the word in the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpClosing {
    /// Both ends have ended it.
    End,
    /// The guest has reset it.
    GuestReset,
    /// The host's side has.
    HostReset,
    /// The guest is silent.
    GuestGone,
    /// Nothing was said for hours.
    Idle,
    /// A published port's guest does not answer.
    Unanswered,
    /// The gateway ends.
    Stopped,
}

impl TcpClosing {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::GuestReset => "guest-reset",
            Self::HostReset => "host-reset",
            Self::GuestGone => "guest-gone",
            Self::Idle => "idle",
            Self::Unanswered => "unanswered",
            Self::Stopped => "stopped",
        }
    }
}

/// A connection and its socket.
pub struct TcpFlow {
    /// Both ends.
    pub ends: FlowEnds,
    /// The guest's end.
    pub endpoint: TcpEndpoint,
    pub(super) socket: OwnedFd,
    /// The start of the guest's first packet, for an ICMP error about it, until it is answered.
    pub(super) first_packet: Vec<u8>,
    pub(super) began: Instant,
    pub(super) bytes: FlowBytes,
    /// What the socket was last known to be ready for.
    readable: bool,
    writable: bool,
    /// Bytes of the guest's for which the socket has no room.
    waiting: Vec<u8>,
    /// Whether the socket was told that the guest has ended.
    is_shut: bool,
    /// Memory that the guest's share has been charged for.
    pub(super) charged: usize,
    /// Whether it is in the list of those that have something to do.
    pub(super) is_busy: bool,
    /// The time in the heap at which it is looked at.
    pub(super) timed: Option<Instant>,
    /// Whether it counts as one that is not open yet.
    pub(super) is_half_open: bool,
}

/// What is left of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnResult {
    /// Nothing, until something happens.
    Rests,
    /// More, at the next turn.
    GoesOn,
    /// The connection has ended.
    Closed(TcpClosing),
}

impl TcpFlow {
    /// A connection whose socket connects, or is connected.
    pub fn new(ends: FlowEnds, endpoint: TcpEndpoint, socket: OwnedFd, now: Instant) -> Self {
        TcpFlow {
            ends,
            endpoint,
            socket,
            first_packet: Vec::new(),
            began: now,
            bytes: FlowBytes::default(),
            readable: false,
            writable: false,
            waiting: Vec::new(),
            is_shut: false,
            charged: 0,
            is_busy: false,
            timed: None,
            is_half_open: true,
        }
    }

    /// Notes what the socket is ready for.
    pub fn note(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.writable |= readiness.writable;
    }

    /// Takes a segment of the guest's. `Some` if the connection has ended.
    pub fn hear(&mut self, segment: &TcpSegment<'_>, now: Instant) -> (Option<TcpClosing>, Option<SegmentOut>) {
        let TcpHeard { data, reset, refusal, .. } = self.endpoint.hear(segment, now);
        if reset {
            return (Some(TcpClosing::GuestReset), refusal);
        }
        if data.is_empty() {
            return (None, refusal);
        }
        self.bytes.sent += data.len() as u64;
        let sent = if self.waiting.is_empty() { self.give(data) } else { Ok(0) };
        match sent {
            Ok(count) => {
                self.waiting.extend_from_slice(&data[count..]);
                self.endpoint.set_waiting(self.waiting.len());
                (None, refusal)
            }
            Err(_) => (Some(TcpClosing::HostReset), refusal),
        }
    }

    /// Gives the socket as much as it takes.
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

    /// Does what there is to do, up to a limit. `most` is what the guest's share leaves for this connection.
    pub fn take_turn(&mut self, core: &mut GatewayCore, most: usize) -> TurnResult {
        if self.endpoint.state() == TcpState::Connecting {
            return TurnResult::Rests;
        }
        if self.write_waiting().is_err() || self.read(most).is_err() {
            return TurnResult::Closed(TcpClosing::HostReset);
        }
        let more = self.send(core, most);
        if self.endpoint.is_done() && self.waiting.is_empty() {
            return TurnResult::Closed(TcpClosing::End);
        }
        if more { TurnResult::GoesOn } else { TurnResult::Rests }
    }

    /// Gives the socket what waits for it, and then its end.
    fn write_waiting(&mut self) -> Result<(), Errno> {
        if !self.waiting.is_empty() && self.writable {
            let waiting = std::mem::take(&mut self.waiting);
            let given = self.give(&waiting)?;
            self.waiting.extend_from_slice(&waiting[given..]);
            self.endpoint.set_waiting(self.waiting.len());
        }
        if self.endpoint.has_guest_ended() && self.waiting.is_empty() && !self.is_shut {
            self.is_shut = true;
            // A peer that has reset the connection meanwhile is found by the next read.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        Ok(())
    }

    /// Takes bytes out of the socket while there is use for them.
    fn read(&mut self, most: usize) -> Result<(), Errno> {
        let most = most.clamp(LEAST, MOST);
        let is_open = self.endpoint.state() == TcpState::Open;
        while self.readable && is_open && !self.endpoint.has_ended() {
            if self.endpoint.unsent() >= AHEAD || self.endpoint.queued() >= most {
                return Ok(());
            }
            let mut piece = Vec::with_capacity(CHUNK.min(most));
            let room = rustix::buffer::spare_capacity(&mut piece);
            match rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.endpoint.end(),
                Ok(_) => {
                    self.bytes.received += piece.len() as u64;
                    self.endpoint.push(piece);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.readable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends segments while there are some and the link has room. Returns whether there may be more.
    fn send(&mut self, core: &mut GatewayCore, most: usize) -> bool {
        for _ in 0..TURN {
            if !core.link.has_room() {
                return true;
            }
            let Some(segment) = self.endpoint.next_segment(core.now) else {
                // What the window and the queue have room for may be in the socket.
                return self.readable && self.can_read_on(most);
            };
            let writer = writer(&self.ends, core.net.mac);
            send_segment(&mut core.link, &writer, &segment, &self.endpoint);
        }
        true
    }

    fn can_read_on(&self, most: usize) -> bool {
        let is_open = self.endpoint.state() == TcpState::Open && !self.endpoint.has_ended();
        is_open && self.endpoint.unsent() == 0 && self.endpoint.queued() < most.clamp(LEAST, MOST)
    }

    /// When it has lasted too long in its state.
    pub(super) fn limit(&self) -> Instant {
        match self.endpoint.state() {
            TcpState::Open => self.endpoint.heard_at() + super::IDLE,
            TcpState::SynSent => self.began + super::ANSWER,
            TcpState::Connecting | TcpState::SynReceived | TcpState::Closed => self.began + super::CONNECT,
        }
    }

    /// Memory that its bytes take.
    pub fn memory(&self) -> usize {
        self.endpoint.memory() + self.waiting.capacity()
    }
}

/// What makes the headers of a connection's segments.
pub fn writer(ends: &FlowEnds, own_mac: MacAddr) -> SegmentWriter {
    SegmentWriter { own_mac, mac: ends.mac, guest: ends.guest, remote: ends.remote }
}

/// Sends a segment with its payload.
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
