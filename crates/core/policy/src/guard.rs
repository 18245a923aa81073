//! Anti-spoofing: whether a frame's addresses are among those that its port may use.
//!
//! A [`Guard`] combines the checks of libvirt's filter `clean-traffic`, OpenStack's port security and a switch's DHCP
//! snooping and RA guard, each as a [`Check`] of its own:
//!
//! | check | refuses |
//! |---|---|
//! | `mac` | an Ethernet source that is not listed |
//! | `ip` | an IPv4 or IPv6 source that is not listed |
//! | `arp` | ARP and RARP messages that claim an address of another port |
//! | `nd` | IPv6 neighbour discovery that claims an address of another port, and redirects |
//! | `dhcp` | messages of a DHCP server, over IPv4 and IPv6 |
//! | `ra` | IPv6 router advertisements and redirects |
//!
//! A port may use only listed addresses: a port with IPv6 must also list its link-local address or `fe80::/10`, and
//! with `ip` a port that lists only IPv4 addresses sends no IPv6 at all. `arp` and `nd` compare MAC addresses if any is
//! listed, and IP addresses if any is listed.
//!
//! A frame is refused if a check would have to read an unreadable part of the frame: the bytes after a third VLAN tag,
//! a header that is truncated or beyond the given bytes, a chain of extension headers that is too long, or a first
//! fragment without ports. Otherwise a sender could hide a message in that part (RFC 7113). Checks skip VLAN tags, and
//! an LLC/SNAP header in front of an EtherType, which hosts and access points remove (CERT VU#855201). They do not
//! inspect the contents of tunnels, PPPoE and MPLS.
//!
//! ```
//! use netvale_policy::guard::{Guard, Violation};
//!
//! let guard = Guard::new("mac,arp".parse()?, "02:00:00:00:00:01, 10.0.0.5".parse()?)?;
//! let mut frame = [0; 60];
//! frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
//! assert_eq!(guard.check(&frame, 60), Err(Violation::SpoofedMac));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addresses;
mod allowed;
mod checks;
mod nd;
mod packet;

use std::fmt;

use netvale_wire::{arp, ethernet};

pub use addresses::{AllowedAddresses, BadAddresses, IpPrefix};
pub use checks::{BadChecks, Check, Checks};

use allowed::AddressSet;
use packet::{Ipv4Packet, Ipv6Packet, PacketPorts, UpperPayload};

/// EtherType of RARP (RFC 903), whose packets have ARP's layout.
const RARP: u16 = 0x8035;
// UDP ports of DHCP (RFC 2131 §4.1) and DHCPv6 (RFC 8415 §7.2).
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;
const DHCP6_CLIENT: u16 = 546;
const DHCP6_SERVER: u16 = 547;

/// The reason why a port may not send a frame. Each reason has its own drop counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Violation {
    /// The Ethernet source is not an address of the port.
    SpoofedMac,
    /// The IP source is not an address of the port, or cannot be read.
    SpoofedIp,
    /// An ARP or RARP message that claims an address of another port, or is unreadable.
    SpoofedArp,
    /// A neighbour discovery message that claims an address of another port, or a redirect, or an unreadable message
    /// that may be one of these.
    SpoofedNd,
    /// A message of a DHCP server, or an unreadable message that may be one.
    RogueDhcp,
    /// A router advertisement or a redirect, or an unreadable message that may be one.
    RogueRa,
}

impl Violation {
    /// All violations, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::SpoofedMac, Self::SpoofedIp, Self::SpoofedArp, Self::SpoofedNd, Self::RogueDhcp, Self::RogueRa];

