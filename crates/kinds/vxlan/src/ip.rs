//! Addresses of VTEPs as two words: IPv4 addresses as IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).

use std::net::{IpAddr, Ipv6Addr};

/// An address as two words: the upper 64 bits, then the lower 64 bits.
pub type IpWords = [u64; 2];

/// Converts an address to words.
#[must_use]
pub fn words(ip: IpAddr) -> IpWords {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
    .to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// Converts words to an address.
#[must_use]
pub fn of([high, low]: IpWords) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
}

/// Returns whether a VTEP can have this address.
#[must_use]
pub fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: addresses of both IP versions convert to words and back unchanged, and different addresses have
    /// different words.
    #[test]
    fn addresses_convert_back_unchanged() {
        for text in ["10.0.0.1", "255.255.255.254", "fe80::1", "2001:db8::ffff:a00:1", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(of(words(ip)), ip);
            assert!(is_host(ip));
        }
        for text in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert!(!is_host(text.parse().unwrap()), "{text}");
        }
    }
}
