//! IPv6 neighbour discovery (RFC 4861): the addresses that a message claims.

use std::net::Ipv6Addr;

use netvale_wire::MacAddr;

use super::allowed::AddressSet;
use super::packet::{ICMPV6, Ipv6Packet, UpperPayload};

// ICMPv6 types.
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// Reports and "done" of multicast listener discovery (RFC 2710 §3.1, RFC 3810 §5.2).
const MLD: [u8; 3] = [131, 132, 143];

/// Type of the option with the MAC address of the sender.
const SOURCE_LINK_LAYER: u8 = 1;
/// Type of the option with the MAC address of the target.
const TARGET_LINK_LAYER: u8 = 2;

/// Bytes of a neighbour solicitation or advertisement that contain the target address.
const TARGET: std::ops::Range<usize> = 8..24;

/// Returns the type of the ICMPv6 message at the start of `upper`: `None` if there is no such message, `Some(None)` if
/// its type is truncated.
fn icmp_type(upper: &UpperPayload<'_>) -> Option<Option<u8>> {
    match upper {
        UpperPayload::Start { protocol: ICMPV6, bytes, .. } => Some(bytes.first().copied()),
        _ => None,
    }
}

/// Whether a message may have the source address `::`: a message of a host that is about to use an address (RFC 4862
/// §5.4.2, RFC 3590 §4), or that has no address and looks for a router (RFC 4861 §4.1).
pub(super) fn may_be_from_nowhere(upper: &UpperPayload<'_>) -> bool {
    let UpperPayload::Start { fragment: false, .. } = upper else {
        return false;
    };
    match icmp_type(upper) {
        Some(Some(kind)) => kind == NEIGHBOR_SOLICITATION || kind == ROUTER_SOLICITATION || MLD.contains(&kind),
        _ => false,
    }
}

/// Whether a message is a router advertisement or a redirect, or may be one because its type is unreadable.
pub(super) fn may_be_a_routers(upper: &UpperPayload<'_>) -> bool {
    matches!(icmp_type(upper), Some(None | Some(ROUTER_ADVERTISEMENT | REDIRECT)))
}

/// Whether a packet from the Ethernet address `source` claims only allowed addresses, or is not neighbour discovery.
pub(super) fn is_honest(packet: &Ipv6Packet<'_>, source: Option<MacAddr>, allowed: &AddressSet) -> bool {
    let kind = match icmp_type(&packet.upper) {
        None => return true,
        Some(None) => return false,
        Some(Some(kind)) => kind,
    };
    let Some(fixed) = fixed_len(kind) else {
        return true;
    };
    // RFC 6980 §5: neighbour discovery is never fragmented. Bytes beyond the given bytes may contain a forged option.
    let UpperPayload::Start { bytes, whole: true, fragment: false, .. } = packet.upper else {
        return false;
    };
    let (Some(options), Some(source)) = (bytes.get(fixed..), source) else {
        return false;
    };
    kind != REDIRECT
        && is_sender_honest(packet.src, kind, options, allowed)
        && (kind != NEIGHBOR_ADVERTISEMENT || is_target_allowed(bytes, allowed))
        && are_options_honest(options, source, allowed)
}

/// Returns the number of bytes before the options of a neighbour discovery message; `None` for other types.
fn fixed_len(kind: u8) -> Option<usize> {
    match kind {
        ROUTER_SOLICITATION => Some(8),
        ROUTER_ADVERTISEMENT => Some(16),
        NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => Some(24),
        REDIRECT => Some(40),
        _ => None,
    }
}

/// Whether the sender's address, which receivers learn (RFC 4861 §6.2.6, §7.2.3), is allowed. A sender without an IP
/// address must not give its MAC address.
fn is_sender_honest(src: Ipv6Addr, kind: u8, mut options: &[u8], allowed: &AddressSet) -> bool {
    if !src.is_unspecified() {
        return allowed.v6_if_any(src);
    }
    let asks = kind == NEIGHBOR_SOLICITATION || kind == ROUTER_SOLICITATION;
    asks && std::iter::from_fn(|| next_option(&mut options)).all(|option| option.kind != SOURCE_LINK_LAYER)
}

fn is_target_allowed(bytes: &[u8], allowed: &AddressSet) -> bool {
    let target = bytes.get(TARGET).and_then(|target| target.first_chunk::<16>());
    target.is_some_and(|&target| allowed.v6_if_any(target.into()))
}

/// Whether all options are readable and contain no MAC addresses other than the port's.
fn are_options_honest(mut options: &[u8], source: MacAddr, allowed: &AddressSet) -> bool {
    while !options.is_empty() {
        let Some(option) = next_option(&mut options) else {
            return false;
        };
        if matches!(option.kind, SOURCE_LINK_LAYER | TARGET_LINK_LAYER) {
            // An Ethernet address fills an option of 8 bytes (RFC 2464 §6).
            let Ok(mac) = <[u8; 6]>::try_from(option.body) else {
                return false;
            };
            if !allowed.mac_if_any(MacAddr(mac), source) {
                return false;
            }
        }
    }
    true
}

/// An option: its type, and its body without type and length.
struct NdOption<'a> {
    kind: u8,
    body: &'a [u8],
}

/// Takes the first option off `options`; `None` if no option is left, or the first option is unreadable. An option's
/// length is in units of 8 bytes and not zero (RFC 4861 §4.6).
fn next_option<'a>(options: &mut &'a [u8]) -> Option<NdOption<'a>> {
    let [kind, units, ..] = **options else {
        return None;
    };
    let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
    *options = rest;
    Some(NdOption { kind, body: option.get(2..)? })
}
