//! Statistics (§13.7): 32-bit counters that saturate and are cleared by reading. Octet counters have 64 bits and are
//! cleared by reading the upper half.

use serde::{Deserialize, Serialize};

use crate::arrays::{read_words, words};
use crate::direction::CardDirection;
use crate::regs::STATISTICS;

/// Number of words in the range of the statistics.
const WORDS: usize = 64;

const fn word(at: u32) -> usize {
    ((at - STATISTICS.start) / 4) as usize
}

/// Missed frames (MPC, §13.7.4).
const MISSED: usize = word(0x4010);
/// Frames without a receive buffer (RNBC, §13.7.31).
const NO_BUFFERS: usize = word(0x40a0);
/// Good frames received.
const RECEIVED: usize = word(0x4074);
/// Good broadcast frames received.
const RECEIVED_BROADCAST: usize = word(0x4078);
/// Good multicast frames received.
const RECEIVED_MULTICAST: usize = word(0x407c);
/// Good frames sent.
const SENT: usize = word(0x4080);
/// Low halves of the octet counters of good frames, received and sent.
const GOOD_OCTETS: [usize; 2] = [word(0x4088), word(0x4090)];
/// Low halves of the octet counters of all frames, received and sent.
const TOTAL_OCTETS: [usize; 2] = [word(0x40c0), word(0x40c8)];
/// Counters of all frames, received and sent.
const TOTAL: [usize; 2] = [word(0x40d0), word(0x40d4)];
/// First counters of frames by length, received and sent: 64, 65 to 127, … bytes (§13.7.14–13.7.19, §13.7.44–13.7.49).
const LENGTHS: [usize; 2] = [word(0x405c), word(0x40d8)];
const SENT_MULTICAST: usize = word(0x40f0);
const SENT_BROADCAST: usize = word(0x40f4);
const SEGMENTED: usize = word(0x40f8);

/// Length of the Ethernet CRC in bytes, which the statistics include.
const CRC: usize = 4;

/// The statistics of a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats(#[serde(serialize_with = "words", deserialize_with = "read_words")] [u32; WORDS]);

impl Default for Stats {
    fn default() -> Self {
        Stats([0; WORDS])
    }
}

impl Stats {
    fn add(&mut self, at: usize, n: u32) {
        if let Some(counter) = self.0.get_mut(at) {
            *counter = counter.saturating_add(n);
        }
    }

    fn add_octets(&mut self, low: usize, n: u64) {
        let at = |i: usize| self.0.get(i).copied().unwrap_or(0);
        let sum = (u64::from(at(low + 1)) << 32 | u64::from(at(low))).saturating_add(n);
        for (i, half) in [(low, sum as u32), (low + 1, (sum >> 32) as u32)] {
            if let Some(counter) = self.0.get_mut(i) {
                *counter = half;
            }
        }
    }

    /// Counts a frame of `len` bytes without CRC to the address `to`.
    pub fn passed(&mut self, direction: CardDirection, to: [u8; 6], len: usize) {
        let i = direction as usize;
        let len = len.max(60) + CRC;
        self.add([RECEIVED, SENT][i], 1);
        self.add(TOTAL[i], 1);
        if to == [0xff; 6] {
            self.add([RECEIVED_BROADCAST, SENT_BROADCAST][i], 1);
        } else if to[0] & 1 != 0 {
            self.add([RECEIVED_MULTICAST, SENT_MULTICAST][i], 1);
        }
        self.add_octets(GOOD_OCTETS[i], len as u64);
        self.add_octets(TOTAL_OCTETS[i], len as u64);
        let class = [64, 127, 255, 511, 1023].iter().position(|most| len <= *most).unwrap_or(5);
        self.add(LENGTHS[i] + class, 1);
    }

    /// Counts a packet that was sent in segments.
    pub fn segmented(&mut self) {
        self.add(SEGMENTED, 1);
    }

    /// Counts a frame lost for lack of descriptors.
    pub fn missed(&mut self) {
        self.add(MISSED, 1);
        self.add(NO_BUFFERS, 1);
    }

    /// Reads a counter, and clears it as the manual defines.
    pub fn read(&mut self, at: u32) -> u32 {
        if !STATISTICS.contains(&at) {
            return 0;
        }
        let i = word(at);
        let value = self.0.get(i).copied().unwrap_or(0);
        let halves = GOOD_OCTETS.into_iter().chain(TOTAL_OCTETS).find(|low| (*low..*low + 2).contains(&i));
        let cleared = match halves {
            // The lower half is cleared together with the upper half.
            Some(low) if i == low => 0..0,
            Some(low) => low..low + 2,
            None => i..i + 1,
        };
        self.0.get_mut(cleared).unwrap_or_default().fill(0);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a frame is counted by direction, address and length, including CRC and padding.
    #[test]
    fn a_frame_is_counted_by_direction_and_length() {
        let mut s = Stats::default();
        s.passed(CardDirection::Receive, [0xff; 6], 42);
        s.passed(CardDirection::Receive, [1, 0, 0, 0, 0, 1], 124);
        s.passed(CardDirection::Transmit, [2, 0, 0, 0, 0, 1], 1514);
        let read = |s: &mut Stats, at: [u32; 6]| at.map(|at| s.read(at));
        assert_eq!(read(&mut s, [0x4074, 0x4078, 0x407c, 0x40d0, 0x405c, 0x4064]), [2, 1, 1, 2, 1, 1]);
        assert_eq!(read(&mut s, [0x4080, 0x40f0, 0x40f4, 0x40d4, 0x40ec, 0x4088]), [1, 0, 0, 1, 1, 64 + 128]);
        assert_eq!((s.read(0x4090), s.read(0x4094), s.read(0x4090)), (1518, 0, 0));
    }

    /// Objective: reading clears a counter, and octets only by their upper half; counters saturate; other offsets read
    /// as zero.
    #[test]
    fn reading_clears_the_counters() {
        let mut s = Stats::default();
        s.missed();
        assert_eq!((s.read(0x4010), s.read(0x4010), s.read(0x40a0)), (1, 0, 1));
        s.passed(CardDirection::Receive, [2; 6], 60);
        assert_eq!((s.read(0x40c0), s.read(0x40c0), s.read(0x40c4), s.read(0x40c0)), (64, 64, 0, 0));
        s.0[MISSED] = u32::MAX;
        s.missed();
        assert_eq!(s.read(0x4010), u32::MAX);
        s.0[GOOD_OCTETS[0]] = u32::MAX;
        s.passed(CardDirection::Receive, [2; 6], 60);
        assert_eq!((s.read(0x4088), s.read(0x408c)), (63, 1));
        assert_eq!((s.read(0x3ffc), s.read(0x4100), s.read(u32::MAX)), (0, 0, 0));
    }
}
