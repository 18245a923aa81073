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
    /// A bridge has the address on one of its ports.
    Bridge {
        /// Interface index of the port's device.
        device: u32,
        /// The address.
        mac: Mac,
        /// Whether the address is announced as sticky, i.e. as one that does not move (RFC 7432 section 15.2).
        sticky: bool,
    },
    /// A VXLAN device has the address behind that VTEP.
    Remote {
        /// Interface index of the VXLAN device.
        device: u32,
        /// The address.
        mac: Mac,
        /// The VTEP.
        vtep: IpAddr,
        /// Whether the address is announced as sticky (RFC 7432 section 15.2).
        sticky: bool,
    },
    /// A VXLAN device floods to that VTEP.
    Flood {
        /// Interface index of the VXLAN device.
        device: u32,
        /// The VTEP.
        vtep: IpAddr,
    },
    /// An IP address belongs to a MAC address.
    Neighbor {
        /// Interface index of the device; for a mirror its bridge, which is the SVI.
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
    /// The entry exists, or is new.
    Is(KernelEntry),
    /// The entry was removed.
    Gone(KernelEntry),
    /// The device with that interface index has changed or was removed.
    Device(u32),
}

/// Parses a message.
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

/// Parses an entry of a forwarding table: a bridge's table if the message names the bridge, else a VXLAN device's.
fn forwarding(message: &NeighbourMessage) -> Option<KernelEntry> {
    let device = message.header.ifindex;
    let flags = message.header.flags;
    let mac = mac_of(message)?;
    let sticky = flags.contains(NeighbourFlags::Sticky);
    let is_bridges = message.attributes.iter().any(|a| matches!(a, NeighbourAttribute::Controller(_)));
    if is_bridges {
        // Permanent entries are the devices' own addresses.
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
        // Forwarding tables have addresses of either family.
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
            _ => None,
        },
        _ => None,
    })
}

/// Returns whether an address can be a station's: neither a group nor zero.
#[must_use]
pub fn is_station(mac: Mac) -> bool {
    mac.0[0] & 1 == 0 && mac.0 != [0; 6]
}

/// Returns whether an address can be a host's.
#[must_use]
pub fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

#[cfg(test)]
mod tests;
