//! The kernel's tables for one VNI, kept current by its notifications. A *key* identifies the at most one entry that a
//! table has for it. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use netvale_control::types::Mac;

use crate::{MAX_ADDRESSES, MAX_NEIGHBORS, MAX_VTEPS};

/// The port of the mirror's bridge that an address is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The VXLAN device: zebra reports it as remote.
    Tunnel,
    /// The port for local addresses: the agent put it there.
    Local {
        /// Whether it is announced as sticky.
        sticky: bool,
    },
}

/// A remote address as given to the VXLAN device by zebra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its VTEP.
    pub vtep: IpAddr,
    /// Whether it is announced as sticky.
    pub sticky: bool,
}

/// The owner of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The MAC address.
    pub mac: Mac,
    /// Whether zebra reports it as remote.
    pub remote: bool,
    /// Whether it is a router.
    pub router: bool,
}

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A VTEP of the flood list.
    Vtep(IpAddr),
    /// A MAC address.
    Address(Mac),
    /// An IP address.
    Neighbor(IpAddr),
}

/// One entry, without its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The bridge has an address on a port.
    Place(Mac, Place),
    /// The VXLAN device has an address behind a VTEP.
    Remote(Mac, Remote),
    /// The VXLAN device floods to a VTEP.
    Flood(IpAddr),
    /// An IP address belongs to a MAC address; `None`: not any more.
    Neighbor(IpAddr, Option<Neighbor>),
}

/// The tables of one VNI.
///
/// The VXLAN device keeps its entry of an address that has become local; the bridge's entry gives its actual place. So
/// an address is remote if both say so.
/// address is remote if both say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    places: HashMap<Mac, Place>,
    remotes: HashMap<Mac, Remote>,
    flood: BTreeSet<IpAddr>,
    neighbors: HashMap<IpAddr, Neighbor>,
    /// Number of these entries for each VTEP.
    vteps: HashMap<IpAddr, usize>,
    refused: u64,
}

impl Tables {
    /// Applies an entry. Returns the key that may have changed.
    pub fn put(&mut self, fact: Fact) -> Option<Key> {
        match fact {
            Fact::Place(mac, place) => {
                self.room(self.places.len() < MAX_ADDRESSES * 2 || self.places.contains_key(&mac))?;
                (self.places.insert(mac, place) != Some(place)).then_some(Key::Address(mac))
            }
            Fact::Remote(mac, remote) => self.put_remote(mac, remote),
            Fact::Flood(vtep) => {
                self.room(self.has_room_for(vtep))?;
                self.flood.insert(vtep).then(|| self.count(vtep))?;
                Some(Key::Vtep(vtep))
            }
            Fact::Neighbor(ip, None) => self.neighbors.remove(&ip).map(|_| Key::Neighbor(ip)),
            Fact::Neighbor(ip, Some(neighbor)) => {
                self.room(self.neighbors.len() < MAX_NEIGHBORS * 2 || self.neighbors.contains_key(&ip))?;
                (self.neighbors.insert(ip, neighbor) != Some(neighbor)).then_some(Key::Neighbor(ip))
            }
        }
    }

    /// Removes an entry, unless it has changed since. Returns the key that has changed.
    pub fn take(&mut self, fact: Fact) -> Option<Key> {
        match fact {
            Fact::Place(mac, place) => {
                let is_there = |there: &Place| matches!(there, Place::Tunnel) == matches!(place, Place::Tunnel);
                self.places.get(&mac).is_some_and(is_there).then(|| self.places.remove(&mac))?;
                Some(Key::Address(mac))
            }
            Fact::Remote(mac, remote) => {
                (self.remotes.get(&mac)?.vtep == remote.vtep).then(|| self.drop_remote(mac))?;
                Some(Key::Address(mac))
            }
            Fact::Flood(vtep) => {
                self.flood.remove(&vtep).then(|| self.uncount(vtep))?;
                Some(Key::Vtep(vtep))
            }
            Fact::Neighbor(ip, _) => self.neighbors.remove(&ip).map(|_| Key::Neighbor(ip)),
        }
    }

