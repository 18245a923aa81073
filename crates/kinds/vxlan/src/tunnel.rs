//! The state that the queues of one VNI share. While the queues run, a [`TunnelChange`] adds and removes *given*
//! entries, i.e. VTEPs, addresses and neighbours that are configured, not learned.

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

use crate::endpoint::{Endpoint, EndpointError, SendOptions, SendSockets, TunnelInbox};
use crate::header;
use crate::heard::HeardClaims;
use crate::ip::{self, IpWords};
use crate::neighbors::{TunnelNeighbor, TunnelNeighbors};
use crate::peers::{MAX_PEERS, VtepPeers};
use crate::sender::TunnelSender;
use crate::sys;
use crate::table::{AddResult, VtepEntry, VtepTable};
use crate::too_long::Replies;

/// Capacity of the table for learned addresses.
const ROOM: usize = 16_384;
/// Maximum number of given addresses, and of given neighbours, of a tunnel.
pub const MAX_GIVEN: usize = 1 << 18;
/// Size of a UDP and a VXLAN header together, in bytes.
const HEADERS: u32 = 8 + header::LEN as u32;
/// Size of an IPv4 header in bytes.
const IPV4: u32 = 20;
/// Size of an IPv6 header in bytes.
const IPV6: u32 = 40;
/// MTU in bytes that is assumed for paths while no path's MTU is known.
const USUAL_MTU: u32 = 1500;
/// Seconds between checks of paths.
const LOOK_AGAIN: u32 = 300;
/// Maximum number of paths that are checked. The MTU of any other path becomes known only when the kernel refuses a
/// message.
const LOOKED_AT: usize = 64;
/// Size of the longest frame in a datagram that may be fragmented, in bytes.
const LONGEST: u32 = 65_507 - header::LEN as u32;
/// Size of an Ethernet header in bytes.
const ETHERNET: u32 = 14;

/// Options of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelOptions {
    /// VXLAN network identifier.
    pub vni: u32,
    /// VTEPs that receive flooded frames.
    pub remotes: Vec<IpAddr>,
    /// Whether the tunnel learns the VTEPs of addresses.
    pub learning: bool,
    /// Whether the tunnel accepts frames from unknown VTEPs.
    pub any_peer: bool,
    /// Seconds without a frame after which a learned address is forgotten.
    pub ageing: u32,
    /// Options for sending datagrams.
    pub send: SendOptions,
    /// Size in bytes of the longest packet in a frame; `None` to derive it from the paths to the VTEPs.
    pub mtu: Option<u32>,
    /// Secret keys of the tunnel's hashes.
    pub key: [u64; 2],
}

/// A change of the given entries, which is made as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelChange {
    /// Whether the change replaces all earlier given entries.
    pub replace: bool,
    /// VTEPs that start to receive flooded frames, and VTEPs that stop receiving flooded frames.
    pub flood: (Vec<IpAddr>, Vec<IpAddr>),
    /// Addresses behind VTEPs that are added, and addresses that are removed (in wire order, first byte lowest).
    pub addresses: (Vec<GivenAddress>, Vec<u64>),
    /// Neighbours behind VTEPs that are added, and IP addresses of neighbours that are removed.
    pub neighbors: (Vec<TunnelNeighbor>, Vec<IpAddr>),
}

/// An address that a control plane has provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenAddress {
    /// The address in wire order, first byte lowest.
    pub mac: u64,
    /// The VTEP behind which the address is.
    pub vtep: IpAddr,
    /// Whether the address must not move to another VTEP.
    pub sticky: bool,
    /// Number of times that the address has moved between VTEPs (MAC mobility, RFC 7432 §15), as the control plane
    /// counts them.
    pub sequence: u32,
}

/// The reason for refusing a change of the given entries.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// A VTEP cannot have this address.
    #[error("{0} cannot be the address of a VTEP")]
    NoHost(IpAddr),
    /// The VTEP's address is of the other IP version.
    #[error("{0} cannot be reached from {1}: one is IPv4, the other IPv6")]
    Version(IpAddr, IpAddr),
    /// The address is the tunnel's own.
    #[error("{0} is the tunnel's own address")]
    Own(IpAddr),
    /// The address is not the address of a single station.
    #[error("invalid Ethernet address {0}: expected a unicast address")]
    NoStation(MacAddr),
    /// There are too many entries.
    #[error("too many {1}: expected at most {0}")]
    TooMany(usize, &'static str),
}

/// All given entries, for the control thread.
#[derive(Debug, Default)]
struct GivenEntries {
    flood: BTreeSet<IpAddr>,
    addresses: BTreeMap<u64, GivenAddress>,
    /// Number of addresses behind each VTEP.
    vteps: BTreeMap<IpAddr, usize>,
}

