//! Requests for the Ethernet address of an IP address (ARP, RFC 826; neighbour discovery, RFC 4861): who has said to have which,
//! and those of known neighbours, which are answered here instead of being sent to all VTEPs (RFC 9161).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use netvale_mem::lent::Lent;
use netvale_port::changes::Changes;
use netvale_wire::checksum::pseudo_v6;
use netvale_wire::{Layers, MacAddr, arp, ethernet};

use crate::ip::{self, Words};
use crate::too_long::Reply;

/// Neighbours that are remembered, and slots that are looked at for one.
const HEARD: usize = 8192;
const PROBES: usize = 16;
/// Seconds after which one that is silent is forgotten.
const AGEING: u32 = 1200;
const ICMPV6: u8 = 58;
/// ICMPv6 types, and options with the source's and the target's link-layer address (RFC 4861 §4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE: u8 = 1;
const TARGET: u8 = 2;
/// Flags of an advertisement: solicited, and override.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Neighbours behind VTEPs, as they were given.
#[derive(Debug, Default)]
pub struct Known(HashMap<Words, u64>);

impl Known {
    /// These.
    #[must_use]
    pub fn new<'a>(all: impl Iterator<Item = (&'a IpAddr, &'a u64)>) -> Known {
        Known(all.map(|(ip, mac)| (ip::words(*ip), *mac)).collect())
    }
}

/// What a frame says or asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whose address it says: IP and Ethernet address, if any.
    pub has: Option<(IpAddr, u64)>,
    /// Whose it asks for.
    pub wants: Option<IpAddr>,
}

/// Reads a frame that begins with `head`. `None` if it is neither ARP nor neighbour discovery.
#[must_use]
pub fn read(head: &[u8]) -> Option<Said> {
    let (ethertype, l3) = ethernet::network(head).ok()?;
    let sender = mac_at(head, 6)?;
    match ethertype {
        ethernet::ARP => {
            let packet = arp::Packet::parse(head.get(l3..)?).ok()?;
            let ((mac, from), (_, wanted)) = (packet.sender(), packet.target());
            let says = !from.is_unspecified() && word_of(mac) == sender;
            let asks = packet.operation() == arp::REQUEST && from != wanted;
            Some(Said { has: says.then_some((from.into(), sender)), wants: asks.then_some(wanted.into()) })
        }
        // Nobody off the link can have sent it (RFC 4861 §7.1).
        ethernet::IPV6 if head.get(l3 + 7) == Some(&255) => read_discovery(head, sender),
        _ => None,
    }
}

fn read_discovery(head: &[u8], sender: u64) -> Option<Said> {
    let ip = Layers::parse(head).ok()?.ip.filter(|ip| ip.protocol == ICMPV6 && !ip.fragment)?;
    let message = head.get(ip.l4..)?;
    let target = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
    let option = message.get(24..32).filter(|option| option[1] == 1);
    let of = |kind| option.filter(|option| option[0] == kind).and_then(|option| mac_at(option, 2)) == Some(sender);
    match *message.first()? {
        SOLICITATION => Some(Said {
            has: (!ip.src.is_unspecified() && of(SOURCE)).then_some((ip.src, sender)),
            wants: Some(target.into()),
        }),
        ADVERTISEMENT => Some(Said { has: of(TARGET).then_some((target.into(), sender)), wants: None }),
        _ => None,
    }
}

/// The answer to a frame that begins with `head`, if it asks for a neighbour that is known.
#[must_use]
pub fn answer(head: &[u8], said: &Said, known: &Known) -> Option<Reply> {
    let wanted = said.wants?;
    let mac = MacAddr(bytes_of(*known.0.get(&ip::words(wanted))?));
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
            Some(Reply::of(&[link, &bytes]))
        }
        IpAddr::V6(wanted) => {
            let IpAddr::V6(asker) = Layers::parse(head).ok()?.ip?.src else { return None };
            // A host that looks whether an address is free has none: all are told (RFC 4861 §7.2.4).
            let to = if asker.is_unspecified() { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) } else { asker };
            if asker.is_unspecified() {
                link[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
            }
            Some(Reply::of(&[link, &advertisement(wanted, to, mac, !asker.is_unspecified())]))
        }
    }
}