    /// Applies a reading of the tables. `is_whole`: entries missing from it are gone; otherwise they may have been
    /// omitted, and stay.
    pub fn read(&mut self, facts: Vec<Fact>, is_whole: bool) {
        // If the entries exceed the limits, earlier ones stay.
        let (before, new): (Vec<Fact>, Vec<Fact>) = facts.into_iter().partition(|fact| self.has_like(fact));
        if is_whole {
            *self = Tables::default();
        }
        self.refused = 0;
        before.into_iter().chain(new).for_each(|fact| _ = self.put(fact));
    }

    fn put_remote(&mut self, mac: Mac, remote: Remote) -> Option<Key> {
        let is_known = self.remotes.contains_key(&mac);
        if self.room((is_known || self.remotes.len() < MAX_ADDRESSES) && self.has_room_for(remote.vtep)).is_none() {
            // It has left its former VTEP: frames for it are flooded.
            return is_known.then(|| self.drop_remote(mac)).map(|()| Key::Address(mac));
        }
        let before = self.remotes.insert(mac, remote);
        self.count(remote.vtep);
        before.iter().for_each(|before| self.uncount(before.vtep));
        (before != Some(remote)).then_some(Key::Address(mac))
    }

    fn drop_remote(&mut self, mac: Mac) {
        if let Some(Remote { vtep, .. }) = self.remotes.remove(&mac) {
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

    /// The daemon's limit counts all VTEPs, on the flood list or not.
    fn has_room_for(&self, vtep: IpAddr) -> bool {
        self.vteps.len() < MAX_VTEPS || self.vteps.contains_key(&vtep)
    }

    /// Whether there is room for entries of every kind.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.vteps.len() < MAX_VTEPS
            && self.remotes.len() < MAX_ADDRESSES
            && self.places.len() < MAX_ADDRESSES * 2
            && self.neighbors.len() < MAX_NEIGHBORS * 2
    }

    /// Whether an entry with the same key exists.
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

    /// The place of an address, if remote.
    #[must_use]
    pub fn remote(&self, mac: Mac) -> Option<Remote> {
        self.remotes.get(&mac).copied().filter(|_| self.places.get(&mac) == Some(&Place::Tunnel))
    }

    /// Whether the mirror has it as a local address.
    #[must_use]
    pub fn is_local(&self, mac: Mac) -> bool {
        matches!(self.places.get(&mac), Some(Place::Local { .. }))
    }

    /// Whether the mirror has it as a local address, sticky or not as given.
    #[must_use]
    pub fn is_local_as(&self, mac: Mac, sticky: bool) -> bool {
        self.places.get(&mac) == Some(&Place::Local { sticky })
    }

    /// Whether the bridge has any entry for it.
    #[must_use]
    pub fn is_known(&self, mac: Mac) -> bool {
        self.places.contains_key(&mac)
    }

    /// Whether frames are flooded to it.
    #[must_use]
    pub fn floods_to(&self, vtep: IpAddr) -> bool {
        self.flood.contains(&vtep)
    }

    /// The owner of an IP address.
    #[must_use]
    pub fn neighbor(&self, ip: IpAddr) -> Option<Neighbor> {
        self.neighbors.get(&ip).copied()
    }

    /// The local addresses.
    pub fn locals(&self) -> impl Iterator<Item = Mac> {
        self.places.iter().filter(|(_, place)| matches!(place, Place::Local { .. })).map(|(mac, _)| *mac)
    }

    /// The IP addresses of local addresses.
    pub fn local_neighbors(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.neighbors.iter().filter(|(_, n)| !n.remote).map(|(ip, n)| (*ip, n.mac))
    }

    /// The remote addresses.
    pub fn remotes(&self) -> impl Iterator<Item = (Mac, Remote)> {
        self.remotes.keys().filter_map(|mac| Some((*mac, self.remote(*mac)?)))
    }

    /// The IP addresses with their owners.
    pub fn neighbors(&self) -> impl Iterator<Item = (IpAddr, Neighbor)> {
        self.neighbors.iter().map(|(ip, neighbor)| (*ip, *neighbor))
    }

    /// The flood list.
    pub fn flood(&self) -> impl Iterator<Item = IpAddr> {
        self.flood.iter().copied()
    }

    /// The keys of all entries.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let addresses = self.places.keys().copied().map(Key::Address);
        let neighbors = self.neighbors.keys().copied().map(Key::Neighbor);
        self.flood.iter().copied().map(Key::Vtep).chain(addresses).chain(neighbors)
    }

