//! A multicast group: each member receives the frames that the other members send.
//!
//! The port sends from a separate socket. The host loops the frames back to the group for other members on the same
//! host; the port recognises its own frames by their source address, and drops them, so that its switch does not learn
//! its own stations as reachable through the group.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::listener::OpenError;
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use super::pair::udp;
use super::{PeerArrival, PeerSource, SourceEvents, widen};
use crate::line::SocketPeer;

/// The sockets of a multicast group.
pub struct MulticastGroup {
    group: SocketAddrV4,
    input: Arc<OwnedFd>,
    output: Arc<OwnedFd>,
    /// Source address of this port's frames.
    own: SocketAddrV4,
    has_begun: bool,
}

impl MulticastGroup {
    /// Joins a group on the interface with the address `interface`; if that is `None`, the host chooses the interface.
    ///
    /// # Errors
    /// [`OpenError`] if a system call fails.
    pub fn join(group: SocketAddrV4, interface: Option<Ipv4Addr>) -> Result<MulticastGroup, OpenError> {
        let failed = |what| OpenError::step(group.to_string(), what);
        let input = member(group, interface).map_err(failed("join the multicast group"))?;
        let output = sender(group, interface).map_err(failed("make a socket to send to the multicast group"))?;
        Self::with(group, input, output)
    }

    /// Takes over a predecessor's sockets.
    ///
    /// # Errors
    /// [`OpenError`] if the sockets are not datagram sockets, or do not fit the group.
    pub fn restore(group: SocketAddrV4, input: OwnedFd, output: OwnedFd) -> Result<MulticastGroup, OpenError> {
        let is_datagrams = |socket: &OwnedFd| sockopt::socket_type(socket) == Ok(SocketType::DGRAM);
        if !is_datagrams(&input) || !is_datagrams(&output) {
            return Err(OpenError::step(group.to_string(), "continue the sockets of the group")(Errno::NOTSOCK));
        }
        Self::with(group, input, output)
    }

    fn with(group: SocketAddrV4, input: OwnedFd, output: OwnedFd) -> Result<MulticastGroup, OpenError> {
        widen(&input);
        widen(&output);
        let own = rustix::net::getsockname(&output).and_then(SocketAddr::try_from);
        let SocketAddr::V4(own) = own.map_err(OpenError::step(group.to_string(), "read the source address"))? else {
            return Err(OpenError::step(group.to_string(), "send to the multicast group")(Errno::AFNOSUPPORT));
        };
        Ok(MulticastGroup { group, input: Arc::new(input), output: Arc::new(output), own, has_begun: false })
    }

    fn peer(&self) -> SocketPeer {
        let sockets = [Arc::clone(&self.input), Arc::clone(&self.output)];
        SocketPeer { sockets, own: Some(self.own), ..SocketPeer::datagrams(&self.input) }
    }
}

impl PeerSource for MulticastGroup {
    fn watch(&mut self, _events: SourceEvents) -> Result<(), Errno> {
        Ok(())
    }

    fn arrivals(&mut self, _now: Instant, _ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let arrival = (!has_begun).then(|| PeerArrival::of(self.peer(), Some(self.group.to_string())));
        arrival.into_iter().collect()
    }

    fn wait(&self, _now: Instant) -> Duration {
        if self.has_begun { Duration::MAX } else { Duration::ZERO }
    }

    fn left(&mut self, _number: u16, _now: Instant) {
        self.has_begun = false;
    }

    fn own_peer(&mut self) -> Option<SocketPeer> {
        self.has_begun = true;
        Some(self.peer())
    }

    fn save(&self) -> Vec<Fd> {
        vec![Fd::shared(&self.input), Fd::shared(&self.output)]
    }
}

/// Creates a socket that receives the group's datagrams.
fn member(group: SocketAddrV4, interface: Option<Ipv4Addr>) -> Result<OwnedFd, Errno> {
    let socket = udp(true)?;
    // Allows other members on this host.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &group)?;
    sockopt::set_ip_add_membership(&socket, group.ip(), &interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
    Ok(socket)
}

/// Creates a socket that sends to the group.
fn sender(group: SocketAddrV4, interface: Option<Ipv4Addr>) -> Result<OwnedFd, Errno> {
    let socket = udp(true)?;
    if let Some(interface) = interface {
        sockopt::set_ip_multicast_if(&socket, &interface)?;
    }
    sockopt::set_ip_multicast_loop(&socket, true)?;
    rustix::net::connect(&socket, &group)?;
    Ok(socket)
}
