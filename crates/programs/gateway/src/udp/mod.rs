//! UDP flows: network address translation as RFC 4787 requires it.
//!
//! Each address and port of a guest has a mapping: a socket of its own, and thus one external port for all destinations
//! (REQ-1). A mapping is kept for two minutes after the last datagram (REQ-5, REQ-6). Datagrams reach the guest only
//! from addresses to which it has sent (REQ-8). [`UdpMappings`] has the sockets; a `UdpPeer` is one destination of a
//! socket, which is one flow in the flow log.

mod peers;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netvale_wire::layers::UDP;
use netvale_wire::udp;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use self::peers::UdpPeers;
use crate::core::{FlowRefusal, FlowReview, GatewayCore};
use crate::flows::{FlowDirection, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::frame::build::bare_packet;
use crate::guests::{GuestId, GuestResource, NetworkId};
use crate::icmp_message::IcmpProblem;
use crate::outward::OutwardSocket;
use crate::policy::FlowTransport;
use crate::poller::{Readiness, WatchMode, WatchedThing};
use crate::slots::{NumberedValues, SlotId};
use crate::sys::{self, QueuedError};
use crate::timers::TimedThing;

/// How long a mapping is kept after its last datagram (RFC 4787 REQ-5).
const IDLE: Duration = Duration::from_secs(125);
/// Maximum number of datagrams, and maximum number of errors, that are read from a socket in one call.
const BATCH: usize = 64;

/// The ports and the payload of a guest's datagram.
#[derive(Clone, Copy, Debug)]
pub struct UdpDatagram<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Payload.
    pub payload: &'a [u8],
}

