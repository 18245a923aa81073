//! What a switch knows of groups, for those who forward frames.

use std::collections::HashMap;
use std::net::IpAddr;

use netvale_wire::MacAddr;

use super::address::{self, Family};
use super::portset::PortSet;

/// Where frames for groups go. It never changes, so that any number of workers can read one; a look-up takes one or two
/// probes of a hash table. The hash is keyed, since those who join groups choose their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Members and routers, for each VLAN and MAC address with members.
    members: HashMap<(u16, MacAddr), PortSet>,
    /// The VLANs in which groups are kept apart.
    domains: HashMap<(u16, Family), Routers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Routers {
    routers: PortSet,
    /// Those and the ports that joined more groups than are kept.
    everything: PortSet,
}

impl Groups {
    /// Where a frame to `mac` goes in `vlan`, but for the port that it came from. `None`: to all ports, for the reasons
    /// in [the table](super). The ports need not be in the VLAN any more.
    #[inline]
    pub fn ports(&self, vlan: u16, mac: MacAddr) -> Option<&PortSet> {
        let family = Family::of_mac(mac)?;
        if address::is_flooded(mac) {
            return None;
        }
        self.members.get(&(vlan, mac)).or_else(|| self.domains.get(&(vlan, family)).map(|domain| &domain.everything))
    }

    /// The same for the frame that starts with `head`.
    #[inline]
    pub fn ports_of(&self, vlan: u16, head: &[u8]) -> Option<&PortSet> {
        self.ports(vlan, MacAddr(*head.first_chunk()?))
    }

    /// Where a report goes in `vlan` (see [`super::Message::Report`]): to the ports of routers. `None`: to all ports.
    pub fn routers(&self, vlan: u16, family: Family) -> Option<&PortSet> {
        self.domains.get(&(vlan, family)).map(|domain| &domain.routers)
    }

    /// The groups of a domain are kept apart from here on.
    pub(super) fn add_domain(&mut self, vlan: u16, family: Family, routers: PortSet, everything: PortSet) {
        self.domains.insert((vlan, family), Routers { routers, everything });
    }

    /// Adds a group, unless its domain was not.
    pub(super) fn add_members(&mut self, vlan: u16, group: IpAddr, members: PortSet) {
        if let Some(domain) = self.domains.get(&(vlan, Family::of(group))) {
            let ports = self.members.entry((vlan, address::mac_of(group))).or_insert(domain.everything);
            *ports = ports.union(members);
        }
    }
}
