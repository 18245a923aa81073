//! Opening of flows: for a guest's SYN, and for a client of a published port.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::endpoint::TcpEndpoint;
use super::flow::TcpFlow;
use super::segment::{TcpSegment, mss_of};
use super::{TcpFlows, TcpKey, refuse};
use crate::core::{FlowRefusal, GatewayCore, NewNameClient, PermittedFlow};
use crate::dns;
use crate::flows::FlowEnds;
use crate::frame::GuestPacket;
use crate::guests::GuestResource;
use crate::poller::{WatchMode, WatchedThing};
use crate::served::{self, ServedSocket};
use crate::slots::SlotId;

/// Number of bytes of a guest's first packet that are kept for an ICMP error about it.
const QUOTED: usize = 128;

/// A socket for a guest's connection, and the result of `connect`.
struct OpenedSocket {
    socket: OwnedFd,
    /// The DNS name that the guest resolved to the destination's address.
    name: Option<Arc<str>>,
    /// `Ok(true)` if the socket is connected, `Ok(false)` while it is connecting, or the error of `connect`.
    connecting: Result<bool, Errno>,
}

impl TcpFlows {
    /// Opens a flow for a guest's SYN, or refuses it.
    pub(super) fn begin(
        &mut self,
        core: &mut GatewayCore,
        packet: &GuestPacket<'_>,
        syn: &TcpSegment<'_>,
        ends: FlowEnds,
    ) {
        let OpenedSocket { socket, name, connecting } = match open_socket(core, &ends) {
            Ok(opened) => opened,
            Err(reason) => {
                core.refused(&ends, reason);
                return refuse(core, &ends, syn.refusal());
            }
        };
        let first = self.sequence.first(&ends, core.now);
        let endpoint = TcpEndpoint::answering(syn, first, mss_of(core.net.mtu, ends.guest.ip()), core.now);
        let mut flow = TcpFlow::new(ends, endpoint, socket, core.now);
        flow.name = name;
        flow.first_packet = packet.packet[..packet.packet.len().min(QUOTED)].to_vec();
        let id = self.insert(core, flow);
        match (connecting, id) {
            (Err(error), Some(id)) => self.fail(core, id, error),
            (Ok(true), Some(id)) => self.connected(core, id),
            (Ok(false), Some(id)) => self.set_timer(core, id),
            (_, None) => refuse(core, &ends, syn.refusal()),
        }
    }

    /// Adds a flow and watches its socket. Returns `None` if the socket cannot be watched.
    fn insert(&mut self, core: &mut GatewayCore, flow: TcpFlow) -> Option<SlotId> {
        let ends = flow.ends;
        let id = self.flows.insert(flow);
        self.by_key.insert(TcpKey::of(&ends), id);
        let flow = self.flows.get(id)?;
        if core.poller.add(&flow.socket, WatchedThing::Tcp(id), WatchMode::Changes).is_err() {
            self.remove(core, id);
            core.refused(&ends, "descriptors");
            return None;
        }
        Some(id)
    }

    /// Returns whether a flow with these endpoints exists.
    pub fn is_taken(&self, ends: &FlowEnds) -> bool {
        self.by_key.contains_key(&TcpKey::of(ends))
    }

    /// Opens a connection to a guest for a client whose connection is `socket`; resets the client's connection if that
    /// fails.
    pub fn call(&mut self, core: &mut GatewayCore, socket: OwnedFd, ends: FlowEnds) {
        let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO));
        let begins =
            if core.may_begin(ends.who, ends.direction) { take_share(core, &ends) } else { Err(FlowRefusal::Rate) };
        if let Err(refusal) = begins {
            core.refused(&ends, refusal.word());
            return;
        }
        let _ = rustix::net::sockopt::set_socket_linger(&socket, None);
        let first = self.sequence.first(&ends, core.now);
        let endpoint = TcpEndpoint::calling(first, mss_of(core.net.mtu, ends.guest.ip()), core.now);
        prepare(&socket);
        let flow = TcpFlow::new(ends, endpoint, socket, core.now);
        if let Some(id) = self.insert(core, flow) {
            core.flows.opened(&ends, None);
            self.make_busy(id);
        }
    }
}

