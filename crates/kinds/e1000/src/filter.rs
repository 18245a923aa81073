//! The receive filter (§3.2.1, §13.4.22, §13.5).

use serde::{Deserialize, Serialize};

use crate::arrays::{read_words, words};
use crate::regs::{MTA, RA, RAH_AV, RCTL_BAM, RCTL_EN, RCTL_LPE, RCTL_MPE, RCTL_UPE, RCTL_VFE, VFTA};

/// Maximum length in bytes of a frame without RCTL.LPE: 1,522 with CRC.
pub const LONGEST: usize = 1518;
/// Maximum length in bytes of a frame with RCTL.LPE, which fits into the largest buffer, 16 KiB (§3.2.4).
pub const LONGEST_JUMBO: usize = 16_380;

/// The receive filter: receive addresses, multicast hash table, VLAN table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddressFilter {
    addresses: [u32; 32],
    #[serde(serialize_with = "words", deserialize_with = "read_words")]
    multicast: [u32; 128],
    #[serde(serialize_with = "words", deserialize_with = "read_words")]
    vlans: [u32; 128],
}

impl AddressFilter {
    /// Creates a filter whose first receive address is `mac`, as if loaded from the EEPROM.
    pub fn new(mac: [u8; 6]) -> AddressFilter {
        let [a, b, c, d, e, f] = mac;
        let mut addresses = [0; 32];
        addresses[0] = u32::from_le_bytes([a, b, c, d]);
        addresses[1] = u32::from(u16::from_le_bytes([e, f])) | RAH_AV;
        AddressFilter { addresses, multicast: [0; 128], vlans: [0; 128] }
    }

    /// The writable bits of a word. The high half of an address contains address bits, the address select (source or
    /// destination), and the valid bit.
    fn bits(at: u32) -> u32 {
        if RA.contains(&at) && at % 8 == 4 { RAH_AV | 0x3_ffff } else { !0 }
    }

    fn word(&mut self, at: u32) -> Option<&mut u32> {
        let index = |range: &std::ops::Range<u32>| range.contains(&at).then(|| ((at - range.start) / 4) as usize);
        if let Some(i) = index(&RA) {
            self.addresses.get_mut(i)
        } else if let Some(i) = index(&MTA) {
            self.multicast.get_mut(i)
        } else {
            self.vlans.get_mut(index(&VFTA)?)
        }
    }

    /// Reads a word of one of the tables; `None` for other offsets.
    pub fn read(&mut self, at: u32) -> Option<u32> {
        self.word(at).copied()
    }

    /// Writes a word of one of the tables. Returns false for other offsets.
    pub fn write(&mut self, at: u32, value: u32) -> bool {
        self.word(at).map(|word| *word = value & Self::bits(at)).is_some()
    }

    fn is_exact(&self, to: [u8; 6]) -> bool {
        let [a, b, c, d, e, f] = to;
        let low = u32::from_le_bytes([a, b, c, d]);
        let high = u32::from(u16::from_le_bytes([e, f]));
        let fits = |pair: &[u32]| pair[0] == low && pair[1] & (RAH_AV | 0xffff) == RAH_AV | high;
        self.addresses.chunks_exact(2).any(fits)
    }

    /// Whether the hash table contains an address. RCTL.MO selects the address bits for the hash.
    fn is_hashed(&self, to: [u8; 6], rctl: u32) -> bool {
        let shift = [4, 3, 2, 0][(rctl >> 12 & 3) as usize];
        let hash = usize::from(u16::from_le_bytes([to[4], to[5]])) >> shift & 0xfff;
        self.multicast[hash >> 5] >> (hash & 31) & 1 != 0
    }