impl GivenEntries {
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
    pub(crate) sources: Arc<SendSockets>,
    pub(crate) wake: Arc<WakeSet>,
    pub(crate) inbox: Arc<TunnelInbox>,
    pub(crate) table: ArcSwap<VtepTable>,
    pub(crate) peers: ArcSwap<VtepPeers>,
    pub(crate) known: TunnelNeighbors,
    pub(crate) heard: HeardClaims,
    pub(crate) replies: Lent<Replies>,
    pub(crate) senders: [Lent<TunnelSender>; 2],
    pub(crate) flows: FlowKey,
    /// Smallest MTU of the paths to the VTEPs, in bytes.
    path: AtomicU32,
    /// Time of the last check of the paths, as [`now`] returned it.
    looked: AtomicU32,
    given: Mutex<GivenEntries>,
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
        let given = GivenEntries { flood: options.remotes.iter().copied().collect(), ..GivenEntries::default() };
        let tunnel = Tunnel {
            header: header::encode(options.vni),
            endpoint,
            sources,
            wake,
            inbox,
            table: ArcSwap::from_pointee(VtepTable::new(ROOM, options.key[0])),
            peers: ArcSwap::default(),
            known: TunnelNeighbors::default(),
            heard: HeardClaims::new(options.key[1]),
            replies: Lent::with(Replies::default()),
            senders: [(); 2].map(|()| Lent::with(TunnelSender::new(port))),
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

    /// Frees the tunnel's VNI; workers may use the tunnel a moment longer.
    pub fn leave(&self) {
        self.endpoint.leave(&self.inbox);
    }

    /// Returns the options with which the tunnel was created.
    #[must_use]
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Returns the tunnel's endpoint on this host.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the known VTEPs.
    #[must_use]
    pub fn peers(&self) -> Arc<VtepPeers> {
        self.peers.load_full()
    }

    /// Returns the known addresses that have not expired, each with the seconds since it was last seen.
    #[must_use]
    pub fn addresses(&self) -> Vec<(VtepEntry, u32)> {
        let now = now();
        let table = self.table.load();
        let with_age = |entry: VtepEntry| (entry, now.saturating_sub(entry.seen));
        table.entries().into_iter().map(with_age).filter(|(e, age)| e.given || *age < self.options.ageing).collect()
    }

    /// Returns the number of known addresses.
    #[must_use]
    pub fn count_addresses(&self) -> usize {
        // Without learning, all addresses are given, and counting the given addresses is cheaper than listing them.
        if self.options.learning { self.addresses().len() } else { self.count_given() }
    }

    /// Returns the given entry of an address; `None` if the address is not given.
    #[must_use]
    pub fn given_address(&self, mac: u64) -> Option<GivenAddress> {
        self.given().addresses.get(&mac).copied()
    }

    /// Returns the number of given addresses.
    #[must_use]
    pub fn count_given(&self) -> usize {
        self.given().addresses.len()
    }

    /// Returns whether the VTEP of an address is known. Workers may call this: it takes no lock.
    #[must_use]
    pub fn knows(&self, mac: u64) -> bool {
        self.table.load().lookup(mac, now(), self.options.ageing).is_some()
    }

    /// Returns the IP addresses that stations behind this host's ports claim.
    #[must_use]
    pub fn heard(&self) -> &HeardClaims {
        &self.heard
    }

    /// Returns the size in bytes of the longest packet in a frame, which a guest's driver may use as its MTU.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        (self.limits().0 as u32).saturating_sub(ETHERNET)
    }

    /// Returns two sizes in bytes: of the longest frame that fits into a packet of the path's MTU, and of the longest
    /// frame that is sent, which is larger if datagrams may be fragmented.
    #[inline]
    pub(crate) fn limits(&self) -> (usize, usize) {
        let asked = self.options.mtu.map_or(LONGEST, |mtu| LONGEST.min(mtu + ETHERNET));
        let fits = self.path.load(Ordering::Relaxed).saturating_sub(around_frame(self.endpoint.local())).min(asked);
        (fits as usize, if self.options.send.may_fragment { asked } else { fits } as usize)
    }

