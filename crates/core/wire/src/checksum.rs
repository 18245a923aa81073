//! The Internet checksum: the ones' complement sum of 16-bit big-endian words (RFC 1071).
//!
//! A [`Sum`] is the sum of a piece of a packet. Pieces of any length may be summed separately and appended in order;
//! the sum of a piece that follows an odd number of bytes is shifted by one byte (RFC 1071 §2(B)).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of bytes summed in one step: four words of 8 bytes, each split into two 32-bit halves that are added to
/// 64-bit accumulators. No carry is lost, and the compiler can vectorise the steps.
const STEP: usize = 32;
const LANES: usize = STEP / 8;

/// The ones' complement sum of a piece of a packet, before it is folded to 16 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The sum of 16-bit words in the machine's byte order, which yields the same bytes as network order (RFC 1071
    /// §2(B)). Each addition adds at most `0xffff`.
    words: u64,
    /// Whether the piece has an odd number of bytes.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Sum = Sum { words: 0, odd: false };

    /// Returns the sum of `bytes`.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self { words: fold(sum_bytes(bytes)).into(), odd: bytes.len() % 2 == 1 }
    }

    /// Returns the sum with `bytes` appended.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.append(Self::of(bytes))
    }

    /// Returns the sum with another piece appended; `next` is the sum of that piece.
    #[inline]
    #[must_use]
    pub fn append(self, next: Sum) -> Self {
        let folded = fold(next.words);
        let shifted = if self.odd { folded.swap_bytes() } else { folded };
        Self { words: self.words + u64::from(shifted), odd: self.odd ^ next.odd }
    }

    /// Returns the sum with a big-endian 16-bit field appended.
    #[inline]
    #[must_use]
    pub fn add_u16(self, value: u16) -> Self {
        self.append(Self { words: value.to_be().into(), odd: false })
    }

    /// Returns the sum with a big-endian 32-bit field appended.
    #[inline]
    #[must_use]
    pub fn add_u32(self, value: u32) -> Self {
        self.add_u16((value >> 16) as u16).add_u16(value as u16)
    }

    /// Returns the 16-bit sum. It is `0xffff` for bytes that include their correct checksum.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(fold(self.words))
    }

    /// Returns the checksum: the complement of the sum.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Returns the checksum, but `0xffff` instead of zero, which is the same number in ones' complement. UDP needs
    /// this, as a UDP checksum of zero means that there is no checksum (RFC 768).
    #[inline]
    pub fn nonzero_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// Returns the sum of the pseudo header of TCP and UDP over IPv4 (RFC 9293 §3.1, RFC 768). `len` is the length of the
/// transport header and its payload, in bytes.
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u16) -> Sum {
    Sum::of(&src.octets()).add_bytes(&dst.octets()).add_u16(protocol.into()).add_u16(len)
}

/// Returns the sum of the pseudo header of an upper layer over IPv6 (RFC 8200 §8.1). `len` is the length of the
/// transport header and its payload, in bytes.
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    Sum::of(&src.octets()).add_bytes(&dst.octets()).add_u32(len).add_u32(protocol.into())
}

/// Returns the sum of the pseudo header of either version of IP; `None` if the addresses are of different versions.
#[inline]
pub fn pseudo(src: IpAddr, dst: IpAddr, protocol: u8, len: u16) -> Option<Sum> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(pseudo_v4(src, dst, protocol, len)),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(pseudo_v6(src, dst, protocol, len.into())),
        _ => None,
    }
}

/// Returns `checksum`, updated for the change of a 16-bit field from `old` to `new` (RFC 1624 §3, equation 3). The
/// caller must not update a UDP checksum of zero, which means that there is no checksum.
#[inline]
pub fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    !fold(sum)
}

/// Adds the carries to the lower bits until the sum has 16 bits.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = halves(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Returns the unfolded sum of `bytes` in the machine's byte order, with a zero byte appended if their number is odd.
/// An accumulator grows by less than 2^32 in each step, and thus suffices for 2^32 steps (128 GiB).
#[inline]
fn sum_bytes(bytes: &[u8]) -> u64 {
    if bytes.len() < STEP {
        return sum_short(bytes);
    }
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let mut low = [0u64; LANES];
    let mut high = [0u64; LANES];
    for step in steps {
        let (words, _) = step.as_chunks::<8>();
        for lane in 0..LANES {
            let word = u64::from_ne_bytes(words[lane]);
            low[lane] += word & 0xffff_ffff;
            high[lane] += word >> 32;
        }
    }
    let lanes: u64 = low.iter().chain(&high).map(|&lane| halves(lane)).sum();
    lanes + sum_short(rest)
}

/// Like [`sum_bytes`], for fewer than [`STEP`] bytes.
#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (words, mut rest) = bytes.as_chunks::<8>();
    let mut sum: u64 = words.iter().map(|&word| halves(u64::from_ne_bytes(word))).sum();
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        rest = after;
    }
    match rest {
        [last, ..] => sum + u64::from(u16::from_ne_bytes([*last, 0])),
        [] => sum,
    }
}

/// Returns the sum of a word's two halves, which equals the word in ones' complement.
#[inline]
fn halves(word: u64) -> u64 {
    (word >> 32) + (word & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes[..3]).add_bytes(&bytes[3..]).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes[..3]).add_bytes(&bytes[3..4]).add_bytes(&bytes[4..]).fold(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn zero_and_full_sums() {
        assert_eq!(Sum::ZERO.fold(), 0);
        assert_eq!(Sum::ZERO.checksum(), 0xffff);
        assert_eq!(Sum::of(&[0xff; 4]).checksum(), 0);
        assert_eq!(Sum::of(&[0xff; 4]).nonzero_checksum(), 0xffff);
        assert_eq!(Sum::of(&[0x12, 0x34]).nonzero_checksum(), 0xedcb);
    }

    /// Objective: no carry is lost in sums longer than any frame.
    #[test]
    fn carries_survive_long_runs() {
        let bytes = std::vec![0xff; if cfg!(miri) { 4096 } else { 1 << 20 }];
        assert_eq!(Sum::of(&bytes).fold(), 0xffff);
        let many = (0..1000).fold(Sum::ZERO, |sum, _| sum.add_bytes(&[0xff; 63]));
        assert_eq!(many.fold(), 0xffff);
    }

    #[test]
    fn fields_sum_like_their_bytes() {
        let fields = Sum::of(&[9]).add_u16(0x0102).add_u32(0x0304_0506);
        assert_eq!(fields.fold(), Sum::of(&[9, 1, 2, 3, 4, 5, 6]).fold());
    }
}
