//! Sockets of the host through which guests' datagrams and echo requests leave ([`OutwardSocket`]), and the flows of
//! these messages in both directions ([`DatagramFlow`]).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::core::{FlowReview, GatewayCore};
use crate::flows::{FlowBytes, FlowEnds, OpenFlow};
use crate::frame::GuestPacket;
use crate::icmp_message::IcmpProblem;
use crate::rates::{RateWay, datagram_cost};
use crate::sys::asked;

/// A flow of datagrams or of echo messages.
#[derive(Debug)]
pub struct DatagramFlow {
    open: OpenFlow,
    /// Time at which the flow was last used.
    pub used: Instant,
}

impl DatagramFlow {
    /// Begins a flow, and records it in the flow log. `name` is the DNS name that the guest resolved to the other end's
    /// address.
    pub fn begin(core: &mut GatewayCore, ends: FlowEnds, name: Option<Arc<str>>) -> Self {
        core.flows.opened(&ends, name.as_deref());
        let [began, used] = [core.now; 2];
        let open = OpenFlow { ends, name, bytes: FlowBytes::default(), began, waited: Duration::ZERO, dropped: 0 };
        DatagramFlow { open, used }
    }

    /// Returns the flow as the flow log records it.
    pub fn open(&self) -> &OpenFlow {
        &self.open
    }

    /// Returns whether the guest's rate limit lets a message of `len` bytes pass, and counts the message as passed or
    /// dropped.
    pub fn passes(&mut self, core: &mut GatewayCore, way: RateWay, len: usize) -> bool {
        let FlowEnds { who, guest, .. } = self.open.ends;
        let passes = core.passes(who, way, datagram_cost(len, guest.is_ipv4()));
        match way {
            _ if !passes => self.open.dropped += 1,
            RateWay::Sent => self.open.bytes.sent += len as u64,
            RateWay::Received => self.open.bytes.received += len as u64,
        }
        passes
    }

    /// Returns whether the current rules allow the flow.
    pub fn is_permitted(&self, core: &GatewayCore, review: &mut FlowReview) -> bool {
        core.permits(review, &self.open.ends, self.open.name.as_ref())
    }

    /// Records in the flow log that the flow has ended.
    pub fn close(&self, core: &mut GatewayCore, reason: &str) {
        core.flows.closed(&self.open, reason, core.now);
    }
}

/// A datagram socket.
pub struct OutwardSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// Whether the socket refuses to fragment datagrams.
    dont_fragment: bool,
}

impl OutwardSocket {
    /// Wraps a new socket.
    pub fn new(fd: OwnedFd) -> Self {
        OutwardSocket { fd, dont_fragment: false }
    }

    /// Sends the contents of a guest's packet to `to` without blocking, from the host's address `from` (`None`: from an
    /// address that the kernel chooses). A datagram that exceeds the path's MTU is fragmented only if the guest
    /// permits that for the packet. If the kernel refuses the datagram, the guest gets an ICMP error.
    pub fn send(
        &mut self,
        core: &mut GatewayCore,
        packet: &GuestPacket<'_>,
        payload: &[u8],
        to: SocketAddr,
        from: Option<IpAddr>,
    ) {
        // A guest of the other IP version cannot use the path's MTU, which may be below the minimum of its version.
        let forbid = packet.dont_fragment && packet.src.is_ipv4() == to.is_ipv4();
        if self.dont_fragment != forbid && forbid_fragments(&self.fd, to.is_ipv6(), forbid).is_ok() {
            self.dont_fragment = forbid;
        }
        let send = || asked::send(&self.fd, payload, to, from);
        let sent = match send() {
            // The error is about an earlier datagram, and is also in the error queue. This datagram was not sent.
            Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => send(),
            sent => sent,
        };
        if let Err(error) = sent {
            answer_failure(core, packet, error, to);
        }
    }
}

fn answer_failure(core: &mut GatewayCore, packet: &GuestPacket<'_>, error: Errno, to: SocketAddr) {
    let problem = match error {
        Errno::MSGSIZE => match path_mtu(to) {
            Some(mtu) => IcmpProblem::TooBig(mtu),
            None => return,
        },
        Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::NETDOWN => IcmpProblem::Network,
        Errno::HOSTUNREACH => IcmpProblem::Host,
        Errno::PERM | Errno::ACCESS => IcmpProblem::Prohibited,
        // The socket's buffer is full: the datagram is lost, as in any network.
        _ => return,
    };
    core.send_error(packet, problem, None);
}

/// Sets whether a datagram that exceeds the path's MTU is refused with `EMSGSIZE` instead of fragmented. `v6` is set
/// for an IPv6 socket.
fn forbid_fragments(socket: &OwnedFd, v6: bool, forbid: bool) -> Result<(), Errno> {
    if v6 {
        let mode = if forbid { Ipv6PathMtuDiscovery::DO } else { Ipv6PathMtuDiscovery::WANT };
        sockopt::set_ipv6_mtu_discover(socket, mode)
    } else {
        let mode = if forbid { Ipv4PathMtuDiscovery::DO } else { Ipv4PathMtuDiscovery::WANT };
        sockopt::set_ip_mtu_discover(socket, mode)
    }
}

/// Returns the MTU of the path to an address in bytes, as far as the kernel knows it; `None` if there is no path, or
/// the MTU exceeds 65,535 bytes.
fn path_mtu(to: SocketAddr) -> Option<u16> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::connect(&socket, &to).ok()?;
    let mtu = if to.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
    u16::try_from(mtu.ok()?).ok()
}
