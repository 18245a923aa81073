//! Maps a pair of VLAN and address to a line of the forwarding table and a word in an entry.
//!
//! A pair has 59 bits (the bit that marks group addresses is never set), 11 more than an entry has room for. A
//! permutation with a secret key maps the pair to 59 other bits: the upper bits select the line, and the lower 48 are
//! stored in the entry. Both together identify the pair. So entries are as small as without VLANs, and an attacker
//! cannot aim at a line.

/// Number of bits of a pair of VLAN and address.
const BITS: u32 = 59;
const ALL: u64 = (1 << BITS) - 1;
/// Number of these bits that an entry stores.
const WORD: u32 = 48;
const FIRST_SHIFT: u32 = 31;
const SECOND_SHIFT: u32 = 29;

/// A permutation of pairs of VLAN and address, with a secret key.
#[derive(Debug)]
pub(crate) struct Mix {
    add: u64,
    factors: [u64; 2],
    inverses: [u64; 2],
}

/// The multiplicative inverse of an odd number modulo 2^64 (Newton's iteration).
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

impl Mix {
    /// Minimum number of lines, so that the line's index contains all bits that the entry does not store.
    pub(crate) const LINES: usize = 1 << (BITS - WORD);

    /// Creates the permutation for a key.
    pub(crate) fn new(key: [u64; 2]) -> Mix {
        let factors = [key[1] | 1, (key[0].rotate_left(32) ^ key[1].rotate_left(17)) | 1];
        Mix { add: key[0] & ALL, factors, inverses: factors.map(inverse) }
    }

    /// Returns the line of the table (an index below `lines`, a power of two) for a VLAN and an address, and the word
    /// to store in the entry.
    #[inline]
    pub(crate) fn place(&self, vlan: u16, mac: u64, lines: usize) -> (usize, u64) {
        let mut x = (u64::from(vlan) << 47 | mac >> 1) ^ self.add;
        // Multiplication carries differences only upwards, so the upper bits are shifted into the lower bits.
        x ^= x >> FIRST_SHIFT;
        x = x.wrapping_mul(self.factors[0]) & ALL;
        x ^= x >> SECOND_SHIFT;
        x = x.wrapping_mul(self.factors[1]) & ALL;
        let upper = (x >> WORD) as usize;
        let word = x & ((1 << WORD) - 1);
        // If there are more lines than `Mix::LINES`, their index also contains bits that the entry stores.
        (((x as usize) << (BITS - WORD) | upper) & (lines - 1), word)
    }

    /// Returns the VLAN and the address that a word in a line stands for.
    pub(crate) fn unplace(&self, line: usize, word: u64) -> (u16, u64) {
        let mut x = ((line & (Mix::LINES - 1)) as u64) << WORD | word;
        x = x.wrapping_mul(self.inverses[1]) & ALL;
        x ^= x >> SECOND_SHIFT ^ x >> (2 * SECOND_SHIFT);
        x = x.wrapping_mul(self.inverses[0]) & ALL;
        // An XOR with a shift by at least half the bits is its own inverse.
        x ^= x >> FIRST_SHIFT;
        x ^= self.add;
        ((x >> 47) as u16, x << 1 & ((1 << 48) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Objective: line and word identify VLAN and address, for any key and number of lines.
        #[test]
        fn no_two_addresses_mix_alike(key: [u64; 2], vlan in 0u16..4096, mac in 0u64..1 << 48, log in 11u32..20) {
            let mix = Mix::new(key);
            let mac = mac & !1;
            let (line, word) = mix.place(vlan, mac, 1 << log);
            prop_assert!(line < 1 << log && word < 1 << 48);
            prop_assert_eq!(mix.unplace(line, word), (vlan, mac));
        }
    }

    /// Objective: consecutive addresses and VLANs spread over all lines.
    #[test]
    fn neighbouring_addresses_spread_over_all_lines() {
        let mix = Mix::new([0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321]);
        for addresses in
            [(0..4096u64).map(|i| (1, i << 36)).collect::<Vec<_>>(), (0..4096).map(|v| (v, 0x0200)).collect()]
        {
            let lines: HashSet<_> = addresses.iter().map(|&(v, mac)| mix.place(v as u16, mac, 2048).0).collect();
            assert!(lines.len() > 1500, "{} of 2048", lines.len());
        }
    }
}
