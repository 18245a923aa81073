//! The EEPROM: 64 words, accessible through a serial interface that drivers clock bit by bit, and through a register
//! that reads whole words (§5).

use serde::{Deserialize, Serialize};

use crate::arrays::{read_words, words};
use crate::regs::{EECD, EERD};

/// Number of 16-bit words of the EEPROM.
const WORDS: usize = 64;
/// Required sum of all words (§5.6.35).
const SUM: u16 = 0xbaba;
/// Number of bits of a word's address.
const ADDRESS_BITS: u32 = 6;

/// EECD: clock.
const SK: u32 = 1;
/// EECD: chip select.
const CS: u32 = 1 << 1;
/// EECD: data to the EEPROM.
const DI: u32 = 1 << 2;
/// EECD: data from the EEPROM.
const DO: u32 = 1 << 3;
/// EECD: software requests access.
const REQ: u32 = 1 << 6;
/// EECD: access is granted.
const GNT: u32 = 1 << 7;
/// EECD: EEPROM present.
const PRES: u32 = 1 << 8;

/// EERD: starts a read (§13.4.4).
const START: u32 = 1;
/// EERD: the read is done.
const DONE: u32 = 1 << 4;

/// Start bit and operation code of a read. Other commands are ignored, so a guest cannot change the EEPROM.
const READ: u32 = 0b110;

/// The state of the serial interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum EepromSerial {
    /// Receives a command: its bits so far, and their number.
    Command(u32, u32),
    /// Sends words: index of the word and of the bit to send next.
    Sending(usize, u32),
    /// Ignores a command other than a read, until the EEPROM is deselected.
    Deaf,
}

/// The EEPROM of a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Eeprom {
    #[serde(serialize_with = "words", deserialize_with = "read_words")]
    words: [u16; WORDS],
    control: u32,
    out: bool,
    serial: EepromSerial,
    read: u32,
}

impl Eeprom {
    /// Creates the EEPROM of a card with this Ethernet address and subsystem device ID.
    pub fn new(mac: [u8; 6], subsystem: u16) -> Eeprom {
        let mut words = [0; WORDS];
        let [a, b, c, d, e, f] = mac;
        // Ethernet address (§5.6.1), initialization control (§5.6.8), subsystem, vendor and device (§5.6.9–5.6.12).
        words[..3].copy_from_slice(&[
            u16::from_le_bytes([a, b]),
            u16::from_le_bytes([c, d]),
            u16::from_le_bytes([e, f]),
        ]);
        words[0x0a..0x0f].copy_from_slice(&[0x4408, subsystem, 0x8086, 0x100e, 0x8086]);
        let sum = words.iter().fold(0u16, |sum, word| sum.wrapping_add(*word));
        words[WORDS - 1] = SUM.wrapping_sub(sum);
        Eeprom { words, control: 0, out: false, serial: EepromSerial::Command(0, 0), read: DONE }
    }

    /// Whether this state, which may come from another process, is possible for a card with these values.
    pub(crate) fn is_possible(&self, mac: [u8; 6], subsystem: u16) -> bool {
        let serial = match self.serial {
            EepromSerial::Command(bits, n) => n < 3 + ADDRESS_BITS && bits < 1 << n,
            EepromSerial::Sending(word, bit) => word < WORDS && bit < 16,
            EepromSerial::Deaf => true,
        };
        serial && self.words == Eeprom::new(mac, subsystem).words
    }

    /// Reads EECD or EERD.
    pub fn register(&self, at: u32) -> u32 {
        if at == EERD {
            return self.read;
        }
        let granted = if self.control & REQ != 0 { GNT } else { 0 };
        self.control & (SK | CS | DI | REQ) | granted | PRES | if self.out { DO } else { 0 }
    }

    /// Writes EECD or EERD.
    pub fn write(&mut self, at: u32, value: u32) {
        match at {
            EERD if value & START != 0 => {
                let word = self.words.get((value >> 8 & 0xff) as usize).copied().unwrap_or(u16::MAX);
                self.read = u32::from(word) << 16 | value & 0xff00 | DONE;
            }
            EECD => self.lines(value),
            _ => {}
        }
    }

