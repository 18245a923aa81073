//! State shared by the queues of one VNI, and its changes while they run: a [`Change`] adds and removes given VTEPs,
//! addresses and neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use netvale_mem::lent::Lent;
use netvale_port::wake::WakeSet;
use netvale_wire::MacAddr;
use netvale_wire::flow::FlowKey;
use thiserror::Error;

use crate::endpoint::{Endpoint, EndpointError, Inbox, SendOptions, Sources};
use crate::header;
use crate::heard::Heard;
use crate::ip::{self, Words};
use crate::neighbors::{Known, Neighbor};
use crate::peers::{MAX_PEERS, Peers};
use crate::sender::Sender;
use crate::sys;
use crate::table::{Entry, Put, Table};
use crate::too_long::Replies;

/// Capacity for learned addresses.
const ROOM: usize = 16_384;
/// Most given addresses, and most given neighbours, of a tunnel.
pub const MAX_GIVEN: usize = 1 << 18;
/// Bytes of a UDP and a VXLAN header, and of an IP header.
const HEADERS: u32 = 8 + header::LEN as u32;
const IPV4: u32 = 20;
const IPV6: u32 = 40;
/// A path's assumed MTU while it is unknown.
const USUAL_MTU: u32 = 1500;
/// Seconds between checks of paths, and number of paths checked: others show their MTU when a message is refused.
const LOOK_AGAIN: u32 = 300;
const LOOKED_AT: usize = 64;
/// The longest frame in a datagram that may be fragmented.
const LONGEST: u32 = 65_507 - header::LEN as u32;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// Options of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelOptions {
    /// VXLAN network identifier.
    pub vni: u32,
    /// VTEPs that get flooded frames.
    pub remotes: Vec<IpAddr>,
    /// Whether it learns the VTEPs of addresses.
    pub learning: bool,
    /// Whether it takes frames from unknown VTEPs.
    pub any_peer: bool,
    /// Seconds after which a learned address is forgotten.
    pub ageing: u32,
    /// Options for sending datagrams.
    pub send: SendOptions,
    /// Longest packet in a frame, in bytes; `None`: by the path to the VTEPs.
    pub mtu: Option<u32>,
    /// Secret keys of its hashes.
    pub key: [u64; 2],
}

/// A change, made as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether everything given before is removed first.
    pub replace: bool,
    /// VTEPs that get flooded frames from now on, and those that no longer do.
    pub flood: (Vec<IpAddr>, Vec<IpAddr>),
    /// Addresses behind VTEPs to add; those to remove, in wire order.
    pub addresses: (Vec<GivenAddress>, Vec<u64>),
    /// Neighbours behind VTEPs to add; those to remove.
    pub neighbors: (Vec<Neighbor>, Vec<IpAddr>),
}

/// A given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenAddress {
    /// The address in wire order, first byte lowest.
    pub mac: u64,
    /// Its VTEP.
    pub vtep: IpAddr,
    /// Whether it may not move to another VTEP.
    pub sticky: bool,
    /// Number of its moves, as counted by its control plane.
    pub sequence: u32,
}

/// The reason for refusing a change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// A VTEP cannot have that address.
    #[error("{0} is no VTEP's address")]
    NoHost(IpAddr),
    /// The VTEP's address has the other IP version.
    #[error("{0} cannot be reached from {1}: one is IPv4, the other IPv6")]
    Version(IpAddr, IpAddr),
    /// The address is the tunnel's own.
    #[error("{0} is the tunnel's own address")]
    Own(IpAddr),
    /// Not the address of a single station.
    #[error("{0} is no address of a single station")]
    NoStation(MacAddr),
    /// Too many items.
    #[error("more than {0} {1}")]
    TooMany(usize, &'static str),
}

/// All that was given rather than learned, for the control thread.
#[derive(Debug, Default)]
struct AllGiven {
    flood: BTreeSet<IpAddr>,
    addresses: BTreeMap<u64, GivenAddress>,
    /// Number of addresses behind each VTEP.
    vteps: BTreeMap<IpAddr, usize>,
}

impl AllGiven {
    fn put(&mut self, one: GivenAddress) {
        self.take(one.mac);
        *self.vteps.entry(one.vtep).or_default() += 1;
        self.addresses.insert(one.mac, one);
    }

