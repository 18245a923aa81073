//! A socket's error queue (IP_RECVERR; linux/errqueue.h): ICMP errors about packets that the socket sent, and errors
//! that this host detects. Each error has a cause.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

/// Size in bytes of the buffer for control data: a header, `sock_extended_err`, and the address of the host that
/// reported the error.
const CONTROL: usize = 64;
/// Size of a control message's header in bytes.
const HEADER: usize = size_of::<libc::cmsghdr>();

const _: () = assert!(HEADER == 16 && HEADER + size_of::<libc::sock_extended_err>() + 28 <= CONTROL);

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no route.
    NoRoute,
    /// The host is down, or refuses the packet.
    HostUnreachable,
    /// A firewall refuses the packet.
    Prohibited,
    /// The host has no such UDP port open.
    PortUnreachable,
    /// The packet is too large; the value is the largest size that fits, in bytes.
    TooBig(u32),
    /// Any other cause.
    Other,
}

/// An error about a path, and the host that reported the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The cause.
    pub cause: Cause,
    /// Address of the host that reported the error; `None` if it is unknown.
    pub from: Option<IpAddr>,
}

#[repr(C, align(8))]
struct ErrorControl([u8; CONTROL]);

/// Takes the oldest error from the queue. Copies the payload of the packet that the error quotes, i.e. the bytes after
/// its IP and UDP headers, to `quote`. Returns the error and the length of the quote; `None` if the queue is empty.
pub fn take(socket: &impl AsFd, quote: &mut [u8]) -> Option<(PathError, usize)> {
    let mut control = ErrorControl([0; CONTROL]);
    let mut part = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    // SAFETY: all zeros are a valid value: null pointers and numbers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL as _;
    let fd = socket.as_fd().as_raw_fd();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to `part` and `control`, and `part` to `quote`: all are borrowed exclusively and have
    // the given lengths.
    let got = unsafe { libc::recvmsg(fd, &raw mut header, flags) };
    let got = usize::try_from(got).ok()?.min(quote.len());
    let len = (header.msg_controllen as usize).min(CONTROL);
    Some((parse(&control.0[..len]).unwrap_or(PathError { cause: Cause::Other, from: None }), got))
}

/// Parses control data; `None` if it contains no error.
fn parse(control: &[u8]) -> Option<PathError> {
    let int = |at: usize| Some(u32::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let is_error = matches!(
        (int(8)?.cast_signed(), int(12)?.cast_signed()),
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    );
    let &[origin, kind, code, _] = control.get(HEADER + 4..)?.first_chunk()?;
    let errno = int(HEADER)?.cast_signed();
    let info = int(HEADER + 8)?;
    let from = address(control.get(HEADER + 16..)?);
    is_error.then(|| PathError { cause: cause(errno, [origin, kind, code], info), from })
}

/// Returns the address in a `sockaddr_in` or `sockaddr_in6`; `None` for other families.
fn address(name: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(*name.first_chunk()?));
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Classifies an error by its ICMP type and code (RFC 792, RFC 1812 §5.2.7.1, RFC 4443 §3), or by `errno` if this host
/// detected it.
fn cause(errno: i32, [origin, kind, code]: [u8; 3], info: u32) -> Cause {
    match (origin, kind, code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => Cause::TooBig(info),
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => Cause::PortUnreachable,
        (libc::SO_EE_ORIGIN_ICMP, 3, 9 | 10 | 13) | (libc::SO_EE_ORIGIN_ICMP6, 1, 1 | 5) => Cause::Prohibited,
        (libc::SO_EE_ORIGIN_ICMP, 3, 0 | 6 | 11) | (libc::SO_EE_ORIGIN_ICMP6, 1, 0 | 6) => Cause::NoRoute,
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Cause::HostUnreachable,
        (libc::SO_EE_ORIGIN_LOCAL, ..) => of_errno(errno, info),
        _ => Cause::Other,
    }
}

/// Classifies an error that this host detected, by its errno.
pub fn of_errno(errno: i32, info: u32) -> Cause {
    match errno {
        libc::EMSGSIZE => Cause::TooBig(info),
        // No route, or a route of type `blackhole` (ip-route(8)).
        libc::ENETUNREACH | libc::EINVAL => Cause::NoRoute,
        libc::EHOSTUNREACH => Cause::HostUnreachable,
        // A route of type `prohibit`, or a firewall rule of this host.
        libc::EPERM | libc::EACCES => Cause::Prohibited,
        libc::ECONNREFUSED => Cause::PortUnreachable,
        _ => Cause::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(level: i32, kind: i32, error: [u8; 3], errno: i32, info: u32, name: &[u8]) -> Vec<u8> {
        let mut bytes = 60_usize.to_ne_bytes().to_vec();
        for int in [level, kind, errno] {
            bytes.extend(int.to_ne_bytes());
        }
        bytes.extend([error[0], error[1], error[2], 0]);
        bytes.extend(info.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(name);
        bytes
    }

    /// Objective: errors reported by routers, by the destination and by this host are distinguished, and the reporter's
    /// address is found.
    #[test]
    fn causes_of_errors_are_told_apart() {
        let v4 = [2, 0, 0, 0, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        let v6 = [&[10, 0, 0, 0, 0, 0, 0, 0, 0xfd, 9][..], &[0; 13], &[1], &[0; 4]].concat();
        let by4 = Some("10.0.0.9".parse().unwrap());
        let by6 = Some("fd09::1".parse().unwrap());
        let four = |kind, code| parse(&control(0, libc::IP_RECVERR, [2, kind, code], 111, 1400, &v4)).unwrap();
        let six = |kind, code| parse(&control(41, libc::IPV6_RECVERR, [3, kind, code], 111, 1400, &v6)).unwrap();
        assert_eq!(four(3, 4), PathError { cause: Cause::TooBig(1400), from: by4 });
        assert_eq!(six(2, 0), PathError { cause: Cause::TooBig(1400), from: by6 });
        assert_eq!([four(3, 3).cause, six(1, 4).cause], [Cause::PortUnreachable; 2]);
        assert_eq!([four(3, 13).cause, six(1, 1).cause], [Cause::Prohibited; 2]);
        assert_eq!([four(3, 0).cause, six(1, 0).cause], [Cause::NoRoute; 2]);
        assert_eq!([four(3, 1).cause, six(1, 3).cause], [Cause::HostUnreachable; 2]);
        assert_eq!(four(11, 0).cause, Cause::Other);
        let local = parse(&control(0, libc::IP_RECVERR, [1, 0, 0], libc::EMSGSIZE, 1300, &[0; 16])).unwrap();
        assert_eq!(local, PathError { cause: Cause::TooBig(1300), from: None });
    }

    /// Objective: truncated control data and control data of another kind are not taken for an error.
    #[test]
    fn other_control_data_is_not_an_error() {
        let whole = control(0, libc::IP_RECVERR, [2, 3, 3], 111, 0, &[2, 0, 0, 0, 10, 0, 0, 9]);
        assert!((0..32).all(|len| parse(&whole[..len]).is_none()));
        assert!(parse(&whole[..32]).is_some_and(|error| error.from.is_none()));
        assert!(parse(&control(1, 2, [2, 3, 3], 111, 0, &[0; 16])).is_none());
    }
}