/// Parses a packet's UDP header. Returns `None` for other protocols, malformed datagrams and source port 0.
pub fn parse<'a>(packet: &GuestPacket<'a>) -> Option<UdpDatagram<'a>> {
    let header = udp::Header::parse(packet.l4).ok().filter(|_| packet.protocol == UDP)?;
    // With segmentation offload, the payloads of several datagrams follow one header, whose length field cannot express
    // their total length.
    let len = if packet.segment > 0 { packet.l4.len() } else { header.datagram_len().into() };
    let payload = packet.l4.get(udp::HEADER_LEN..len)?;
    (header.src_port() != 0).then_some(UdpDatagram {
        src_port: header.src_port(),
        dst_port: header.dst_port(),
        payload,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct UdpKey {
    who: GuestId,
    guest: SocketAddr,
}

struct UdpMapping {
    key: UdpKey,
    socket: OutwardSocket,
    used: Instant,
    peers: UdpPeers,
}

/// The mappings of all guests, each with its socket.
#[derive(Default)]
pub struct UdpMappings {
    mappings: NumberedValues<UdpMapping>,
    by_key: HashMap<UdpKey, SlotId>,
    /// The mappings of each guest, or each private network, in the order of the recorded times of their last use. A
    /// recorded time may be out of date: the actual last use may be later.
    order: HashMap<GuestId, VecDeque<(SlotId, Instant)>>,
    scratch: Vec<u8>,
}

impl UdpMappings {
    /// Sends a guest's datagram to another host or, if it is for the gateway's own address, to the host's loopback.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>) {
        let key = UdpKey { who: packet.who, guest: SocketAddr::new(packet.src, datagram.src_port) };
        let remote = SocketAddr::new(packet.dst, datagram.dst_port);
        let known = self.by_key.get(&key).copied();
        let outer = known.and_then(|id| self.mappings.get(id)?.peers.outer(remote));
        let admitted = if outer.is_none() { core.admit(&ends_of(&key, remote)).map(Some) } else { Ok(None) };
        let permitted = match admitted {
            Ok(permitted) => permitted,
            Err(refusal) => return refuse(core, packet, &ends_of(&key, remote), refusal),
        };
        let Some(id) = known.or_else(|| self.open(core, key)) else { return };
        let Some(mapping) = self.mappings.get(id) else { return };
        if let Some(flow) = permitted {
            mapping.peers.add(core, &mapping.key, remote, flow);
        }
        let Some(outer) = mapping.peers.outer(remote) else { return };
        mapping.used = core.now;
        if mapping.peers.sent(core, remote, datagram.payload.len()) {
            mapping.socket.send(core, packet, datagram.payload, outer, None);
        }
    }

    fn open(&mut self, core: &mut GatewayCore, key: UdpKey) -> Option<SlotId> {
        if !core.guests.take(key.who, GuestResource::Udp) {
            self.end_oldest(core, key.who.share());
            if !core.guests.take(key.who, GuestResource::Udp) {
                return None;
            }
        }
        let Some(socket) = socket(key.guest.ip()) else {
            core.guests.give_back(key.who, GuestResource::Udp);
            return None;
        };
        let mapping = UdpMapping { key, socket, used: core.now, peers: UdpPeers::default() };
        let id = self.mappings.insert(mapping);
        self.by_key.insert(key, id);
        self.order.entry(key.who.share()).or_default().push_back((id, core.now));
        core.timers.add(core.now + IDLE, TimedThing::Udp(id));
        let mapping = self.mappings.get(id)?;
        if core.poller.add(&mapping.socket.fd, WatchedThing::Udp(id), WatchMode::Readable).is_err() {
            self.close(core, id, "descriptors");
            return None;
        }
        Some(id)
    }

    /// Closes the guest's mapping that has been idle for longest.
    fn end_oldest(&mut self, core: &mut GatewayCore, who: GuestId) {
        loop {
            let Some((id, known)) = self.order.get_mut(&who).and_then(VecDeque::pop_front) else { return };
            match self.mappings.get(id).map(|mapping| mapping.used) {
                None => {}
                Some(used) if used > known => {
                    self.order.entry(who).or_default().push_back((id, used));
                }
                Some(_) => return self.close(core, id, "limit"),
            }
        }
    }

    /// Passes the datagrams and errors that a socket has received to its guest.
    pub fn ready(&mut self, core: &mut GatewayCore, id: SlotId, readiness: Readiness) {
        if let Some(mapping) = self.mappings.get(id).filter(|_| readiness.error) {
            // The socket reports an error until the error is taken, even if the sending of a datagram has returned the
            // same error.
            pass_errors(core, mapping);
        }
        for _ in 0..BATCH {
            let Some(mapping) = self.mappings.get(id) else { return };
            self.scratch.clear();
            self.scratch.reserve(usize::from(u16::MAX));
            let room = rustix::buffer::spare_capacity(&mut self.scratch);
            match rustix::net::recvfrom(&mapping.socket.fd, room, RecvFlags::DONTWAIT) {
                Ok((_, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    from.and_then(|from| pass_on(core, mapping, from, &self.scratch));
                }
                Err(Errno::AGAIN) => return,
                // The error is ignored here, since it is in the socket's error queue, too.
                Err(_) => {}
            }
        }
    }

    /// Closes a mapping that has been idle for too long; otherwise sets its timer again.
    pub fn timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(mapping) = self.mappings.get(id) else { return };
        let end = mapping.used + IDLE;
        if end <= core.now {
            self.close(core, id, "idle");
        } else {
            core.timers.add(end, TimedThing::Udp(id));
        }
    }

    /// Returns the flows that are open, in no particular order.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.mappings.values().flat_map(|mapping| mapping.peers.open_flows())
    }

    /// Closes the flows that the rules no longer allow, and the mappings that have no flow left. Returns the number of
    /// closed flows.
    pub fn end_refused(&mut self, core: &mut GatewayCore, review: &mut FlowReview) -> usize {
        let mut ended = 0;
        for id in self.mappings.ids() {
            let Some(mapping) = self.mappings.get(id) else { continue };
            let refused = mapping.peers.end_refused(core, review);
            if refused > 0 && mapping.peers.is_empty() {
                self.close(core, id, "policy");
            }
            ended += refused;
        }
        ended
    }

    /// Closes the mappings of a network that has no port any more.
    pub fn end_network(&mut self, core: &mut GatewayCore, network: NetworkId) {
        for id in self.mappings.ids_of(|mapping| mapping.key.who.network == network) {
            self.close(core, id, "port-gone");
        }
    }

    /// Closes all mappings.
    pub fn end_all(&mut self, core: &mut GatewayCore) {
        for id in self.mappings.ids() {
            self.close(core, id, "stopped");
        }
    }

    fn close(&mut self, core: &mut GatewayCore, id: SlotId, reason: &str) {
        let Some(mut mapping) = self.mappings.remove(id) else { return };
        let key = mapping.key;
        mapping.peers.close_all(core, reason);
        self.by_key.remove(&key);
        core.guests.give_back(key.who, GuestResource::Udp);
        let left = core.guests.used(key.who, GuestResource::Udp);
        if left == 0 {
            self.order.remove(&key.who.share());
        } else if let Some(order) = self.order.get_mut(&key.who.share())
            && order.len() > 2 * left as usize + 16
        {
            let mappings = &mut self.mappings;
            order.retain(|(id, _)| mappings.get(*id).is_some());
        }
    }
}

