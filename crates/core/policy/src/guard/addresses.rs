//! The addresses that a port may use, as an administrator writes them. A prefix stands for all addresses that begin
//! with it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netvale_wire::MacAddr;

/// An IP prefix: all addresses that start with the same bits. A single address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpPrefix {
    addr: IpAddr,
    len: u8,
}

/// The reason why a text is not a list of a port's addresses, or why an address cannot be added to the list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddresses {
    /// The text is neither a MAC address nor an IP address or prefix.
    #[error("invalid address `{0}`: expected a MAC address, an IP address or a prefix such as 10.1.0.0/24")]
    NotAnAddress(String),
    /// The MAC address is a multicast address, or zero.
    #[error("invalid MAC address {0}: expected a unicast address")]
    NotAStation(MacAddr),
    /// The IP address is a multicast address.
    #[error("invalid IP address {0}: expected a unicast address, not multicast")]
    NotAHost(IpAddr),
    /// The prefix has bits set beyond its length: the user may mean a single address, not the whole network.
    #[error("invalid prefix {addr}/{len}: write {addr} for the address or {prefix} for the prefix")]
    HostBits {
        /// The given address.
        addr: IpAddr,
        /// The given prefix length, in bits.
        len: u8,
        /// The prefix that contains the address.
        prefix: IpPrefix,
    },
    /// There are more than [`AllowedAddresses::MAX_MACS`] MAC addresses.
    #[error("too many MAC addresses: list at most {}", AllowedAddresses::MAX_MACS)]
    TooManyMacs,
    /// There are more than [`AllowedAddresses::MAX_PREFIXES`] IP addresses and prefixes.
    #[error(
        "too many IP addresses and prefixes: list at most {}; a shorter prefix covers more addresses",
        AllowedAddresses::MAX_PREFIXES
    )]
    TooManyPrefixes,
}

impl IpPrefix {
    /// Creates the prefix of the first `len` bits of `addr`, whose other bits must be zero. Refuses multicast
    /// addresses.
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

    /// The first address of the prefix.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The length in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    #[allow(clippy::len_without_is_empty, reason = "a prefix is never empty")]
    pub fn len(&self) -> u8 {
        self.len
    }
}

/// Returns the mask of an IPv4 prefix of `len` bits.
pub(super) fn mask32(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

/// Returns the mask of an IPv6 prefix of `len` bits.
pub(super) fn mask128(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

impl From<IpAddr> for IpPrefix {
    fn from(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for IpPrefix {
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

impl fmt::Display for IpPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::from(self.addr) {
            return fmt::Display::fmt(&self.addr, out);
        }
        write!(out, "{}/{}", self.addr, self.len)
    }
}

/// The addresses that a port may send from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedAddresses {
    macs: Vec<MacAddr>,
    prefixes: Vec<IpPrefix>,
}

impl AllowedAddresses {
    /// Maximum number of MAC addresses.
    pub const MAX_MACS: usize = 64;
    /// Maximum number of IP addresses and prefixes, of both versions together.
    pub const MAX_PREFIXES: usize = 64;

    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a MAC address, unless it is in the list. Refuses an address that no station has, and more than
    /// [`Self::MAX_MACS`] addresses.
    pub fn add_mac(&mut self, mac: MacAddr) -> Result<(), BadAddresses> {
        if mac.is_multicast() || mac.is_zero() {
            return Err(BadAddresses::NotAStation(mac));
        }
        add(&mut self.macs, mac, Self::MAX_MACS).ok_or(BadAddresses::TooManyMacs)
    }

    /// Adds a prefix of IP addresses, unless it is in the list. Refuses more than [`Self::MAX_PREFIXES`] prefixes.
    pub fn add_prefix(&mut self, prefix: IpPrefix) -> Result<(), BadAddresses> {
        add(&mut self.prefixes, prefix, Self::MAX_PREFIXES).ok_or(BadAddresses::TooManyPrefixes)
    }

    /// The MAC addresses, in the order of their addition.
    pub fn macs(&self) -> &[MacAddr] {
        &self.macs
    }

    /// The IP addresses and prefixes, in the order of their addition.
    pub fn prefixes(&self) -> &[IpPrefix] {
        &self.prefixes
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T, max: usize) -> Option<()> {
    if !list.contains(&item) {
        (list.len() < max).then(|| list.push(item))?;
    }
    Some(())
}

/// Returns the words of `text`, which are separated by commas or white space.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty())
}

impl FromStr for AllowedAddresses {
    type Err = BadAddresses;

    /// Reads MAC addresses, IP addresses and prefixes in any order, separated by commas or white space. No text is both
    /// a MAC and an IP address: an IPv6 address has seven colons, or two in a row.
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

impl fmt::Display for AllowedAddresses {
    /// Prints the MAC addresses, then the IP addresses and prefixes, separated by `, `.
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
