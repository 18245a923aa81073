//! What the kernel says to the EVPN agent, as bytes: whole messages, spoilt ones and any others; and what the agent
//! makes of it for the daemon and for the kernel, whose parts the target plays.
//!
//! Input: for each step a byte that says which, and what it is made of.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::NetlinkPayload;
use netvale_control::types::{LocalAddress, Mac};
use netvale_evpn::HOLD;
use netvale_evpn::devices::{Device, Devices};
use netvale_evpn::entry::{Entry, Seen, is_host, is_station, seen};
use netvale_evpn::feed::{Change, Feed};
use netvale_evpn::listed::{Act, Listed};
use netvale_evpn::tables::{Fact, Neighbor, Place, Remote, Tables};
use netvale_fuzz::Input;
use netvale_fuzz::fuzz_target;
use netvale_netlink::Messages;

/// After that many times of doing what the kernel is asked for, nothing is left to do: an IP address that is taken from
/// one station can then be another's.
const ROUNDS: usize = 2;
/// Steps of an input.
const MOST: usize = 64;
const MIRROR: Devices = Devices { bridge: 1, tunnel: 2, locals: 3 };
/// RTM_NEWNEIGH, RTM_DELNEIGH, RTM_NEWLINK, RTM_DELLINK of linux/rtnetlink.h.
const KINDS: [u16; 4] = [28, 29, 16, 17];
/// AF_BRIDGE, AF_INET, AF_INET6.
const FAMILIES: [u8; 4] = [7, 2, 10, 7];
/// NDA_DST, NDA_LLADDR, NDA_MASTER of linux/neighbour.h.
const DST: u16 = 1;
const LLADDR: u16 = 2;
const MASTER: u16 = 9;

/// The kernel, the agent's parts that are one VNI's, and the daemon.
#[derive(Default)]
struct World {
    tables: Tables,
    feed: Feed,
    listed: Listed,
    passed: Duration,
    flood: BTreeSet<IpAddr>,
    addresses: BTreeMap<Mac, Remote>,
    neighbors: BTreeMap<IpAddr, (Mac, bool)>,
}

fn mac(n: u8) -> Mac {
    match n {
        0xff => Mac([0; 6]),
        0xfe => Mac([1, 0, 0x5e, 0, 0, 1]),
        n => Mac([2, 0, 0, 0, 0, n % 8]),
    }
}

fn ip(n: u8, v6: bool) -> Vec<u8> {
    match (n, v6) {
        (0xff, false) => vec![224, 0, 0, 1],
        (0xfe, _) => vec![0; 3],
        (n, false) => vec![10, 0, 0, n % 8],
        (n, true) => [&[0xfd][..], &[0; 14], &[n % 8]].concat(),
    }
}

