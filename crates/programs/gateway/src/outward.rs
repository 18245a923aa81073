//! Sockets of the host through which guests' datagrams and echo requests leave.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::core::GatewayCore;
use crate::frame::GuestPacket;
use crate::icmp_message::IcmpProblem;
use crate::sys::{self, asked};

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
    /// address that the kernel chooses). The datagram is fragmented only if the packet may be. If the kernel refuses
    /// the datagram, the guest gets an ICMP error.
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
        if self.dont_fragment != forbid && sys::forbid_fragments(&self.fd, to.is_ipv6(), forbid).is_ok() {
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

/// Returns the MTU of the path to an address in bytes, as far as the kernel knows it; `None` if there is no path, or
/// the MTU exceeds 65,535 bytes.
fn path_mtu(to: SocketAddr) -> Option<u16> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::connect(&socket, &to).ok()?;
    let mtu = if to.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
    u16::try_from(mtu.ok()?).ok()
}
