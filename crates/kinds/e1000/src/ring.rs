//! A descriptor ring in guest memory: the device owns descriptors from head up to tail (§3.2.6, §3.4).

use serde::{Deserialize, Serialize};

/// Bytes of a descriptor, in both directions.
pub const DESCRIPTOR: u64 = 16;
/// RDLEN and TDLEN count whole cache lines of eight descriptors (§13.4.27).
const LINE: u32 = 128;
/// Writable bits of those registers.
const LENGTH_BITS: u32 = 0xf_ff80;

/// A ring, as set by its registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Its address; the low four bits are zero.
    pub base: u64,
    /// Its length in bytes.
    length: u32,
    head: u16,
    tail: u16,
}

/// A register of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Low half of the address.
    Low,
    /// High half.
    High,
    /// Length in bytes.
    Length,
    /// First descriptor of the device.
    Head,
    /// First descriptor after the device's.
    Tail,
}

impl Register {
    /// The register at this offset from the ring's first register.
    pub fn at(distance: u32) -> Option<Register> {
        Some(match distance {
            0x00 => Register::Low,
            0x04 => Register::High,
            0x08 => Register::Length,
            0x10 => Register::Head,
            0x18 => Register::Tail,
            _ => return None,
        })
    }
}

impl Ring {
    /// Reads a register.
    pub fn read(&self, register: Register) -> u32 {
        match register {
            Register::Low => self.base as u32,
            Register::High => (self.base >> 32) as u32,
            Register::Length => self.length,
            Register::Head => self.head.into(),
            Register::Tail => self.tail.into(),
        }
    }

    /// Writes a register. Bits that it lacks are ignored.
    pub fn write(&mut self, register: Register, value: u32) {
        match register {
            Register::Low => self.base = self.base & !0xffff_ffff | u64::from(value & !0xf),
            Register::High => self.base = self.base & 0xffff_ffff | u64::from(value) << 32,
            Register::Length => self.length = value & LENGTH_BITS,
            Register::Head => self.head = value as u16,
            Register::Tail => self.tail = value as u16,
        }
    }

    /// Whether its registers can have these values.
    pub(crate) fn is_possible(&self) -> bool {
        self.base & 0xf == 0 && self.length & !LENGTH_BITS == 0
    }

    /// Number of descriptors.
    pub fn count(&self) -> u32 {
        self.length / LINE * 8
    }

    /// Number of descriptors that the device owns; zero if head or tail lies outside the ring.
    pub fn owned(&self) -> u32 {
        let head = u32::from(self.head);
        let tail = u32::from(self.tail);
        let n = self.count();
        if head >= n || tail >= n {
            0
        } else if tail >= head {
            tail - head
        } else {
            n - head + tail
        }
    }

    /// Address of the descriptor `k` after the head; `None` if that wraps around the address space.
    pub fn address(&self, k: u32) -> Option<u64> {
        let index = self.ahead(k)?;
        self.base.checked_add(u64::from(index) * DESCRIPTOR)
    }

    /// Marks the first `k` descriptors as done.
    pub fn advance(&mut self, k: u32) {
        if let Some(head) = self.ahead(k) {
            self.head = head as u16;
        }
    }

    /// The index `k` descriptors after the head.
    #[inline]
    fn ahead(&self, k: u32) -> Option<u32> {
        let n = self.count();
        let index = u32::from(self.head) + k;
        // Divisions are slow, and rarely needed here.
        if index < n { Some(index) } else { index.checked_rem(n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(length: u32, head: u32, tail: u32) -> Ring {
        let mut ring = Ring::default();
        let all = [(Register::Low, 0x1000), (Register::High, 2), (Register::Length, length)];
        let more = [(Register::Head, head), (Register::Tail, tail)];
        all.into_iter().chain(more).for_each(|(register, value)| ring.write(register, value));
        ring
    }

    /// Objective: the device owns the descriptors between head and tail, also around the end of the ring.
    #[test]
    fn around() {
        let mut r = ring(256, 14, 3);
        assert_eq!((r.count(), r.owned()), (16, 5));
        let base = 0x2_0000_1000;
        assert_eq!([0, 1, 2, 4].map(|k| r.address(k)), [14, 15, 0, 2].map(|i| Some(base + i * DESCRIPTOR)));
        r.advance(5);
        assert_eq!((r.owned(), r.read(Register::Head)), (0, 3));
    }

    /// Objective: invalid rings have no descriptors and block nothing; registers have only the bits of the manual.
    #[test]
    fn nonsense() {
        for (length, head, tail) in [(0, 0, 0), (0, 5, 9), (127, 0, 1), (128, 8, 0), (128, 0, 8), (128, 0xffff, 3)] {
            let mut r = ring(length, head, tail);
            assert_eq!(r.owned(), 0, "{length} {head} {tail}");
            r.advance(3);
            let _ = r.address(u32::from(u16::MAX));
        }
        let mut r = ring(u32::MAX, u32::MAX, u32::MAX);
        assert_eq!((r.read(Register::Length), r.read(Register::Head)), (0xf_ff80, 0xffff));
        r.write(Register::Low, u32::MAX);
        r.write(Register::High, u32::MAX);
        assert_eq!(r.read(Register::Low), 0xffff_fff0);
        assert_eq!(r.address(0), None);
        assert_eq!(Register::at(0x0c), None);
    }
}
