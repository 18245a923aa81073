//! TCP flows: the gateway terminates each connection of a guest, and relays its bytes through a socket of the host.
//!
//! | module | contents |
//! |---|---|
//! | [`seq`] | sequence numbers |
//! | [`segment`] | parsing and building of segments |
//! | [`queue`] | bytes that the guest has not acknowledged |
//! | [`path`] | round-trip times and congestion control |
//! | [`endpoint`] | the gateway's end of a guest's connection, a state machine |
//! | [`flow`] | a connection and its socket |
//! | [`hold`] | waiting for the guest's rate |
//! | [`waiting`] | bytes that the socket has not taken |
//! | `open` | how connections begin |
//!
//! [`TcpFlows`] has all flows. A guest's SYN is answered when the host's `connect` has succeeded; if `connect` is
//! refused, the guest gets a reset, and if the destination is unreachable, an ICMP error. Bytes for a guest are kept in
//! the gateway until the guest acknowledges them, up to the guest's limit of buffered bytes; beyond the limit, they
//! stay in the sockets' buffers.

pub mod endpoint;
pub mod flow;
pub mod hold;
mod open;
pub mod path;
pub mod queue;
pub mod segment;
pub mod seq;
pub mod waiting;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use netvale_wire::tcp::{ACK, RST, SYN};
use rustix::io::Errno;

