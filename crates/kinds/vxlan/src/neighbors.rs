//! Requests for the Ethernet address of an IP address (ARP, RFC 826; neighbour discovery, RFC 4861), and the claims
//! that such messages contain. Requests for known neighbours are answered here instead of being flooded to all VTEPs
//! (RFC 9161).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use netvale_wire::checksum::pseudo_v6;
use netvale_wire::{Layers, MacAddr, arp, ethernet};

use crate::ip::{self, IpWords};
use crate::too_long::TooLongReply;

/// Number of maps of known neighbours.
const SHARDS: usize = 256;
/// An odd number that mixes the bits of an address.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Next-header value of ICMPv6.
const ICMPV6: u8 = 58;
/// ICMPv6 type: router advertisement (RFC 4861 §4).
const ROUTER_ADVERTISEMENT: u8 = 134;
/// ICMPv6 type: neighbour solicitation.
const SOLICITATION: u8 = 135;
/// ICMPv6 type: neighbour advertisement.
const ADVERTISEMENT: u8 = 136;
/// Option with the source's link-layer address.
const SOURCE: u8 = 1;
/// Option with the target's link-layer address.
const TARGET: u8 = 2;
/// Flag of an advertisement: the sender is a router.
const ROUTER: u8 = 0x80;
/// Flag of an advertisement that replies to a solicitation.
const SOLICITED: u8 = 0x40;
/// Flag of an advertisement that overrides a cached address.
const OVERRIDE: u8 = 0x20;

/// A neighbour: an IP address and the station that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelNeighbor {
    /// IP address.
    pub ip: IpAddr,
    /// Ethernet address in wire order, first byte lowest.
    pub mac: u64,
    /// Whether the station is a router, so that replies on its behalf set the router flag (RFC 9161 §3.2).
    pub router: bool,
}

type NeighborShard = ArcSwap<HashMap<IpWords, TunnelNeighbor>>;

/// Neighbours behind VTEPs, as provided by a control plane. The neighbours are in many small maps: a change copies a
/// map, and should copy few neighbours.
#[derive(Debug)]
pub struct TunnelNeighbors(Box<[NeighborShard]>);

impl Default for TunnelNeighbors {
    fn default() -> Self {
        TunnelNeighbors((0..SHARDS).map(|_| NeighborShard::default()).collect())
    }
}

impl TunnelNeighbors {
    fn shard(&self, [high, low]: IpWords) -> usize {
        ((high ^ low).wrapping_mul(MIX) >> 32) as usize % self.0.len()
    }

    /// Returns the neighbour with this IP address; `None` if it is unknown.
    #[must_use]
    pub fn get(&self, ip: IpAddr) -> Option<TunnelNeighbor> {
        let words = ip::words(ip);
        self.0.get(self.shard(words))?.load().get(&words).copied()
    }

    /// Returns all neighbours.
    pub fn all(&self) -> impl Iterator<Item = TunnelNeighbor> + '_ {
        self.0.iter().flat_map(|shard| shard.load().values().copied().collect::<Vec<_>>())
    }

    /// Returns the number of neighbours.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|shard| shard.load().len()).sum()
    }

    /// Removes all neighbours.
    pub fn clear(&self) {
        self.0.iter().for_each(|shard| shard.store(Arc::default()));
    }

    /// Removes the neighbours `less`, then adds `more`.
    pub fn change(&self, more: &[TunnelNeighbor], less: &[IpAddr]) {
        let mut changed: HashMap<usize, (Vec<TunnelNeighbor>, Vec<IpWords>)> = HashMap::new();
        for ip in less.iter().map(|ip| ip::words(*ip)) {
            changed.entry(self.shard(ip)).or_default().1.push(ip);
        }
        for one in more {
            changed.entry(self.shard(ip::words(one.ip))).or_default().0.push(*one);
        }
        for (i, (more, less)) in changed {
            let Some(shard) = self.0.get(i) else { continue };
            let mut map = HashMap::clone(&shard.load());
            less.iter().for_each(|ip| _ = map.remove(ip));
            map.extend(more.into_iter().map(|one| (ip::words(one.ip), one)));
            shard.store(Arc::new(map));
        }
    }
}

