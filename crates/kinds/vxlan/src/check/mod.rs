//! Checks whether a remote endpoint (VTEP) answers, how fast it answers, and how long a packet to it can be. The checks
//! rely on what every host has: ICMP echo, and the ICMP error about a datagram that no socket receives.
//!
//! ```text
//!   reach:   ──▶ VXLAN header without a frame, UDP ──▶  port unreachable: no VTEP; silence: a socket receives it
//!            ──▶ echo request, short ────────────────▶  reply: the round trip
//!   longest: ──▶ echo requests that may not be cut ──▶  reply, "too big" with an MTU, or silence (`longest`)
//! ```
//!
//! The asker is this host's endpoint. A probe checks one VTEP; the report about the VTEP contains the results and the
//! failure, if any.
//!
//! | module | what it is |
//! |---|---|
//! | `probe` | the sockets of one check |
//! | `echo` | echo requests and replies as bytes |
//! | `errors` | a socket's error queue |
//! | `longest` | the search for the longest packet |

mod echo;
mod errors;
mod longest;
mod probe;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use errors::{Cause, PathError};
use longest::ProbeResponse;
use probe::Probe;

use crate::tunnel::around_packet;

/// Number of requests to a VTEP. There are several because the first request may have to wait until the VTEP's Ethernet
/// address is resolved.
const ROUNDS: usize = 3;
/// Number of times that a long packet is sent before a missing reply counts.
const TRIES: usize = 3;
/// Minimum time to wait for the reply to a long packet.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);

/// The tunnel from whose endpoint a check is made.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Address of this host's endpoint.
    pub local: IpAddr,
    /// UDP port.
    pub port: u16,
    /// VXLAN network identifier.
    pub vni: u32,
    /// Maximum time to wait for an answer.
    pub timeout: Duration,
}

/// An error that prevents probing from this host.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The address does not belong to this network namespace.
    #[error("{0} is not an address of this network namespace")]
    NotHere(IpAddr),
    /// No socket for ICMP echo is available.
    #[error("this user may not send ICMP echo requests")]
    NoEcho,
    /// Another system call failed.
    #[error("cannot probe from {0}: {1}")]
    Socket(IpAddr, #[source] io::Error),
}

/// A failure of a VTEP or of the path to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VtepFailure {
    /// This host, or a router on the path, has no route to the VTEP.
    #[error("no route{}", by(*.0))]
    NoRoute(Option<IpAddr>),
    /// There is a route, but the VTEP's host is down or a router or this host cannot reach it.
    #[error("host unreachable{}", by(*.0))]
    HostUnreachable(Option<IpAddr>),
    /// A firewall on the path refuses the packet.
    #[error("prohibited{}", by(*.0))]
    Prohibited(Option<IpAddr>),
    /// The host is up, but has no socket on this UDP port.
    #[error("port unreachable: no VTEP listens on UDP port {0}")]
    PortUnreachable(u16),
    /// No answer arrived in time.
    #[error("no answer")]
    NoAnswer,
    /// Packets that should fit into the path's MTU vanish; the value is the size of the longest packet that passes, in
    /// bytes.
    #[error("packets longer than {0} bytes are lost silently")]
    BlackHole(u32),
}

fn by(who: Option<IpAddr>) -> String {
    who.map_or_else(String::new, |ip| format!(", says {ip}"))
}

impl VtepFailure {
    /// Returns the failure's name in machine-readable output.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            VtepFailure::NoRoute(_) => "no-route",
            VtepFailure::HostUnreachable(_) => "host-unreachable",
            VtepFailure::Prohibited(_) => "prohibited",
            VtepFailure::PortUnreachable(_) => "port-unreachable",
            VtepFailure::NoAnswer => "no-answer",
            VtepFailure::BlackHole(_) => "black-hole",
        }
    }
}

/// The results of a check of one VTEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VtepReport {
    /// Address of the VTEP.
    pub vtep: IpAddr,
    /// The shortest measured round trip; `None` if no reply arrived.
    pub round_trip: Option<Duration>,
    /// The path MTU in bytes that this host knew before the check; `None` if it knew none.
    pub known_mtu: Option<u32>,
    /// Size of the longest packet that was answered, in bytes; `None` if it was not measured.
    pub path_mtu: Option<u32>,
    /// The failure; `None` if the check succeeded.
    pub failure: Option<VtepFailure>,
}

