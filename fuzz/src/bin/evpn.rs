//! Passes messages from the kernel to the EVPN agent's state of one VNI: valid messages, corrupted messages and
//! arbitrary bytes. The target acts as the kernel and as the daemon, and checks the changes that the agent requests
//! from them.
//!
//! Input: for each step, a byte that selects the kind of step, and the step's parameters.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::NetlinkPayload;
use netvale_control::types::{LocalAddress, Mac};
use netvale_evpn::HOLD;
use netvale_evpn::devices::{KernelDevice, MirrorDevices};
use netvale_evpn::entry::{KernelEntry, KernelRecord, is_host, is_station, seen};
use netvale_evpn::feed::{Feed, FeedChange};
use netvale_evpn::listed::{ListedState, TableChange};
use netvale_evpn::tables::{AddressPlace, Fact, NeighborEntry, RemoteAddress, Tables};
use netvale_fuzz::{FuzzInput, fuzz_target};
use netvale_netlink::Messages;

/// Number of times that the planned changes are applied to the kernel's tables. After that, no planned change may be
/// left. The second time is needed for an IP address that must be removed from one station before it is added to
/// another station.
const ROUNDS: usize = 2;
/// Maximum number of steps of an input.
const MOST: usize = 64;
const MIRROR: MirrorDevices = MirrorDevices { bridge: 1, tunnel: 2, locals: 3 };
/// RTM_NEWNEIGH, RTM_DELNEIGH, RTM_NEWLINK, RTM_DELLINK of linux/rtnetlink.h.
const KINDS: [u16; 4] = [28, 29, 16, 17];
/// AF_BRIDGE, AF_INET, AF_INET6, and AF_BRIDGE again: two bits of the input select a family.
const FAMILIES: [u8; 4] = [7, 2, 10, 7];
/// `NDA_DST` of linux/neighbour.h.
const DST: u16 = 1;
/// `NDA_LLADDR` of linux/neighbour.h.
const LLADDR: u16 = 2;
/// `NDA_MASTER` of linux/neighbour.h.
const MASTER: u16 = 9;