/// A packet in which `from` says to have `mac`.
fn advertisement(from: Ipv6Addr, to: Ipv6Addr, mac: MacAddr, solicited: bool) -> [u8; 72] {
    let mut packet = [0; 72];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    packet[8..24].copy_from_slice(&from.octets());
    packet[24..40].copy_from_slice(&to.octets());
    packet[40] = ADVERTISEMENT;
    packet[44] = OVERRIDE | if solicited { SOLICITED } else { 0 };
    packet[48..64].copy_from_slice(&from.octets());
    packet[64..66].copy_from_slice(&[TARGET, 1]);
    packet[66..72].copy_from_slice(&mac.0);
    let sum = pseudo_v6(from, to, ICMPV6, 32).add_bytes(&packet[40..]).checksum();
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn mac_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<6>().map(|mac| word_of(MacAddr(*mac)))
}

fn word_of(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn bytes_of(mac: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = mac.to_le_bytes();
    [a, b, c, d, e, f]
}

/// A neighbour that was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct One {
    ip: Words,
    mac: u64,
    seen: u32,
}

/// What was heard of neighbours behind this host's ports. A worker that finds another one here hears the next time.
pub struct Heard {
    all: Lent<Vec<One>>,
    key: u64,
    /// New things that were heard.
    changes: Changes,
}

impl Heard {
    /// Nothing; the hash is keyed with `key`.
    #[must_use]
    pub fn new(key: u64) -> Heard {
        Heard { all: Lent::with(vec![One::default(); HEARD]), key: key | 1, changes: Changes::default() }
    }

    /// Somebody says to have an address.
    pub fn hear(&self, (ip, mac): (IpAddr, u64), now: u32) {
        let Ok(mut all) = self.all.enter_now() else { return };
        let ip = ip::words(ip);
        let first = ((ip[0] ^ ip[1].rotate_left(17) ^ self.key).wrapping_mul(self.key) >> 40) as usize;
        let places = (0..PROBES).map(|i| (first + i) % HEARD);
        let is_free = |one: &One| one.mac == 0 || now.saturating_sub(one.seen) >= AGEING;
        let place = places.clone().find(|&i| all[i].ip == ip && all[i].mac != 0);
        let place = place.or_else(|| places.clone().find(|&i| is_free(&all[i])));
        let Some(one) = place.and_then(|i| all.get_mut(i)) else { return };
        let is_new = one.ip != ip || one.mac != mac || is_free(one);
        *one = One { ip, mac, seen: now };
        if is_new {
            self.changes.note();
        }
    }

    /// All, with their Ethernet addresses.
    #[must_use]
    pub fn all(&self, now: u32) -> Vec<(IpAddr, u64)> {
        let Ok(Some(all)) = self.all.control().map(|mut all| all.as_mut().map(|all| all.clone())) else {
            return Vec::new();
        };
        let heard = all.iter().filter(|one| one.mac != 0 && now.saturating_sub(one.seen) < AGEING);
        heard.map(|one| (ip::of(one.ip), one.mac)).collect()
    }

    /// How often something new was heard.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x0100_0000_0002;
    const B: u64 = 0x0200_0000_0002;

    fn ask(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(bytes_of(A));
        frame.extend([8, 6]);
        let mut bytes = [0; arp::LEN];
        let mut packet = arp::Packet::init(&mut bytes).unwrap();
        packet.set_operation(arp::REQUEST);
        packet.set_sender(MacAddr(bytes_of(A)), from.into());
        packet.set_target(MacAddr::ZERO, to.into());
        frame.extend(bytes);
        frame
    }