impl VtepReport {
    /// Returns the size of the longest packet that fits into a tunnelled frame, in bytes; `None` if it was not
    /// measured.
    #[must_use]
    pub fn inner_mtu(&self) -> Option<u32> {
        self.path_mtu.map(|mtu| mtu.saturating_sub(around_packet(self.vtep)))
    }
}

/// Probes one VTEP.
///
/// # Errors
/// [`CheckError`] if this process cannot probe.
pub fn check(asker: &Asker, vtep: IpAddr) -> Result<VtepReport, CheckError> {
    let mut report = VtepReport { vtep, round_trip: None, known_mtu: None, path_mtu: None, failure: None };
    let failed = |e| CheckError::Socket(asker.local, e);
    let Some(mut probe) = Probe::new(asker, vtep)? else {
        report.failure = Some(VtepFailure::NoRoute(None));
        return Ok(report);
    };
    report.known_mtu = probe.known_mtu();
    (report.round_trip, report.failure) = reach(&mut probe, asker).map_err(failed)?;
    if let (Some(round_trip), None, Some(known)) = (report.round_trip, report.failure, report.known_mtu) {
        let (mtu, failure) = fits(&mut probe, asker, known, round_trip).map_err(failed)?;
        report.path_mtu = mtu;
        report.failure = failure;
    }
    Ok(report)
}

/// Returns the shortest of several round trips (`None` if no reply arrived), and the failure: an error that the network
/// reports, or [`VtepFailure::NoAnswer`]; `None` if there is no failure.
fn reach(probe: &mut Probe, asker: &Asker) -> io::Result<(Option<Duration>, Option<VtepFailure>)> {
    let mut shortest: Option<Duration> = None;
    for _ in 0..ROUNDS {
        let (round_trip, error) = probe.reach(asker.timeout)?;
        shortest = shortest.into_iter().chain(round_trip).min();
        if let Some(failure) = error.and_then(|error| failure_of(error, asker.port)) {
            return Ok((shortest, Some(failure)));
        }
    }
    Ok((shortest, shortest.is_none().then_some(VtepFailure::NoAnswer)))
}

fn failure_of(PathError { cause, from }: PathError, port: u16) -> Option<VtepFailure> {
    match cause {
        Cause::NoRoute => Some(VtepFailure::NoRoute(from)),
        Cause::HostUnreachable => Some(VtepFailure::HostUnreachable(from)),
        Cause::Prohibited => Some(VtepFailure::Prohibited(from)),
        Cause::PortUnreachable => Some(VtepFailure::PortUnreachable(port)),
        Cause::TooBig(_) | Cause::Other => None,
    }
}

/// Searches for the longest packet of at most `known` bytes that is answered. Returns its size, and a failure if longer
/// packets are lost without an error.
fn fits(
    probe: &mut Probe,
    asker: &Asker,
    known: u32,
    round_trip: Duration,
) -> io::Result<(Option<u32>, Option<VtepFailure>)> {
    let wait = (round_trip * 4).max(SHORTEST_WAIT).min(asker.timeout);
    let least = probe.least();
    let found = longest::search(known.min(probe::LONGEST), least, |size| ask(probe, size, wait))?;
    if !found.is_silent {
        return Ok((Some(found.mtu), None));
    }
    // Short packets are still answered, so the length is the cause.
    match ask(probe, least, asker.timeout)? {
        ProbeResponse::Reply => Ok((Some(found.mtu), Some(VtepFailure::BlackHole(found.mtu)))),
        _ => Ok((None, Some(VtepFailure::NoAnswer))),
    }
}

fn ask(probe: &mut Probe, size: u32, wait: Duration) -> io::Result<ProbeResponse> {
    for _ in 0..TRIES {
        let response = probe.echo(size, wait)?;
        if response != ProbeResponse::Silence {
            return Ok(response);
        }
    }
    Ok(ProbeResponse::Silence)
}
