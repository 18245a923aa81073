//! Ethernet addresses.

use core::fmt;
use core::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// The address `00:00:00:00:00:00`, which no station has.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Whether this is a group address: multicast or broadcast.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == Self::BROADCAST.to_u64()
    }

    /// Whether all bits are zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.to_u64() == 0
    }

    /// Returns the address as the low 48 bits of an integer, whose highest byte is the first byte of the address.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns the address as the low 48 bits of an integer in wire order: the lowest byte is the first byte of the
    /// address.
    #[inline]
    pub const fn to_word(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Returns the address that the low 48 bits of `word` contain in wire order; the upper 16 bits are ignored.
    #[inline]
    pub const fn from_word(word: u64) -> MacAddr {
        let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
        MacAddr([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The error for a text that is not an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid Ethernet address: expected six hexadecimal bytes, e.g. 02:00:00:00:00:01")]
pub struct BadMacAddr;

impl FromStr for MacAddr {
    type Err = BadMacAddr;

    /// Reads six bytes of one or two hexadecimal digits, separated by `:`.
    fn from_str(text: &str) -> Result<Self, BadMacAddr> {
        let mut parts = text.split(':');
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            *byte = parts.next().and_then(hex_byte).ok_or(BadMacAddr)?;
        }
        parts.next().is_none().then_some(Self(bytes)).ok_or(BadMacAddr)
    }
}

/// Reads a byte of one or two hexadecimal digits; `None` for any other text, including a sign.
fn hex_byte(text: &str) -> Option<u8> {
    let digits = text.len() <= 2 && text.bytes().all(|c| c.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_address_reads_back_as_it_prints() {
        let addr = MacAddr([2, 0, 0xab, 0xff, 0, 9]);
        assert_eq!(addr.to_string(), "02:00:ab:ff:00:09");
        assert_eq!("2:0:AB:ff:00:9".parse(), Ok(addr));
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in [
            "",
            "1:2:3:4:5",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:",
            "+1:2:3:4:5:6",
            "1:2:3:4:5:100",
            "1:2:3:4:5:g",
            "0102.0304.0506",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(BadMacAddr), "{text:?}");
        }
    }

    #[test]
    fn kinds_of_addresses_are_told_apart() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
        assert!(group.is_multicast() && !group.is_broadcast());
        assert!(MacAddr::ZERO.is_zero() && !MacAddr::ZERO.is_multicast());
        assert!(!MacAddr([0, 0, 0, 0, 0, 1]).is_zero());
    }
}