    /// The name of the counter, such as `spoofed-mac`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpoofedMac => "spoofed-mac",
            Self::SpoofedIp => "spoofed-ip",
            Self::SpoofedArp => "spoofed-arp",
            Self::SpoofedNd => "spoofed-nd",
            Self::RogueDhcp => "rogue-dhcp",
            Self::RogueRa => "rogue-ra",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// The reason why a guard cannot be created: a check lacks addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGuard {
    /// The check `mac` without any MAC address.
    #[error("the check `mac` lacks the port's MAC addresses: list at least one")]
    NoMac,
    /// The check `ip` without any IP address.
    #[error("the check `ip` lacks the port's IP addresses: list at least one")]
    NoIp,
    /// The check `arp` or `nd` without any address.
    #[error("the check `{0}` lacks the port's addresses: list MAC addresses, IP addresses, or both")]
    NoAddress(&'static str),
}

/// A guard: the checks of a port's frames, with the port's addresses.
#[derive(Clone, Debug)]
pub struct Guard {
    checks: Checks,
    /// Whether a check other than `mac` is enabled.
    deep: bool,
    allowed: AddressSet,
}

impl Guard {
    /// Maximum number of a frame's bytes that a check reads: enough for two tags and a router advertisement with two
    /// prefixes and a name server. Frames with options beyond these bytes are refused.
    pub const HEAD: usize = 192;

    /// Creates a guard that applies `checks` with the port's `addresses`, or returns the check that lacks addresses.
    /// Addresses that no check uses are ignored.
    pub fn new(checks: Checks, addresses: AllowedAddresses) -> Result<Self, BadGuard> {
        let no_mac = addresses.macs().is_empty();
        let no_ip = addresses.prefixes().is_empty();
        if checks.has(Check::Mac) && no_mac {
            return Err(BadGuard::NoMac);
        }
        if checks.has(Check::Ip) && no_ip {
            return Err(BadGuard::NoIp);
        }
        let comparing = [Check::Arp, Check::Nd].into_iter().find(|&check| checks.has(check));
        match comparing {
            Some(check) if no_mac && no_ip => Err(BadGuard::NoAddress(check.name())),
            _ => Ok(Self { checks, deep: checks != Check::Mac.into(), allowed: AddressSet::of(&addresses) }),
        }
    }

    /// The checks of this guard.
    pub fn checks(&self) -> Checks {
        self.checks
    }

    /// Number of a frame's first bytes that [`Guard::check`] needs, if the frame has that many: [`Guard::HEAD`], or an
    /// Ethernet header if only `mac` is checked.
    #[inline]
    pub fn head_len(&self) -> usize {
        if self.deep { Self::HEAD } else { ethernet::HEADER_LEN }
    }

    /// Checks whether the port may send a frame of `len` bytes. `head` is a private copy of the first
    /// [`Guard::head_len`] bytes, or of the whole frame if the frame is shorter.
    #[inline]
    pub fn check(&self, head: &[u8], len: usize) -> Result<(), Violation> {
        if self.checks.has(Check::Mac) {
            let source = packet::source(head).ok_or(Violation::SpoofedMac)?;
            if !self.allowed.mac(source) {
                return Err(Violation::SpoofedMac);
            }
        }
        if self.deep { self.check_packet(head, len) } else { Ok(()) }
    }

    fn check_packet(&self, head: &[u8], len: usize) -> Result<(), Violation> {
        let head = head.get(..len).unwrap_or(head);
        let Some((ethertype, l3)) = packet::network(head) else {
            return self.hidden(&[Check::Ip, Check::Arp, Check::Nd, Check::Dhcp, Check::Ra]);
        };
        let packet = head.get(l3..).unwrap_or_default();
        match ethertype {
            ethernet::ARP | RARP if self.checks.has(Check::Arp) => self.check_arp(head, packet),
            ethernet::IPV4 => self.check_v4(packet),
            ethernet::IPV6 => self.check_v6(head, packet, len.saturating_sub(l3)),
            _ => Ok(()),
        }
    }

    /// Returns the result for unreadable bytes: the violation of the first enabled check of `checks`, all of which
    /// would have to read the bytes; `Ok` if none of `checks` is enabled.
    fn hidden(&self, checks: &[Check]) -> Result<(), Violation> {
        match checks.iter().find(|&&check| self.checks.has(check)) {
            Some(check) => Err(check.violation()),
            None => Ok(()),
        }
    }

