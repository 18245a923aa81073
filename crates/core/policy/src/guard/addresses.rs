//! The addresses that a port may use, as an administrator writes them; a prefix covers all addresses that begin with
//! it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netvale_wire::MacAddr;

/// IP addresses that start with the same bits; a single address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Why a text or values are not addresses of a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddresses {
    /// Neither a MAC nor an IP address.
    #[error("`{0}` is no address: write a MAC address, an IP address or a prefix such as 10.1.0.0/24")]
    NotAnAddress(String),
    /// A group's MAC address, or zero.
    #[error("no station sends from the MAC address {0}: give an address of one station")]
    NotAStation(MacAddr),
    /// A group's IP address.
    #[error("no host sends from the group address {0}: give an address of one host")]
    NotAHost(IpAddr),
    /// A prefix with bits set beyond its length. If meant as an address, it would allow a whole network.
    #[error("{addr}/{len} is an address within a prefix: write {addr} for the address or {prefix} for the prefix")]
    HostBits {
        /// The given address.
        addr: IpAddr,
        /// The given length, in bits.
        len: u8,
        /// The prefix that contains it.
        prefix: Prefix,
    },
    /// More than [`Addresses::MAX_MACS`] MAC addresses.
    #[error("a port can have no more than {} MAC addresses: list fewer", Addresses::MAX_MACS)]
    TooManyMacs,
    /// More than [`Addresses::MAX_PREFIXES`] IP addresses and prefixes.
    #[error(
        "a port can have no more than {} IP addresses and prefixes: list fewer, or shorter prefixes",
        Addresses::MAX_PREFIXES
    )]
    TooManyPrefixes,
}

impl Prefix {
    /// The addresses that share the first `len` bits of `addr`; its other bits must be zero.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, BadAddresses> {
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        if len > bits {
            return Err(BadAddresses::NotAnAddress(format!("{addr}/{len}")));
        }
        if addr.is_multicast() {
            return Err(BadAddresses::NotAHost(addr));
        }
        let first = match addr {
            IpAddr::V4(addr) => IpAddr::V4((addr.to_bits() & mask32(len)).into()),
            IpAddr::V6(addr) => IpAddr::V6((addr.to_bits() & mask128(len)).into()),
        };
        let prefix = Self { addr: first, len };
        if first == addr { Ok(prefix) } else { Err(BadAddresses::HostBits { addr, len, prefix }) }
    }

    /// The first address.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The length, in bits: 0 to 32, or to 128.
    #[allow(clippy::len_without_is_empty, reason = "a prefix is never empty")]
    pub fn len(&self) -> u8 {
        self.len
    }
}

/// The bits that a prefix of `len` bits fixes in an IPv4 address.
pub(super) fn mask32(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

/// The same in an IPv6 address.
pub(super) fn mask128(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

impl From<IpAddr> for Prefix {
    fn from(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Prefix {
    type Err = BadAddresses;

    /// Reads an address, or a prefix as `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Self, BadAddresses> {
        let wrong = || BadAddresses::NotAnAddress(text.into());
        let (addr, len) = text.split_once('/').map_or((text, None), |(addr, len)| (addr, Some(len)));
        let addr: IpAddr = addr.parse().map_err(|_| wrong())?;
        let len = match len {
            None => Self::from(addr).len,
            Some(len) if len.bytes().all(|c| c.is_ascii_digit()) => len.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        };
        Self::new(addr, len)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::from(self.addr) {
            return fmt::Display::fmt(&self.addr, out);
        }
        write!(out, "{}/{}", self.addr, self.len)
    }
}

/// The addresses that a port may send from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    macs: Vec<MacAddr>,
    prefixes: Vec<Prefix>,
}

impl Addresses {
    /// Maximum number of MAC addresses.
    pub const MAX_MACS: usize = 64;
    /// Maximum number of IP addresses and prefixes, of both versions together.
    pub const MAX_PREFIXES: usize = 64;

    /// No addresses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a MAC address. Duplicates are ignored.
    pub fn add_mac(&mut self, mac: MacAddr) -> Result<(), BadAddresses> {
        if mac.is_multicast() || mac.is_zero() {
            return Err(BadAddresses::NotAStation(mac));
        }
        add(&mut self.macs, mac, Self::MAX_MACS).ok_or(BadAddresses::TooManyMacs)
    }

    /// Adds IP addresses. Duplicate prefixes are ignored.
    pub fn add_prefix(&mut self, prefix: Prefix) -> Result<(), BadAddresses> {
        add(&mut self.prefixes, prefix, Self::MAX_PREFIXES).ok_or(BadAddresses::TooManyPrefixes)
    }

    /// The MAC addresses, in the order of their addition.
    pub fn macs(&self) -> &[MacAddr] {
        &self.macs
    }

    /// The IP addresses, in the order of their addition.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T, max: usize) -> Option<()> {
    if !list.contains(&item) {
        (list.len() < max).then(|| list.push(item))?;
    }
    Some(())
}

/// The words of `text`, separated by commas or blanks.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty())
}

impl FromStr for Addresses {
    type Err = BadAddresses;

    /// Reads MAC addresses, IP addresses and prefixes in any order, separated by commas or blanks. No text fits both
    /// kinds: an IPv6 address has seven colons, or two in a row.
    fn from_str(text: &str) -> Result<Self, BadAddresses> {
        let mut addresses = Self::new();
        for word in words(text) {
            match word.parse::<MacAddr>() {
                Ok(mac) => addresses.add_mac(mac)?,
                Err(_) => addresses.add_prefix(word.parse()?)?,
            }
        }
        Ok(addresses)
    }
}

impl fmt::Display for Addresses {
    /// MAC addresses, then IP addresses, separated by `, `.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for mac in &self.macs {
            write!(out, "{between}{mac}")?;
            between = ", ";
        }
        for prefix in &self.prefixes {
            write!(out, "{between}{prefix}")?;
            between = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
