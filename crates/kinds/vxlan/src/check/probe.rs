//! The sockets that probe one VTEP: a UDP socket like the tunnel's, and a socket for ICMP echo.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::echo::{self, EchoKey};
use super::errors::{self, Cause, PathError};
use super::longest::ProbeResponse;
use super::{Asker, CheckError};
use crate::{header, sys};

/// Maximum size of an IP packet in bytes.
pub const LONGEST: u32 = 65_535;
/// Size in bytes of the data in a short echo request, the same as in `ping`'s requests.
const DATA: usize = 56;
/// Once a host has replied to an echo request, the probe waits twice the round trip plus this time for an error about
/// the datagram that it sent before.
const GRACE: Duration = Duration::from_millis(20);

/// Maximum number of packets taken from a socket between two checks of the clock, so that a VTEP that sends endlessly
/// cannot prolong the check.
const AT_ONCE: usize = 64;

/// The sockets that probe one VTEP.
pub struct Probe {
    is_v4: bool,
    vni: u32,
    udp: OwnedFd,
    icmp: OwnedFd,
    /// Whether the ICMP socket is raw: it then receives everything from the VTEP, with the IP header over IPv4.
    is_raw: bool,
    key: EchoKey,
    buffer: Vec<u8>,
}

/// An event at a socket.
enum ProbeEvent {
    Reply,
    OfUdp(PathError),
    OfEcho(PathError),
}

