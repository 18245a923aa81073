//! Receiving of datagrams together with their destination address, so that answers can be sent from the same address of
//! the host (ip(7), `IP_PKTINFO`; ipv6(7), `IPV6_RECVPKTINFO`).
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use libc::socklen_t;
use rustix::io::Errno;

use super::{ADDRESS, HEADER, SocketMessage, message_of, receive_message, set};

/// Length of a control message with a `struct in6_pktinfo` in bytes, padding included.
const INFO: usize = 40;
/// Length of a control message with a `struct in_pktinfo` in bytes, padding included.
const INFO_V4: usize = 32;

/// A received datagram's length and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedDatagram {
    /// Length of the payload in bytes.
    pub len: usize,
    /// The sender's address and port.
    pub from: SocketAddr,
    /// The host's address to which the datagram was sent, if the kernel has reported it.
    pub asked: Option<IpAddr>,
}

/// Makes the kernel report the destination address of each datagram. `v6` is set for an IPv6 socket.
///
/// # Errors
/// The error of `setsockopt`.
pub fn tell_asked(socket: impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}

/// Receives a datagram without blocking. Returns `None` if none is waiting or the call fails.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> Option<AskedDatagram> {
    let SocketMessage { len, address, control } = receive_message(socket, into, 0)?;
    Some(AskedDatagram { len, from: address, asked: asked(&control) })
}

/// Parses the address from a control message. A `struct in_pktinfo` contains an interface index, the local address to
/// answer from and the destination address; this function takes the local address. A `struct in6_pktinfo` contains the
/// destination address and an interface index.
fn asked(control: &[u8]) -> Option<IpAddr> {
    if let Some(info) = message_of(control, &[(libc::IPPROTO_IP, libc::IP_PKTINFO)]) {
        return Some(Ipv4Addr::from(*info.get(4..)?.first_chunk::<4>()?).into());
    }
    let info = message_of(control, &[(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)])?;
    Some(Ipv6Addr::from(*info.first_chunk::<16>()?).into())
}

/// Sends a datagram without blocking, from the address `from`, or, if it is `None`, from an address that the kernel
/// chooses.
///
/// # Errors
/// The error of `sendmsg`.
pub fn send(socket: impl AsFd, payload: &[u8], to: SocketAddr, from: Option<IpAddr>) -> Result<(), Errno> {
    let mut address = address_bytes(to);
    let mut control = from.map(info_words);
    let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: all fields of a msghdr may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = if to.is_ipv4() { size_of::<libc::sockaddr_in>() } else { ADDRESS } as socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(control) = &mut control {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = if to.is_ipv4() { INFO_V4 } else { INFO } as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header names buffers with their lengths; the buffers live through the call, and sendmsg only reads
    // them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}

/// Encodes a `sockaddr_in` or `sockaddr_in6`.
fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Makes a control message with the source address. The message consists of 64-bit words, so that it is aligned.
fn info_words(from: IpAddr) -> [u64; INFO / 8] {
    let mut bytes = [0u8; INFO];
    let (len, level, kind): (u64, i32, i32) = match from {
        IpAddr::V4(_) => (28, libc::IPPROTO_IP, libc::IP_PKTINFO),
        IpAddr::V6(_) => (36, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
    };
    bytes[..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..12].copy_from_slice(&level.to_ne_bytes());
    bytes[12..HEADER].copy_from_slice(&kind.to_ne_bytes());
    match from {
        IpAddr::V4(from) => bytes[HEADER + 4..HEADER + 8].copy_from_slice(&from.octets()),
        IpAddr::V6(from) => bytes[HEADER..HEADER + 16].copy_from_slice(&from.octets()),
    }
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Objective: for both IP versions, a socket bound to the wildcard address answers from the address to which the
    /// request was sent.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn an_answer_leaves_from_the_address_that_was_asked() {
        for (all, asked) in [("0.0.0.0:0", "127.0.0.77"), ("[::]:0", "::1")] {
            let Ok(server) = UdpSocket::bind(all) else { continue };
            tell_asked(&server, all.starts_with('[')).unwrap();
            let asked: IpAddr = asked.parse().unwrap();
            let port = server.local_addr().unwrap().port();
            let Ok(client) = UdpSocket::bind(if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }) else { continue };
            client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            client.send_to(b"question", (asked, port)).unwrap();
            let mut bytes = [0; 100];
            let got = receive(&server, &mut bytes).expect("it is there when the call ends");
            assert_eq!((got.len, got.from, got.asked), (8, client.local_addr().unwrap(), Some(asked)));
            send(&server, b"answer", got.from, Some(asked)).unwrap();
            let (len, from) = client.recv_from(&mut bytes).unwrap();
            assert_eq!((len, from), (6, SocketAddr::new(asked, port)));
            assert_eq!(receive(&server, &mut bytes), None);
        }
    }
}
