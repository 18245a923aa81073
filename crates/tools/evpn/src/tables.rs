//! The kernel's tables for one VNI ([`Tables`]), kept current by notifications. A *key* ([`EntryKey`]) identifies an
//! entry; a [`Fact`] is an entry's content.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use netvale_control::types::Mac;

use crate::{MAX_ADDRESSES, MAX_NEIGHBORS, MAX_VTEPS};

/// The bridge port of the mirror behind which a MAC address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPlace {
    /// The VXLAN device: the address is remote according to zebra.
    Tunnel,
    /// The port for local addresses: the agent added the address.
    Local {
        /// Whether the address is sticky: EVPN announces it as an address that does not move.
        sticky: bool,
    },
}

/// Where a remote MAC address is, as zebra has entered it in the VXLAN device's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The VTEP behind which the address is.
    pub vtep: IpAddr,
    /// Whether the address is sticky: EVPN announces it as an address that does not move.
    pub sticky: bool,
}

/// The neighbour entry of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborEntry {
    /// The MAC address.
    pub mac: Mac,
    /// Whether zebra has added the entry for a remote address.
    pub remote: bool,
    /// Whether the neighbour is a router.
    pub router: bool,
}

/// The identity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// A VTEP on the flood list.
    Vtep(IpAddr),
    /// A MAC address, for its entries in both forwarding tables.
    Address(Mac),
    /// An IP address, for its neighbour entry.
    Neighbor(IpAddr),
}

/// An entry of the kernel's tables, without the device to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// In the bridge's table: the port behind which a MAC address is.
    Place(Mac, AddressPlace),
    /// In the VXLAN device's table: the VTEP behind which a MAC address is.
    Remote(Mac, RemoteAddress),
    /// In the VXLAN device's table: a VTEP to which frames are flooded.
    Flood(IpAddr),
    /// In the neighbour table: the entry of an IP address; `None` if the IP address no longer has an entry.
    Neighbor(IpAddr, Option<NeighborEntry>),
}

/// The tables of one VNI.
///
/// The VXLAN device keeps its entry of a MAC address that has become local; only the bridge's entry shows where the
/// address is. Therefore, an address is remote only if the VXLAN device has an entry for it and the bridge has it
/// behind the VXLAN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    places: HashMap<Mac, AddressPlace>,
    remotes: HashMap<Mac, RemoteAddress>,
    flood: BTreeSet<IpAddr>,
    neighbors: HashMap<IpAddr, NeighborEntry>,
    /// Number of entries that refer to each VTEP: entries of remote MAC addresses, and the entry on the flood list.
    vteps: HashMap<IpAddr, usize>,
    refused: u64,
}

impl Tables {
    /// Adds or changes an entry. Returns the entry's key if its state may have changed.
    pub fn put(&mut self, fact: Fact) -> Option<EntryKey> {
        match fact {
            Fact::Place(mac, place) => {
                self.room(self.places.len() < MAX_ADDRESSES * 2 || self.places.contains_key(&mac))?;
                (self.places.insert(mac, place) != Some(place)).then_some(EntryKey::Address(mac))
            }
            Fact::Remote(mac, remote) => self.put_remote(mac, remote),
            Fact::Flood(vtep) => {
                self.room(self.has_room_for(vtep))?;
                self.flood.insert(vtep).then(|| self.count(vtep))?;
                Some(EntryKey::Vtep(vtep))
            }
            Fact::Neighbor(ip, None) => self.neighbors.remove(&ip).map(|_| EntryKey::Neighbor(ip)),
            Fact::Neighbor(ip, Some(neighbor)) => {
                self.room(self.neighbors.len() < MAX_NEIGHBORS * 2 || self.neighbors.contains_key(&ip))?;
                (self.neighbors.insert(ip, neighbor) != Some(neighbor)).then_some(EntryKey::Neighbor(ip))
            }
        }
    }