    /// Adds and removes given entries.
    ///
    /// # Errors
    /// [`ChangeError`] names the first impossible entry; in this case, nothing is changed.
    pub fn change(&self, change: &TunnelChange) -> Result<(), ChangeError> {
        let mut given = self.given();
        self.check(&given, change)?;
        if change.replace {
            *given = GivenEntries::default();
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

    fn given(&self) -> MutexGuard<'_, GivenEntries> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, given: &GivenEntries, change: &TunnelChange) -> Result<(), ChangeError> {
        let vteps = change.addresses.0.iter().map(|one| one.vtep);
        change.flood.0.iter().copied().chain(vteps).try_for_each(|vtep| check_vtep(vtep, self.endpoint.local()))?;
        let stations = change.addresses.0.iter().map(|one| one.mac);
        let mut stations = stations.chain(change.neighbors.0.iter().map(|one| one.mac));
        let none = stations.find(|mac| !is_station(*mac)).map(MacAddr::from_word);
        none.map_or(Ok(()), |mac| Err(ChangeError::NoStation(mac)))?;
        let none = GivenEntries::default();
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

    /// Rebuilds the list of VTEPs if the given entries name other VTEPs than before.
    fn look_at_peers(&self, given: &GivenEntries) {
        let mut all: BTreeMap<IpAddr, bool> = given.vteps.keys().map(|vtep| (*vtep, false)).collect();
        all.extend(given.flood.iter().map(|ip| (*ip, true)));
        let before = self.peers.load_full();
        let is_same =
            before.all().len() == all.len() && before.all().iter().all(|peer| all.get(&peer.ip) == Some(&peer.floods));
        if !is_same {
            self.peers.store(Arc::new(VtepPeers::new(all, &before)));
            self.look_at_paths();
        }
    }

    /// Called after a delivery. Checks the MTU of the paths if the path to `shorter` turned out to accept only shorter
    /// packets than assumed, or if the regular check, which may find a larger MTU, is due.
    #[inline]
    pub(crate) fn path_is(&self, shorter: Option<IpWords>, now: u32) {
        if shorter.is_some() || now.wrapping_sub(self.looked.load(Ordering::Relaxed)) >= LOOK_AGAIN {
            self.look_again(shorter, now);
        }
    }

    /// Checks the path to `shorter`; if that is `None`, checks all paths. Does so at most once per second, because it
    /// needs system calls.
    #[cold]
    fn look_again(&self, shorter: Option<IpWords>, now: u32) {
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

    /// Queries this host for the MTU of the paths to at most [`LOOKED_AT`] VTEPs.
    fn look_at_paths(&self) {
        let peers = self.peers.load_full();
        let paths = peers.all().iter().take(LOOKED_AT).filter_map(|peer| self.endpoint.path_mtu(peer.ip));
        self.path.store(paths.min().unwrap_or(USUAL_MTU), Ordering::Relaxed);
    }

    /// Applies a change to the table, or to a larger copy if the table is full.
    fn fill_table(&self, given: &GivenEntries, change: &TunnelChange) {
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
            // In the largest table, an address can fail to find a slot only by chance; frames for this address are then
            // flooded.
            while table.give(*mac, ip::words(*vtep), *sticky) == AddResult::Full && !table.is_largest() {
                table = Arc::new(table.grown(table.room() * 2, now(), self.options.ageing));
                self.table.store(Arc::clone(&table));
            }
        }
    }

    /// Returns the state for a successor: the given entries, and the learned addresses.
    #[must_use]
    pub fn state(&self) -> (TunnelChange, Vec<(u64, IpAddr)>) {
        let given = self.given();
        let addresses = given.addresses.values().copied().collect();
        let flood = given.flood.iter().copied().collect();
        let change = TunnelChange {
            replace: true,
            flood: (flood, Vec::new()),
            addresses: (addresses, Vec::new()),
            neighbors: (self.known.all().collect(), Vec::new()),
        };
        drop(given);
        let learned = self.addresses().into_iter().filter(|(entry, _)| !entry.given);
        (change, learned.map(|(entry, _)| (entry.mac, entry.vtep)).collect())
    }

    /// Learns the addresses that a predecessor had learned.
    pub fn learn_all(&self, learned: &[(u64, IpAddr)]) {
        let now = now();
        let table = self.table.load();
        for (mac, vtep) in learned.iter().filter(|(mac, vtep)| is_station(*mac) && ip::is_host(*vtep)) {
            table.learn(*mac, ip::words(*vtep), now, self.options.ageing);
        }
    }

    /// Returns whether a frame from this VTEP is accepted.
    #[inline]
    pub(crate) fn takes_from(&self, peers: &VtepPeers, from: IpWords) -> bool {
        peers.get(from).is_some() || self.options.any_peer
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.leave();
        self.wake.remove(&*self.endpoint);
    }
}

/// Checks that a VTEP can have this address, for an endpoint at `local`.
///
/// # Errors
/// [`ChangeError`] states why the address is impossible.
pub fn check_vtep(vtep: IpAddr, local: IpAddr) -> Result<(), ChangeError> {
    if !ip::is_host(vtep) {
        return Err(ChangeError::NoHost(vtep));
    }
    if vtep.is_ipv4() != local.is_ipv4() {
        return Err(ChangeError::Version(vtep, local));
    }
    if vtep == local { Err(ChangeError::Own(vtep)) } else { Ok(()) }
}

/// Returns the encapsulation overhead of a frame in bytes: the outer headers, for endpoints of this IP version.
#[inline]
fn around_frame(local: IpAddr) -> u32 {
    HEADERS + if local.is_ipv4() { IPV4 } else { IPV6 }
}

/// Returns the encapsulation overhead of a tunnelled packet in bytes: the inner Ethernet header and the outer headers,
/// for endpoints of this IP version.
#[must_use]
pub fn around_packet(local: IpAddr) -> u32 {
    around_frame(local) + ETHERNET
}

/// Returns whether `mac`, in wire order, is the address of a single station.
fn is_station(mac: u64) -> bool {
    mac != 0 && mac & 1 == 0 && mac >> 48 == 0
}

/// Returns the seconds of a monotonic clock.
#[must_use]
pub fn now() -> u32 {
    // The value wraps after 136 years.
    sys::coarse_time().tv_sec as u32
}
