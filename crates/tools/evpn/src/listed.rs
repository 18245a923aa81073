//! The local MAC addresses of a VNI, with their IP addresses, in the daemon's list ([`ListedState`]), and the changes
//! that the kernel's tables need to match the list.
//!
//! BGP decides where a MAC address is. An address that zebra has made remote becomes local again only if the daemon
//! lists it again, which the daemon does after receiving a new frame from the address.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use netvale_control::types::{LocalAddress, Mac};

use crate::entry::{is_host, is_station};
use crate::tables::{EntryKey, NeighborEntry, Tables};
use crate::{MAX_ADDRESSES, MAX_IPS_OF_ADDRESS, MAX_NEIGHBORS};

/// A change of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableChange {
    /// Removes an IP address of a local MAC address.
    RemoveNeighbor(IpAddr),
    /// Removes a local MAC address.
    RemoveAddress(Mac),
    /// Adds a local MAC address.
    AddAddress {
        /// The MAC address.
        mac: Mac,
        /// Whether the address is sticky: EVPN announces it as an address that does not move.
        sticky: bool,
        /// Whether the address may have been remote until now, so that the new entry may replace a remote one.
        moves: bool,
    },
    /// Adds an IP address of a local MAC address. The flag is set if the IP address belongs to a router.
    AddNeighbor(IpAddr, Mac, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ListedAddress {
    /// The IP addresses of the MAC address; the value is `true` if the IP address belongs to a router.
    ips: BTreeMap<IpAddr, bool>,
    sticky: bool,
}

/// The daemon's list of local addresses.
#[derive(Debug, Default)]
pub struct ListedState {
    addresses: HashMap<Mac, ListedAddress>,
    owners: HashMap<IpAddr, Mac>,
    /// IP addresses that zebra has assigned to a remote MAC address, each with the local MAC address that had the IP
    /// address before. The local MAC address may claim the IP address again only after the daemon has removed the MAC
    /// address from the list and listed it again.
    lost: HashMap<IpAddr, Mac>,
    /// MAC addresses that the connected daemon has listed before and no longer lists.
    dropped: HashSet<Mac>,
    is_given: bool,
}

impl ListedState {
    /// Applies a new list, which must have been requested after the daemon had received all remote addresses.
    pub fn take(&mut self, list: Vec<LocalAddress>) {
        let mut fresh = ListedState { is_given: true, lost: std::mem::take(&mut self.lost), ..ListedState::default() };
        for one in list.into_iter().filter(|one| is_station(one.mac)).take(MAX_ADDRESSES) {
            let mut address = ListedAddress { sticky: one.sticky, ..ListedAddress::default() };
            for ip in one.ips.into_iter().filter(|ip| is_host(*ip)).take(MAX_IPS_OF_ADDRESS) {
                // The first MAC address that claims an IP address gets it; the daemon lists each MAC address only once.
                let is_free = fresh.owners.len() < MAX_NEIGHBORS && !fresh.owners.contains_key(&ip);
                if is_free {
                    fresh.owners.insert(ip, one.mac);
                    address.ips.insert(ip, one.routers.contains(&ip));
                }
            }
            fresh.addresses.insert(one.mac, address);
        }
        fresh.lost.retain(|ip, mac| fresh.owners.get(ip) == Some(mac));
        // A newly listed address may claim its IP addresses.
        fresh.lost.retain(|_, mac| self.addresses.contains_key(mac));
        let before = std::mem::take(&mut self.dropped).into_iter().chain(self.addresses.keys().copied());
        fresh.dropped = before.filter(|mac| !fresh.addresses.contains_key(mac)).take(MAX_ADDRESSES).collect();
        *self = fresh;
    }

    /// Records a change by zebra: an address that zebra has made remote does not count as listed until the next list.
    pub fn note(&mut self, key: EntryKey, tables: &Tables) {
        match key {
            EntryKey::Address(mac) if tables.remote(mac).is_some() => {
                self.addresses.remove(&mac);
            }
            EntryKey::Neighbor(ip) if tables.neighbor(ip).is_some_and(|n| n.remote) => {
                if let Some(mac) = self.owners.get(&ip) {
                    self.lost.insert(ip, *mac);
                }
            }
            // The IP address no longer has a MAC address, so a local MAC address may claim it.
            EntryKey::Neighbor(ip) if tables.neighbor(ip).is_none() => {
                self.lost.remove(&ip);
            }
            _ => {}
        }
    }

    /// Drops the list, which was received on an earlier connection.
    pub fn forget(&mut self) {
        *self = ListedState::default();
    }

    /// Returns the changes that the kernel's tables need. With `keeps`, entries that were never listed stay, since the
    /// daemon may have just started and not have learned these addresses yet.
    #[must_use]
    pub fn plan(&self, tables: &Tables, keeps: bool) -> Vec<TableChange> {
        if !self.is_given {
            return Vec::new();
        }
        let mut acts = Vec::new();
        let is_kept = |mac: &Mac| keeps && !self.dropped.contains(mac);
        let gone = tables.locals().filter(|mac| !self.addresses.contains_key(mac) && !is_kept(mac));
        acts.extend(gone.map(TableChange::RemoveAddress));
        let gone = tables.local_neighbors().filter(|(ip, mac)| !self.has(*ip, *mac) && !is_kept(mac));
        acts.extend(gone.map(|(ip, _)| TableChange::RemoveNeighbor(ip)));
        for (mac, address) in &self.addresses {
            // If this is true, the bridge already has the address as a remote one, and a notification about the VXLAN
            // device's entry, with the VTEP, will follow.
            let is_coming = tables.is_known(*mac) && !tables.is_local(*mac) && tables.remote(*mac).is_none();
            if !tables.is_local_as(*mac, address.sticky) && !is_coming {
                acts.push(TableChange::AddAddress { mac: *mac, sticky: address.sticky, moves: tables.is_known(*mac) });
            }
            let missing = address.ips.iter().filter(|(ip, router)| self.is_missing(**ip, *mac, **router, tables));
            acts.extend(missing.map(|(ip, router)| TableChange::AddNeighbor(*ip, *mac, *router)));
        }
        // zebra must learn an address before its neighbours, and lose it after them.
        acts.sort_unstable();
        acts
    }

    fn has(&self, ip: IpAddr, mac: Mac) -> bool {
        self.addresses.get(&mac).is_some_and(|address| address.ips.contains_key(&ip))
    }

    fn is_missing(&self, ip: IpAddr, mac: Mac, router: bool, tables: &Tables) -> bool {
        let is_there = tables.neighbor(ip) == Some(NeighborEntry { mac, remote: false, router });
        !is_there && !self.lost.contains_key(&ip)
    }
}

#[cfg(test)]
mod tests;