    fn solicit(from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 2];
        frame.extend(bytes_of(A));
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
        frame.extend(from.octets());
        frame.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2]);
        frame.extend([SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        frame.extend([SOURCE, 1]);
        frame.extend(bytes_of(A));
        frame
    }

    /// Objective: an ARP request for a known neighbour is answered in its name; others are not; who asks is heard, unless it
    /// speaks for another.
    #[test]
    fn arp_requests() {
        let wanted: IpAddr = [10, 0, 0, 2].into();
        let known = Known::new([(&wanted, &B)].into_iter());
        let frame = ask([10, 0, 0, 1], [10, 0, 0, 2]);
        let said = read(&frame).unwrap();
        assert_eq!(said, Said { has: Some(([10, 0, 0, 1].into(), A)), wants: Some(wanted) });
        let reply = answer(&frame, &said, &known).unwrap();
        assert_eq!((&reply.bytes()[..6], &reply.bytes()[6..12]), (&bytes_of(A)[..], &bytes_of(B)[..]));
        let packet = arp::Packet::parse(&reply.bytes()[14..]).unwrap();
        assert_eq!((packet.operation(), word_of(packet.sender().0)), (arp::REPLY, B));
        assert_eq!(packet.target(), (MacAddr(bytes_of(A)), [10, 0, 0, 1].into()));
        let other = ask([10, 0, 0, 1], [10, 0, 0, 3]);
        assert!(answer(&other, &read(&other).unwrap(), &known).is_none());
        assert_eq!(read(&ask([10, 0, 0, 2], [10, 0, 0, 2])).unwrap().wants, None, "an announcement");
        assert_eq!(read(&ask([0; 4], [10, 0, 0, 2])).unwrap(), Said { has: None, wants: Some(wanted) }, "a probe");
        let mut liar = ask([10, 0, 0, 1], [10, 0, 0, 2]);
        liar[6] = 4;
        assert_eq!(read(&liar).unwrap().has, None);
        for len in 0..frame.len() {
            assert_eq!(read(&frame[..len]), None);
        }
    }

    /// Objective: the same with neighbour discovery, also for hosts that have no address yet.
    #[test]
    fn solicitations() {
        let [from, target] = ["fd00::1", "fd00::2"].map(|text| text.parse::<Ipv6Addr>().unwrap());
        let wanted = IpAddr::from(target);
        let known = Known::new([(&wanted, &B)].into_iter());
        for from in [from, Ipv6Addr::UNSPECIFIED] {
            let frame = solicit(from, target);
            let said = read(&frame).unwrap();
            assert_eq!(said.has.is_some(), !from.is_unspecified());
            let reply = answer(&frame, &said, &known).unwrap();
            let packet = &reply.bytes()[14..];
            let to = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap());
            assert_eq!(pseudo_v6(target, to, ICMPV6, 32).add_bytes(&packet[40..]).fold(), 0xffff);
            assert_eq!(to.is_multicast(), from.is_unspecified());
            let said = read(reply.bytes()).unwrap();
            assert_eq!(said, Said { has: Some((wanted, B)), wants: None });
        }
    }

    /// Objective: what was heard is found, once; who is silent is forgotten.
    #[test]
    fn heard() {
        let heard = Heard::new(7);
        heard.hear(([10, 0, 0, 1].into(), A), 10);
        heard.hear(([10, 0, 0, 1].into(), A), 11);
        assert_eq!((heard.all(11), heard.changes().count()), (vec![([10, 0, 0, 1].into(), A)], 1));
        heard.hear(([10, 0, 0, 1].into(), B), 12);
        assert_eq!((heard.all(12), heard.changes().count()), (vec![([10, 0, 0, 1].into(), B)], 2));
        assert_eq!(heard.all(12 + AGEING), []);
        for n in 0..20_000u32 {
            heard.hear((IpAddr::from(n.to_be_bytes()), A), 13);
        }
        assert!(heard.all(13).len() <= HEARD);
    }
}
