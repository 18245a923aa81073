//! Entries of the kernel's tables: a MAC address, a VTEP or a neighbour, parsed from a message and checked.
//!
//! A message becomes a record: an entry that exists or was removed, or a device that changed. Messages of other kinds,
//! and entries that are irrelevant to a mirror, yield no record.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netvale_control::types::Mac;

/// An entry of one of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEntry {
    /// A MAC address in a bridge's forwarding table.
    Bridge {
        /// Interface index of the bridge port behind which the address is.
        device: u32,
        /// The address.
        mac: Mac,
        /// Whether the address is sticky: EVPN announces it as an address that does not move (RFC 7432 section 15.2).
        sticky: bool,
    },
    /// A MAC address in a VXLAN device's forwarding table, with the VTEP behind which it is.
    Remote {
        /// Interface index of the VXLAN device.
        device: u32,
        /// The address.
        mac: Mac,
        /// The VTEP behind which the address is.
        vtep: IpAddr,
        /// Whether the address is sticky: EVPN announces it as an address that does not move (RFC 7432 section 15.2).
        sticky: bool,
    },
    /// A VTEP to which a VXLAN device floods frames.
    Flood {
        /// Interface index of the VXLAN device.
        device: u32,
        /// The address of the VTEP.
        vtep: IpAddr,
    },
    /// A neighbour: an IP address with its MAC address.
    Neighbor {
        /// Interface index of the device that has the neighbour; in a mirror, this device is the bridge.
        device: u32,
        /// The IP address.
        ip: IpAddr,
        /// The MAC address; `None` if the entry is about to be removed.
        mac: Option<Mac>,
        /// Whether zebra added the entry for a remote address.
        remote: bool,
        /// Whether the neighbour is a router.
        router: bool,
    },
}

/// What a notification or a part of a dump reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRecord {
    /// The entry exists; a notification means that it is new or has changed.
    Is(KernelEntry),
    /// The entry was removed.
    Gone(KernelEntry),
    /// The device with this interface index has changed or was removed.
    Device(u32),
}

/// Parses a message. Returns `None` for messages of other kinds and for entries that are irrelevant to a mirror.
#[must_use]
pub fn seen(message: &RouteNetlinkMessage) -> Option<KernelRecord> {
    match message {
        RouteNetlinkMessage::NewNeighbour(m) => entry(m).map(KernelRecord::Is),
        RouteNetlinkMessage::DelNeighbour(m) => entry(m).map(KernelRecord::Gone),
        RouteNetlinkMessage::NewLink(m) | RouteNetlinkMessage::DelLink(m) => Some(KernelRecord::Device(m.header.index)),
        _ => None,
    }
}

fn entry(message: &NeighbourMessage) -> Option<KernelEntry> {
    match message.header.family {
        AddressFamily::Bridge => forwarding(message),
        AddressFamily::Inet | AddressFamily::Inet6 => neighbor(message),
        _ => None,
    }
}

/// Parses an entry of a forwarding table: of the table of a bridge if the message names a bridge, otherwise of the
/// table of a VXLAN device.
fn forwarding(message: &NeighbourMessage) -> Option<KernelEntry> {
    let device = message.header.ifindex;
    let flags = message.header.flags;
    let mac = mac_of(message)?;
    let sticky = flags.contains(NeighbourFlags::Sticky);
    let is_bridges = message.attributes.iter().any(|a| matches!(a, NeighbourAttribute::Controller(_)));
    if is_bridges {
        // Permanent entries are the MAC addresses of the bridge's own ports.
        let is_own = message.header.state == NeighbourState::Permanent;
        return (!is_own && is_station(mac)).then_some(KernelEntry::Bridge { device, mac, sticky });
    }
    let vtep = destination(message).filter(|&vtep| is_host(vtep))?;
    match mac {
        Mac([0, 0, 0, 0, 0, 0]) => Some(KernelEntry::Flood { device, vtep }),
        mac if is_station(mac) => Some(KernelEntry::Remote { device, mac, vtep, sticky }),
        _ => None,
    }
}

fn neighbor(message: &NeighbourMessage) -> Option<KernelEntry> {
    let header = &message.header;
    let ip = destination(message).filter(|&ip| is_host(ip))?;
    let is_valid = !matches!(
        header.state,
        NeighbourState::Failed | NeighbourState::Incomplete | NeighbourState::None | NeighbourState::Other(_)
    );
    let mac = mac_of(message).filter(|&mac| is_valid && is_station(mac));
    let has = |flag| header.flags.contains(flag);
    let remote = has(NeighbourFlags::ExtLearned);
    let router = has(NeighbourFlags::Router);
    Some(KernelEntry::Neighbor { device: header.ifindex, ip, mac, remote, router })
}

fn mac_of(message: &NeighbourMessage) -> Option<Mac> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
        _ => None,
    })
}

fn destination(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some((*ip).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some((*ip).into()),
        // In messages about forwarding tables, the address family does not tell IPv4 from IPv6, but the length of the
        // address does.
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
            _ => None,
        },
        _ => None,
    })
}

/// Returns whether a MAC address can belong to a host: it is neither multicast nor zero.
#[must_use]
pub fn is_station(mac: Mac) -> bool {
    mac.0[0] & 1 == 0 && mac.0 != [0; 6]
}

/// Returns whether an IP address can belong to a host: it is not unspecified, multicast, loopback or broadcast.
#[must_use]
pub fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

#[cfg(test)]
mod tests;
