//! ICMP echo: replies of the gateway itself, and requests to other hosts through unprivileged sockets (icmp(7),
//! `ping_group_range`).
//!
//! [`EchoFlows`] has a socket for each guest, destination and identifier. The kernel replaces the identifier in
//! requests by the socket's identifier; sequence numbers and contents pass unchanged. A guest gets a reply only if the
//! destination sent one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netvale_wire::layers::{ICMP, ICMP6};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

use crate::core::{FlowReview, GatewayCore, PermittedFlow};
use crate::flows::{FlowDirection, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::guests::{GuestId, GuestResource, NetworkId};
use crate::icmp_message::{self, HEADER_LEN, IcmpProblem, kind};
use crate::outward::{DatagramFlow, OutwardSocket};
use crate::policy::FlowTransport;
use crate::poller::{Readiness, WatchMode, WatchedThing};
use crate::rates::RateWay;
use crate::slots::{NumberedValues, SlotId};
use crate::sys;
use crate::timers::TimedThing;

/// Time for which a socket is kept after its last request.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of replies, and maximum number of errors, that are read from a socket in a row.
const BATCH: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PingKey {
    who: GuestId,
    guest: IpAddr,
    remote: IpAddr,
    ident: u16,
}

struct EchoFlow {
    key: PingKey,
    outer: IpAddr,
    socket: OutwardSocket,
    flow: DatagramFlow,
}

fn ends_of(key: &PingKey) -> FlowEnds {
    FlowEnds {
        transport: FlowTransport::Icmp,
        direction: FlowDirection::Out,
        who: key.who,
        guest: SocketAddr::new(key.guest, key.ident),
        remote: SocketAddr::new(key.remote, 0),
    }
}

/// The sockets through which guests' echo requests leave.
#[derive(Default)]
pub struct EchoFlows {
    flows: NumberedValues<EchoFlow>,
    by_key: HashMap<PingKey, SlotId>,
    /// For IPv4 and for IPv6, whether the warning that the kernel refuses such sockets was already logged.
    said: [bool; 2],
    scratch: Vec<u8>,
}

impl EchoFlows {
    /// Processes a guest's ICMP message to the gateway or to another host. All messages except echo requests are
    /// dropped.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let is_echo = match packet.protocol {
            ICMP => packet.l4.first() == Some(&kind::ECHO),
            ICMP6 => packet.l4.first() == Some(&kind::ECHO6),
            _ => false,
        };
        if !is_echo || packet.l4.len() < HEADER_LEN || packet.l4[1] != 0 {
            return;
        }
        if core.net.is_own(packet.dst) {
            self.reply(core, packet);
        } else {
            self.forward(core, packet);
        }
    }

    fn reply(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let reply = if packet.protocol == ICMP { kind::ECHO_REPLY } else { kind::ECHO_REPLY6 };
        let ident = u16::from_be_bytes([packet.l4[4], packet.l4[5]]);
        icmp_message::echo(&mut self.scratch, reply, ident, &packet.l4[6..], packet.dst, packet.src);
        core.send_packet(packet.who, packet.dst, packet.src, packet.protocol, &self.scratch);
    }

    fn forward(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>) {
        let ident = u16::from_be_bytes([packet.l4[4], packet.l4[5]]);
        let key = PingKey { who: packet.who, guest: packet.src, remote: packet.dst, ident };
        let Some(id) = self.by_key.get(&key).copied().or_else(|| self.open(core, key, packet)) else { return };
        let Some(flow) = self.flows.get(id) else { return };
        flow.flow.used = core.now;
        if flow.flow.passes(core, RateWay::Sent, packet.l4.len() - HEADER_LEN) {
            flow.socket.send(core, packet, packet.l4, SocketAddr::new(flow.outer, 0), None);
        }
    }

    fn open(&mut self, core: &mut GatewayCore, key: PingKey, packet: &GuestPacket<'_>) -> Option<SlotId> {
        let PermittedFlow { outer, name } = match core.admit(&ends_of(&key)) {
            Ok(permitted) => permitted,
            Err(refusal) => {
                core.refused(&ends_of(&key), refusal.word());
                core.send_error(packet, IcmpProblem::Prohibited, None);
                return None;
            }
        };
        let outer = outer.ip();
        let socket = self.socket(outer)?;
        if !core.guests.take(key.who, GuestResource::Ping) {
            core.refused(&ends_of(&key), "limit");
            return None;
        }
        let flow = DatagramFlow::begin(core, ends_of(&key), name);
        let id = self.flows.insert(EchoFlow { key, outer, socket, flow });
        self.by_key.insert(key, id);
        core.timers.add(core.now + IDLE, TimedThing::Ping(id));
        let watched = self
            .flows
            .get(id)
            .map(|flow| core.poller.add(&flow.socket.fd, WatchedThing::Ping(id), WatchMode::Readable));
        if !matches!(watched, Some(Ok(()))) {
            self.close(core, id, "descriptors");
            return None;
        }
        Some(id)
    }

    /// Opens a socket for echo requests. If the kernel refuses, explains why in the log (only once), and returns
    /// `None`.
    fn socket(&mut self, outer: IpAddr) -> Option<OutwardSocket> {
        let v6 = outer.is_ipv6();
        let (family, protocol) =
            if v6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(protocol)) {
            Ok(socket) => {
                let _ = sys::queue_errors(&socket, v6);
                Some(OutwardSocket::new(socket))
            }
            Err(error) => {
                if !std::mem::replace(&mut self.said[usize::from(v6)], true) {
                    tracing::warn!(
                        "guests' pings are not answered: no group of this user may open ping sockets ({error}); \
                         as root: sysctl -w net.ipv4.ping_group_range='0 2147483647'"
                    );
                }
                None
            }
        }
    }

    /// Passes the replies and errors that a socket has received to its guest.
    pub fn ready(&mut self, core: &mut GatewayCore, id: SlotId, readiness: Readiness) {
        // The socket reports an error until the error is taken from its queue, even if sending a request has returned
        // the same error.
        for _ in 0..BATCH {
            if !readiness.error || !self.pass_error(core, id) {
                break;
            }
        }
        for _ in 0..BATCH {
            let Some(flow) = self.flows.get(id) else { return };
            self.scratch.clear();
            self.scratch.reserve(usize::from(u16::MAX));
            let room = rustix::buffer::spare_capacity(&mut self.scratch);
            match rustix::net::recvfrom(&flow.socket.fd, room, RecvFlags::DONTWAIT) {
                Ok((_, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    if from.is_some_and(|from| from.ip() == flow.outer) {
                        self.pass_on(core, id);
                    }
                }
                Err(Errno::AGAIN) => return,
                // The error is also in the socket's error queue, from which it is taken.
                Err(_) => {}
            }
        }
    }

    fn pass_on(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(flow) = self.flows.get(id) else { return };
        let reply = if flow.key.guest.is_ipv4() { kind::ECHO_REPLY } else { kind::ECHO_REPLY6 };
        if self.scratch.len() < HEADER_LEN || self.scratch[0] != reply {
            return;
        }
        let key = flow.key;
        if !flow.flow.passes(core, RateWay::Received, self.scratch.len() - HEADER_LEN) {
            return;
        }
        self.scratch[4..6].copy_from_slice(&key.ident.to_be_bytes());
        icmp_message::set_checksum(&mut self.scratch, key.remote, key.guest);
        core.send_packet(key.who, key.remote, key.guest, icmp_message::protocol(key.guest), &self.scratch);
    }

    /// Takes the next error from a socket's error queue. If an ICMP message caused the error, passes the error to the
    /// guest. Returns `false` if the queue is empty.
    fn pass_error(&mut self, core: &mut GatewayCore, id: SlotId) -> bool {
        let Some(flow) = self.flows.get(id) else { return false };
        let Some(error) = sys::next_error(&flow.socket.fd) else { return false };
        let key = flow.key;
        let v4 = key.guest.is_ipv4();
        let problem = IcmpProblem::of_message(error.kind, error.code, error.info, v4);
        let Some(problem) = problem.filter(|_| error.by_icmp) else { return true };
        let request = if v4 { kind::ECHO } else { kind::ECHO6 };
        let mut l4 = Vec::new();
        icmp_message::echo(&mut l4, request, key.ident, &[0, 0], key.guest, key.remote);
        let packet = crate::frame::build::bare_packet(key.guest, key.remote, icmp_message::protocol(key.guest), &l4);
        core.send_error_about(key.who, key.guest, &packet, problem, error.by);
        true
    }

    /// Called when a socket's timer expires. Closes the socket if it has been idle for too long; otherwise restarts the
    /// timer.
    pub fn timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(flow) = self.flows.get(id) else { return };
        let end = flow.flow.used + IDLE;
        if end <= core.now {
            self.close(core, id, "idle");
        } else {
            core.timers.add(end, TimedThing::Ping(id));
        }
    }

    /// Closes the sockets of a network that has no port any more.
    pub fn end_network(&mut self, core: &mut GatewayCore, network: NetworkId) {
        for id in self.flows.ids_of(|flow| flow.key.who.network == network) {
            self.close(core, id, "port-gone");
        }
    }

    fn close(&mut self, core: &mut GatewayCore, id: SlotId, reason: &str) {
        let Some(flow) = self.flows.remove(id) else { return };
        self.by_key.remove(&flow.key);
        core.guests.give_back(flow.key.who, GuestResource::Ping);
        flow.flow.close(core, reason);
    }

    /// Returns the flows that are open, in no particular order.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.flows.values().map(|flow| flow.flow.open().clone())
    }

    /// Closes the flows that the rules no longer allow. Returns the number of closed flows.
    pub fn end_refused(&mut self, core: &mut GatewayCore, review: &mut FlowReview) -> usize {
        let refused = self.flows.ids_of(|flow| !flow.flow.is_permitted(core, review));
        refused.iter().for_each(|id| self.close(core, *id, "policy"));
        refused.len()
    }
}
