//! Published ports: connections and datagrams from the host's side to guests.
//!
//! A [`Publisher`] listens at the host's addresses. A guest sees the client's own address or, if the guest could not
//! send answers to that (e.g. to an address on the host's loopback), the gateway's address. If a guest's MAC address is
//! unknown, the gateway requests it; the client's connection is reset if no answer comes within [`SEARCH`], or if the
//! guest does not [answer the SYN](crate::tcp).

mod datagrams;
pub mod rule;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use self::datagrams::PublishedClients;
use self::rule::{PublishRule, PublishedGuest};
use crate::arp_nd;
use crate::core::GatewayCore;
use crate::dhcp::DhcpServers;
use crate::dial::DialedGuest;
use crate::flows::{FlowDirection, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::guests::{GuestId, NetworkId};
use crate::outward::OutwardSocket;
use crate::policy::FlowTransport;
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::{NumberedValues, SlotId};
use crate::sys::asked;
use crate::tcp::TcpFlows;
use crate::timers::TimedThing;
use crate::udp::UdpDatagram;

/// Time for which a guest's MAC address is requested before the connections of waiting clients are reset.
pub const SEARCH: Duration = Duration::from_secs(3);
/// Time between two requests for a guest's MAC address.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of TCP clients that wait for the MAC address of a guest.
const MAX_CALLERS: usize = 256;
/// Maximum number of connections that are accepted, or of datagrams that are read, in a row.
const BATCH: usize = 64;
/// The listen backlog.
const BACKLOG: i32 = 1024;

struct PublishedPort {
    rule: PublishRule,
    /// The socket that receives datagrams, or listens for TCP connections.
    socket: OutwardSocket,
}

/// The guest's end of a published port: its address and port in one of the networks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PublishedEnd {
    network: NetworkId,
    guest: SocketAddr,
}

/// A TCP client that waits until the MAC address of its guest is known.
struct WaitingCaller {
    socket: OwnedFd,
    client: SocketAddr,
    end: PublishedEnd,
    since: Instant,
}

/// The error for a port that cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("cannot publish {listen}: {source}; choose another port, or stop the program that uses this one")]
pub struct PublishError {
    listen: SocketAddr,
    source: std::io::Error,
}

/// The published ports and their clients.
#[derive(Default)]
pub struct Publisher {
    ports: NumberedValues<PublishedPort>,
    callers: Vec<WaitingCaller>,
    clients: PublishedClients,
    spare: SpareDescriptor,
}

/// A spare descriptor for when the process has no other descriptor left. Closing the spare makes room to accept the
/// pending connection and reset it; otherwise, the poller would report that connection again and again.
#[derive(Default)]
struct SpareDescriptor(Option<OwnedFd>);

impl SpareDescriptor {
    fn keep(&mut self) {
        if self.0.is_none() {
            self.0 = std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
        }
    }

    fn turn_away(&mut self, listener: &OwnedFd) {
        self.0 = None;
        if let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            reset(&socket);
        }
        self.keep();
    }
}

impl Publisher {
    /// Publishes a port.
    ///
    /// # Errors
    /// Another program uses the port, or this user may not bind to it.
    pub fn add(&mut self, core: &GatewayCore, rule: PublishRule) -> Result<(), PublishError> {
        self.spare.keep();
        let listen = rule.listen;
        let failed = |errno: Errno| PublishError { listen, source: errno.into() };
        let socket = OutwardSocket::new(listening_socket(&rule).map_err(failed)?);
        let id = self.ports.insert(PublishedPort { rule, socket });
        let Some(port) = self.ports.get(id) else { return Ok(()) };
        let watched = core.poller.add(&port.socket.fd, WatchedThing::Published(id), WatchMode::Readable);
        watched.map_err(|source| {
            self.ports.remove(id);
            PublishError { listen, source }
        })
    }

    /// Stops publishing a port. `text` is the whole rule, or only its part for the host's side. TCP connections through
    /// the port stay open; UDP flows through the port end. Returns whether there was such a port.
    pub fn remove(&mut self, core: &mut GatewayCore, text: &str) -> bool {
        let given = text.parse().ok();
        let side = rule::listening_side(text);
        let is_meant = |port: &PublishedPort| {
            given.as_ref() == Some(&port.rule) || side == Some((port.rule.listen, port.rule.transport))
        };
        let ids = self.ports.ids_of(is_meant);
        for id in &ids {
            self.ports.remove(*id);
            self.clients.end_port(core, *id);
        }
        !ids.is_empty()
    }

    /// Returns the published ports.
    pub fn rules(&self) -> impl Iterator<Item = &PublishRule> {
        self.ports.values().map(|port| &port.rule)
    }