fn ends_of(key: &UdpKey, remote: SocketAddr) -> FlowEnds {
    FlowEnds { transport: FlowTransport::Udp, direction: FlowDirection::Out, who: key.who, guest: key.guest, remote }
}

fn socket(guest: IpAddr) -> Option<OutwardSocket> {
    let family = if guest.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
    if guest.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true).ok()?;
    }
    // If this fails, ICMP errors are not passed to the guest.
    let _ = sys::queue_errors(&socket, guest.is_ipv6());
    Some(OutwardSocket::new(socket))
}

fn refuse(core: &mut GatewayCore, packet: &GuestPacket<'_>, ends: &FlowEnds, refusal: FlowRefusal) {
    core.refused(ends, refusal.word());
    // A port of the gateway's own address to which the rules forbid access appears closed.
    let own = core.net.is_own(packet.dst);
    core.send_error(packet, if own { IcmpProblem::Port } else { IcmpProblem::Prohibited }, None);
}

fn pass_on(core: &mut GatewayCore, mapping: &mut UdpMapping, from: SocketAddr, payload: &[u8]) -> Option<()> {
    if !mapping.peers.received(core, from, payload.len()) {
        return None;
    }
    mapping.used = core.now;
    let src = SocketAddr::new(core.seen_by_guest(from.ip())?, from.port());
    core.send_datagram(mapping.key.who, src, mapping.key.guest, payload);
    Some(())
}

/// Passes ICMP errors from a socket's error queue to its guest.
fn pass_errors(core: &mut GatewayCore, mapping: &mut UdpMapping) {
    for _ in 0..BATCH {
        let Some(error) = sys::next_error(&mapping.socket.fd) else { return };
        pass_error(core, mapping, &error);
    }
}

fn pass_error(core: &mut GatewayCore, mapping: &mut UdpMapping, error: &QueuedError) -> Option<()> {
    let guest = mapping.key.guest;
    let remote = mapping.peers.remote(error.to).filter(|_| error.by_icmp)?;
    let problem = IcmpProblem::of_message(error.kind, error.code, error.info, guest.is_ipv4())?;
    let [a, b] = guest.port().to_be_bytes();
    let [c, d] = remote.port().to_be_bytes();
    // The payload is no longer known; the ports are enough for the guest to find its socket.
    let packet = bare_packet(guest.ip(), remote.ip(), UDP, &[a, b, c, d, 0, 8, 0, 0]);
    core.send_error_about(mapping.key.who, guest.ip(), &packet, problem, error.by);
    Some(())
}