/// The claim and the request in an ARP or neighbour discovery frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborMessage {
    /// The claim: an IP address and the Ethernet address that has it; `None` if the frame claims no address.
    pub has: Option<(IpAddr, u64)>,
    /// Whether the claimant is a router; `None` if the frame does not announce this.
    pub router: Option<bool>,
    /// The requested IP address; `None` if the frame is not a request.
    pub wants: Option<IpAddr>,
}

/// Parses a frame that begins with `head`. `None` if it is neither ARP nor neighbour discovery.
#[must_use]
pub fn read(head: &[u8]) -> Option<NeighborMessage> {
    let (ethertype, l3) = ethernet::network(head).ok()?;
    let sender = mac_at(head, 6)?;
    match ethertype {
        ethernet::ARP => {
            let packet = arp::Packet::parse(head.get(l3..)?).ok()?;
            let (mac, from) = packet.sender();
            let (_, wanted) = packet.target();
            let says = !from.is_unspecified() && mac.to_word() == sender;
            let asks = packet.operation() == arp::REQUEST && from != wanted;
            let has = says.then_some((from.into(), sender));
            Some(NeighborMessage { has, router: None, wants: asks.then_some(wanted.into()) })
        }
        // A packet with hop limit 255 cannot have passed a router (RFC 4861 §7.1).
        ethernet::IPV6 if head.get(l3 + 7) == Some(&255) => read_discovery(head, sender),
        _ => None,
    }
}

fn read_discovery(head: &[u8], sender: u64) -> Option<NeighborMessage> {
    let ip = Layers::parse(head).ok()?.ip.filter(|ip| ip.protocol == ICMPV6 && !ip.fragment)?;
    let message = head.get(ip.l4..)?;
    let kind = *message.first()?;
    if kind == ROUTER_ADVERTISEMENT {
        // Router advertisements from any other address are invalid (RFC 4861 §6.1.2).
        let is_local = matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local());
        return is_local.then_some(NeighborMessage { has: Some((ip.src, sender)), router: Some(true), wants: None });
    }
    let target = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
    let option = message.get(24..32).filter(|option| option[1] == 1);
    let of = |kind| option.filter(|option| option[0] == kind).and_then(|option| mac_at(option, 2)) == Some(sender);
    match kind {
        SOLICITATION => Some(NeighborMessage {
            has: (!ip.src.is_unspecified() && of(SOURCE)).then_some((ip.src, sender)),
            router: None,
            wants: Some(target.into()),
        }),
        ADVERTISEMENT => Some(NeighborMessage {
            has: of(TARGET).then_some((target.into(), sender)),
            router: Some(message.get(4)? & ROUTER != 0),
            wants: None,
        }),
        _ => None,
    }
}

/// Returns the reply to a frame that begins with `head`; `None` if the frame does not request a known neighbour.
#[must_use]
pub fn answer(head: &[u8], said: &NeighborMessage, known: &TunnelNeighbors) -> Option<TooLongReply> {
    let wanted = said.wants?;
    let neighbor = known.get(wanted)?;
    let mac = MacAddr::from_word(neighbor.mac);
    let (_, l3) = ethernet::network(head).ok()?;
    let mut link = [0; 22];
    let link = link.get_mut(..l3)?;
    link.copy_from_slice(head.get(..l3)?);
    link[..6].copy_from_slice(head.get(6..12)?);
    link[6..12].copy_from_slice(&mac.0);
    match wanted {
        IpAddr::V4(wanted) => {
            let asks = arp::Packet::parse(head.get(l3..)?).ok()?;
            let mut bytes = [0; arp::LEN];
            let mut reply = arp::Packet::init(&mut bytes).ok()?;
            reply.set_operation(arp::REPLY);
            reply.set_sender(mac, wanted);
            let (asker, from) = asks.sender();
            reply.set_target(asker, from);
            Some(TooLongReply::of(&[link, &bytes]))
        }
        IpAddr::V6(wanted) => {
            let IpAddr::V6(asker) = Layers::parse(head).ok()?.ip?.src else { return None };
            // A host that checks whether an address is free has no address, so the reply goes to all nodes (RFC 4861
            // §7.2.4).
            let to = if asker.is_unspecified() { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) } else { asker };
            if asker.is_unspecified() {
                link[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
            }
            let router = if neighbor.router { ROUTER } else { 0 };
            let flags = OVERRIDE | router | if asker.is_unspecified() { 0 } else { SOLICITED };
            Some(TooLongReply::of(&[link, &advertisement(wanted, to, mac, flags)]))
        }
    }
}

