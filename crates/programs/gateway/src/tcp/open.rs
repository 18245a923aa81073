//! Opening of flows: for a guest's SYN, and for a client of a published port.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::endpoint::TcpEndpoint;
use super::flow::TcpFlow;
use super::segment::{TcpSegment, mss_of};
use super::seq::TcpSeq;
use super::{TcpFlows, TcpKey, refuse};
use crate::core::{FlowRefusal, GatewayCore, NewNameClient};
use crate::dns;
use crate::flows::FlowEnds;
use crate::frame::GuestPacket;
use crate::guests::GuestResource;
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::SlotId;

/// Number of bytes of a guest's first packet that are kept for an ICMP error about it.
const QUOTED: usize = 128;

/// A socket for a guest's connection, and the result of `connect`.
struct OpenedSocket {
    socket: OwnedFd,
    /// `true` if the socket is connected, `false` while it is connecting, or the error.
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
        let OpenedSocket { socket, connecting } = match open_socket(core, &ends) {
            Ok(opened) => opened,
            Err(reason) => {
                core.flows.refused(&ends, reason, core.now);
                return refuse(core, &ends, syn.refusal());
            }
        };
        let first = TcpSeq(core.random.u32());
        let endpoint = TcpEndpoint::answering(syn, first, mss_of(core.net.mtu, ends.guest.ip()), core.now);
        let mut flow = TcpFlow::new(ends, endpoint, socket, core.now);
        flow.first_packet = packet.packet[..packet.packet.len().min(QUOTED)].to_vec();
        let id = self.insert(core, flow);
        match (connecting, id) {
            (Err(error), Some(id)) => self.fail(core, id, error),
            (Ok(true), Some(id)) => self.connected(core, id),
            (Ok(false), Some(id)) => self.set_timer(core, id),
            (_, None) => refuse(core, &ends, syn.refusal()),
        }
    }

    /// Adds a flow and watches its socket. `None` if the socket cannot be watched.
    fn insert(&mut self, core: &mut GatewayCore, flow: TcpFlow) -> Option<SlotId> {
        let ends = flow.ends;
        let id = self.flows.insert(flow);
        self.by_key.insert(TcpKey::of(&ends), id);
        let flow = self.flows.get(id)?;
        if core.poller.add(&flow.socket, WatchedThing::Tcp(id), WatchMode::Changes).is_err() {
            self.remove(core, id);
            core.flows.refused(&ends, "descriptors", core.now);
            return None;
        }
        Some(id)
    }

    /// Returns whether a flow with these endpoints exists.
    pub fn is_taken(&self, ends: &FlowEnds) -> bool {
        self.by_key.contains_key(&TcpKey::of(ends))
    }

    /// Opens a connection to a guest for a client whose connection is `socket`. Resets the client's if that fails.
    pub fn call(&mut self, core: &mut GatewayCore, socket: OwnedFd, ends: FlowEnds) {
        let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO));
        if let Err(refusal) = take_share(core, &ends) {
            core.flows.refused(&ends, refusal.word(), core.now);
            return;
        }
        let _ = rustix::net::sockopt::set_socket_linger(&socket, None);
        let first = TcpSeq(core.random.u32());
        let endpoint = TcpEndpoint::calling(first, mss_of(core.net.mtu, ends.guest.ip()), core.now);
        prepare(&socket);
        let flow = TcpFlow::new(ends, endpoint, socket, core.now);
        if let Some(id) = self.insert(core, flow) {
            core.flows.opened(&ends);
            self.make_busy(id);
        }
    }
}

/// Opens a socket for a guest's connection. The error is the word for the flow log.
fn open_socket(core: &mut GatewayCore, ends: &FlowEnds) -> Result<OpenedSocket, &'static str> {
    let is_inner = core.net.is_own(ends.remote.ip()) && ends.remote.port() == dns::PORT;
    let outer = if is_inner { None } else { Some(core.judge(ends).map_err(FlowRefusal::word)?) };
    take_share(core, ends).map_err(FlowRefusal::word)?;
    let opened = outer.map_or_else(|| inner_socket(core, ends), outer_socket);
    opened.ok_or_else(|| {
        give_back_share(core, ends);
        "descriptors"
    })
}

fn take_share(core: &mut GatewayCore, ends: &FlowEnds) -> Result<(), FlowRefusal> {
    if !core.guests.take(ends.who, GuestResource::Tcp) {
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

/// Opens a socket that connects to a host. `None` if there is no descriptor for it.
fn outer_socket(outer: SocketAddr) -> Option<OpenedSocket> {
    let family = if outer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).ok()?;
    prepare(&socket);
    let connecting = match rustix::net::connect(&socket, &outer) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS) => Ok(false),
        Err(error) => Err(error),
    };
    Some(OpenedSocket { socket, connecting })
}

fn prepare(socket: &OwnedFd) {
    // The guest has already decided how to group its bytes: the host's stack must not delay them. Keepalives detect
    // peers that are gone.
    let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
    let _ = rustix::net::sockopt::set_socket_keepalive(socket, true);
}

/// Makes a socket pair whose other end the name service gets.
fn inner_socket(core: &mut GatewayCore, ends: &FlowEnds) -> Option<OpenedSocket> {
    let pair = UnixStream::pair().and_then(|(own, inner)| own.set_nonblocking(true).map(|()| (own, inner)));
    let (own, stream) = pair.ok()?;
    core.name_clients.push(NewNameClient { who: ends.who, guest: ends.guest, stream });
    Some(OpenedSocket { socket: own.into(), connecting: Ok(true) })
}