    /// Removes an entry, unless its address has meanwhile moved between the VXLAN device and the local port, or to
    /// another VTEP. The neighbour entry of an IP address is removed in any case. Returns the key if an entry was
    /// removed.
    pub fn take(&mut self, fact: Fact) -> Option<EntryKey> {
        match fact {
            Fact::Place(mac, place) => {
                let is_there = |there: &AddressPlace| {
                    matches!(there, AddressPlace::Tunnel) == matches!(place, AddressPlace::Tunnel)
                };
                self.places.get(&mac).is_some_and(is_there).then(|| self.places.remove(&mac))?;
                Some(EntryKey::Address(mac))
            }
            Fact::Remote(mac, remote) => {
                (self.remotes.get(&mac)?.vtep == remote.vtep).then(|| self.drop_remote(mac))?;
                Some(EntryKey::Address(mac))
            }
            Fact::Flood(vtep) => {
                self.flood.remove(&vtep).then(|| self.uncount(vtep))?;
                Some(EntryKey::Vtep(vtep))
            }
            Fact::Neighbor(ip, _) => self.neighbors.remove(&ip).map(|_| EntryKey::Neighbor(ip)),
        }
    }

    /// Applies all entries that were read from the kernel. If `is_whole` is set, entries that are not in `facts` are
    /// removed; otherwise such entries stay, since the dump may have omitted them.
    pub fn read(&mut self, facts: Vec<Fact>, is_whole: bool) {
        // If there are too many entries, entries that the tables already have take precedence.
        let (before, new): (Vec<Fact>, Vec<Fact>) = facts.into_iter().partition(|fact| self.has_like(fact));
        if is_whole {
            *self = Tables::default();
        }
        self.refused = 0;
        before.into_iter().chain(new).for_each(|fact| _ = self.put(fact));
    }

    fn put_remote(&mut self, mac: Mac, remote: RemoteAddress) -> Option<EntryKey> {
        let is_known = self.remotes.contains_key(&mac);
        if self.room((is_known || self.remotes.len() < MAX_ADDRESSES) && self.has_room_for(remote.vtep)).is_none() {
            // There is no room for the new VTEP, and the address is no longer behind its previous VTEP. The entry of
            // the address is removed, so that frames to the address are flooded.
            return is_known.then(|| self.drop_remote(mac)).map(|()| EntryKey::Address(mac));
        }
        let before = self.remotes.insert(mac, remote);
        self.count(remote.vtep);
        before.iter().for_each(|before| self.uncount(before.vtep));
        (before != Some(remote)).then_some(EntryKey::Address(mac))
    }

    fn drop_remote(&mut self, mac: Mac) {
        if let Some(RemoteAddress { vtep, .. }) = self.remotes.remove(&mac) {
            self.uncount(vtep);
        }
    }

    fn count(&mut self, vtep: IpAddr) {
        *self.vteps.entry(vtep).or_default() += 1;
    }

    fn uncount(&mut self, vtep: IpAddr) {
        if let Some(count) = self.vteps.get_mut(&vtep) {
            *count -= 1;
            if *count == 0 {
                self.vteps.remove(&vtep);
            }
        }
    }

    /// Returns whether there is room for a VTEP. As in the daemon, the limit counts all VTEPs, regardless of whether
    /// they are on the flood list.
    fn has_room_for(&self, vtep: IpAddr) -> bool {
        self.vteps.len() < MAX_VTEPS || self.vteps.contains_key(&vtep)
    }

