//! Maps an address and its VLAN to a line of the forwarding table and to one word there.
//!
//! Both together are 59 bits (the bit that marks group addresses is never set), 11 more than an entry has room for.
//! They are permuted under a secret key: the upper bits of the result choose the line, the lower 48 go into the entry,
//! and together they identify the address. So entries are as small as without VLANs, and an attacker cannot aim at a
//! line.

/// Bits of address and VLAN.
const BITS: u32 = 59;
const ALL: u64 = (1 << BITS) - 1;
/// Bits that an entry has for them.
const WORD: u32 = 48;
const FIRST_SHIFT: u32 = 31;
const SECOND_SHIFT: u32 = 29;

/// A keyed permutation.
#[derive(Debug)]
pub(crate) struct Mix {
    add: u64,
    factors: [u64; 2],
    inverses: [u64; 2],
}

/// The inverse of multiplication by an odd number, modulo any power of two up to 2^64 (Newton's iteration).
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

impl Mix {
    /// The least number of lines: they must distinguish equal words.
    pub(crate) const LINES: usize = 1 << (BITS - WORD);

    /// Creates the permutation of a key.
    pub(crate) fn new(key: (u64, u64)) -> Mix {
        let factors = [key.1 | 1, (key.0.rotate_left(32) ^ key.1.rotate_left(17)) | 1];
        Mix { add: key.0 & ALL, factors, inverses: factors.map(inverse) }
    }

    /// The line of an address in a VLAN, below `lines` (a power of two), and its word there.
    #[inline]
    pub(crate) fn place(&self, vlan: u16, mac: u64, lines: usize) -> (usize, u64) {
        let mut x = (u64::from(vlan) << 47 | mac >> 1) ^ self.add;
        // Differences in upper bits must reach the lower ones, as products carry only upwards.
        x ^= x >> FIRST_SHIFT;
        x = x.wrapping_mul(self.factors[0]) & ALL;
        x ^= x >> SECOND_SHIFT;
        x = x.wrapping_mul(self.factors[1]) & ALL;
        let upper = (x >> WORD) as usize;
        let word = x & ((1 << WORD) - 1);
        // Further lines are chosen by bits that are in the entry, too.
        (((x as usize) << (BITS - WORD) | upper) & (lines - 1), word)
    }

    /// The VLAN and the address of a word in a line.
    pub(crate) fn unplace(&self, line: usize, word: u64) -> (u16, u64) {
        let mut x = ((line & (Mix::LINES - 1)) as u64) << WORD | word;
        x = x.wrapping_mul(self.inverses[1]) & ALL;
        x ^= x >> SECOND_SHIFT ^ x >> (2 * SECOND_SHIFT);
        x = x.wrapping_mul(self.inverses[0]) & ALL;
        // A shift by at least half the bits is its own inverse.
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
        fn is_a_permutation(key: (u64, u64), vlan in 0u16..4096, mac in 0u64..1 << 48, log in 11u32..20) {
            let mix = Mix::new(key);
            let mac = mac & !1;
            let (line, word) = mix.place(vlan, mac, 1 << log);
            prop_assert!(line < 1 << log && word < 1 << 48);
            prop_assert_eq!(mix.unplace(line, word), (vlan, mac));
        }
    }

    /// Objective: neighbouring addresses and VLANs spread over all lines.
    #[test]
    fn spreads() {
        let mix = Mix::new((0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321));
        for addresses in
            [(0..4096u64).map(|i| (1, i << 36)).collect::<Vec<_>>(), (0..4096).map(|v| (v, 0x0200)).collect()]
        {
            let lines: HashSet<_> = addresses.iter().map(|&(v, mac)| mix.place(v as u16, mac, 2048).0).collect();
            assert!(lines.len() > 1500, "{} of 2048", lines.len());
        }
    }
}