    /// Checks the sender addresses of an ARP message, which receivers learn whatever the operation (RFC 826). An
    /// address of zeros claims nothing (RFC 5227 §1.1).
    fn check_arp(&self, head: &[u8], packet: &[u8]) -> Result<(), Violation> {
        let packet = arp::Packet::parse(packet).map_err(|_| Violation::SpoofedArp)?;
        let (mac, ip) = packet.sender();
        let honest = packet::source(head) == Some(mac)
            && self.allowed.mac_if_any(mac, mac)
            && (ip.is_unspecified() || self.allowed.v4_if_any(ip));
        honest.then_some(()).ok_or(Violation::SpoofedArp)
    }

    fn check_v4(&self, packet: &[u8]) -> Result<(), Violation> {
        if !self.checks.has(Check::Ip) && !self.checks.has(Check::Dhcp) {
            return Ok(());
        }
        let Some(packet) = Ipv4Packet::parse(packet) else {
            return self.hidden(&[Check::Ip, Check::Dhcp]);
        };
        if self.checks.has(Check::Ip) && !self.allowed.v4(packet.src) {
            // A DHCP client without an address must be able to request one (RFC 2131 §4.1).
            let asks = packet.upper.ports() == PacketPorts::Are(DHCP_CLIENT, DHCP_SERVER);
            if !packet.src.is_unspecified() || !asks {
                return Err(Violation::SpoofedIp);
            }
        }
        if self.checks.has(Check::Dhcp) && is_dhcp_server(packet.upper.ports()) {
            return Err(Violation::RogueDhcp);
        }
        Ok(())
    }

    /// Checks an IPv6 packet that starts with `packet`, and of which the frame contains `len` bytes.
    fn check_v6(&self, head: &[u8], packet: &[u8], len: usize) -> Result<(), Violation> {
        if !self.checks.any(&[Check::Ip, Check::Nd, Check::Dhcp, Check::Ra]) {
            return Ok(());
        }
        let Some(packet) = Ipv6Packet::parse(packet, len) else {
            return self.hidden(&[Check::Ip, Check::Nd, Check::Dhcp, Check::Ra]);
        };
        if self.checks.has(Check::Ip) && !self.allowed.v6(packet.src) {
            let searching = packet.src.is_unspecified() && nd::may_be_from_nowhere(&packet.upper);
            if !searching {
                return Err(Violation::SpoofedIp);
            }
        }
        if matches!(packet.upper, UpperPayload::Hidden) {
            return self.hidden(&[Check::Nd, Check::Dhcp, Check::Ra]);
        }
        if self.checks.has(Check::Nd) && !nd::is_honest(&packet, packet::source(head), &self.allowed) {
            return Err(Violation::SpoofedNd);
        }
        if self.checks.has(Check::Dhcp) && is_dhcp6_server(packet.upper.ports()) {
            return Err(Violation::RogueDhcp);
        }
        if self.checks.has(Check::Ra) && nd::may_be_a_routers(&packet.upper) {
            return Err(Violation::RogueRa);
        }
        Ok(())
    }
}

/// Whether ports are those of a DHCP server or relay. Every datagram to the clients' port counts, as clients ignore the
/// source port. Unreadable ports count, too.
fn is_dhcp_server(ports: PacketPorts) -> bool {
    match ports {
        PacketPorts::Are(src, dst) => dst == DHCP_CLIENT || (src == DHCP_SERVER && dst == DHCP_SERVER),
        PacketPorts::Hidden => true,
        PacketPorts::None => false,
    }
}

/// Whether ports are those of a DHCPv6 server or relay. Unreadable ports count, too.
fn is_dhcp6_server(ports: PacketPorts) -> bool {
    match ports {
        PacketPorts::Are(src, dst) => src == DHCP6_SERVER || dst == DHCP6_CLIENT,
        PacketPorts::Hidden => true,
        PacketPorts::None => false,
    }
}