    /// Returns whether there is room for entries of every kind.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.vteps.len() < MAX_VTEPS
            && self.remotes.len() < MAX_ADDRESSES
            && self.places.len() < MAX_ADDRESSES * 2
            && self.neighbors.len() < MAX_NEIGHBORS * 2
    }

    /// Returns whether the table to which `fact` belongs has an entry for the same address.
    #[must_use]
    pub fn has_like(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Place(mac, _) => self.places.contains_key(mac),
            Fact::Remote(mac, _) => self.remotes.contains_key(mac),
            Fact::Flood(vtep) => self.flood.contains(vtep),
            Fact::Neighbor(ip, _) => self.neighbors.contains_key(ip),
        }
    }

    fn room(&mut self, there_is: bool) -> Option<()> {
        self.refused += u64::from(!there_is);
        there_is.then_some(())
    }

    /// Returns the VTEP and the stickiness of a remote MAC address; `None` if the address is not remote.
    #[must_use]
    pub fn remote(&self, mac: Mac) -> Option<RemoteAddress> {
        self.remotes.get(&mac).copied().filter(|_| self.places.get(&mac) == Some(&AddressPlace::Tunnel))
    }

    /// Returns whether a MAC address is local, which means behind the mirror's port for local addresses.
    #[must_use]
    pub fn is_local(&self, mac: Mac) -> bool {
        matches!(self.places.get(&mac), Some(AddressPlace::Local { .. }))
    }

    /// Returns whether a MAC address is local, with the given stickiness.
    #[must_use]
    pub fn is_local_as(&self, mac: Mac, sticky: bool) -> bool {
        self.places.get(&mac) == Some(&AddressPlace::Local { sticky })
    }

    /// Returns whether the bridge has an entry for a MAC address, local or remote.
    #[must_use]
    pub fn is_known(&self, mac: Mac) -> bool {
        self.places.contains_key(&mac)
    }

    /// Returns whether frames are flooded to the VTEP.
    #[must_use]
    pub fn floods_to(&self, vtep: IpAddr) -> bool {
        self.flood.contains(&vtep)
    }

    /// Returns the neighbour entry of an IP address; `None` if it has none.
    #[must_use]
    pub fn neighbor(&self, ip: IpAddr) -> Option<NeighborEntry> {
        self.neighbors.get(&ip).copied()
    }

    /// Returns the local MAC addresses.
    pub fn locals(&self) -> impl Iterator<Item = Mac> {
        self.places.iter().filter(|(_, place)| matches!(place, AddressPlace::Local { .. })).map(|(mac, _)| *mac)
    }

    /// Returns the IP addresses of local MAC addresses, each with its MAC address.
    pub fn local_neighbors(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.neighbors.iter().filter(|(_, n)| !n.remote).map(|(ip, n)| (*ip, n.mac))
    }

    /// Returns the remote MAC addresses, each with its VTEP.
    pub fn remotes(&self) -> impl Iterator<Item = (Mac, RemoteAddress)> {
        self.remotes.keys().filter_map(|mac| Some((*mac, self.remote(*mac)?)))
    }

    /// Returns all IP addresses with their neighbour entries.
    pub fn neighbors(&self) -> impl Iterator<Item = (IpAddr, NeighborEntry)> {
        self.neighbors.iter().map(|(ip, neighbor)| (*ip, *neighbor))
    }

    /// Returns the flood list.
    pub fn flood(&self) -> impl Iterator<Item = IpAddr> {
        self.flood.iter().copied()
    }

    /// Returns the keys of all entries.
    pub fn keys(&self) -> impl Iterator<Item = EntryKey> {
        let addresses = self.places.keys().copied().map(EntryKey::Address);
        let neighbors = self.neighbors.keys().copied().map(EntryKey::Neighbor);
        self.flood.iter().copied().map(EntryKey::Vtep).chain(addresses).chain(neighbors)
    }

    /// Returns the number of entries that were refused for lack of room after the last [`Tables::read`].
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn remote(last: u8) -> RemoteAddress {
        RemoteAddress { vtep: IpAddr::from([10, 0, 0, last]), sticky: false }
    }

    /// Objective: a MAC address is remote only while bridge and VXLAN device agree; an address that has become local is
    /// not remote, although the VXLAN device keeps its entry for the address.
    #[test]
    fn an_address_is_remote_only_while_both_say_so() {
        let mut tables = Tables::default();
        assert_eq!(tables.put(Fact::Remote(MAC, remote(2))), Some(EntryKey::Address(MAC)));
        assert_eq!(tables.remote(MAC), None);
        tables.put(Fact::Place(MAC, AddressPlace::Tunnel));
        assert_eq!(tables.remote(MAC), Some(remote(2)));
        tables.put(Fact::Place(MAC, AddressPlace::Local { sticky: false }));
        assert_eq!((tables.remote(MAC), tables.is_local(MAC)), (None, true));
        tables.put(Fact::Remote(MAC, remote(3)));
        tables.put(Fact::Place(MAC, AddressPlace::Tunnel));
        assert_eq!((tables.remote(MAC), tables.is_local(MAC)), (Some(remote(3)), false));
    }

    /// Objective: a late notification that an earlier entry was removed changes nothing, and neither does an entry that
    /// the tables already have.
    #[test]
    fn a_late_removal_changes_nothing() {
        let mut tables = Tables::default();
        tables.put(Fact::Remote(MAC, remote(3)));
        tables.put(Fact::Place(MAC, AddressPlace::Tunnel));
        assert_eq!(tables.take(Fact::Remote(MAC, remote(2))), None);
        assert_eq!(tables.take(Fact::Place(MAC, AddressPlace::Local { sticky: false })), None);
        assert_eq!(tables.put(Fact::Remote(MAC, remote(3))), None);
        assert_eq!(tables.remote(MAC), Some(remote(3)));
        assert_eq!(tables.take(Fact::Place(MAC, AddressPlace::Tunnel)), Some(EntryKey::Address(MAC)));
        assert_eq!(tables.remote(MAC), None);
    }

    /// Objective: entries in excess of the limit are counted; existing entries can still change.
    #[test]
    fn entries_beyond_the_limit_are_counted() {
        let mut tables = Tables::default();
        let vtep = |n: usize| IpAddr::from(u32::try_from(n + 1).unwrap().to_be_bytes());
        (0..MAX_VTEPS).for_each(|n| assert!(tables.put(Fact::Flood(vtep(n))).is_some()));
        assert_eq!(tables.put(Fact::Flood(vtep(MAX_VTEPS))), None);
        assert_eq!(tables.put(Fact::Flood(vtep(0))), None);
        assert_eq!(tables.refused(), 1);
        assert!(!tables.has_room());
        assert!(tables.take(Fact::Flood(vtep(0))).is_some() && tables.has_room());
        assert!(tables.put(Fact::Flood(vtep(MAX_VTEPS))).is_some());
    }

    /// Objective: reading the tables removes entries only if the reading is complete, and resets the count of entries
    /// that were refused for lack of room.
    #[test]
    fn only_a_complete_reading_replaces_entries() {
        let mut tables = Tables::default();
        let other = Mac([2, 0, 0, 0, 0, 2]);
        for fact in [Fact::Remote(MAC, remote(2)), Fact::Place(MAC, AddressPlace::Tunnel), Fact::Flood(remote(2).vtep)]
        {
            tables.put(fact);
        }
        tables.refused = 7;
        let fresh = vec![Fact::Remote(other, remote(3)), Fact::Place(other, AddressPlace::Tunnel)];
        tables.read(fresh.clone(), false);
        assert_eq!((tables.remote(MAC), tables.remote(other)), (Some(remote(2)), Some(remote(3))));
        assert!(tables.floods_to(remote(2).vtep));
        assert_eq!(tables.refused(), 0);
        tables.read(vec![Fact::Remote(MAC, remote(4))], false);
        assert_eq!(tables.remote(MAC), Some(remote(4)));
        tables.read(fresh, true);
        assert_eq!((tables.remote(MAC), tables.remote(other)), (None, Some(remote(3))));
        assert_eq!(tables.flood().count(), 0);
    }

    /// Objective: VTEPs behind which MAC addresses are count against the limit of VTEPs, too, each VTEP once; a MAC
    /// address that moves to a VTEP for which there is no room is removed.
    #[test]
    fn the_limit_includes_the_vteps_of_addresses() {
        let mut tables = Tables::default();
        let at =
            |n: usize| RemoteAddress { vtep: IpAddr::from(u32::try_from(n + 1).unwrap().to_be_bytes()), sticky: false };
        let mac = |n: usize| Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
        (0..MAX_VTEPS).for_each(|n| assert!(tables.put(Fact::Remote(mac(n), at(n))).is_some()));
        tables.put(Fact::Place(mac(0), AddressPlace::Tunnel));
        assert_eq!(tables.put(Fact::Flood(at(MAX_VTEPS).vtep)), None);
        assert!(tables.put(Fact::Flood(at(1).vtep)).is_some());
        assert_eq!((tables.remote(mac(0)), tables.refused()), (Some(at(0)), 1));
        assert_eq!(tables.put(Fact::Remote(mac(0), at(MAX_VTEPS))), Some(EntryKey::Address(mac(0))));
        assert_eq!((tables.remote(mac(0)), tables.refused(), tables.has_room()), (None, 2, true));
        assert!(tables.put(Fact::Remote(mac(0), at(MAX_VTEPS))).is_some());
        assert!(!tables.has_room());
        // A VTEP counts until both of its entries are removed.
        tables.take(Fact::Remote(mac(1), at(1)));
        assert!(!tables.has_room());
        tables.take(Fact::Flood(at(1).vtep));
        assert!(tables.has_room());
    }
}