impl Probe {
    /// Opens the sockets; `None` if this host has no route to the VTEP.
    pub fn new(asker: &Asker, vtep: IpAddr) -> Result<Option<Probe>, CheckError> {
        let at = SocketAddr::new(asker.local, 0);
        let failed = |e: io::Error| match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => CheckError::NotHere(asker.local),
            _ => CheckError::Socket(asker.local, e),
        };
        let udp = sys::udp(at).map_err(failed)?;
        let (icmp, is_raw) = icmp_socket(asker.local.is_ipv4()).map_err(|e| match e {
            Errno::PERM | Errno::ACCESS => CheckError::NoEcho,
            e => failed(e.into()),
        })?;
        rustix::net::bind(&icmp, &at).map_err(|e| failed(e.into()))?;
        for socket in [&udp, &icmp] {
            prepare(socket, asker.local.is_ipv4()).map_err(failed)?;
        }
        for (socket, port) in [(&udp, asker.port), (&icmp, 0)] {
            match rustix::net::connect(socket, &SocketAddr::new(vtep, port)) {
                Ok(()) => {}
                Err(e) if errors::of_errno(e.raw_os_error(), 0) != Cause::Other => return Ok(None),
                Err(e) => return Err(failed(e.into())),
            }
        }
        let key = EchoKey { id: is_raw.then(next_id), sequence: 0 };
        let buffer = vec![0; LONGEST as usize];
        Ok(Some(Probe { is_v4: vtep.is_ipv4(), vni: asker.vni, udp, icmp, is_raw, key, buffer }))
    }

    /// Returns the size in bytes of the longest packet that reaches the VTEP unfragmented; `None` if this host does not
    /// know it.
    pub fn known_mtu(&self) -> Option<u32> {
        sys::path_mtu(&self.udp, self.is_v4)
    }

    /// Returns the size in bytes of a short request's packet.
    pub fn least(&self) -> u32 {
        (self.headers() + DATA) as u32
    }

    fn headers(&self) -> usize {
        echo::HEADER + if self.is_v4 { 20 } else { 40 }
    }

    /// Sends a VXLAN header without a frame, and a short echo request. Returns the round trip, if a reply arrived, and
    /// the error, if the network reported one.
    pub fn reach(&mut self, timeout: Duration) -> io::Result<(Option<Duration>, Option<PathError>)> {
        let begin = Instant::now();
        let mut until = begin + timeout;
        let mut round_trip = None;
        for sent in [self.send_header(), self.send_echo(self.least())] {
            if let Err(errno) = sent {
                return refused(errno).map(|error| (None, Some(error)));
            }
        }
        while let Some(event) = self.next(until)? {
            match event {
                ProbeEvent::Reply if round_trip.is_none() => {
                    let time = begin.elapsed();
                    round_trip = Some(time);
                    until = until.min(Instant::now() + 2 * time + GRACE);
                }
                ProbeEvent::OfUdp(error) | ProbeEvent::OfEcho(error)
                    if !matches!(error.cause, Cause::TooBig(_) | Cause::Other) =>
                {
                    return Ok((round_trip, Some(error)));
                }
                _ if Instant::now() >= until => break,
                _ => {}
            }
        }
        Ok((round_trip, None))
    }

    /// Sends an echo request in an unfragmented packet of `size` bytes, and waits for the response, at most for `wait`.
    /// An error of the network other than a packet's size counts as silence.
    pub fn echo(&mut self, size: u32, wait: Duration) -> io::Result<ProbeResponse> {
        let begin = Instant::now();
        match self.send_echo(size) {
            Err(Errno::MSGSIZE) => return Ok(ProbeResponse::TooBig(self.known_mtu().unwrap_or(0))),
            Err(errno) => return refused(errno).map(response),
            Ok(()) => {}
        }
        while let Some(event) = self.next(begin + wait)? {
            match event {
                ProbeEvent::Reply => return Ok(ProbeResponse::Reply),
                ProbeEvent::OfEcho(error) => return Ok(response(error)),
                ProbeEvent::OfUdp(_) if Instant::now() >= begin + wait => break,
                ProbeEvent::OfUdp(_) => {}
            }
        }
        Ok(ProbeResponse::Silence)
    }

    fn send_header(&self) -> Result<(), Errno> {
        send(&self.udp, &header::encode(self.vni))
    }

    fn send_echo(&mut self, size: u32) -> Result<(), Errno> {
        self.key.sequence = self.key.sequence.wrapping_add(1);
        let bytes = (size as usize).saturating_sub(self.headers() - echo::HEADER);
        send(&self.icmp, &echo::request(self.is_v4, self.key, bytes))
    }

    /// Waits for an event about the last request or a datagram; returns `None` if no event has occurred by `until`.
    fn next(&mut self, until: Instant) -> io::Result<Option<ProbeEvent>> {
        loop {
            if let Some(event) = self.pending() {
                return Ok(Some(event));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut polled = [PollFd::new(&self.udp, PollFlags::IN), PollFd::new(&self.icmp, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Takes a pending event. Skips packets that are no event, but at most a limited number per call; returns `None` if
    /// no event was found.
    fn pending(&mut self) -> Option<ProbeEvent> {
        if let Some((error, _)) = errors::take(&self.udp, &mut self.buffer) {
            return Some(ProbeEvent::OfUdp(error));
        }
        // The UDP socket expects no packets, so received ones are discarded.
        for _ in 0..AT_ONCE {
            if rustix::net::recv(&self.udp, &mut self.buffer[..], RecvFlags::DONTWAIT).is_err() {
                break;
            }
        }
        for _ in 0..AT_ONCE {
            let Some((error, len)) = errors::take(&self.icmp, &mut self.buffer) else { break };
            let quoted = self.buffer.get(..len).unwrap_or_default();
            if echo::is_request(self.is_v4, self.key, quoted) {
                return Some(ProbeEvent::OfEcho(error));
            }
        }
        for _ in 0..AT_ONCE {
            match rustix::net::recv(&self.icmp, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, len)) if self.is_reply(len) => return Some(ProbeEvent::Reply),
                Ok(_) => {}
                // No packet is left, or the kernel returns an error; the error is also in the error queue, from which
                // it is taken.
                Err(_) => break,
            }
        }
        None
    }

    fn is_reply(&self, len: usize) -> bool {
        let packet = self.buffer.get(..len).unwrap_or_default();
        let message = if self.is_raw && self.is_v4 { echo::behind_ipv4(packet) } else { packet };
        echo::is_reply(self.is_v4, self.key, message)
    }
}

/// Opens a socket for ICMP echo. Returns the socket, and whether it is raw. An ordinary user gets an unprivileged
/// socket if net.ipv4.ping_group_range includes one of the user's groups; in a new network namespace, the range is
/// empty.
fn icmp_socket(is_v4: bool) -> Result<(OwnedFd, bool), Errno> {
    let (family, protocol) =
        if is_v4 { (AddressFamily::INET, ipproto::ICMP) } else { (AddressFamily::INET6, ipproto::ICMPV6) };
    let open = |kind, protocol: Protocol| {
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol))
    };
    match open(SocketType::DGRAM, protocol) {
        Ok(socket) => Ok((socket, false)),
        Err(_) => open(SocketType::RAW, protocol).map(|socket| (socket, true)),
    }
}

