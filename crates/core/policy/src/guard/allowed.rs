//! A port's addresses, in a form for fast comparison.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netvale_wire::MacAddr;

use super::addresses::{AllowedAddresses, mask32, mask128};

/// A set of addresses, with the rules by which checks compare addresses with it.
#[derive(Clone, Debug)]
pub(super) struct AddressSet {
    macs: Box<[u64]>,
    /// First address and mask of each IPv4 prefix; `v6` holds the first address and mask of each IPv6 prefix.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl AddressSet {
    pub fn of(addresses: &AllowedAddresses) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for prefix in addresses.prefixes() {
            match prefix.addr() {
                IpAddr::V4(addr) => v4.push((addr.to_bits(), mask32(prefix.len()))),
                IpAddr::V6(addr) => v6.push((addr.to_bits(), mask128(prefix.len()))),
            }
        }
        let macs = addresses.macs().iter().map(|mac| mac.to_u64()).collect();
        Self { macs, v4: v4.into(), v6: v6.into() }
    }

    /// Whether `mac` is listed.
    #[inline]
    pub fn mac(&self, mac: MacAddr) -> bool {
        self.macs.contains(&mac.to_u64())
    }

    /// Whether `addr` is listed.
    #[inline]
    pub fn v4(&self, addr: Ipv4Addr) -> bool {
        self.v4.iter().any(|&(first, mask)| addr.to_bits() & mask == first)
    }

    /// Whether `addr` is listed.
    #[inline]
    pub fn v6(&self, addr: Ipv6Addr) -> bool {
        self.v6.iter().any(|&(first, mask)| addr.to_bits() & mask == first)
    }

    /// Whether `mac` is listed; if no MAC address is listed, whether `mac` equals `otherwise`.
    pub fn mac_if_any(&self, mac: MacAddr, otherwise: MacAddr) -> bool {
        if self.macs.is_empty() { mac == otherwise } else { self.mac(mac) }
    }

    /// Whether `addr` is listed, or no IP address of either version is listed: a port that lists only IPv6 addresses
    /// has no IPv4 address.
    pub fn v4_if_any(&self, addr: Ipv4Addr) -> bool {
        self.no_ip() || self.v4(addr)
    }

    /// Like [`AddressSet::v4_if_any`], for IPv6.
    pub fn v6_if_any(&self, addr: Ipv6Addr) -> bool {
        self.no_ip() || self.v6(addr)
    }

    fn no_ip(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}
