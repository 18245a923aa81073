//! A snapshot of a switch's groups, for forwarding.
//!
//! A snapshot contains each set of ports once, and identifies it by a *number*, which is the result of a look-up.

use std::collections::HashMap;
use std::net::IpAddr;

use netvale_wire::MacAddr;

use super::address::{self, GroupFamily};
use super::portset::PortSet;

/// The number of a set of ports in one [`SnoopGroups`].
pub type SetNumber = u32;

/// The destinations of frames to groups. It is immutable, so any number of workers can read it. A look-up takes one or
/// two probes of a hash table, whose hash is keyed, as members choose the addresses of their groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnoopGroups {
    /// All sets of ports. Frames refer to them by number, so that no set is copied while frames pass.
    sets: Vec<PortSet>,
    /// The ports of members and routers, for each VLAN and MAC address with members.
    members: HashMap<(u16, MacAddr), SetNumber>,
    /// The routers, by VLAN and family. Only a VLAN and family in which frames for groups go to nobody but members and
    /// routers has an entry.
    domains: HashMap<(u16, GroupFamily), Routers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Routers {
    routers: SetNumber,
    /// The ports of routers, and the ports whose groups are not all recorded.
    everything: SetNumber,
}

impl SnoopGroups {
    /// Returns the destinations of a frame to `mac` in `vlan`, which may include its source port and ports that have
    /// left the VLAN. `None` for all ports, for the reasons in [the table](super).
    #[inline]
    pub fn ports(&self, vlan: u16, mac: MacAddr) -> Option<SetNumber> {
        let family = GroupFamily::of_mac(mac)?;
        if address::is_flooded(mac) {
            return None;
        }
        let members = self.members.get(&(vlan, mac)).copied();
        members.or_else(|| self.domains.get(&(vlan, family)).map(|domain| domain.everything))
    }

    /// Like [`SnoopGroups::ports`], for the frame that starts with `head`.
    #[inline]
    pub fn ports_of(&self, vlan: u16, head: &[u8]) -> Option<SetNumber> {
        self.ports(vlan, MacAddr(*head.first_chunk()?))
    }

    /// Returns the destinations of a report in `vlan` ([`super::MessageClass::Report`]), the ports of routers; `None`
    /// for all ports.
    pub fn routers(&self, vlan: u16, family: GroupFamily) -> Option<SetNumber> {
        self.domains.get(&(vlan, family)).map(|domain| domain.routers)
    }

    /// The set with this number; `None` if there is no such set.
    #[inline]
    pub fn set(&self, number: SetNumber) -> Option<&PortSet> {
        self.sets.get(number as usize)
    }

    /// Adds a VLAN and family in which frames for groups go only to members and routers.
    pub(super) fn add_domain(&mut self, vlan: u16, family: GroupFamily, routers: PortSet, everything: PortSet) {
        let routers = self.add(routers);
        let everything = self.add(everything);
        self.domains.insert((vlan, family), Routers { routers, everything });
    }

    /// Adds members of a group, if the group's VLAN and family were added before.
    pub(super) fn add_members(&mut self, vlan: u16, group: IpAddr, members: &PortSet) {
        let Some(domain) = self.domains.get(&(vlan, GroupFamily::of(group))) else { return };
        let key = (vlan, address::mac_of(group));
        let known = self.members.get(&key).copied();
        let ports = self.sets[known.unwrap_or(domain.everything) as usize].union(members);
        match known {
            Some(known) => self.sets[known as usize] = ports,
            None => {
                let number = self.add(ports);
                self.members.insert(key, number);
            }
        }
    }

    fn add(&mut self, set: PortSet) -> SetNumber {
        self.sets.push(set);
        (self.sets.len() - 1) as SetNumber
    }
}