/// A message with its header: `ndmsg` or `ifinfomsg`, and attributes.
fn message(kind: u16, header: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes.extend(header);
    for (kind, value) in attributes {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes
}

/// An entry as the kernel tells of it, and attributes of any kind behind it.
fn entry(input: &mut Input<'_>) -> Vec<u8> {
    let what = input.byte();
    let family = FAMILIES[usize::from(what >> 1 & 3)];
    let device = what >> 3 & 3;
    let state = input.byte();
    let flags = input.byte();
    let header = [family, 0, 0, 0, device, 0, 0, 0, state, 0, flags, 0];
    let mut attributes = vec![(LLADDR, mac(input.byte()).0.to_vec())];
    let is_bridges = family == 7 && what & 0x20 != 0;
    if is_bridges {
        attributes.push((MASTER, MIRROR.bridge.to_ne_bytes().to_vec()));
    } else {
        attributes.push((DST, ip(input.byte(), family == 10)));
    }
    if what & 0x40 != 0 {
        attributes.push((input.half(), input.bytes().to_vec()));
        attributes.rotate_right(usize::from(what >> 7));
    }
    message(KINDS[usize::from(what & 1)], &header, &attributes)
}

/// A device, with attributes of any kind.
fn device(input: &mut Input<'_>) -> Vec<u8> {
    let what = input.byte();
    let header = [what & 7, 0, 0, 0, what >> 3, 0, 0, 0, input.byte(), 0, 0, 0, 0, 0, 0, 0];
    let attributes: Vec<_> =
        (0..1 + input.below(8)).map(|_| (u16::from(input.byte() & 0x3f), input.bytes().to_vec())).collect();
    message(KINDS[2 + usize::from(what & 1)], &header, &attributes)
}

/// The same bytes with one of them changed.
fn spoilt(mut bytes: Vec<u8>, input: &mut Input<'_>) -> Vec<u8> {
    let at = input.below(bytes.len());
    bytes[at] ^= input.byte();
    bytes
}

fn check(entry: Entry) {
    match entry {
        Entry::Bridge { mac, .. } => assert!(is_station(mac)),
        Entry::Remote { mac, vtep, .. } => assert!(is_station(mac) && is_host(vtep)),
        Entry::Flood { vtep, .. } => assert!(is_host(vtep)),
        Entry::Neighbor { ip, mac, .. } => assert!(is_host(ip) && mac.is_none_or(is_station)),
    }
}

impl World {
    fn datagram(&mut self, bytes: &[u8]) {
        let mut messages = Messages(bytes);
        while let Ok(Some(message)) = messages.next() {
            let NetlinkPayload::InnerMessage(inner) = message.payload else { continue };
            if let Some(device) = Device::read(&inner) {
                assert!(matches!(seen(&inner), Some(Seen::Device(index)) if index == device.index));
            }
            match seen(&inner) {
                Some(Seen::Is(entry)) => self.see(entry, false),
                Some(Seen::Gone(entry)) => self.see(entry, true),
                Some(Seen::Device(_)) | None => {}
            }
        }
    }

    fn see(&mut self, entry: Entry, is_gone: bool) {
        check(entry);
        if let Some(fact) = MIRROR.fact(entry) {
            self.fact(fact, is_gone);
        }
    }

    fn fact(&mut self, fact: Fact, is_gone: bool) {
        let key = if is_gone { self.tables.take(fact) } else { self.tables.put(fact) };
        if let Some(key) = key {
            self.feed.touch(key);
            self.listed.note(key, &self.tables);
        }
    }

    /// Notifications were lost: the tables are read anew, and some is gone from them.
    fn read_anew(&mut self, gone: u8) {
        let facts: Vec<Fact> = [
            self.tables.flood().map(Fact::Flood).collect::<Vec<_>>(),
            self.tables
                .remotes()
                .flat_map(|(mac, r)| [Fact::Remote(mac, r), Fact::Place(mac, Place::Tunnel)])
                .collect(),
            self.tables.neighbors().map(|(ip, n)| Fact::Neighbor(ip, Some(n))).collect(),
        ]
        .concat();
        let mut fresh = Tables::default();
        for (n, fact) in facts.into_iter().enumerate() {
            if gone >> (n & 7) & 1 == 0 {
                fresh.put(fact);
            }
        }
        self.feed.touch_all(&fresh);
        self.tables = fresh;
        self.tables.keys().for_each(|key| self.listed.note(key, &self.tables));
    }

    /// What the daemon is told, after some time.
    fn tell(&mut self, start: Instant, passes: Duration) {
        self.passed += passes;
        for change in self.feed.changes(&self.tables, start + self.passed, HOLD) {
            self.apply(change);
        }
        let told = self.feed.told();
        assert_eq!(
            (told.vteps, told.addresses, told.neighbors),
            (self.flood.len(), self.addresses.len(), self.neighbors.len())
        );
        // What there is was told immediately, and what is local is not remote.
        assert!(self.tables.flood().all(|vtep| self.flood.contains(&vtep)));
        assert!(self.tables.remotes().all(|(mac, remote)| self.addresses.get(&mac) == Some(&remote)));
        assert!(self.remote_neighbors().all(|(ip, n)| self.neighbors.get(&ip) == Some(&(n.mac, n.router))));
        assert!(self.tables.locals().all(|mac| !self.addresses.contains_key(&mac)));
        assert_eq!(self.feed.everything().len(), told.vteps + told.addresses + told.neighbors);
    }

    fn remote_neighbors(&self) -> impl Iterator<Item = (IpAddr, Neighbor)> {
        self.tables.neighbors().filter(|(_, n)| n.remote)
    }

    /// Nothing is told twice, and nothing withdrawn that was not told.
    fn apply(&mut self, change: Change) {
        let is_news = match change {
            Change::Flood(vtep) => self.flood.insert(vtep),
            Change::Unflood(vtep) => self.flood.remove(&vtep),
            Change::Address(mac, vtep, sticky) => {
                let remote = Remote { vtep, sticky };
                self.addresses.insert(mac, remote) != Some(remote)
            }
            Change::NoAddress(mac) => self.addresses.remove(&mac).is_some(),
            Change::Neighbor(ip, mac, router) => self.neighbors.insert(ip, (mac, router)) != Some((mac, router)),
            Change::NoNeighbor(ip) => self.neighbors.remove(&ip).is_some(),
        };
        assert!(is_news, "{change:?}");
    }

    /// The daemon lists addresses, and the kernel does what it is asked for. Then nothing more is to be done.
    fn list(&mut self, input: &mut Input<'_>) {
        let address = |input: &mut Input<'_>| {
            let n = input.byte();
            let what = input.byte();
            let ips: Vec<IpAddr> = (0..what & 3).map(|_| IpAddr::from([10, 0, 0, input.byte() % 8])).collect();
            let routers = ips.iter().copied().take(usize::from(what >> 2 & 1)).collect();
            LocalAddress { mac: mac(n), sticky: what & 8 != 0, ips, routers }
        };
        let list = (0..input.below(6)).map(|_| address(input)).collect();
        self.listed.take(list);
        let keeps = input.byte() & 1 != 0;
        for _ in 0..ROUNDS {
            self.listed.plan(&self.tables, keeps).into_iter().for_each(|act| self.act(act));
        }
        let rest = self.listed.plan(&self.tables, keeps);
        assert!(rest.is_empty(), "{rest:?}");
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::RemoveNeighbor(ip) => self.fact(Fact::Neighbor(ip, None), true),
            Act::RemoveAddress(mac) => self.fact(Fact::Place(mac, Place::Local { sticky: false }), true),
            Act::AddAddress { mac, sticky, .. } => self.fact(Fact::Place(mac, Place::Local { sticky }), false),
            Act::AddNeighbor(ip, mac, router) => {
                self.fact(Fact::Neighbor(ip, Some(Neighbor { mac, remote: false, router })), false);
            }
        }
    }

    /// When the hold time is over, the daemon has what the kernel has.
    fn end(&mut self, start: Instant) {
        self.tell(start, Duration::ZERO);
        self.tell(start, HOLD);
        assert!(self.feed.is_idle());
        assert!(self.tables.flood().eq(self.flood.iter().copied()));
        assert_eq!(self.tables.remotes().count(), self.addresses.len());
        assert_eq!(self.remote_neighbors().count(), self.neighbors.len());
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::default();
    let mut input = Input(data);
    let start = Instant::now();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        match input.byte() % 10 {
            0..=3 => {
                let bytes = entry(&mut input);
                world.datagram(&bytes);
            }
            4 => {
                let bytes = [entry(&mut input), device(&mut input), entry(&mut input)].concat();
                world.datagram(&bytes);
            }
            5 => {
                let bytes = spoilt([entry(&mut input), entry(&mut input)].concat(), &mut input);
                world.datagram(&bytes);
            }
            6 => world.datagram(input.bytes()),
            7 => world.tell(start, Duration::from_millis(u64::from(input.byte()) * 100)),
            8 => world.list(&mut input),
            _ => world.read_anew(input.byte()),
        }
    }
    world.end(start);
});
