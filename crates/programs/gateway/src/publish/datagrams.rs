//! Clients of published UDP ports: to which guest each client sends, and under which address the guest sees the client.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::{BATCH, PublishedEnd, seen_client, station};
use crate::arp_nd;
use crate::core::{FlowRefusal, GatewayCore};
use crate::dhcp::DhcpServers;
use crate::flows::{FlowDirection, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::guests::{GuestId, NetworkId};
use crate::outward::{DatagramFlow, OutwardSocket};
use crate::policy::FlowTransport;
use crate::rates::RateWay;
use crate::slots::SlotId;
use crate::sys::asked;
use crate::udp::UdpDatagram;

/// Time for which a client is remembered after the last datagram from or to it.
const IDLE: Duration = Duration::from_secs(125);
/// Maximum number of clients, of all ports together.
const MAX_CLIENTS: usize = 4096;

/// The addresses in a client's packets on the guests' network: the guest's own address, and the address under which the
/// guest sees the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SeenEnds {
    end: PublishedEnd,
    seen: SocketAddr,
}

struct PublishedClient {
    port: SlotId,
    client: SocketAddr,
    /// The host's address to which the client has sent, and from which answers leave; `None` if it is unknown.
    asked: Option<IpAddr>,
    flow: DatagramFlow,
}

/// The clients of all published UDP ports.
#[derive(Default)]
pub struct PublishedClients {
    clients: HashMap<SeenEnds, PublishedClient>,
    scratch: Vec<u8>,
}

impl PublishedClients {
    /// Passes datagrams that a published port has received to the port's guest. If the guest's MAC address is unknown,
    /// the datagrams are lost, and the MAC address is requested.
    pub fn receive(
        &mut self,
        core: &mut GatewayCore,
        leases: Option<&DhcpServers>,
        port: SlotId,
        socket: &OwnedFd,
        end: PublishedEnd,
    ) {
        for _ in 0..BATCH {
            self.scratch.resize(usize::from(u16::MAX), 0);
            let Some(got) = asked::receive(socket, &mut self.scratch) else { return };
            self.scratch.truncate(got.len);
            let Some(who) = station(core, leases, end) else {
                arp_nd::ask(core, end.network, end.guest.ip());
                continue;
            };
            let ends = PublishedEnds { port, who, client: got.from, asked: got.asked, end };
            let Some(key) = self.note(core, ends) else { continue };
            let client = self.clients.get_mut(&key);
            if client.is_some_and(|client| client.flow.passes(core, RateWay::Received, got.len)) {
                core.send_datagram(who, key.seen, end.guest, &self.scratch);
            }
        }
    }

    /// Records the client of a datagram. Returns the addresses under which the client is found in the table; `None` if
    /// there is no address under which the guest could see the client, or the guest has too many new clients.
    fn note(&mut self, core: &mut GatewayCore, ends: PublishedEnds) -> Option<SeenEnds> {
        let mut seen = seen_client(core, ends.client, ends.end.guest.ip())?;
        // Two clients with different loopback addresses may have the same port. The guest sees the second client with
        // another port.
        for _ in 0..BATCH {
            let key = SeenEnds { end: ends.end, seen };
            match self.clients.get_mut(&key) {
                Some(known) if known.client == ends.client && known.port == ends.port => {
                    known.flow.used = core.now;
                    known.asked = ends.asked;
                    return Some(key);
                }
                Some(_) => seen.set_port(seen.port().wrapping_add(1) | 0x8000),
                None if !core.may_begin(ends.who, FlowDirection::In) => {
                    core.refused(&flow_ends(&key, ends.who), FlowRefusal::Rate.word());
                    return None;
                }
                None => {
                    self.open(core, key, ends);
                    return Some(key);
                }
            }
        }
        None
    }

    fn open(&mut self, core: &mut GatewayCore, key: SeenEnds, ends: PublishedEnds) {
        if self.clients.len() >= MAX_CLIENTS
            && let Some(oldest) = self.clients.iter().min_by_key(|(_, client)| client.flow.used).map(|(key, _)| *key)
        {
            self.close(core, &oldest, "limit");
        }
        let PublishedEnds { port, who, client, asked, .. } = ends;
        let flow = DatagramFlow::begin(core, flow_ends(&key, who), None);
        self.clients.insert(key, PublishedClient { port, client, asked, flow });
    }

    /// Sends a guest's datagram to the client that the guest sees at the datagram's destination. Returns `false` if
    /// there is no such client.
    pub fn answer<'a>(
        &mut self,
        core: &mut GatewayCore,
        packet: &GuestPacket<'_>,
        datagram: &UdpDatagram<'_>,
        socket: impl FnOnce(SlotId) -> Option<&'a mut OutwardSocket>,
    ) -> bool {
        let guest = SocketAddr::new(packet.src, datagram.src_port);
        let end = PublishedEnd { network: packet.who.network, guest };
        let seen = SocketAddr::new(packet.dst, datagram.dst_port);
        let Some(client) = self.clients.get_mut(&SeenEnds { end, seen }) else { return false };
        client.flow.used = core.now;
        if client.flow.passes(core, RateWay::Sent, datagram.payload.len())
            && let Some(socket) = socket(client.port)
        {
            socket.send(core, packet, datagram.payload, client.client, client.asked);
        }
        true
    }

    /// Removes clients for which no datagram has passed in either direction for about two minutes.
    pub fn clean(&mut self, core: &mut GatewayCore) {
        let old = self.clients.iter().filter(|(_, client)| client.flow.used + IDLE <= core.now);
        let old: Vec<_> = old.map(|(key, _)| *key).collect();
        old.iter().for_each(|key| self.close(core, key, "idle"));
    }

    /// Closes the flows of a port that is no longer published.
    pub fn end_port(&mut self, core: &mut GatewayCore, port: SlotId) {
        let of_port = self.clients.iter().filter(|(_, client)| client.port == port).map(|(key, _)| *key);
        let of_port: Vec<_> = of_port.collect();
        of_port.iter().for_each(|key| self.close(core, key, "unpublished"));
    }

    /// Returns the flows that are open, in no particular order.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.clients.values().map(|client| client.flow.open().clone())
    }

    /// Removes the clients of a network's guests.
    pub fn forget(&mut self, core: &mut GatewayCore, network: NetworkId) {
        let gone: Vec<_> = self.clients.keys().filter(|key| key.end.network == network).copied().collect();
        gone.iter().for_each(|key| self.close(core, key, "port-gone"));
    }

    fn close(&mut self, core: &mut GatewayCore, key: &SeenEnds, reason: &str) {
        if let Some(client) = self.clients.remove(key) {
            client.flow.close(core, reason);
        }
    }
}

/// A client, the published port that it uses, and that port's guest.
#[derive(Clone, Copy)]
struct PublishedEnds {
    port: SlotId,
    who: GuestId,
    client: SocketAddr,
    asked: Option<IpAddr>,
    end: PublishedEnd,
}

fn flow_ends(key: &SeenEnds, who: GuestId) -> FlowEnds {
    FlowEnds {
        transport: FlowTransport::Udp,
        direction: FlowDirection::In,
        who,
        guest: key.end.guest,
        remote: key.seen,
    }
}
