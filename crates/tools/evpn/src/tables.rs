//! What the kernel's tables hold for one VNI, kept up by its notifications. A *key* is what a table has at most one
//! entry for. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use netvale_control::types::Mac;

use crate::{MAX_ADDRESSES, MAX_NEIGHBORS, MAX_VTEPS};

/// Behind which port of the mirror's bridge an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The VXLAN device: zebra says it is remote.
    Tunnel,
    /// The port for local addresses: the agent has put it there.
    Local {
        /// Whether it is announced as one that does not move.
        sticky: bool,
    },
}

/// A remote address as zebra has given it to the VXLAN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The VTEP behind which it is.
    pub vtep: IpAddr,
    /// Whether it is announced as one that does not move.
    pub sticky: bool,
}

/// Whose an IP address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The MAC address.
    pub mac: Mac,
    /// Whether zebra says that it is remote.
    pub remote: bool,
    /// Whether it is a router.
    pub router: bool,
}

/// What a table has an entry for.
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
    /// The bridge has an address behind a port.
    Place(Mac, Place),
    /// The VXLAN device has an address behind a VTEP.
    Remote(Mac, Remote),
    /// The VXLAN device floods to a VTEP.
    Flood(IpAddr),
    /// An IP address is a MAC address's; none: not any more.
    Neighbor(IpAddr, Option<Neighbor>),
}

/// The tables of one VNI.
///
/// The VXLAN device keeps its entry of an address that has become local; the bridge's says where it really is. So an
/// address is remote if both say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    places: HashMap<Mac, Place>,
    remotes: HashMap<Mac, Remote>,
    flood: BTreeSet<IpAddr>,
    neighbors: HashMap<IpAddr, Neighbor>,
    /// How many of these entries each VTEP has.
    vteps: HashMap<IpAddr, usize>,
    refused: u64,
}

impl Tables {
    /// Takes an entry in. Returns what may have changed.
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

    /// Takes an entry out, if it is still that one. Returns what has changed.
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

    /// Takes in all that was read. `is_whole`: what is not among it is gone; otherwise it may have been left out, and
    /// stays.
    pub fn read(&mut self, facts: Vec<Fact>, is_whole: bool) {
        // If there are too many, those that were there before stay.
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
            // Where it was, it is not any more: frames for it go to all.
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

    /// The daemon's limit is of all VTEPs, whether they get what goes to all or not.
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

    /// Whether an entry for the same is there.
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

    /// Where an address is if it is remote.
    #[must_use]
    pub fn remote(&self, mac: Mac) -> Option<Remote> {
        self.remotes.get(&mac).copied().filter(|_| self.places.get(&mac) == Some(&Place::Tunnel))
    }

    /// Whether the mirror has it as a local one.
    #[must_use]
    pub fn is_local(&self, mac: Mac) -> bool {
        matches!(self.places.get(&mac), Some(Place::Local { .. }))
    }

    /// The same, as one that does not move or as one that may.
    #[must_use]
    pub fn is_local_as(&self, mac: Mac, sticky: bool) -> bool {
        self.places.get(&mac) == Some(&Place::Local { sticky })
    }

    /// Whether a bridge's entry of any kind is known for it.
    #[must_use]
    pub fn is_known(&self, mac: Mac) -> bool {
        self.places.contains_key(&mac)
    }

    /// Whether frames for all go there.
    #[must_use]
    pub fn floods_to(&self, vtep: IpAddr) -> bool {
        self.flood.contains(&vtep)
    }

    /// Whose an IP address is.
    #[must_use]
    pub fn neighbor(&self, ip: IpAddr) -> Option<Neighbor> {
        self.neighbors.get(&ip).copied()
    }

    /// The local addresses.
    pub fn locals(&self) -> impl Iterator<Item = Mac> {
        self.places.iter().filter(|(_, place)| matches!(place, Place::Local { .. })).map(|(mac, _)| *mac)
    }

    /// The IP addresses of local ones.
    pub fn local_neighbors(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        self.neighbors.iter().filter(|(_, n)| !n.remote).map(|(ip, n)| (*ip, n.mac))
    }

    /// The remote addresses.
    pub fn remotes(&self) -> impl Iterator<Item = (Mac, Remote)> {
        self.remotes.keys().filter_map(|mac| Some((*mac, self.remote(*mac)?)))
    }

    /// The IP addresses and whose they are.
    pub fn neighbors(&self) -> impl Iterator<Item = (IpAddr, Neighbor)> {
        self.neighbors.iter().map(|(ip, neighbor)| (*ip, *neighbor))
    }

    /// The flood list.
    pub fn flood(&self) -> impl Iterator<Item = IpAddr> {
        self.flood.iter().copied()
    }

    /// All that an entry is known for.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let addresses = self.places.keys().copied().map(Key::Address);
        let neighbors = self.neighbors.keys().copied().map(Key::Neighbor);
        self.flood.iter().copied().map(Key::Vtep).chain(addresses).chain(neighbors)
    }

    /// Entries that were not taken since there was no room.
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

    /// Objective: what is taken out must be what is there: a late notification of an earlier place changes nothing.
    /// What is the same changes nothing.
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

    /// Objective: there is a limit, and what is beyond it is counted; what is there can still change.
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

    /// Objective: what was read replaces what was known, but only if nothing can have been left out; what there was no
    /// room for is counted anew.
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

    /// Objective: the limit of VTEPs counts those of addresses, too, each once; an address that moves to one beyond it
    /// is nowhere.
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
        // Both entries of a VTEP have to go.
        tables.take(Fact::Remote(mac(1), at(1)));
        assert!(!tables.has_room());
        tables.take(Fact::Flood(at(1).vtep));
        assert!(tables.has_room());
    }
}
