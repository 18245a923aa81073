//! UDP beyond the gateway: address translation as RFC 4787 asks for.
//!
//! A guest's address and port have one socket, and so one outer port for all destinations (REQ-1), for two minutes
//! after the last datagram (REQ-5, REQ-6). What comes from an address to which the guest has sent passes, and nothing
//! else (REQ-8). [`UdpMappings`] has the sockets; a [`UdpPeer`](peers) is one destination of a socket, and a flow in
//! the record.

mod peers;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netvale_wire::layers::UDP;
use netvale_wire::{MacAddr, udp};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use self::peers::UdpPeers;
use crate::core::GatewayCore;
use crate::flows::{FlowDirection, FlowEnds};
use crate::frame::GuestPacket;
use crate::frame::build::bare_packet;
use crate::guests::GuestResource;
use crate::icmp_message::IcmpProblem;
use crate::policy::FlowTransport;
use crate::poller::{Readiness, WatchMode, WatchedThing};
use crate::slots::{NumberedValues, SlotId};
use crate::sys;
use crate::timers::TimedThing;

/// How long a socket stays without a datagram (RFC 4787 REQ-5).
const IDLE: Duration = Duration::from_secs(125);
/// Datagrams taken from a socket in a row.
const BATCH: usize = 64;

/// The header of a guest's datagram, and its payload.
#[derive(Clone, Copy, Debug)]
pub struct UdpDatagram<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Payload.
    pub payload: &'a [u8],
}

/// Takes a datagram apart.
pub fn parse<'a>(packet: &GuestPacket<'a>) -> Option<UdpDatagram<'a>> {
    let header = udp::Header::parse(packet.l4).ok().filter(|_| packet.protocol == UDP)?;
    // Several datagrams behind one header, together, may be longer than a length says.
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
    mac: MacAddr,
    guest: SocketAddr,
}

struct UdpMapping {
    key: UdpKey,
    socket: OwnedFd,
    used: Instant,
    peers: UdpPeers,
}

/// The sockets.
#[derive(Default)]
pub struct UdpMappings {
    mappings: NumberedValues<UdpMapping>,
    by_key: HashMap<UdpKey, SlotId>,
    /// Each guest's sockets, in the order of a time at which they were used; the real one may be later.
    order: HashMap<MacAddr, VecDeque<(SlotId, Instant)>>,
    scratch: Vec<u8>,
}

impl UdpMappings {
    /// Takes a datagram of a guest for beyond the gateway, or for the host's loopback.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>) {
        let key = UdpKey { mac: packet.mac, guest: SocketAddr::new(packet.src, datagram.src_port) };
        let remote = SocketAddr::new(packet.dst, datagram.dst_port);
        let known = self.by_key.get(&key).copied();
        let outer = known.and_then(|id| self.mappings.get(id)?.peers.outer(remote));
        let outer = match outer.map_or_else(|| core.judge(&ends_of(&key, remote)), Ok) {
            Ok(outer) => outer,
            Err(refusal) => {
                core.flows.refused(&ends_of(&key, remote), refusal.word(), core.now);
                // At the gateway's own address, there is no such port.
                let own = core.net.is_own(packet.dst);
                let problem = if own { IcmpProblem::Port } else { IcmpProblem::Prohibited };
                core.send_error(packet, problem, None);
                return;
            }
        };
        let Some(id) = known.or_else(|| self.open(core, key)) else { return };
        let Some(mapping) = self.mappings.get(id) else { return };
        mapping.used = core.now;
        mapping.peers.sent(core, &mapping.key, remote, outer, datagram.payload.len());
        if let Err(error) = send(mapping, datagram.payload, packet.segment, outer) {
            answer_failure(core, packet, error);
        }
    }

    fn open(&mut self, core: &mut GatewayCore, key: UdpKey) -> Option<SlotId> {
        if !core.guests.take(key.mac, GuestResource::Udp) {
            self.end_oldest(core, key.mac);
            if !core.guests.take(key.mac, GuestResource::Udp) {
                return None;
            }
        }
        let Some(socket) = socket(key.guest.ip()) else {
            core.guests.give_back(key.mac, GuestResource::Udp);
            return None;
        };
        let mapping = UdpMapping { key, socket, used: core.now, peers: UdpPeers::default() };
        let id = self.mappings.insert(mapping);
        self.by_key.insert(key, id);
        self.order.entry(key.mac).or_default().push_back((id, core.now));
        core.timers.add(core.now + IDLE, TimedThing::Udp(id));
        let mapping = self.mappings.get(id)?;
        if core.poller.add(&mapping.socket, WatchedThing::Udp(id), WatchMode::Readable).is_err() {
            self.close(core, id, "descriptors");
            return None;
        }
        Some(id)
    }

    /// Ends the socket of a guest that has been idle for longest.
    fn end_oldest(&mut self, core: &mut GatewayCore, mac: MacAddr) {
        loop {
            let Some((id, known)) = self.order.get_mut(&mac).and_then(VecDeque::pop_front) else { return };
            match self.mappings.get(id).map(|mapping| mapping.used) {
                None => {}
                Some(used) if used > known => {
                    self.order.entry(mac).or_default().push_back((id, used));
                }
                Some(_) => return self.close(core, id, "limit"),
            }
        }
    }

    /// Passes on what a socket has received.
    pub fn ready(&mut self, core: &mut GatewayCore, id: SlotId, readiness: Readiness) {
        if let Some(mapping) = self.mappings.get(id).filter(|_| readiness.error) {
            // Errors stay reported until they are taken, also those that a datagram's sending has met.
            pass_errors(core, mapping);
        }
        for _ in 0..BATCH {
            let Some(mapping) = self.mappings.get(id) else { return };
            self.scratch.clear();
            self.scratch.reserve(usize::from(u16::MAX));
            let room = rustix::buffer::spare_capacity(&mut self.scratch);
            match rustix::net::recvfrom(&mapping.socket, room, RecvFlags::DONTWAIT) {
                Ok((_, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    from.and_then(|from| pass_on(core, mapping, from, &self.scratch));
                }
                Err(Errno::AGAIN) => return,
                // It is in the queue of errors.
                Err(_) => {}
            }
        }
    }

    /// Ends a socket that has been idle.
    pub fn timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(mapping) = self.mappings.get(id) else { return };
        let end = mapping.used + IDLE;
        if end <= core.now {
            self.close(core, id, "idle");
        } else {
            core.timers.add(end, TimedThing::Udp(id));
        }
    }

    /// Ends all sockets.
    pub fn end_all(&mut self, core: &mut GatewayCore) {
        for id in self.mappings.ids() {
            self.close(core, id, "stopped");
        }
    }

    fn close(&mut self, core: &mut GatewayCore, id: SlotId, reason: &str) {
        let Some(mut mapping) = self.mappings.remove(id) else { return };
        let key = mapping.key;
        mapping.peers.close_all(core, &key, reason);
        self.by_key.remove(&key);
        core.guests.give_back(key.mac, GuestResource::Udp);
        let left = core.guests.used(key.mac, GuestResource::Udp);
        if left == 0 {
            self.order.remove(&key.mac);
        } else if let Some(order) = self.order.get_mut(&key.mac)
            && order.len() > 2 * left as usize + 16
        {
            let mappings = &mut self.mappings;
            order.retain(|(id, _)| mappings.get(*id).is_some());
        }
    }
}