/// The agent's state of one VNI, and the remote entries that the daemon has received.
#[derive(Default)]
struct EvpnWorld {
    tables: Tables,
    feed: Feed,
    listed: ListedState,
    passed: Duration,
    flood: BTreeSet<IpAddr>,
    addresses: BTreeMap<Mac, RemoteAddress>,
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

/// Builds a netlink message of a header (`ndmsg` or `ifinfomsg`) and attributes.
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

/// Builds a message about a neighbour or forwarding entry, possibly with an additional attribute of any kind.
fn entry(input: &mut FuzzInput<'_>) -> Vec<u8> {
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

/// Builds a message about a device, with attributes of any kind.
fn device(input: &mut FuzzInput<'_>) -> Vec<u8> {
    let what = input.byte();
    let header = [what & 7, 0, 0, 0, what >> 3, 0, 0, 0, input.byte(), 0, 0, 0, 0, 0, 0, 0];
    let attributes: Vec<_> =
        (0..1 + input.below(8)).map(|_| (u16::from(input.byte() & 0x3f), input.bytes().to_vec())).collect();
    message(KINDS[2 + usize::from(what & 1)], &header, &attributes)
}

/// Returns the bytes with one byte changed.
fn spoilt(mut bytes: Vec<u8>, input: &mut FuzzInput<'_>) -> Vec<u8> {
    let at = input.below(bytes.len());
    bytes[at] ^= input.byte();
    bytes
}

fn check(entry: KernelEntry) {
    match entry {
        KernelEntry::Bridge { mac, .. } => assert!(is_station(mac)),
        KernelEntry::Remote { mac, vtep, .. } => assert!(is_station(mac) && is_host(vtep)),
        KernelEntry::Flood { vtep, .. } => assert!(is_host(vtep)),
        KernelEntry::Neighbor { ip, mac, .. } => assert!(is_host(ip) && mac.is_none_or(is_station)),
    }
}

impl EvpnWorld {
    fn datagram(&mut self, bytes: &[u8]) {
        let mut messages = Messages(bytes);
        while let Ok(Some(message)) = messages.next() {
            let NetlinkPayload::InnerMessage(inner) = message.payload else { continue };
            if let Some(device) = KernelDevice::read(&inner) {
                assert!(matches!(seen(&inner), Some(KernelRecord::Device(index)) if index == device.index));
            }
            match seen(&inner) {
                Some(KernelRecord::Is(entry)) => self.see(entry, false),
                Some(KernelRecord::Gone(entry)) => self.see(entry, true),
                Some(KernelRecord::Device(_)) | None => {}
            }
        }
    }

    fn see(&mut self, entry: KernelEntry, is_gone: bool) {
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

    /// Acts as if notifications were lost: replaces the tables by new tables, in which the entries are missing that the
    /// bits of `gone` select.
    fn read_anew(&mut self, gone: u8) {
        let facts: Vec<Fact> = [
            self.tables.flood().map(Fact::Flood).collect::<Vec<_>>(),
            self.tables
                .remotes()
                .flat_map(|(mac, r)| [Fact::Remote(mac, r), Fact::Place(mac, AddressPlace::Tunnel)])
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

    /// Lets time pass, and applies the changes that the agent then sends to the daemon.
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
        // The daemon must have received all remote entries, and no local address as a remote address.
        assert!(self.tables.flood().all(|vtep| self.flood.contains(&vtep)));
        assert!(self.tables.remotes().all(|(mac, remote)| self.addresses.get(&mac) == Some(&remote)));
        assert!(self.remote_neighbors().all(|(ip, n)| self.neighbors.get(&ip) == Some(&(n.mac, n.router))));
        assert!(self.tables.locals().all(|mac| !self.addresses.contains_key(&mac)));
        assert_eq!(self.feed.everything().len(), told.vteps + told.addresses + told.neighbors);
    }

    fn remote_neighbors(&self) -> impl Iterator<Item = (IpAddr, NeighborEntry)> {
        self.tables.neighbors().filter(|(_, n)| n.remote)
    }

    /// Applies a change to the daemon's entries. No entry may be added twice, and no entry may be removed that was not
    /// added.
    fn apply(&mut self, change: FeedChange) {
        let is_news = match change {
            FeedChange::Flood(vtep) => self.flood.insert(vtep),
            FeedChange::Unflood(vtep) => self.flood.remove(&vtep),
            FeedChange::Address(mac, vtep, sticky) => {
                let remote = RemoteAddress { vtep, sticky };
                self.addresses.insert(mac, remote) != Some(remote)
            }
            FeedChange::NoAddress(mac) => self.addresses.remove(&mac).is_some(),
            FeedChange::Neighbor(ip, mac, router) => self.neighbors.insert(ip, (mac, router)) != Some((mac, router)),
            FeedChange::NoNeighbor(ip) => self.neighbors.remove(&ip).is_some(),
        };
        assert!(is_news, "{change:?}");
    }

    /// Passes a list of local addresses from the daemon to the agent, and applies the planned changes to the kernel's
    /// tables. After that, the agent must plan no further change.
    fn list(&mut self, input: &mut FuzzInput<'_>) {
        let address = |input: &mut FuzzInput<'_>| {
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

    fn act(&mut self, act: TableChange) {
        match act {
            TableChange::RemoveNeighbor(ip) => self.fact(Fact::Neighbor(ip, None), true),
            TableChange::RemoveAddress(mac) => self.fact(Fact::Place(mac, AddressPlace::Local { sticky: false }), true),
            TableChange::AddAddress { mac, sticky, .. } => {
                self.fact(Fact::Place(mac, AddressPlace::Local { sticky }), false)
            }
            TableChange::AddNeighbor(ip, mac, router) => {
                self.fact(Fact::Neighbor(ip, Some(NeighborEntry { mac, remote: false, router })), false);
            }
        }
    }

    /// Checks that the daemon has the kernel's remote entries once the hold time is over.
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
    let mut world = EvpnWorld::default();
    let mut input = FuzzInput(data);
    let start = Instant::now();
    input.steps(MOST, |input| match input.byte() % 10 {
        0..=3 => world.datagram(&entry(input)),
        4 => world.datagram(&[entry(input), device(input), entry(input)].concat()),
        5 => world.datagram(&spoilt([entry(input), entry(input)].concat(), input)),
        6 => world.datagram(input.bytes()),
        7 => world.tell(start, Duration::from_millis(u64::from(input.byte()) * 100)),
        8 => world.list(input),
        _ => world.read_anew(input.byte()),
    });
    world.end(start);
});