/// Enables the socket's error queue, and forbids fragmentation of its packets on this host and on the path.
fn prepare(socket: &OwnedFd, is_v4: bool) -> io::Result<()> {
    if is_v4 {
        sys::set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        sys::set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    } else {
        sys::set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        sys::set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
        sys::set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    }
}

/// Returns an identifier that differs from the identifiers of this process's recent checks and, most likely, from the
/// identifiers that other processes use.
fn next_id() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id() as u16;
    process.wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends a packet. First clears the socket's pending error, which the kernel would otherwise return instead of sending
/// the packet; the error stays in the error queue.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let _ = rustix::net::sockopt::socket_error(socket);
    rustix::net::send(socket, bytes, SendFlags::DONTWAIT).map(|_| ())
}

/// Converts the kernel's refusal to send into an error about the path.
fn refused(errno: Errno) -> io::Result<PathError> {
    match errors::of_errno(errno.raw_os_error(), 0) {
        Cause::Other => Err(errno.into()),
        cause => Ok(PathError { cause, from: None }),
    }
}

/// Converts an error about an echo request to the response to the request.
fn response(error: PathError) -> ProbeResponse {
    match error.cause {
        Cause::TooBig(mtu) => ProbeResponse::TooBig(mtu),
        _ => ProbeResponse::Silence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn ip(n: u8) -> IpAddr {
        let [a, b, ..] = std::process::id().to_le_bytes();
        IpAddr::from([127, 1 | a, b, n])
    }

    mod as_root {
        use super::*;

        /// Objective: a VTEP's unsolicited datagrams are taken in limited numbers, between which the clock is checked;
        /// the round trip is still measured.
        #[test]
        fn unsolicited_datagrams_are_taken_in_limited_numbers() {
            let vtep = UdpSocket::bind((ip(2), 0)).unwrap();
            let port = vtep.local_addr().unwrap().port();
            let asker = Asker { local: ip(1), port, vni: 7, timeout: Duration::from_secs(5) };
            let mut probe = match Probe::new(&asker, ip(2)) {
                Err(CheckError::NoEcho) => return netvale_harness::skip("this user may not send ICMP echo requests"),
                probe => probe.unwrap().expect("a route"),
            };
            let to: SocketAddr = rustix::net::getsockname(&probe.udp).unwrap().try_into().unwrap();
            let datagrams = |count: usize| (0..count).for_each(|_| _ = vtep.send_to(&[0; 32], to).unwrap());
            let left = |probe: &mut Probe| {
                let mut recv = || rustix::net::recv(&probe.udp, &mut probe.buffer[..], RecvFlags::DONTWAIT);
                std::iter::from_fn(|| recv().ok()).count()
            };
            datagrams(AT_ONCE + 10);
            assert!(probe.pending().is_none());
            assert_eq!(left(&mut probe), 10);
            datagrams(AT_ONCE + 10);
            let (round_trip, error) = probe.reach(asker.timeout).unwrap();
            assert!(round_trip.is_some() && error.is_none(), "{round_trip:?} {error:?}");
        }
    }
}
