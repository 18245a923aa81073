//! Dispatch of guests' packets to the parts of the gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use netvale_wire::layers::{ICMP, ICMP6, TCP, UDP};

use super::Gateway;
use crate::dhcp::{CLIENT_PORT, SERVER_PORT};
use crate::dns::NameAsker;
use crate::frame::{GuestFrame, GuestPacket};
use crate::guests::NetworkId;
use crate::icmp_message::IcmpProblem;
use crate::rates::{RateWay, datagram_cost};
use crate::udp::UdpDatagram;
use crate::{arp_nd, dhcp6, dns, frame, udp};

/// An IP address counts as in use for this long after its last frame, so that DHCP does not give it to another guest.
const IN_USE: Duration = Duration::from_secs(300);

impl Gateway {
    /// Processes a guest's frame, which begins with a virtio-net header.
    pub fn take_frame(&mut self, bytes: &[u8]) {
        let Some(frame) = frame::parse(bytes).filter(|frame| self.is_served(frame.who().network)) else { return };
        self.core.networks.insert(frame.who().network);
        match frame {
            GuestFrame::Arp(who, packet) => arp_nd::take_arp(&mut self.core, who, packet),
            GuestFrame::Packet(packet) => self.take_packet(&packet),
            GuestFrame::Fragment(piece) if piece.part.to == self.core.net.mac => {
                let whole = self.reassembly.add(&piece, self.core.now);
                if let Some(packet) = whole.as_ref().and_then(|whole| whole.packet()) {
                    self.take_packet(&packet);
                }
            }
            GuestFrame::Fragment(_) => {}
        }
    }

    /// Returns whether the gateway serves a network. It serves the networks of VLANs only if it has private ports.
    fn is_served(&self, network: NetworkId) -> bool {
        network == NetworkId::UNTAGGED || self.is_private
    }

    fn take_packet(&mut self, packet: &GuestPacket<'_>) {
        if packet.who.mac == self.core.net.mac || (packet.to != self.core.net.mac && !packet.to.is_multicast()) {
            return;
        }
        if arp_nd::is_discovery(packet) {
            return self.take_discovery(packet);
        }
        let datagram = udp::parse(packet);
        if let Some(datagram) = datagram.filter(|datagram| datagram.dst_port == SERVER_PORT) {
            return self.take_dhcp(packet, &datagram);
        }
        if let Some(datagram) = datagram.filter(|datagram| datagram.dst_port == dhcp6::SERVER_PORT)
            && (packet.dst == IpAddr::V6(dhcp6::ALL_SERVERS)
                || (packet.dst.is_ipv6() && self.core.net.is_own(packet.dst)))
        {
            return self.take_dhcp6(packet, &datagram);
        }
        // Packets with a source outside the guests' network, and multicast and broadcast packets, are not forwarded.
        if packet.to.is_multicast() || !self.core.net.is_guests(packet.src) || is_group(packet.dst) {
            return;
        }
        self.core.neighbours.learn(packet.src, packet.who, self.core.now);
        let own = self.core.net.is_own(packet.dst);
        let local = matches!(packet.src, IpAddr::V6(src) if src.is_unicast_link_local());
        if !own && local {
            return self.core.send_error(packet, IcmpProblem::Scope, None);
        }
        if !own && packet.ttl <= 1 {
            return self.core.send_error(packet, IcmpProblem::Expired, None);
        }
        self.carry(packet, datagram.as_ref(), own);
    }

    /// Passes a unicast packet to the part for its protocol. `own` is whether the destination is the gateway itself.
    fn carry(&mut self, packet: &GuestPacket<'_>, datagram: Option<&UdpDatagram<'_>>, own: bool) {
        match (packet.protocol, datagram) {
            (TCP, _) => self.tcp.take(&mut self.core, packet),
            (UDP, Some(datagram)) => self.take_segments(packet, datagram, own),
            (ICMP | ICMP6, _) => self.echo.take(&mut self.core, packet),
            (UDP, None) => {}
            _ if own => {}
            _ => self.core.send_error(packet, IcmpProblem::Prohibited, None),
        }
    }