    fn take(&mut self, mac: u64) {
        let Some(GivenAddress { vtep, .. }) = self.addresses.remove(&mac) else { return };
        if let Some(count) = self.vteps.get_mut(&vtep) {
            *count -= 1;
            if *count == 0 {
                self.vteps.remove(&vtep);
            }
        }
    }
}

/// The tunnel of a VNI.
pub struct Tunnel {
    pub(crate) options: TunnelOptions,
    pub(crate) header: [u8; header::LEN],
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) sources: Arc<Sources>,
    pub(crate) wake: Arc<WakeSet>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) table: ArcSwap<Table>,
    pub(crate) peers: ArcSwap<Peers>,
    pub(crate) known: Known,
    pub(crate) heard: Heard,
    pub(crate) replies: Lent<Replies>,
    pub(crate) senders: [Lent<Sender>; 2],
    pub(crate) flows: FlowKey,
    /// The MTU of the paths, and the time of its last check.
    path: AtomicU32,
    looked: AtomicU32,
    given: Mutex<AllGiven>,
}

impl Tunnel {
    /// Creates a tunnel at an endpoint.
    ///
    /// # Errors
    /// [`EndpointError`] if the VNI is in use there, or the process is out of descriptors.
    pub fn new(endpoint: Arc<Endpoint>, options: TunnelOptions) -> Result<Arc<Tunnel>, EndpointError> {
        let failed = |e: rustix::io::Errno| EndpointError::Socket(endpoint.local(), e.into());
        let wake = Arc::new(WakeSet::new().map_err(failed)?);
        let sources = endpoint.sources(options.send)?;
        let inbox = endpoint.join(options.vni, &wake)?;
        let port = endpoint.port();
        let given = AllGiven { flood: options.remotes.iter().copied().collect(), ..AllGiven::default() };
        let tunnel = Tunnel {
            header: header::encode(options.vni),
            endpoint,
            sources,
            wake,
            inbox,
            table: ArcSwap::from_pointee(Table::new(ROOM, options.key[0])),
            peers: ArcSwap::default(),
            known: Known::default(),
            heard: Heard::new(options.key[1]),
            replies: Lent::with(Replies::new()),
            senders: [(); 2].map(|()| Lent::with(Sender::new(port))),
            flows: FlowKey::new(options.key),
            path: AtomicU32::new(USUAL_MTU),
            looked: AtomicU32::new(now()),
            given: Mutex::new(given),
            options,
        };
        tunnel.look_at_peers(&tunnel.given());
        tunnel.look_at_paths();
        Ok(Arc::new(tunnel))
    }

    /// Gives up its VNI; workers may use it a moment longer.
    pub fn leave(&self) {
        self.endpoint.leave(&self.inbox);
    }

    /// The options of its creation.
    #[must_use]
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Its endpoint on this host.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The known VTEPs.
    #[must_use]
    pub fn peers(&self) -> Arc<Peers> {
        self.peers.load_full()
    }

    /// The known addresses without expired ones, and the seconds since each was last seen.
    #[must_use]
    pub fn addresses(&self) -> Vec<(Entry, u32)> {
        let now = now();
        let table = self.table.load();
        let with_age = |entry: Entry| (entry, now.saturating_sub(entry.seen));
        table.entries().into_iter().map(with_age).filter(|(e, age)| e.given || *age < self.options.ageing).collect()
    }

    /// Number of known addresses.
    #[must_use]
    pub fn count_addresses(&self) -> usize {
        // Given addresses may be very many; without learning there are only those.
        if self.options.learning { self.addresses().len() } else { self.count_given() }
    }

    /// An address, if it was given.
    #[must_use]
    pub fn given_address(&self, mac: u64) -> Option<GivenAddress> {
        self.given().addresses.get(&mac).copied()
    }

    /// Number of given addresses.
    #[must_use]
    pub fn count_given(&self) -> usize {
        self.given().addresses.len()
    }

    /// Whether the VTEP of an address is known. For workers.
    #[must_use]
    pub fn knows(&self, mac: u64) -> bool {
        self.table.load().lookup(mac, now(), self.options.ageing).is_some()
    }