    /// Whether the filter accepts a frame that begins with `head` and has `len` bytes without CRC. `vet` is the
    /// Ethertype of VLAN tags.
    pub fn takes(&self, head: &[u8; 18], len: usize, rctl: u32, vet: u16) -> bool {
        let longest = if rctl & RCTL_LPE != 0 { LONGEST_JUMBO } else { LONGEST };
        if rctl & RCTL_EN == 0 || len > longest {
            return false;
        }
        if rctl & RCTL_VFE != 0 && u16::from_be_bytes([head[12], head[13]]) == vet {
            let id = usize::from(u16::from_be_bytes([head[14], head[15]]) & 0xfff);
            if self.vlans[id >> 5] >> (id & 31) & 1 == 0 {
                return false;
            }
        }
        let to = [head[0], head[1], head[2], head[3], head[4], head[5]];
        if to[0] & 1 == 0 {
            return rctl & RCTL_UPE != 0 || self.is_exact(to);
        }
        (to == [0xff; 6] && rctl & RCTL_BAM != 0)
            || rctl & RCTL_MPE != 0
            || self.is_exact(to)
            || self.is_hashed(to, rctl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 1, 2, 3];
    const VET: u16 = 0x8100;

    fn head(to: [u8; 6], vlan: Option<u16>) -> [u8; 18] {
        let mut head = [0; 18];
        head[..6].copy_from_slice(&to);
        if let Some(id) = vlan {
            head[12..14].copy_from_slice(&VET.to_be_bytes());
            head[14..16].copy_from_slice(&(id | 0xe000).to_be_bytes());
        }
        head
    }

    /// Objective: nothing passes while the receiver is off; when it is on, frames to the card's own address pass, and
    /// other frames only with the RCTL bit that allows them.
    #[test]
    fn only_addresses_that_rctl_allows_pass() {
        let mut f = AddressFilter::new(MAC);
        let other = [2, 0, 0, 9, 9, 9];
        let group = [0x33, 0x33, 0, 0, 0x12, 0x34];
        let all = [0xff; 6];
        let takes = |f: &AddressFilter, to, rctl| f.takes(&head(to, None), 60, rctl, VET);
        assert!(!takes(&f, MAC, RCTL_UPE | RCTL_MPE));
        let cases = [(0, [true, false, false, false]), (RCTL_UPE, [true, true, false, false])];
        let more = [(RCTL_BAM, [true, false, false, true]), (RCTL_MPE, [true, false, true, true])];
        for (rctl, expected) in cases.into_iter().chain(more) {
            assert_eq!([MAC, other, group, all].map(|to| takes(&f, to, rctl | RCTL_EN)), expected, "{rctl:#x}");
        }
        // A second receive address, without the valid bit at first.
        assert!(f.write(RA.start + 8, 0x0900_0002) && f.write(RA.start + 12, 0x0909));
        assert!(!takes(&f, other, RCTL_EN));
        f.write(RA.start + 12, 0x0909 | RAH_AV);
        assert!(takes(&f, other, RCTL_EN));
    }

    /// Objective: RCTL.MO selects the address bits for the hash, and each bit of the table is independent.
    #[test]
    fn rctl_selects_the_address_bits_of_the_hash() {
        let group = [1, 0, 0x5e, 0, 0xcd, 0xab];
        for (mo, bit) in [(0, 0xabc), (1, 0x579), (2, 0xaf3), (3, 0xbcd)] {
            let mut f = AddressFilter::new(MAC);
            let rctl = RCTL_EN | mo << 12;
            assert!(!f.takes(&head(group, None), 60, rctl, VET));
            f.write(MTA.start + (bit >> 5) * 4, 1 << (bit & 31));
            assert!(f.takes(&head(group, None), 60, rctl, VET), "MO {mo}");
        }
    }

    /// Objective: VLANs are filtered on request by their number; lengths are limited.
    #[test]
    fn vlans_are_filtered_and_lengths_are_limited() {
        let mut f = AddressFilter::new(MAC);
        let rctl = RCTL_EN | RCTL_VFE;
        assert!(f.takes(&head(MAC, Some(100)), 64, RCTL_EN, VET));
        assert!(!f.takes(&head(MAC, Some(100)), 64, rctl, VET) && f.takes(&head(MAC, None), 64, rctl, VET));
        f.write(VFTA.start + 12, 1 << 4);
        assert!(f.takes(&head(MAC, Some(100)), 64, rctl, VET) && !f.takes(&head(MAC, Some(101)), 64, rctl, VET));
        let long = |len, rctl| f.takes(&head(MAC, None), len, rctl, VET);
        assert_eq!([1518, 1519].map(|len| long(len, RCTL_EN)), [true, false]);
        assert_eq!([16_380, 16_381].map(|len| long(len, RCTL_EN | RCTL_LPE)), [true, false]);
    }

    /// Objective: words outside the tables have no effect.
    #[test]
    fn words_outside_the_tables_have_no_effect() {
        let mut f = AddressFilter::new(MAC);
        assert_eq!((f.read(RA.start), f.read(RA.start + 4)), (Some(0x0100_0002), Some(0x0302 | RAH_AV)));
        assert_eq!((f.read(RA.end), f.read(MTA.start - 4), f.read(VFTA.end)), (None, None, None));
        assert!(!f.write(0, 1) && f.write(VFTA.end - 4, 7) && f.read(VFTA.end - 4) == Some(7));
    }
}
