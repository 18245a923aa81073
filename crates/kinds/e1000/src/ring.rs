//! A ring of descriptors in guest memory: those from head up to tail are the device's (§3.2.6, §3.4).

use serde::{Deserialize, Serialize};

/// Bytes of a descriptor, in both directions.
pub const DESCRIPTOR: u64 = 16;
/// RDLEN and TDLEN count whole cache lines of eight descriptors (§13.4.27).
const LINE: u32 = 128;
/// Bits that those registers have.
const LENGTH_BITS: u32 = 0xf_ff80;

/// A ring, as its registers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Where it is; the low four bits are no address's.
    pub base: u64,
    /// Bytes.
    length: u32,
    head: u16,
    tail: u16,
}

/// Which of a ring's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Low half of the address.
    Low,
    /// High half.
    High,
    /// Bytes.
    Length,
    /// First descriptor of the device's.
    Head,
    /// First one behind them.
    Tail,
}

impl Register {
    /// By its distance from the ring's first register.
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
    /// What a register reads as.
    pub fn read(&self, register: Register) -> u32 {
        match register {
            Register::Low => self.base as u32,
            Register::High => (self.base >> 32) as u32,
            Register::Length => self.length,
            Register::Head => self.head.into(),
            Register::Tail => self.tail.into(),
        }
    }

    /// Writes one. What a register has no bits for is ignored.
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

    /// Descriptors it has.
    pub fn count(&self) -> u32 {
        self.length / LINE * 8
    }

    /// Descriptors of the device's. A ring whose head or tail lies outside has none.
    pub fn owned(&self) -> u32 {
        let (head, tail, n) = (u32::from(self.head), u32::from(self.tail), self.count());
        if head >= n || tail >= n {
            0
        } else if tail >= head {
            tail - head
        } else {
            n - head + tail
        }
    }

    /// Address of the descriptor `k` after the head; none if that wraps around the address space.
    pub fn address(&self, k: u32) -> Option<u64> {
        let index = self.ahead(k)?;
        self.base.checked_add(u64::from(index) * DESCRIPTOR)
    }

    /// The first `k` descriptors are done.
    pub fn advance(&mut self, k: u32) {
        if let Some(head) = self.ahead(k) {
            self.head = head as u16;
        }
    }

    /// The index that many descriptors after the head.
    #[inline]
    fn ahead(&self, k: u32) -> Option<u32> {
        let (n, index) = (self.count(), u32::from(self.head) + k);
        // Divisions are slow, and most often there is nothing to divide.
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

    /// Objective: the device owns what lies between head and tail, also around the end; it goes around with them.
    #[test]
    fn around() {
        let mut r = ring(256, 14, 3);
        assert_eq!((r.count(), r.owned()), (16, 5));
        let base = 0x2_0000_1000;
        assert_eq!([0, 1, 2, 4].map(|k| r.address(k)), [14, 15, 0, 2].map(|i| Some(base + i * DESCRIPTOR)));
        r.advance(5);
        assert_eq!((r.owned(), r.read(Register::Head)), (0, 3));
    }

    /// Objective: rings that cannot be have no descriptors and stop nobody; registers have only the bits that the
    /// manual gives them.
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