    /// Returns the flows of published UDP ports, in no particular order.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.clients.open_flows()
    }

    /// Accepts connections to a TCP port, or reads datagrams from a UDP port.
    pub fn ready(&mut self, core: &mut GatewayCore, tcp: &mut TcpFlows, leases: Option<&DhcpServers>, id: SlotId) {
        let Some(port) = self.ports.get(id) else { return };
        let Some(end) = end_of(&port.rule, core, leases) else {
            return refuse_all(port);
        };
        if port.rule.transport == FlowTransport::Udp {
            self.clients.receive(core, leases, id, &port.socket.fd, end);
            return;
        }
        for _ in 0..BATCH {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (socket, client) = match rustix::net::acceptfrom_with(&port.socket.fd, flags) {
                Ok(accepted) => accepted,
                Err(Errno::MFILE | Errno::NFILE) => return self.spare.turn_away(&port.socket.fd),
                Err(_) => return,
            };
            let Some(client) = client.and_then(|client| SocketAddr::try_from(client).ok()) else { continue };
            let caller = WaitingCaller { socket, client, end, since: core.now };
            connect(&mut self.callers, core, tcp, leases, caller);
        }
    }

    /// Connects a local program whose connection is `socket` to a guest.
    pub fn dial(
        &mut self,
        core: &mut GatewayCore,
        tcp: &mut TcpFlows,
        leases: Option<&DhcpServers>,
        DialedGuest { socket, guest }: DialedGuest,
    ) {
        if core.net.is_guests(guest.ip()) {
            let loopback = if guest.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            let client = SocketAddr::new(loopback, core.random.u16() | 0x8000);
            let end = PublishedEnd { network: NetworkId::UNTAGGED, guest };
            let caller = WaitingCaller { socket, client, end, since: core.now };
            connect(&mut self.callers, core, tcp, leases, caller);
        }
    }

    /// Tries again to connect waiting clients to their guests. Resets the connections of clients that have waited for
    /// too long.
    pub fn timer(&mut self, core: &mut GatewayCore, tcp: &mut TcpFlows, leases: Option<&DhcpServers>) {
        for caller in std::mem::take(&mut self.callers) {
            if let Some(who) = station(core, leases, caller.end) {
                call(core, tcp, who, caller);
            } else if core.now.saturating_duration_since(caller.since) < SEARCH {
                arp_nd::ask(core, caller.end.network, caller.end.guest.ip());
                self.callers.push(caller);
            } else {
                let who = caller.end.network.station(MacAddr::ZERO);
                let ends = ends_of(&caller, who, caller.client, FlowTransport::Tcp);
                core.refused(&ends, "no-guest");
                reset(&caller.socket);
            }
        }
        if !self.callers.is_empty() {
            core.timers.add(core.now + ASK_AGAIN, TimedThing::Callers);
        }
    }

    /// Sends a guest's datagram to a client of a published port. Returns `false` if the guest sees no client at the
    /// datagram's destination.
    pub fn take(&mut self, core: &mut GatewayCore, packet: &GuestPacket<'_>, datagram: &UdpDatagram<'_>) -> bool {
        let ports = &mut self.ports;
        self.clients.answer(core, packet, datagram, move |id| ports.get(id).map(|port| &mut port.socket))
    }

    /// Ends the clients whose guests are in a network: resets waiting TCP clients, and forgets UDP clients.
    pub fn forget(&mut self, core: &mut GatewayCore, network: NetworkId) {
        for caller in self.callers.extract_if(.., |caller| caller.end.network == network) {
            reset(&caller.socket);
        }
        self.clients.forget(core, network);
    }

    /// Removes UDP clients that have been idle for too long.
    pub fn clean(&mut self, core: &mut GatewayCore) {
        self.clients.clean(core);
    }
}

/// Connects a client to its guest: immediately if the guest's MAC address is known, otherwise once it is known.
fn connect(
    callers: &mut Vec<WaitingCaller>,
    core: &mut GatewayCore,
    tcp: &mut TcpFlows,
    leases: Option<&DhcpServers>,
    caller: WaitingCaller,
) {
    match station(core, leases, caller.end) {
        Some(who) => call(core, tcp, who, caller),
        None if callers.len() < MAX_CALLERS => {
            if callers.is_empty() {
                core.timers.add(core.now + ASK_AGAIN, TimedThing::Callers);
            }
            arp_nd::ask(core, caller.end.network, caller.end.guest.ip());
            callers.push(caller);
        }
        None => reset(&caller.socket),
    }
}

fn listening_socket(rule: &PublishRule) -> Result<OwnedFd, Errno> {
    let family = if rule.listen.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let is_tcp = rule.transport == FlowTransport::Tcp;
    let kind = if is_tcp { SocketType::STREAM } else { SocketType::DGRAM };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    if is_tcp {
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if rule.listen.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &rule.listen)?;
    if is_tcp {
        rustix::net::listen(&socket, BACKLOG)?;
    } else {
        // If this fails, answers leave from the address that the kernel chooses.
        let _ = asked::tell_asked(&socket, rule.listen.is_ipv6());
    }
    Ok(socket)
}

