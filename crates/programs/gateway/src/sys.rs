//! System calls for which the crates in use have no functions: some socket options, and a socket's error queue (ip(7),
//! `IP_RECVERR`).
#![allow(unsafe_code)]

pub mod asked;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

/// An error about a sent datagram, reported by this host's kernel or by a host on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// The errno.
    pub errno: i32,
    /// Whether an ICMP or ICMPv6 message caused the error.
    pub by_icmp: bool,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Code of the ICMP message.
    pub code: u8,
    /// The path's MTU in bytes, if the ICMP message is "fragmentation needed" or "packet too big", or if the kernel
    /// refused the datagram because it is too long; otherwise without meaning.
    pub info: u32,
    /// The destination of the datagram.
    pub to: SocketAddr,
    /// The host that sent the ICMP message, if one did.
    pub by: Option<IpAddr>,
}

/// Makes the kernel queue errors about sent datagrams at a socket. `v6` is set for an IPv6 socket.
///
/// # Errors
/// The error of `setsockopt`.
pub fn queue_errors(socket: impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
    }
}

pub(super) fn set(socket: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let raw = socket.as_fd().as_raw_fd();
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` is an int that lives through the call, and `len` is its length.
    let done = unsafe { libc::setsockopt(raw, level, name, (&raw const value).cast::<c_void>(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Size of the buffer for control messages in bytes.
const CONTROL: usize = 256;
/// Size of the buffer for a socket address of either IP version, in bytes.
const ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// A message from recvmsg(2).
struct SocketMessage {
    /// Length of the payload in bytes.
    len: usize,
    /// The sender's address; for a message of the error queue, the destination of the datagram at fault.
    address: SocketAddr,
    /// The control messages.
    control: Vec<u8>,
}

/// Receives a message without blocking. Returns `None` if none is waiting, the call fails, or the message's socket
/// address is not an IP address.
fn receive_message(socket: impl AsFd, into: &mut [u8], flags: c_int) -> Option<SocketMessage> {
    let mut control = [0u64; CONTROL / 8];
    let mut address = [0u8; ADDRESS];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all fields of a msghdr may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = ADDRESS as socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: the header names three buffers, `into` among them, with their lengths; the buffers live through the call.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT) };
    let len = usize::try_from(got).ok()?;
    #[allow(clippy::unnecessary_cast, reason = "a type of its own with musl")]
    let used = (message.msg_controllen as usize).min(CONTROL);
    let control = control.iter().flat_map(|word| word.to_ne_bytes()).take(used).collect();
    Some(SocketMessage { len, address: socket_address(&address)?, control })
}

/// Takes the next error from a socket's error queue, without blocking. Returns `None` if the queue is empty.
pub fn next_error(socket: impl AsFd) -> Option<QueuedError> {
    let SocketMessage { address, control, .. } = receive_message(socket, &mut [0; 1], libc::MSG_ERRQUEUE)?;
    parse_error(&control, address)
}

/// Finds the first error among control messages; `None` if there is no well-formed one.
fn parse_error(control: &[u8], to: SocketAddr) -> Option<QueuedError> {
    let wanted = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
    extended_error(message_of(control, &wanted)?, to)
}

/// Length of a control message's header in bytes.
const HEADER: usize = 16;

/// Returns the contents of the first control message (cmsg(3)) whose level and type are in `wanted`. A message consists
/// of its length (8 bytes), its level and its type (4 bytes each), the contents, and padding to 8 bytes, which the
/// length does not count.
fn message_of<'a>(mut control: &'a [u8], wanted: &[(c_int, c_int)]) -> Option<&'a [u8]> {
    while let Some(header) = control.first_chunk::<HEADER>() {
        let len = usize::try_from(u64::from_ne_bytes(*header.first_chunk()?)).ok()?;
        let contents = control.get(HEADER..len)?;
        let level = i32::from_ne_bytes(*header[8..].first_chunk()?);
        let kind = i32::from_ne_bytes(*header[12..].first_chunk()?);
        if wanted.contains(&(level, kind)) {
            return Some(contents);
        }
        control = control.get(len.next_multiple_of(8)..)?;
    }
    None
}

/// Parses a `struct sock_extended_err` (errno, origin, type, code, padding, info, data) and the address that follows
/// it: the address of the host that sent the ICMP message.
fn extended_error(bytes: &[u8], to: SocketAddr) -> Option<QueuedError> {
    let error: &[u8; 16] = bytes.first_chunk()?;
    let origin = error[4];
    Some(QueuedError {
        errno: i32::from_ne_bytes(*error.first_chunk()?),
        by_icmp: origin == libc::SO_EE_ORIGIN_ICMP || origin == libc::SO_EE_ORIGIN_ICMP6,
        kind: error[5],
        code: error[6],
        info: u32::from_ne_bytes(*error[8..].first_chunk()?),
        to,
        by: socket_address(&bytes[16..]).map(|address| address.ip()),
    })
}

/// Parses the bytes of a `sockaddr_in` or `sockaddr_in6`; `None` for another address family.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => Some((Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?), port).into()),
        libc::AF_INET6 => Some((Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?), port).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Objective: for both IP versions, a datagram to a closed port queues an error with the datagram's destination and
    /// the ICMP message's sender.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn a_closed_port_is_an_error_in_the_queue() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(closed) = UdpSocket::bind(address) else { continue };
            let to = closed.local_addr().unwrap();
            drop(closed);
            let socket = UdpSocket::bind(address).unwrap();
            queue_errors(&socket, to.is_ipv6()).unwrap();
            assert_eq!(next_error(&socket), None);
            socket.send_to(b"x", to).unwrap();
            let error =
                next_error(&socket).expect("the kernel answers a datagram on the loopback before the call ends");
            assert_eq!((error.errno, error.to, error.by_icmp), (libc::ECONNREFUSED, to, true));
            assert_eq!(error.by, Some(to.ip()));
        }
    }

    #[test]
    fn messages_that_are_cut_or_others_are_no_errors() {
        let to: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let message = |len: u64, level: i32, kind: i32, contents: &[u8]| {
            [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), contents].concat()
        };
        let right = message(32, libc::IPPROTO_IP, libc::IP_RECVERR, &[1; 16]);
        assert!(parse_error(&right, to).is_some());
        let behind = [message(17, 1, 2, &[0; 8]), right.clone()].concat();
        assert!(parse_error(&behind, to).is_some());
        for len in 0..right.len() {
            assert!(parse_error(&right[..len], to).is_none(), "{len}");
        }
        for len in [0, 15, 33, u64::MAX] {
            assert!(parse_error(&message(len, 0, libc::IP_RECVERR, &[1; 16]), to).is_none(), "{len}");
        }
    }
}