/// Opens a socket for a guest's connection. The error is the flow log's word for the reason.
fn open_socket(core: &mut GatewayCore, ends: &FlowEnds) -> Result<OpenedSocket, &'static str> {
    let place = place_of(core, ends).map_err(FlowRefusal::word)?;
    if !core.may_begin(ends.who, ends.direction) {
        return Err(FlowRefusal::Rate.word());
    }
    take_share(core, ends).map_err(FlowRefusal::word)?;
    let opened = match place {
        FlowPlace::Names => inner_socket(core, ends),
        FlowPlace::Served(path) => served_socket(&path, ends),
        FlowPlace::Outer(outer) => outer_socket(outer),
    };
    opened.ok_or_else(|| {
        give_back_share(core, ends);
        "descriptors"
    })
}

/// The endpoint of a guest's connection on the host's side.
enum FlowPlace {
    Names,
    /// The UNIX socket of a served port.
    Served(PathBuf),
    Outer(PermittedFlow),
}

fn place_of(core: &GatewayCore, ends: &FlowEnds) -> Result<FlowPlace, FlowRefusal> {
    if !is_inner(core, ends) {
        return core.judge(ends).map(FlowPlace::Outer);
    }
    let port = ends.remote.port();
    let served = core.served.iter().find(|served| served.port == port);
    Ok(served.map_or(FlowPlace::Names, |served| FlowPlace::Served(served.path.clone())))
}

/// Returns whether a connection leads to a service of the gateway itself: its name service or a served port.
pub(super) fn is_inner(core: &GatewayCore, ends: &FlowEnds) -> bool {
    let port = ends.remote.port();
    let has_service = port == dns::PORT || core.served.iter().any(|served| served.port == port);
    has_service && core.net.has_services(ends.remote.ip())
}

fn served_socket(path: &Path, ends: &FlowEnds) -> Option<OpenedSocket> {
    let ServedSocket { socket, connected } = served::connect(path, ends)?;
    Some(OpenedSocket { socket, name: None, connecting: connected.map(|()| true) })
}

fn take_share(core: &mut GatewayCore, ends: &FlowEnds) -> Result<(), FlowRefusal> {
    let most = core.rates.most_open(ends.who, &core.flows.ports, core.now).unwrap_or(u32::MAX);
    let has_most = core.guests.used(ends.who, GuestResource::Tcp) >= most;
    if has_most || !core.guests.take(ends.who, GuestResource::Tcp) {
        return Err(FlowRefusal::Limit);
    }
    if !core.guests.take(ends.who, GuestResource::Connecting) {
        core.guests.give_back(ends.who, GuestResource::Tcp);
        return Err(FlowRefusal::Limit);
    }
    Ok(())
}

fn give_back_share(core: &mut GatewayCore, ends: &FlowEnds) {
    core.guests.give_back(ends.who, GuestResource::Connecting);
    core.guests.give_back(ends.who, GuestResource::Tcp);
}

/// Opens a socket that connects to a host. Returns `None` if no descriptor is left.
fn outer_socket(flow: PermittedFlow) -> Option<OpenedSocket> {
    let PermittedFlow { outer, name } = flow;
    let family = if outer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).ok()?;
    prepare(&socket);
    let connecting = match rustix::net::connect(&socket, &outer) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS) => Ok(false),
        Err(error) => Err(error),
    };
    Some(OpenedSocket { socket, name, connecting })
}

fn prepare(socket: &OwnedFd) {
    // The guest has already decided how to group its bytes, so the host's stack must not delay them. Keepalives detect
    // peers that no longer answer.
    let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
    let _ = rustix::net::sockopt::set_socket_keepalive(socket, true);
}

/// Creates a socket pair and passes one end to the name service. Returns `None` if no descriptor is left.
fn inner_socket(core: &mut GatewayCore, ends: &FlowEnds) -> Option<OpenedSocket> {
    let pair = UnixStream::pair().and_then(|(own, inner)| own.set_nonblocking(true).map(|()| (own, inner)));
    let (own, stream) = pair.ok()?;
    core.name_clients.push(NewNameClient { who: ends.who, guest: ends.guest, own: ends.remote, stream });
    Some(OpenedSocket { socket: own.into(), name: None, connecting: Ok(true) })
}
