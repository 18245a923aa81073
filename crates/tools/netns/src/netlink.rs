//! Requests about interfaces, addresses and routes to the kernel (rtnetlink(7)), in the calling thread's network
//! namespace.
//!
//! A *link* is the kernel's description of an interface, a *prefix* an address with the length of its network's prefix.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netvale_netlink::{NetlinkSocket as Socket, RequestMode};

/// A network interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Interface index.
    pub index: u32,
    /// The MAC address; `None` if the interface has none.
    pub mac: Option<[u8; 6]>,
    /// The MTU in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub is_up: bool,
}

/// An IP address with the prefix length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressPrefix {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

/// A route through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination; for the default route, the prefix length is 0.
    pub to: AddressPrefix,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// MTU of the route in bytes; `None` for the MTU of the interface.
    pub mtu: Option<u32>,
    /// The maximum segment size that TCP announces, in bytes; `None` to derive it from the MTU.
    pub advmss: Option<u32>,
    /// The metric: if there are several routes to a destination, the kernel uses the route with the lowest metric.
    /// `None` for the kernel's default.
    pub priority: Option<u32>,
    /// The number of the routing table; `None` for the main table.
    pub table: Option<u32>,
}

/// A netlink socket for requests about a network namespace.
#[derive(Debug)]
pub struct NamespaceSocket(Socket);

impl NamespaceSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// The error of socket(2).
    pub fn open() -> rustix::io::Result<NamespaceSocket> {
        Socket::open().map(NamespaceSocket)
    }

    /// Finds an interface by name.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist.
    pub fn link(&mut self, name: &str) -> rustix::io::Result<LinkInfo> {
        self.0.link(name, found)
    }

    /// Moves an interface to another network namespace and renames it.
    ///
    /// # Errors
    /// `EEXIST` if an interface of that name exists in the other namespace.
    pub fn hand_to(&mut self, index: u32, namespace: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
        let place = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        self.0.set_link(index, vec![place, LinkAttribute::IfName(name.to_owned())])
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bring_up(&mut self, index: u32) -> rustix::io::Result<()> {
        self.0.bring_up(index)
    }

    /// Adds an address to an interface. The address is valid immediately, without duplicate address detection.
    ///
    /// # Errors
    /// `EEXIST` if the interface already has the address.
    pub fn add_address(&mut self, index: u32, own: AddressPrefix) -> rustix::io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(own.address);
        message.header.prefix_len = own.length;
        message.header.index = index;
        message.attributes.push(AddressAttribute::Local(own.address));
        message.attributes.push(AddressAttribute::Address(own.address));
        match own.address {
            IpAddr::V4(address) if own.length < 31 => {
                let hosts = u32::MAX.checked_shr(own.length.into()).unwrap_or(0);
                message.attributes.push(AddressAttribute::Broadcast((u32::from(address) | hosts).into()));
            }
            IpAddr::V4(_) => {}
            IpAddr::V6(_) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
        }
        self.0.request(RouteNetlinkMessage::NewAddress(message), RequestMode::New)
    }

    /// Lists the addresses of an interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn addresses(&mut self, index: u32) -> rustix::io::Result<Vec<AddressPrefix>> {
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.0.dump(&all, |answer| address_of(answer, index))
    }

    /// Adds a route through an interface.
    ///
    /// # Errors
    /// `EEXIST` if the route exists, `ENETUNREACH` if the gateway is not on the link.
    pub fn add_route(&mut self, index: u32, route: &Route) -> rustix::io::Result<()> {
        let message = route_message(index, route);
        self.0.request(RouteNetlinkMessage::NewRoute(message), RequestMode::New)
    }

    /// Lists the routes through an interface: destination and gateway of each.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn routes(&mut self, index: u32) -> rustix::io::Result<Vec<(AddressPrefix, Option<IpAddr>)>> {
        let all = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        self.0.dump(&all, |answer| route_of(answer, index))
    }
}

fn found(answer: &RouteNetlinkMessage) -> Option<LinkInfo> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let is_up = message.header.flags.contains(LinkFlags::Up);
    let mut link = LinkInfo { index: message.header.index, mac: None, mtu: 0, is_up };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            _ => {}
        }
    }
    Some(link)
}

fn address_of(answer: &RouteNetlinkMessage, index: u32) -> Option<AddressPrefix> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    // For IPv4, the kernel reports local and peer address separately; for IPv6, it reports only one address.
    let local =
        message.attributes.iter().find_map(|a| if let AddressAttribute::Local(ip) = a { Some(*ip) } else { None });
    let any =
        || message.attributes.iter().find_map(|a| if let AddressAttribute::Address(ip) = a { Some(*ip) } else { None });
    let address = local.or_else(any)?;
    (message.header.index == index).then_some(AddressPrefix { address, length: message.header.prefix_len })
}

fn route_of(answer: &RouteNetlinkMessage, index: u32) -> Option<(AddressPrefix, Option<IpAddr>)> {
    let RouteNetlinkMessage::NewRoute(message) = answer else { return None };
    let any: IpAddr = match message.header.address_family {
        AddressFamily::Inet => [0u8; 4].into(),
        AddressFamily::Inet6 => [0u8; 16].into(),
        _ => return None,
    };
    let mut to = any;
    let mut gateway = None;
    let mut is_ours = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(oif) => is_ours = *oif == index,
            _ => {}
        }
    }
    is_ours.then_some((AddressPrefix { address: to, length: message.header.destination_prefix_length }, gateway))
}

fn route_message(index: u32, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.to.address);
    message.header.destination_prefix_length = route.to.length;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    if let Some(table) = route.table {
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.attributes.push(RouteAttribute::Table(table));
    }
    if route.to.length > 0 {
        message.attributes.push(RouteAttribute::Destination(route_address(route.to.address)));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message.attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(route_address(gateway))));
    message.attributes.extend(route.priority.map(RouteAttribute::Priority));
    let metrics = [route.mtu.map(RouteMetric::Mtu), route.advmss.map(RouteMetric::Advmss)];
    let metrics: Vec<_> = metrics.into_iter().flatten().collect();
    if !metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(metrics));
    }
    message
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