/// Creates an advertisement, sent to `to`, that the IP address `from` belongs to the Ethernet address `mac`.
fn advertisement(from: Ipv6Addr, to: Ipv6Addr, mac: MacAddr, flags: u8) -> [u8; 72] {
    let mut packet = [0; 72];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    packet[8..24].copy_from_slice(&from.octets());
    packet[24..40].copy_from_slice(&to.octets());
    packet[40] = ADVERTISEMENT;
    packet[44] = flags;
    packet[48..64].copy_from_slice(&from.octets());
    packet[64..66].copy_from_slice(&[TARGET, 1]);
    packet[66..72].copy_from_slice(&mac.0);
    let sum = pseudo_v6(from, to, ICMPV6, 32).add_bytes(&packet[40..]).checksum();
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn mac_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<6>().map(|mac| MacAddr(*mac).to_word())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x0100_0000_0002;
    const B: u64 = 0x0200_0000_0002;

    fn known(ip: IpAddr, router: bool) -> TunnelNeighbors {
        let known = TunnelNeighbors::default();
        known.change(&[TunnelNeighbor { ip, mac: B, router }], &[]);
        known
    }

    fn ask(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(MacAddr::from_word(A).0);
        frame.extend([8, 6]);
        let mut bytes = [0; arp::LEN];
        let mut packet = arp::Packet::init(&mut bytes).unwrap();
        packet.set_operation(arp::REQUEST);
        packet.set_sender(MacAddr::from_word(A), from.into());
        packet.set_target(MacAddr::ZERO, to.into());
        frame.extend(bytes);
        frame
    }

    fn solicit(from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 2];
        frame.extend(MacAddr::from_word(A).0);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
        frame.extend(from.octets());
        frame.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2]);
        frame.extend([SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        frame.extend([SOURCE, 1]);
        frame.extend(MacAddr::from_word(A).0);
        frame
    }

    /// Objective: an ARP request for a known neighbour is answered on the neighbour's behalf; other requests are not
    /// answered. The requester's claim is read unless it contains another station's Ethernet address.
    #[test]
    fn arp_requests_for_known_neighbours_are_answered() {
        let wanted: IpAddr = [10, 0, 0, 2].into();
        let known = known(wanted, false);
        let frame = ask([10, 0, 0, 1], [10, 0, 0, 2]);
        let said = read(&frame).unwrap();
        assert_eq!(said, NeighborMessage { has: Some(([10, 0, 0, 1].into(), A)), router: None, wants: Some(wanted) });
        let reply = answer(&frame, &said, &known).unwrap();
        assert_eq!(
            (&reply.bytes()[..6], &reply.bytes()[6..12]),
            (&MacAddr::from_word(A).0[..], &MacAddr::from_word(B).0[..])
        );
        let packet = arp::Packet::parse(&reply.bytes()[14..]).unwrap();
        assert_eq!((packet.operation(), packet.sender().0.to_word()), (arp::REPLY, B));
        assert_eq!(packet.target(), (MacAddr::from_word(A), [10, 0, 0, 1].into()));
        let other = ask([10, 0, 0, 1], [10, 0, 0, 3]);
        assert!(answer(&other, &read(&other).unwrap(), &known).is_none());
        assert_eq!(read(&ask([10, 0, 0, 2], [10, 0, 0, 2])).unwrap().wants, None, "an announcement");
        let probe = NeighborMessage { has: None, router: None, wants: Some(wanted) };
        assert_eq!(read(&ask([0; 4], [10, 0, 0, 2])).unwrap(), probe);
        let mut liar = ask([10, 0, 0, 1], [10, 0, 0, 2]);
        liar[6] = 4;
        assert_eq!(read(&liar).unwrap().has, None);
        for len in 0..frame.len() {
            assert_eq!(read(&frame[..len]), None);
        }
    }

    /// Objective: solicitations (neighbour discovery) for known neighbours are answered, even if the asking host has no
    /// address yet; other solicitations are not.
    #[test]
    fn solicitations_for_known_neighbours_are_answered() {
        let [from, target] = ["fd00::1", "fd00::2"].map(|text| text.parse::<Ipv6Addr>().unwrap());
        let wanted = IpAddr::from(target);
        let (known, router) = (known(wanted, false), known(wanted, true));
        for from in [from, Ipv6Addr::UNSPECIFIED] {
            let frame = solicit(from, target);
            let said = read(&frame).unwrap();
            assert_eq!(said.has.is_some(), !from.is_unspecified());
            let reply = answer(&frame, &said, &known).unwrap();
            let packet = &reply.bytes()[14..];
            let to = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap());
            assert_eq!(pseudo_v6(target, to, ICMPV6, 32).add_bytes(&packet[40..]).fold(), 0xffff);
            assert_eq!(to.is_multicast(), from.is_unspecified());
            assert_eq!(packet[44] & ROUTER, 0);
            let by_router = answer(&frame, &said, &router).unwrap();
            assert_eq!(by_router.bytes()[14 + 44] & ROUTER, ROUTER);
            let said = read(reply.bytes()).unwrap();
            assert_eq!(said, NeighborMessage { has: Some((wanted, B)), router: Some(false), wants: None });
            assert_eq!(read(by_router.bytes()).unwrap(), NeighborMessage { router: Some(true), ..said });
        }
    }

    /// Objective: a station that sends router advertisements is a router.
    #[test]
    fn a_sender_of_advertisements_is_a_router() {
        let from = "fe80::1".parse::<Ipv6Addr>().unwrap();
        let mut frame = solicit(from, "ff02::1".parse().unwrap());
        frame[54] = ROUTER_ADVERTISEMENT;
        assert_eq!(
            read(&frame),
            Some(NeighborMessage { has: Some((from.into(), A)), router: Some(true), wants: None })
        );
        frame[21] = 254;
        assert_eq!(read(&frame), None, "it may have come from afar");
        for other in ["::", "fd00::1", "ff02::1"].map(|text| text.parse::<Ipv6Addr>().unwrap()) {
            let mut frame = solicit(other, from);
            frame[54] = ROUTER_ADVERTISEMENT;
            assert_eq!(read(&frame), None, "{other}");
        }
    }

    /// Objective: neighbours are added and removed one by one, and all together.
    #[test]
    fn known_neighbours_are_added_and_removed() {
        let one = |n: u32| TunnelNeighbor {
            ip: IpAddr::from(n.to_be_bytes()),
            mac: A + (u64::from(n) << 8),
            router: n.is_multiple_of(2),
        };
        let known = TunnelNeighbors::default();
        let all = (1..=3000).map(one).collect::<Vec<_>>();
        known.change(&all, &[]);
        known.change(&[TunnelNeighbor { mac: B, ..one(7) }], &[one(7).ip, one(8).ip, one(9000).ip]);
        assert_eq!((known.count(), known.all().count()), (2999, 2999));
        assert_eq!(
            (known.get(one(7).ip).unwrap().mac, known.get(one(8).ip), known.get(one(9).ip)),
            (B, None, Some(one(9)))
        );
        known.clear();
        assert_eq!((known.count(), known.get(one(9).ip)), (0, None));
    }
}
