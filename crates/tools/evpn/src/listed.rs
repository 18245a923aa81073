//! The local addresses of a VNI as the daemon lists them, and what has to change in the kernel so that it has them,
//! too. Pure.
//!
//! BGP decides who has an address: one that zebra has made remote is local again only when the daemon has seen a frame
//! from it since then, and so lists it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use netvale_control::types::{LocalAddress, Mac};

use crate::entry::{is_host, is_station};
use crate::tables::{Key, Neighbor, Tables};
use crate::{MAX_ADDRESSES, MAX_IPS_OF_ADDRESS, MAX_NEIGHBORS};

/// A change of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// The IP address is nobody's here any more.
    RemoveNeighbor(IpAddr),
    /// The address is not local any more.
    RemoveAddress(Mac),
    /// The address is local.
    AddAddress {
        /// The address.
        mac: Mac,
        /// Whether it is announced as one that does not move.
        sticky: bool,
        /// Whether it may have been remote before.
        moves: bool,
    },
    /// The IP address is that of a local address, and whether it is a router.
    AddNeighbor(IpAddr, Mac, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Address {
    /// Its IP addresses, and whether it is a router with each.
    ips: BTreeMap<IpAddr, bool>,
    sticky: bool,
}

/// What the daemon lists.
#[derive(Debug, Default)]
pub struct Listed {
    addresses: HashMap<Mac, Address>,
    owners: HashMap<IpAddr, Mac>,
    /// IP addresses that zebra has given to another address: they are not claimed again as long as only the list of
    /// before says so.
    lost: HashMap<IpAddr, Mac>,
    /// What this daemon has listed and does not list any more.
    dropped: HashSet<Mac>,
    is_given: bool,
}

impl Listed {
    /// Takes a new list. It must have been asked for after the daemon was told of all remote addresses.
    pub fn take(&mut self, list: Vec<LocalAddress>) {
        let mut fresh = Listed { is_given: true, lost: std::mem::take(&mut self.lost), ..Listed::default() };
        for one in list.into_iter().filter(|one| is_station(one.mac)).take(MAX_ADDRESSES) {
            let mut address = Address { sticky: one.sticky, ..Address::default() };
            for ip in one.ips.into_iter().filter(|ip| is_host(*ip)).take(MAX_IPS_OF_ADDRESS) {
                // Who says that an IP address is theirs first has it; the daemon lists each once.
                let is_free = fresh.owners.len() < MAX_NEIGHBORS && !fresh.owners.contains_key(&ip);
                if is_free {
                    fresh.owners.insert(ip, one.mac);
                    address.ips.insert(ip, one.routers.contains(&ip));
                }
            }
            fresh.addresses.insert(one.mac, address);
        }
        fresh.lost.retain(|ip, mac| fresh.owners.get(ip) == Some(mac));
        // An address that comes brings its IP addresses.
        fresh.lost.retain(|_, mac| self.addresses.contains_key(mac));
        let before = std::mem::take(&mut self.dropped).into_iter().chain(self.addresses.keys().copied());
        fresh.dropped = before.filter(|mac| !fresh.addresses.contains_key(mac)).take(MAX_ADDRESSES).collect();
        *self = fresh;
    }

    /// Notes what zebra has done: what it has made remote is not local until the next list.
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
            // It is nobody's any more: a station that says to have it may be believed.
            Key::Neighbor(ip) if tables.neighbor(ip).is_none() => {
                self.lost.remove(&ip);
            }
            _ => {}
        }
    }

    /// Forgets the list: the daemon is another one.
    pub fn forget(&mut self) {
        *self = Listed::default();
    }

    /// Number of local addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// What has to change in the kernel. `keeps`: what was never listed stays, since the daemon may have just started.
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
            // A bridge that has just been told of a remote address, whose VTEP is not known yet: the rest is on its
            // way.
            let is_coming = tables.is_known(*mac) && !tables.is_local(*mac) && tables.remote(*mac).is_none();
            if !tables.is_local_as(*mac, address.sticky) && !is_coming {
                acts.push(Act::AddAddress { mac: *mac, sticky: address.sticky, moves: tables.is_known(*mac) });
            }
            let missing = address.ips.iter().filter(|(ip, router)| self.is_missing(**ip, *mac, **router, tables));
            acts.extend(missing.map(|(ip, router)| Act::AddNeighbor(*ip, *mac, *router)));
        }
        // zebra wants to know an address before its neighbours, and to lose the neighbours first.
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