use self::endpoint::TcpState;
use self::flow::{TcpClosing, TcpFlow, TurnResult, writer};
use self::open::is_inner;
use self::segment::{SegmentOut, TcpSegment};
use self::seq::SequenceClock;
use crate::core::{FlowReview, GatewayCore};
use crate::flows::{FlowDirection, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::guests::{GuestId, GuestResource, NetworkId};
use crate::icmp_message::IcmpProblem;
use crate::policy::FlowTransport;
use crate::poller::Readiness;
use crate::rates::GrantedFlow;
use crate::slots::{NumberedValues, SlotId};
use crate::timers::TimedThing;

/// How long an open connection may be idle (RFC 5382 REQ-5).
const IDLE: Duration = Duration::from_secs(2 * 3600 + 4 * 60);
/// How long a connection may take to open (RFC 5382 REQ-5); the host's own limit for `connect` may be shorter.
const CONNECT: Duration = Duration::from_secs(240);
/// How long a guest may take to answer the SYN for a client of a published port.
const ANSWER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TcpKey {
    who: GuestId,
    guest: SocketAddr,
    remote: SocketAddr,
}

impl TcpKey {
    fn of(ends: &FlowEnds) -> Self {
        TcpKey { who: ends.who, guest: ends.guest, remote: ends.remote }
    }
}

/// All TCP flows.
#[derive(Default)]
pub struct TcpFlows {
    flows: NumberedValues<TcpFlow>,
    by_key: HashMap<TcpKey, SlotId>,
    /// Flows that have something to do, in the order of their turns.
    busy: VecDeque<SlotId>,
    sequence: SequenceClock,
}

impl TcpFlows {
    /// Processes a segment from a guest.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let Some(segment) = segment::parse(packet.l4) else { return };
        let ends = FlowEnds {
            transport: FlowTransport::Tcp,
            direction: FlowDirection::Out,
            who: packet.who,
            guest: SocketAddr::new(packet.src, segment.src_port),
            remote: SocketAddr::new(packet.dst, segment.dst_port),
        };
        match self.by_key.get(&TcpKey::of(&ends)).copied() {
            Some(id) => self.hear(core, id, &segment),
            None if segment.has(SYN) && !segment.has(ACK) && !segment.has(RST) => {
                self.begin(core, packet, &segment, ends);
            }
            None => refuse(core, &ends, segment.refusal()),
        }
    }

    fn hear(&mut self, core: &mut GatewayCore, id: SlotId, segment: &TcpSegment<'_>) {
        let Some(flow) = self.flows.get(id) else { return };
        let (closing, refusal) = flow.hear(core, segment);
        let ends = flow.ends;
        if flow.endpoint.state() == TcpState::Open && std::mem::take(&mut flow.is_half_open) {
            core.guests.give_back(ends.who, GuestResource::Connecting);
        }
        refuse(core, &ends, refusal);
        match closing {
            Some(closing) => self.close(core, id, closing),
            None => self.make_busy(id),
        }
    }

    fn make_busy(&mut self, id: SlotId) {
        if let Some(flow) = self.flows.get(id).filter(|flow| !flow.is_busy) {
            flow.is_busy = true;
            self.busy.push_back(id);
        }
    }

    /// Handles events at a flow's socket.
    pub fn ready(&mut self, core: &mut GatewayCore, id: SlotId, readiness: Readiness) {
        let Some(flow) = self.flows.get(id) else { return };
        flow.note(readiness);
        if flow.endpoint.state() != TcpState::Connecting {
            self.make_busy(id);
            return;
        }
        match rustix::net::sockopt::socket_error(&flow.socket) {
            Ok(Ok(())) if readiness.writable => self.connected(core, id),
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => self.fail(core, id, error),
        }
    }

    fn connected(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(flow) = self.flows.get(id) else { return };
        flow.endpoint.connected();
        flow.first_packet = Vec::new();
        core.flows.opened(&flow.ends, flow.name.as_deref());
        self.make_busy(id);
    }

    /// Returns whether a flow has something to do now.
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Lets each busy flow move bytes once. Returns `true` if the switch port ran out of room, so that some flows are
    /// still busy.
    pub fn take_turns(&mut self, core: &mut GatewayCore) -> bool {
        for _ in 0..self.busy.len() {
            if !core.link.has_room() {
                return true;
            }
            let Some(id) = self.busy.pop_front() else { break };
            let Some(flow) = self.flows.get(id) else { continue };
            flow.is_busy = false;
            let most = core.guests.bytes_left(flow.ends.who) + flow.charged;
            let result = flow.take_turn(core, most);
            flow.holds.queue(core, flow.ends.who, id);
            flow.charge(core);
            match result {
                TurnResult::Rests => self.set_timer(core, id),
                TurnResult::GoesOn => {
                    self.set_timer(core, id);
                    self.make_busy(id);
                }
                TurnResult::Closed(closing) => self.close(core, id, closing),
            }
        }
        false
    }

    /// Makes flows busy again that no longer have to wait for their guest's rate limit.
    pub fn grant(&mut self, core: &GatewayCore, granted: Vec<GrantedFlow>) {
        for GrantedFlow { flow: id, way } in granted {
            if let Some(flow) = self.flows.get(id) {
                flow.holds.grant(way, core.now);
                self.make_busy(id);
            }
        }
    }

    /// Sets a flow's timer, unless an earlier timer is set.
    fn set_timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(flow) = self.flows.get(id) else { return };
        let limit = flow.limit();
        let at = flow.endpoint.deadline().map_or(limit, |deadline| deadline.min(limit));
        if flow.timed.is_none_or(|timed| at < timed) {
            flow.timed = Some(at);
            core.timers.add(at, TimedThing::Tcp(id));
        }
    }

    /// Handles a flow's timer. The timer may be outdated, if the flow's deadline has moved to a later time.
    pub fn timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(flow) = self.flows.get(id) else { return };
        if flow.timed.is_some_and(|timed| timed <= core.now) {
            flow.timed = None;
        }
        let gone = flow.endpoint.on_time(core.now);
        let state = flow.endpoint.state();
        if flow.limit() <= core.now {
            match state {
                TcpState::Open => self.close(core, id, TcpClosing::Idle),
                TcpState::Connecting => self.fail(core, id, Errno::TIMEDOUT),
                TcpState::SynSent => self.close(core, id, TcpClosing::Unanswered),
                TcpState::SynReceived | TcpState::Closed => self.close(core, id, TcpClosing::GuestGone),
            }
        } else if gone {
            self.close(core, id, TcpClosing::GuestGone);
        } else {
            self.set_timer(core, id);
            self.make_busy(id);
        }
    }

    /// Closes a flow whose socket could not connect. The guest gets an ICMP error, or a reset if the connection was
    /// refused.
    fn fail(&mut self, core: &mut GatewayCore, id: SlotId, error: Errno) {
        let Some(mut flow) = self.remove(core, id) else { return };
        let (problem, reason) = match error {
            Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT => (Some(IcmpProblem::Network), "unreachable"),
            Errno::HOSTUNREACH | Errno::HOSTDOWN => (Some(IcmpProblem::Host), "unreachable"),
            Errno::TIMEDOUT => (Some(IcmpProblem::Host), "timeout"),
            Errno::ACCESS | Errno::PERM => (Some(IcmpProblem::Prohibited), "host-policy"),
            Errno::CONNREFUSED => (None, "refused"),
            _ => (None, "failed"),
        };
        core.flows.refused(&flow.ends, flow.name.as_deref(), reason, core.now);
        match problem {
            Some(problem) => {
                core.send_error_about(flow.ends.who, flow.ends.guest.ip(), &flow.first_packet, problem, None);
            }
            None => refuse(core, &flow.ends, flow.endpoint.reset()),
        }
    }

    /// Closes a flow. Unless both directions have ended in order, the host's side gets a reset, and so does the guest,
    /// unless the guest has itself reset the connection or has lost its port.
    fn close(&mut self, core: &mut GatewayCore, id: SlotId, closing: TcpClosing) {
        let Some(mut flow) = self.remove(core, id) else { return };
        if closing != TcpClosing::End {
            if closing != TcpClosing::GuestReset && closing != TcpClosing::PortGone {
                refuse(core, &flow.ends, flow.endpoint.reset());
            }
            // With `SO_LINGER` of 0, closing the socket resets its connection.
            let _ = rustix::net::sockopt::set_socket_linger(&flow.socket, Some(Duration::ZERO));
        }
        core.flows.closed(&flow.record(), closing.word(), core.now);
    }

    /// Returns the flows that are open, in no particular order.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.flows.values().filter(|flow| flow.endpoint.state() != TcpState::Connecting).map(TcpFlow::record)
    }

    /// Closes the flows that the rules no longer allow. Returns their number.
    pub fn end_refused(&mut self, core: &mut GatewayCore, review: &mut FlowReview) -> usize {
        let refused = self
            .flows
            .ids_of(|flow| !is_inner(core, &flow.ends) && !core.permits(review, &flow.ends, flow.name.as_ref()));
        refused.iter().for_each(|id| self.close(core, *id, TcpClosing::Policy));
        refused.len()
    }

    /// Closes the flows of a network that has no port any more.
    pub fn end_network(&mut self, core: &mut GatewayCore, network: NetworkId) {
        for id in self.flows.ids_of(|flow| flow.ends.who.network == network) {
            self.close(core, id, TcpClosing::PortGone);
        }
    }

    /// Closes all flows.
    pub fn end_all(&mut self, core: &mut GatewayCore) {
        for id in self.flows.ids() {
            self.close(core, id, TcpClosing::Stopped);
        }
    }

    fn remove(&mut self, core: &mut GatewayCore, id: SlotId) -> Option<TcpFlow> {
        let mut flow = self.flows.remove(id)?;
        self.by_key.remove(&TcpKey::of(&flow.ends));
        let who = flow.ends.who;
        flow.holds.leave(core);
        core.guests.count_bytes(who, flow.charged, 0);
        if flow.is_half_open {
            core.guests.give_back(who, GuestResource::Connecting);
        }
        core.guests.give_back(who, GuestResource::Tcp);
        Some(flow)
    }
}

/// Sends a reset that belongs to no flow, if `segment` is `Some`.
fn refuse(core: &mut GatewayCore, ends: &FlowEnds, segment: Option<SegmentOut>) {
    let Some(segment) = segment else { return };
    let headers = writer(ends, core.net.mac).headers(&segment, u16::MAX);
    if let Some(headers) = headers {
        core.link.send(&[headers.frame(), headers.tcp()]);
    }
}