    /// Number of entries refused for lack of room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn remote(last: u8) -> Remote {
        Remote { vtep: IpAddr::from([10, 0, 0, last]), sticky: false }
    }

    /// Objective: an address is remote only while bridge and VXLAN device agree; one that became local is not, though
    /// the VXLAN device keeps its entry.
    #[test]
    fn both_say_so() {
        let mut tables = Tables::default();
        assert_eq!(tables.put(Fact::Remote(MAC, remote(2))), Some(Key::Address(MAC)));
        assert_eq!(tables.remote(MAC), None);
        tables.put(Fact::Place(MAC, Place::Tunnel));
        assert_eq!(tables.remote(MAC), Some(remote(2)));
        tables.put(Fact::Place(MAC, Place::Local { sticky: false }));
        assert_eq!((tables.remote(MAC), tables.is_local(MAC)), (None, true));
        tables.put(Fact::Remote(MAC, remote(3)));
        tables.put(Fact::Place(MAC, Place::Tunnel));
        assert_eq!((tables.remote(MAC), tables.is_local(MAC)), (Some(remote(3)), false));
    }

    /// Objective: removal takes the current entry: a late notification of an earlier place changes nothing. An
    /// identical entry changes nothing.
    #[test]
    fn late() {
        let mut tables = Tables::default();
        tables.put(Fact::Remote(MAC, remote(3)));
        tables.put(Fact::Place(MAC, Place::Tunnel));
        assert_eq!(tables.take(Fact::Remote(MAC, remote(2))), None);
        assert_eq!(tables.take(Fact::Place(MAC, Place::Local { sticky: false })), None);
        assert_eq!(tables.put(Fact::Remote(MAC, remote(3))), None);
        assert_eq!(tables.remote(MAC), Some(remote(3)));
        assert_eq!(tables.take(Fact::Place(MAC, Place::Tunnel)), Some(Key::Address(MAC)));
        assert_eq!(tables.remote(MAC), None);
    }

    /// Objective: entries beyond the limit are counted; existing ones can still change.
    #[test]
    fn bounded() {
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

    /// Objective: a reading replaces the known entries only if none can be missing from it; entries without room are
    /// counted anew.
    #[test]
    fn read() {
        let mut tables = Tables::default();
        let other = Mac([2, 0, 0, 0, 0, 2]);
        for fact in [Fact::Remote(MAC, remote(2)), Fact::Place(MAC, Place::Tunnel), Fact::Flood(remote(2).vtep)] {
            tables.put(fact);
        }
        tables.refused = 7;
        let fresh = vec![Fact::Remote(other, remote(3)), Fact::Place(other, Place::Tunnel)];
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

    /// Objective: the limit of VTEPs includes those of addresses, each once; an address that moves to one beyond the
    /// limit has no place.
    #[test]
    fn vteps() {
        let mut tables = Tables::default();
        let at = |n: usize| Remote { vtep: IpAddr::from(u32::try_from(n + 1).unwrap().to_be_bytes()), sticky: false };
        let mac = |n: usize| Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
        (0..MAX_VTEPS).for_each(|n| assert!(tables.put(Fact::Remote(mac(n), at(n))).is_some()));
        tables.put(Fact::Place(mac(0), Place::Tunnel));
        assert_eq!(tables.put(Fact::Flood(at(MAX_VTEPS).vtep)), None);
        assert!(tables.put(Fact::Flood(at(1).vtep)).is_some());
        assert_eq!((tables.remote(mac(0)), tables.refused()), (Some(at(0)), 1));
        assert_eq!(tables.put(Fact::Remote(mac(0), at(MAX_VTEPS))), Some(Key::Address(mac(0))));
        assert_eq!((tables.remote(mac(0)), tables.refused(), tables.has_room()), (None, 2, true));
        assert!(tables.put(Fact::Remote(mac(0), at(MAX_VTEPS))).is_some());
        assert!(!tables.has_room());
        // Both entries of a VTEP must be removed.
        tables.take(Fact::Remote(mac(1), at(1)));
        assert!(!tables.has_room());
        tables.take(Fact::Flood(at(1).vtep));
        assert!(tables.has_room());
    }
}