    /// Processes the datagrams of a packet; with segmentation offload, a packet has several. Datagrams beyond the
    /// round's limit wait for the next round.
    fn take_segments(&mut self, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>, own: bool) {
        if packet.segment == 0 {
            return self.take_datagram(packet, datagram, own);
        }
        let mut parts = datagram.payload.chunks(packet.segment).skip(self.turn.segments);
        for payload in parts.by_ref().take(self.turn.left) {
            self.take_datagram(packet, &UdpDatagram { payload, ..*datagram }, own);
            self.turn.segments += 1;
            self.turn.left -= 1;
        }
        self.turn.is_cut = parts.next().is_some();
    }

    fn take_datagram(&mut self, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>, own: bool) {
        if own && datagram.dst_port == dns::PORT && self.core.net.has_services(packet.dst) {
            let cost = datagram_cost(datagram.payload.len(), packet.src.is_ipv4());
            if !self.core.passes(packet.who, RateWay::Sent, cost) {
                return;
            }
            let leases = self.dhcp.as_ref();
            let guest = SocketAddr::new(packet.src, datagram.src_port);
            let asker = NameAsker::Datagram { guest, own: SocketAddr::new(packet.dst, dns::PORT) };
            self.names.take(&mut self.core, leases, packet.who, asker, datagram.payload);
        } else if !self.publisher.take(&mut self.core, packet, datagram) {
            self.udp.take(&mut self.core, packet, datagram);
        }
    }

    fn take_discovery(&mut self, packet: &GuestPacket<'_>) {
        match (packet.l4.first(), &mut self.adverts) {
            (Some(&arp_nd::ROUTER_SOLICITATION), Some(adverts)) => adverts.take(&mut self.core, packet),
            _ => arp_nd::take_nd(&mut self.core, packet),
        }
    }

    fn take_dhcp(&mut self, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>) {
        let here = self.core.net.is_own(packet.dst) || packet.dst == IpAddr::V4(Ipv4Addr::BROADCAST);
        let Some(dhcp) = self.dhcp.as_mut().filter(|_| here) else { return };
        let core = &mut self.core;
        let network = packet.who.network;
        let since = core.now.checked_sub(IN_USE).unwrap_or(core.now);
        let in_use = |address: Ipv4Addr| {
            core.neighbours.is_used_since(network, address.into(), since).is_some_and(|who| who != packet.who)
        };
        let Some(answer) = dhcp.take(packet.who, datagram.payload, core.now, in_use) else { return };
        let Some(own) = core.net.addresses.v4 else { return };
        let src = SocketAddr::from((own.address, SERVER_PORT));
        core.send_datagram(network.station(answer.mac), src, (answer.to, CLIENT_PORT).into(), &answer.bytes);
    }

    fn take_dhcp6(&mut self, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>) {
        let core = &mut self.core;
        let to_group = packet.dst == IpAddr::V6(dhcp6::ALL_SERVERS);
        let Some(dhcp6) = self.dhcp6.as_mut().filter(|_| core.net.is_guests(packet.src)) else { return };
        core.neighbours.learn(packet.src, packet.who, core.now);
        let network = packet.who.network;
        let since = core.now.checked_sub(IN_USE).unwrap_or(core.now);
        let in_use = |address: Ipv6Addr| {
            core.neighbours.is_used_since(network, address.into(), since).is_some_and(|who| who != packet.who)
        };
        let reply = dhcp6.take(packet.who, datagram.payload, to_group, core.now, in_use);
        let src = SocketAddr::new(core.net.link_local().into(), dhcp6::SERVER_PORT);
        if let Some(reply) = reply {
            core.send_datagram(packet.who, src, (packet.src, dhcp6::CLIENT_PORT).into(), &reply);
        }
    }
}

fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unspecified(),
    }
}
