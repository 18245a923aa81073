//! The socket through which a mirror sends.

use std::io;
use std::os::fd::OwnedFd;

use netvale_wire::layers::Layers;
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

use super::headers::TunnelHeaders;
use super::target::MirrorTarget;
use crate::CliError;

/// Protocol number of UDP in the IP header.
const UDP: u8 = 17;
/// Protocol number of GRE in the IP header.
const GRE: u8 = 47;

/// Sends frames to a target.
pub struct MirrorTunnel {
    socket: OwnedFd,
    target: MirrorTarget,
    datagram: Vec<u8>,
    /// The totals so far.
    pub totals: MirrorTotals,
}

/// The totals of a mirror.
#[derive(Debug, Default)]
pub struct MirrorTotals {
    pub sent: u64,
    /// Sum of the sent frames' original lengths in bytes, before truncation.
    pub bytes: u64,
    /// Frames that could not be sent.
    pub unsent: u64,
    /// Datagrams of this mirror that passed the port and were not mirrored.
    pub own: u64,
    /// The error for the last frame that could not be sent; `None` if all were sent.
    pub why: Option<io::Error>,
}

impl MirrorTunnel {
    /// Opens the socket.
    ///
    /// # Errors
    /// A capability is missing, or no route leads to the target.
    pub fn open(target: MirrorTarget) -> Result<MirrorTunnel, CliError> {
        let socket = socket(target).map_err(|e| cannot_open(target, &e))?;
        Ok(MirrorTunnel { socket, target, datagram: Vec::new(), totals: MirrorTotals::default() })
    }

    /// Sends the kept part of a frame, unless the frame is a datagram of this mirror. Failures are counted.
    pub fn send(&mut self, frame: &[u8], kept: &[u8]) {
        if is_own(frame, self.target) {
            self.totals.own += 1;
            return;
        }
        self.datagram.clear();
        self.target.headers.write(&mut self.datagram, frame, kept.len() < frame.len(), self.totals.sent as u32);
        self.datagram.extend_from_slice(kept);
        match self.out() {
            Ok(()) => {
                self.totals.sent += 1;
                self.totals.bytes += frame.len() as u64;
            }
            Err(error) => {
                self.totals.unsent += 1;
                self.totals.why = Some(error);
            }
        }
    }

    fn out(&self) -> io::Result<()> {
        let send = || rustix::io::retry_on_intr(|| net::send(&self.socket, &self.datagram, SendFlags::empty()));
        match send() {
            // The error is for an earlier datagram, which no program at the target received. This datagram has not been
            // sent yet.
            Err(rustix::io::Errno::CONNREFUSED) => send(),
            other => other,
        }
        .map(drop)
        .map_err(io::Error::from)
    }
}

fn socket(MirrorTarget { headers, to }: MirrorTarget) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, protocol) = match headers {
        TunnelHeaders::Erspan(_) => (SocketType::RAW, ipproto::GRE),
        _ => (SocketType::DGRAM, ipproto::UDP),
    };
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))?;
    net::connect(&socket, &to)?;
    Ok(socket)
}

fn cannot_open(MirrorTarget { headers, to }: MirrorTarget, error: &io::Error) -> CliError {
    let what = format!("cannot send to {}: {error}", to.ip());
    match (headers, error.kind()) {
        (TunnelHeaders::Erspan(_), io::ErrorKind::PermissionDenied) => {
            CliError::failed(what, "ERSPAN needs CAP_NET_RAW: run this command as root, or use vxlan: or udp:")
        }
        _ => CliError::failed(what, "check the address and `ip route get`"),
    }
}

/// Returns whether a frame is a datagram of the mirror itself, which would otherwise be mirrored again and again. For a
/// fragment, which may lack the UDP header, only the destination address and the protocol are compared.
fn is_own(frame: &[u8], MirrorTarget { headers, to }: MirrorTarget) -> bool {
    let Some(ip) = Layers::parse(frame).ok().and_then(|layers| layers.ip) else { return false };
    let protocol = if matches!(headers, TunnelHeaders::Erspan(_)) { GRE } else { UDP };
    if ip.protocol != protocol || ip.dst != to.ip() {
        return false;
    }
    let port = frame.get(ip.l4 + 2..ip.l4 + 4).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    protocol == GRE || ip.fragment || port == Some(to.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an IPv4 frame to 10.0.0.2, with destination port 4789 unless `protocol` has no ports.
    fn frame(protocol: u8, fragment: bool) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
        frame[20..22].copy_from_slice(&if fragment { [0x20, 0] } else { [0, 0] });
        frame[22..24].copy_from_slice(&[64, protocol]);
        frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
        frame[36..38].copy_from_slice(&4789_u16.to_be_bytes());
        frame
    }

    /// Objective: the mirror's own datagrams are recognized, whole or in fragments; no other frame is.
    #[test]
    fn only_the_mirrors_own_datagrams_are_recognized() {
        let to = |headers, text: &str| MirrorTarget { headers, to: text.parse().unwrap() };
        let vxlan = |text: &str| to(TunnelHeaders::Vxlan(1), text);
        let erspan = |text: &str| to(TunnelHeaders::Erspan(1), text);
        assert!(is_own(&frame(UDP, false), vxlan("10.0.0.2:4789")));
        assert!(is_own(&frame(UDP, true), vxlan("10.0.0.2:1")));
        assert!(is_own(&frame(GRE, false), erspan("10.0.0.2:0")));
        assert!(!is_own(&frame(UDP, false), vxlan("10.0.0.2:1")));
        assert!(!is_own(&frame(UDP, false), vxlan("10.0.0.3:4789")));
        assert!(!is_own(&frame(UDP, false), erspan("10.0.0.2:0")));
        assert!(!is_own(&[0; 14], vxlan("10.0.0.2:4789")));
    }
}