    /// IP addresses claimed by stations behind this host's ports.
    #[must_use]
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// The longest packet in a frame, in bytes, for a guest's driver.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        (self.limits().0 as u32).saturating_sub(ETHERNET)
    }

    /// The longest frame that fits a packet of the path, and the longest one that is sent.
    #[inline]
    pub(crate) fn limits(&self) -> (usize, usize) {
        let asked = self.options.mtu.map_or(LONGEST, |mtu| LONGEST.min(mtu + ETHERNET));
        let fits = self.path.load(Ordering::Relaxed).saturating_sub(around_frame(self.endpoint.local())).min(asked);
        (fits as usize, if self.options.send.may_fragment { asked } else { fits } as usize)
    }

    /// Adds and removes given items.
    ///
    /// # Errors
    /// [`ChangeError`] with the first impossible item; nothing is changed then.
    pub fn change(&self, change: &Change) -> Result<(), ChangeError> {
        let mut given = self.given();
        self.check(&given, change)?;
        if change.replace {
            *given = AllGiven::default();
            self.known.clear();
        }
        let (more, less) = &change.flood;
        less.iter().for_each(|ip| _ = given.flood.remove(ip));
        given.flood.extend(more);
        let (more, less) = &change.addresses;
        less.iter().for_each(|mac| given.take(*mac));
        more.iter().for_each(|one| given.put(*one));
        self.known.change(&change.neighbors.0, &change.neighbors.1);
        self.look_at_peers(&given);
        self.fill_table(&given, change);
        Ok(())
    }

    fn given(&self) -> MutexGuard<'_, AllGiven> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, given: &AllGiven, change: &Change) -> Result<(), ChangeError> {
        let vteps = change.addresses.0.iter().map(|one| one.vtep);
        change.flood.0.iter().copied().chain(vteps).try_for_each(|vtep| check_vtep(vtep, self.endpoint.local()))?;
        let stations = change.addresses.0.iter().map(|one| one.mac);
        let mut stations = stations.chain(change.neighbors.0.iter().map(|one| one.mac));
        let none = stations.find(|mac| !is_station(*mac)).map(MacAddr::from_word);
        none.map_or(Ok(()), |mac| Err(ChangeError::NoStation(mac)))?;
        let none = AllGiven::default();
        let before = if change.replace { &none } else { given };
        let new = change.addresses.0.iter().filter(|one| !before.addresses.contains_key(&one.mac)).count();
        if before.addresses.len() + new > MAX_GIVEN {
            return Err(ChangeError::TooMany(MAX_GIVEN, "addresses"));
        }
        let known = |ip: IpAddr| !change.replace && self.known.get(ip).is_some();
        let new = change.neighbors.0.iter().filter(|one| !known(one.ip)).count();
        if new + if change.replace { 0 } else { self.known.count() } > MAX_GIVEN {
            return Err(ChangeError::TooMany(MAX_GIVEN, "neighbours"));
        }
        let peers = if change.replace { Arc::default() } else { self.peers.load_full() };
        let mut vteps: BTreeSet<IpAddr> = change.flood.0.iter().copied().collect();
        vteps.extend(change.addresses.0.iter().map(|one| one.vtep));
        vteps.retain(|vtep| peers.get(ip::words(*vtep)).is_none());
        if peers.all().len() + vteps.len() > MAX_PEERS {
            return Err(ChangeError::TooMany(MAX_PEERS, "VTEPs"));
        }
        Ok(())
    }

    /// Rebuilds the list of VTEPs if others are known now.
    fn look_at_peers(&self, given: &AllGiven) {
        let mut all: BTreeMap<IpAddr, bool> = given.vteps.keys().map(|vtep| (*vtep, false)).collect();
        all.extend(given.flood.iter().map(|ip| (*ip, true)));
        let before = self.peers.load_full();
        let is_same =
            before.all().len() == all.len() && before.all().iter().all(|peer| all.get(&peer.ip) == Some(&peer.floods));
        if !is_same {
            self.peers.store(Arc::new(Peers::new(all, &before)));
            self.look_at_paths();
        }
    }

    /// Called after a delivery: a path takes shorter packets than assumed, or a check for longer ones is due.
    #[inline]
    pub(crate) fn path_is(&self, shorter: Option<Words>, now: u32) {
        if shorter.is_some() || now.wrapping_sub(self.looked.load(Ordering::Relaxed)) >= LOOK_AGAIN {
            self.look_again(shorter, now);
        }
    }

    /// Makes system calls for a few VTEPs, at most once a second, or every few minutes.
    #[cold]
    fn look_again(&self, shorter: Option<Words>, now: u32) {
        if self.looked.swap(now, Ordering::Relaxed) == now {
            return;
        }
        match shorter {
            Some(vtep) => {
                let path = self.endpoint.path_mtu(ip::of(vtep)).unwrap_or(USUAL_MTU);
                self.path.fetch_min(path, Ordering::Relaxed);
            }
            None => self.look_at_paths(),
        }
    }

    /// Asks the host for the MTU of the paths to VTEPs, up to the limit of paths.
    fn look_at_paths(&self) {
        let peers = self.peers.load_full();
        let paths = peers.all().iter().take(LOOKED_AT).filter_map(|peer| self.endpoint.path_mtu(peer.ip));
        self.path.store(paths.min().unwrap_or(USUAL_MTU), Ordering::Relaxed);
    }

    /// Applies a change to the table, or to a larger copy if it is full.
    fn fill_table(&self, given: &AllGiven, change: &Change) {
        let mut table = self.table.load_full();
        if change.replace {
            table.remove_all(|entry| entry.given && !given.addresses.contains_key(&entry.mac));
        }
        change
            .addresses
            .1
            .iter()
            .filter(|mac| !given.addresses.contains_key(mac))
            .for_each(|mac| _ = table.remove(*mac));
        for GivenAddress { mac, vtep, sticky, .. } in &change.addresses.0 {
            // The largest table only lacks room for one by chance: frames for it are flooded.
            while table.give(*mac, ip::words(*vtep), *sticky) == Put::Full && !table.is_largest() {
                table = Arc::new(table.grown(table.room() * 2, now(), self.options.ageing));
                self.table.store(Arc::clone(&table));
            }
        }
    }

    /// State for a successor: given items, and learned addresses.
    #[must_use]
    pub fn state(&self) -> (Change, Vec<(u64, IpAddr)>) {
        let given = self.given();
        let addresses = given.addresses.values().copied().collect();
        let flood = given.flood.iter().copied().collect();
        let change = Change {
            replace: true,
            flood: (flood, Vec::new()),
            addresses: (addresses, Vec::new()),
            neighbors: (self.known.all().collect(), Vec::new()),
        };
        drop(given);
        let learned = self.addresses().into_iter().filter(|(entry, _)| !entry.given);
        (change, learned.map(|(entry, _)| (entry.mac, entry.vtep)).collect())
    }

    /// Learns another process's learned addresses.
    pub fn learn_all(&self, learned: &[(u64, IpAddr)]) {
        let now = now();
        let table = self.table.load();
        for (mac, vtep) in learned.iter().filter(|(mac, vtep)| is_station(*mac) && ip::is_host(*vtep)) {
            table.learn(*mac, ip::words(*vtep), now, self.options.ageing);
        }
    }

    /// Whether a frame from that VTEP is accepted.
    #[inline]
    pub(crate) fn takes_from(&self, peers: &Peers, from: Words) -> bool {
        peers.get(from).is_some() || self.options.any_peer
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.leave();
        self.wake.remove(&*self.endpoint);
    }
}

