//! The local addresses of a VNI as listed by the daemon, and the changes that bring the kernel's tables in line. Pure.
//!
//! BGP decides the place of an address: one that zebra has made remote becomes local again only after the daemon has
//! seen a frame from it since, and so lists it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use netvale_control::types::{LocalAddress, Mac};

use crate::entry::{is_host, is_station};
use crate::tables::{Key, Neighbor, Tables};
use crate::{MAX_ADDRESSES, MAX_IPS_OF_ADDRESS, MAX_NEIGHBORS};

/// A change of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Removes a local address's IP address.
    RemoveNeighbor(IpAddr),
    /// Removes a local address.
    RemoveAddress(Mac),
    /// Adds a local address.
    AddAddress {
        /// The address.
        mac: Mac,
        /// Whether it is announced as sticky.
        sticky: bool,
        /// Whether it may have been remote before.
        moves: bool,
    },
    /// Adds an IP address of a local address; a router or not.
    AddNeighbor(IpAddr, Mac, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Address {
    /// Its IP addresses, each with whether it is a router.
    ips: BTreeMap<IpAddr, bool>,
    sticky: bool,
}

/// The daemon's list.
#[derive(Debug, Default)]
pub struct Listed {
    addresses: HashMap<Mac, Address>,
    owners: HashMap<IpAddr, Mac>,
    /// IP addresses that zebra has given to another address: they are not claimed again while only the previous list
    /// contains them.
    lost: HashMap<IpAddr, Mac>,
    /// Addresses that this daemon has listed before and does not list any more.
    dropped: HashSet<Mac>,
    is_given: bool,
}

impl Listed {
    /// Applies a new list. It must have been requested after the daemon received all remote addresses.
    pub fn take(&mut self, list: Vec<LocalAddress>) {
        let mut fresh = Listed { is_given: true, lost: std::mem::take(&mut self.lost), ..Listed::default() };
        for one in list.into_iter().filter(|one| is_station(one.mac)).take(MAX_ADDRESSES) {
            let mut address = Address { sticky: one.sticky, ..Address::default() };
            for ip in one.ips.into_iter().filter(|ip| is_host(*ip)).take(MAX_IPS_OF_ADDRESS) {
                // The first address to claim an IP address gets it; the daemon lists each once.
                let is_free = fresh.owners.len() < MAX_NEIGHBORS && !fresh.owners.contains_key(&ip);
                if is_free {
                    fresh.owners.insert(ip, one.mac);
                    address.ips.insert(ip, one.routers.contains(&ip));
                }
            }
            fresh.addresses.insert(one.mac, address);
        }
        fresh.lost.retain(|ip, mac| fresh.owners.get(ip) == Some(mac));
        // A newly listed address brings its IP addresses.
        fresh.lost.retain(|_, mac| self.addresses.contains_key(mac));
        let before = std::mem::take(&mut self.dropped).into_iter().chain(self.addresses.keys().copied());
        fresh.dropped = before.filter(|mac| !fresh.addresses.contains_key(mac)).take(MAX_ADDRESSES).collect();
        *self = fresh;
    }

    /// Records zebra's changes: an address that it has made remote is not local until the next list.
    pub fn note(&mut self, key: Key, tables: &Tables) {
        match key {
            Key::Address(mac) if tables.remote(mac).is_some() => {
                self.addresses.remove(&mac);
            }
            Key::Neighbor(ip) if tables.neighbor(ip).is_some_and(|n| n.remote) => {
                if let Some(mac) = self.owners.get(&ip) {
                    self.lost.insert(ip, *mac);
                }
            }
            // It has no owner any more: a station that claims it may be believed.
            Key::Neighbor(ip) if tables.neighbor(ip).is_none() => {
                self.lost.remove(&ip);
            }
            _ => {}
        }
    }

    /// Forgets the list after a change of daemon.
    pub fn forget(&mut self) {
        *self = Listed::default();
    }

    /// Number of local addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The changes to the kernel. `keeps`: entries never listed stay, since the daemon may have just started.
    #[must_use]
    pub fn plan(&self, tables: &Tables, keeps: bool) -> Vec<Act> {
        if !self.is_given {
            return Vec::new();
        }
        let mut acts = Vec::new();
        let is_kept = |mac: &Mac| keeps && !self.dropped.contains(mac);
        let gone = tables.locals().filter(|mac| !self.addresses.contains_key(mac) && !is_kept(mac));
        acts.extend(gone.map(Act::RemoveAddress));
        let gone = tables.local_neighbors().filter(|(ip, mac)| !self.has(*ip, *mac) && !is_kept(mac));
        acts.extend(gone.map(|(ip, _)| Act::RemoveNeighbor(ip)));
        for (mac, address) in &self.addresses {
            // The bridge already has a remote address whose VTEP is not known yet: the VXLAN device's entry is on its
            // way.
            let is_coming = tables.is_known(*mac) && !tables.is_local(*mac) && tables.remote(*mac).is_none();
            if !tables.is_local_as(*mac, address.sticky) && !is_coming {
                acts.push(Act::AddAddress { mac: *mac, sticky: address.sticky, moves: tables.is_known(*mac) });
            }
            let missing = address.ips.iter().filter(|(ip, router)| self.is_missing(**ip, *mac, **router, tables));
            acts.extend(missing.map(|(ip, router)| Act::AddNeighbor(*ip, *mac, *router)));
        }
        // zebra must learn an address before its neighbours, and lose the neighbours first.
        acts.sort_unstable();
        acts
    }

    fn has(&self, ip: IpAddr, mac: Mac) -> bool {
        self.addresses.get(&mac).is_some_and(|address| address.ips.contains_key(&ip))
    }

    fn is_missing(&self, ip: IpAddr, mac: Mac, router: bool, tables: &Tables) -> bool {
        let is_there = tables.neighbor(ip) == Some(Neighbor { mac, remote: false, router });
        !is_there && !self.lost.contains_key(&ip)
    }
}

#[cfg(test)]
mod tests;