/// Returns the guest's end of a published port; `None` if no lease and no private port has the guest's name, or no
/// guest may have the given address.
fn end_of(rule: &PublishRule, core: &GatewayCore, leases: Option<&DhcpServers>) -> Option<PublishedEnd> {
    let ports = &core.flows.ports;
    let leased =
        |network: NetworkId, name: &str| -> Option<IpAddr> { Some(leases?.leases(network).by_name(name)?.1.into()) };
    let (network, address) = match (&rule.behind, &rule.guest) {
        (None, PublishedGuest::Address(address)) => (NetworkId::UNTAGGED, Some(*address)),
        (None, PublishedGuest::Name(name)) => match ports.network(name) {
            Some(network) => (network, latest(core, leases, network)),
            None => (NetworkId::UNTAGGED, leased(NetworkId::UNTAGGED, name)),
        },
        (None, PublishedGuest::Latest) => return None,
        (Some(port), guest) => {
            let network = ports.network(port)?;
            let address = match guest {
                PublishedGuest::Address(address) => Some(*address),
                PublishedGuest::Name(name) => leased(network, name),
                PublishedGuest::Latest => latest(core, leases, network),
            };
            (network, address)
        }
    };
    let address = address.filter(|address| core.net.is_guests(*address))?;
    Some(PublishedEnd { network, guest: SocketAddr::new(address, rule.port) })
}

/// Returns the address of the guest behind a private port: the address that the guest has used last or, before its
/// first frame, the address of the only static lease. `None` if neither address is known.
fn latest(core: &GatewayCore, leases: Option<&DhcpServers>, network: NetworkId) -> Option<IpAddr> {
    let fixed = || leases?.leases(network).only_fixed().map(IpAddr::V4);
    core.neighbours.latest(network).or_else(fixed)
}

/// Resets the connections, or drops the datagrams, of a port whose guest is unknown.
fn refuse_all(port: &PublishedPort) {
    for _ in 0..BATCH {
        if port.rule.transport == FlowTransport::Tcp {
            let Ok(socket) = rustix::net::accept_with(&port.socket.fd, SocketFlags::CLOEXEC) else { return };
            reset(&socket);
        } else {
            let flags = rustix::net::RecvFlags::DONTWAIT;
            if rustix::net::recv(&port.socket.fd, &mut [0u8; 1][..], flags).is_err() {
                return;
            }
        }
    }
}

/// Makes close(2) of a socket reset its connection (`SO_LINGER` of 0).
fn reset(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

fn station(core: &GatewayCore, leases: Option<&DhcpServers>, end: PublishedEnd) -> Option<GuestId> {
    let leased = || match end.guest.ip() {
        IpAddr::V4(address) => leases?.leases(end.network).station(address).map(|mac| end.network.station(mac)),
        IpAddr::V6(_) => None,
    };
    core.neighbours.station(end.network, end.guest.ip()).or_else(leased)
}

fn ends_of(caller: &WaitingCaller, who: GuestId, seen: SocketAddr, transport: FlowTransport) -> FlowEnds {
    FlowEnds { transport, direction: FlowDirection::In, who, guest: caller.end.guest, remote: seen }
}

/// Opens a TCP connection to a guest, on behalf of a client.
fn call(core: &mut GatewayCore, tcp: &mut TcpFlows, who: GuestId, caller: WaitingCaller) {
    let Some(mut seen) = seen_client(core, caller.client, caller.end.guest.ip()) else { return reset(&caller.socket) };
    let mut ends = ends_of(&caller, who, seen, FlowTransport::Tcp);
    // Two clients with different loopback addresses may have the same port: the second is shown with another port.
    for _ in 0..BATCH {
        if !tcp.is_taken(&ends) {
            return tcp.call(core, caller.socket, ends);
        }
        seen.set_port(core.random.u16() | 0x8000);
        ends.remote = seen;
    }
    reset(&caller.socket);
}

/// Returns the address under which a guest sees a client: the client's own address or, if the guest could not send
/// answers to that, the gateway's address. Returns `None` if the gateway has no address of the guest's IP version.
fn seen_client(core: &GatewayCore, client: SocketAddr, guest: IpAddr) -> Option<SocketAddr> {
    let ip = client.ip();
    let reachable = ip.is_ipv4() == guest.is_ipv4() && !ip.is_loopback() && !core.net.is_inside(ip);
    let ip = if reachable { ip } else { core.net.own(guest)? };
    Some(SocketAddr::new(ip, client.port()))
}