fn ends_of(key: &UdpKey, remote: SocketAddr) -> FlowEnds {
    FlowEnds { transport: FlowTransport::Udp, direction: FlowDirection::Out, mac: key.mac, guest: key.guest, remote }
}

fn socket(guest: IpAddr) -> Option<OwnedFd> {
    let family = if guest.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
    if guest.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true).ok()?;
    }
    // Without it, ICMP errors are not passed on.
    let _ = sys::queue_errors(&socket, guest.is_ipv6());
    Some(socket)
}

/// Sends a payload: as one datagram, or as datagrams of `segment` bytes.
fn send(mapping: &UdpMapping, payload: &[u8], segment: usize, to: SocketAddr) -> Result<(), Errno> {
    if segment == 0 || payload.is_empty() {
        return send_one(mapping, payload, to);
    }
    payload.chunks(segment).try_for_each(|part| send_one(mapping, part, to))
}

fn send_one(mapping: &UdpMapping, payload: &[u8], to: SocketAddr) -> Result<(), Errno> {
    let send = || rustix::net::sendto(&mapping.socket, payload, SendFlags::DONTWAIT, &to).map(|_| ());
    match send() {
        // The socket reports the error of an earlier datagram, which waits in its queue, and has sent nothing.
        Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => send(),
        done => done,
    }
}

fn answer_failure(core: &mut GatewayCore, packet: &GuestPacket<'_>, error: Errno) {
    let problem = match error {
        Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::NETDOWN => IcmpProblem::Network,
        Errno::HOSTUNREACH => IcmpProblem::Host,
        Errno::PERM | Errno::ACCESS => IcmpProblem::Prohibited,
        // A queue is full: datagrams are lost there, as elsewhere.
        _ => return,
    };
    core.send_error(packet, problem, None);
}

fn pass_on(core: &mut GatewayCore, mapping: &mut UdpMapping, from: SocketAddr, payload: &[u8]) -> Option<()> {
    if !mapping.peers.received(from, payload.len(), core.now) {
        return None;
    }
    mapping.used = core.now;
    let src = SocketAddr::new(core.seen_by_guest(from.ip())?, from.port());
    core.send_datagram(mapping.key.mac, src, mapping.key.guest, payload);
    Some(())
}

/// Passes on ICMP errors that have come for a socket.
fn pass_errors(core: &mut GatewayCore, mapping: &mut UdpMapping) {
    for _ in 0..BATCH {
        let Some(error) = sys::next_error(&mapping.socket) else { return };
        let guest = mapping.key.guest;
        let Some(remote) = mapping.peers.remote(error.to).filter(|_| error.by_icmp) else { continue };
        let v4 = guest.is_ipv4();
        let Some(problem) = IcmpProblem::of_message(error.kind, error.code, error.info, v4) else { continue };
        let [a, b] = guest.port().to_be_bytes();
        let [c, d] = remote.port().to_be_bytes();
        // The payload is not known any more; ports are what a guest finds its socket by.
        let packet = bare_packet(guest.ip(), remote.ip(), UDP, &[a, b, c, d, 0, 8, 0, 0]);
        core.send_error_about(mapping.key.mac, guest.ip(), &packet, problem, error.by);
    }
}
