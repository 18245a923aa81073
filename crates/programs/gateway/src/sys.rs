//! Calls that no crate here offers: options of sockets by number, and the queue of a socket's errors (ip(7),
//! `IP_RECVERR`).
#![allow(unsafe_code)]

pub mod asked;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

/// A [`QueuedError`] is an error that a datagram ran into: of the kernel here, or of a host on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// The errno.
    pub errno: i32,
    /// Whether an ICMP message brought it, of either version.
    pub by_icmp: bool,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The MTU, if that is what it is about.
    pub info: u32,
    /// Where the datagram went.
    pub to: SocketAddr,
    /// The host that sent the message.
    pub by: Option<IpAddr>,
}

/// Has errors of datagrams queued at a socket.
///
/// # Errors
/// The kernel's.
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

/// Bytes for the messages beside an error, and for an address.
const CONTROL: usize = 256;
const ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// Takes the next error out of a socket's queue. It does not wait.
pub fn next_error(socket: impl AsFd) -> Option<QueuedError> {
    let mut control = [0u64; CONTROL / 8];
    let mut address = [0u8; ADDRESS];
    let mut payload = [0u8; 1];
    let mut part = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // SAFETY: all fields of a msghdr may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = ADDRESS as socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header names three buffers of this function with their lengths, and they live through the call.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    if got < 0 {
        return None;
    }
    #[allow(clippy::unnecessary_cast, reason = "a type of its own with musl")]
    let used = (message.msg_controllen as usize).min(CONTROL);
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).take(used).collect();
    parse_error(&bytes, socket_address(&address)?)
}

/// The first error among messages.
fn parse_error(control: &[u8], to: SocketAddr) -> Option<QueuedError> {
    let wanted = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
    extended_error(message_of(control, &wanted)?, to)
}

/// Bytes before the contents of a message.
const HEADER: usize = 16;

/// The contents of the first message of a level and a type, among messages of the form of cmsg(3): a length of 8 bytes,
/// level and type of 4 bytes each, the contents, and padding to 8 bytes.
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

/// `struct sock_extended_err`: errno, origin, type, code, a byte, info, data, and then the offender's address.
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

/// A `sockaddr_in` or `sockaddr_in6` as bytes.
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

    /// Objective: a datagram to a closed port brings an error with where it went and what came back, for both versions.
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
