//! A switch's groups, for forwarding.

use std::collections::HashMap;
use std::net::IpAddr;

use netvale_wire::MacAddr;

use super::address::{self, Family};
use super::portset::PortSet;

/// Destinations of frames for groups. Immutable, so any number of workers can read it; a look-up takes one or two
/// probes of a hash table. The hash is keyed, since members choose their groups' addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Members and routers, for each VLAN and MAC address with members.
    members: HashMap<(u16, MacAddr), PortSet>,
    /// The VLANs in which groups are forwarded separately.
    domains: HashMap<(u16, Family), Routers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Routers {
    routers: PortSet,
    /// The routers' ports, and the ports with more groups than are recorded.
    everything: PortSet,
}

impl Groups {
    /// Destinations of a frame to `mac` in `vlan`, still including its source port. `None`: all ports, for the reasons
    /// in [the table](super). The ports may have left the VLAN.
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

    /// Destinations of a report in `vlan` (see [`super::Message::Report`]): the ports of routers. `None`: all ports.
    pub fn routers(&self, vlan: u16, family: Family) -> Option<&PortSet> {
        self.domains.get(&(vlan, family)).map(|domain| &domain.routers)
    }

    /// Adds a domain whose groups are forwarded separately.
    pub(super) fn add_domain(&mut self, vlan: u16, family: Family, routers: PortSet, everything: PortSet) {
        self.domains.insert((vlan, family), Routers { routers, everything });
    }

    /// Adds a group, unless its domain was not added.
    pub(super) fn add_members(&mut self, vlan: u16, group: IpAddr, members: PortSet) {
        if let Some(domain) = self.domains.get(&(vlan, Family::of(group))) {
            let ports = self.members.entry((vlan, address::mac_of(group))).or_insert(domain.everything);
            *ports = ports.union(members);
        }
    }
}