    /// Handles a change of the serial interface's lines.
    fn lines(&mut self, value: u32) {
        let rises = value & SK != 0 && self.control & SK == 0;
        self.control = value;
        if value & CS == 0 {
            self.serial = EepromSerial::Command(0, 0);
            self.out = false;
        } else if rises {
            self.clock(value & DI != 0);
        }
    }

    fn clock(&mut self, bit: bool) {
        self.serial = match self.serial {
            // Skip zeros before the start bit.
            EepromSerial::Command(0, 0) if !bit => EepromSerial::Command(0, 0),
            EepromSerial::Command(bits, n) => {
                let bits = bits << 1 | u32::from(bit);
                let n = n + 1;
                match n {
                    3 if bits != READ => EepromSerial::Deaf,
                    n if n == 3 + ADDRESS_BITS => {
                        // A zero bit precedes the first word.
                        self.out = false;
                        EepromSerial::Sending((bits as usize) % WORDS, 0)
                    }
                    n => EepromSerial::Command(bits, n),
                }
            }
            EepromSerial::Sending(word, bit) => {
                self.out = self.words.get(word).is_some_and(|value| value << bit & 0x8000 != 0);
                if bit == 15 {
                    EepromSerial::Sending((word + 1) % WORDS, 0)
                } else {
                    EepromSerial::Sending(word, bit + 1)
                }
            }
            EepromSerial::Deaf => EepromSerial::Deaf,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 1, 2, 3];

    /// Reads a word as a driver does, bit by bit.
    fn serially(eeprom: &mut Eeprom, word: u32) -> u16 {
        let mut clock = |bit: bool| {
            let lines = CS | REQ | if bit { DI } else { 0 };
            eeprom.write(EECD, lines);
            eeprom.write(EECD, lines | SK);
            eeprom.register(EECD) & DO != 0
        };
        let command = READ << ADDRESS_BITS | word;
        for i in (0..3 + ADDRESS_BITS).rev() {
            clock(command >> i & 1 != 0);
        }
        let value = (0..16).fold(0, |value, _| value << 1 | u16::from(clock(false)));
        eeprom.write(EECD, REQ);
        value
    }

    /// Objective: both ways of reading return the same words; the first three words contain the Ethernet address, and
    /// the checksum is correct.
    #[test]
    fn both_ways_of_reading_give_the_same_words() {
        let mut eeprom = Eeprom::new(MAC, 0x001e);
        let mut sum = 0u16;
        for word in 0..64 {
            let value = serially(&mut eeprom, word);
            eeprom.write(EERD, word << 8 | START);
            assert_eq!(eeprom.register(EERD), u32::from(value) << 16 | word << 8 | DONE, "word {word}");
            sum = sum.wrapping_add(value);
        }
        assert_eq!(sum, SUM);
        assert_eq!((serially(&mut eeprom, 0), serially(&mut eeprom, 2)), (0x0002, 0x0302));
        assert_eq!(serially(&mut eeprom, 0x0b), 0x001e);
    }

    /// Objective: further clock cycles return the next words; requested access is granted; other commands have no
    /// effect.
    #[test]
    fn other_uses_of_the_eeprom_change_nothing() {
        let mut eeprom = Eeprom::new(MAC, 0);
        assert_eq!(eeprom.register(EECD) & (GNT | PRES), PRES);
        eeprom.write(EECD, REQ);
        assert_eq!(eeprom.register(EECD) & GNT, GNT);
        let before = eeprom.words;
        for lines in 0..4096u32 {
            eeprom.write(EECD, lines.wrapping_mul(0x9e37_79b9) >> 13 & 0xff | CS);
        }
        assert_eq!(eeprom.words, before);
        eeprom.write(EECD, 0);
        assert_eq!(serially(&mut eeprom, 1), 0x0100);
        eeprom.write(EERD, 0xff00 | START);
        assert_eq!(eeprom.register(EERD) >> 16, 0xffff, "there is no such word");
    }
}