/// Checks that a VTEP can have that address, for an endpoint at `local`.
///
/// # Errors
/// [`ChangeError`] with the reason why not.
pub fn check_vtep(vtep: IpAddr, local: IpAddr) -> Result<(), ChangeError> {
    if !ip::is_host(vtep) {
        return Err(ChangeError::NoHost(vtep));
    }
    if vtep.is_ipv4() != local.is_ipv4() {
        return Err(ChangeError::Version(vtep, local));
    }
    if vtep == local { Err(ChangeError::Own(vtep)) } else { Ok(()) }
}

/// Bytes around a frame in a packet between endpoints of this IP version.
#[inline]
fn around_frame(local: IpAddr) -> u32 {
    HEADERS + if local.is_ipv4() { IPV4 } else { IPV6 }
}

/// Bytes around a packet in a frame through a tunnel, in a packet between endpoints of this IP version.
#[must_use]
pub fn around_packet(local: IpAddr) -> u32 {
    around_frame(local) + ETHERNET
}

/// Whether the address, in wire order, is of a single station.
fn is_station(mac: u64) -> bool {
    mac != 0 && mac & 1 == 0 && mac >> 48 == 0
}

/// Seconds of a monotonic clock.
#[must_use]
pub fn now() -> u32 {
    // It wraps after 136 years.
    sys::coarse_time().tv_sec as u32
}
