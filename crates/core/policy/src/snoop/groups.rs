//! A snapshot of a switch's groups, for forwarding.

use std::collections::HashMap;
use std::net::IpAddr;

use netvale_wire::MacAddr;

use super::address::{self, GroupFamily};
use super::portset::PortSet;

/// The destinations of frames to groups. It is immutable, so any number of workers can read it. A look-up takes one or
/// two probes of a hash table, whose hash is keyed, as members choose the addresses of their groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnoopGroups {
    /// The ports of members and routers, for each VLAN and MAC address with members.
    members: HashMap<(u16, MacAddr), PortSet>,
    /// The routers for each VLAN and family in which frames for groups go only to members and routers.
    domains: HashMap<(u16, GroupFamily), Routers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Routers {
    routers: PortSet,
    /// The ports of routers, and the ports whose groups are not all recorded.
    everything: PortSet,
}

impl SnoopGroups {
    /// Returns the destinations of a frame to `mac` in `vlan`, which may include its source port and ports that have
    /// left the VLAN. `None` for all ports, for the reasons in [the table](super).
    #[inline]
    pub fn ports(&self, vlan: u16, mac: MacAddr) -> Option<&PortSet> {
        let family = GroupFamily::of_mac(mac)?;
        if address::is_flooded(mac) {
            return None;
        }
        self.members.get(&(vlan, mac)).or_else(|| self.domains.get(&(vlan, family)).map(|domain| &domain.everything))
    }

    /// Like [`SnoopGroups::ports`], for the frame that starts with `head`.
    #[inline]
    pub fn ports_of(&self, vlan: u16, head: &[u8]) -> Option<&PortSet> {
        self.ports(vlan, MacAddr(*head.first_chunk()?))
    }

    /// Returns the destinations of a report in `vlan` ([`super::MessageClass::Report`]), the ports of routers; `None`
    /// for all ports.
    pub fn routers(&self, vlan: u16, family: GroupFamily) -> Option<&PortSet> {
        self.domains.get(&(vlan, family)).map(|domain| &domain.routers)
    }

    /// Adds a VLAN and family in which frames for groups go only to members and routers.
    pub(super) fn add_domain(&mut self, vlan: u16, family: GroupFamily, routers: PortSet, everything: PortSet) {
        self.domains.insert((vlan, family), Routers { routers, everything });
    }

    /// Adds members of a group, if the group's VLAN and family were added before.
    pub(super) fn add_members(&mut self, vlan: u16, group: IpAddr, members: PortSet) {
        if let Some(domain) = self.domains.get(&(vlan, GroupFamily::of(group))) {
            let ports = self.members.entry((vlan, address::mac_of(group))).or_insert(domain.everything);
            *ports = ports.union(members);
        }
    }
}
