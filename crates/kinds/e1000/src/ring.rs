//! Descriptor rings in guest memory: the device owns the descriptors from head up to, not including, tail (§3.2.6,
//! §3.4).

use serde::{Deserialize, Serialize};

/// Length of a descriptor in bytes, in either direction.
pub const DESCRIPTOR: u64 = 16;
/// Unit of RDLEN and TDLEN in bytes: a cache line of eight descriptors (§13.4.27).
const LINE: u32 = 128;
/// Writable bits of RDLEN and TDLEN.
const LENGTH_BITS: u32 = 0xf_ff80;

/// A descriptor ring, as its registers define it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRing {
    /// Guest address of the ring; the low four bits are zero.
    pub base: u64,
    /// Length of the ring in bytes.
    length: u32,
    head: u16,
    tail: u16,
}

/// A register of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRegister {
    /// Low half of the address.
    Low,
    /// High half of the address.
    High,
    /// Length in bytes.
    Length,
    /// Index of the first descriptor that the device owns.
    Head,
    /// Index of the descriptor after the last descriptor that the device owns.
    Tail,
}

impl RingRegister {
    /// The register at `distance` bytes from the ring's first register; `None` if that is not a register of the ring.
    pub fn at(distance: u32) -> Option<RingRegister> {
        Some(match distance {
            0x00 => RingRegister::Low,
            0x04 => RingRegister::High,
            0x08 => RingRegister::Length,
            0x10 => RingRegister::Head,
            0x18 => RingRegister::Tail,
            _ => return None,
        })
    }
}

impl CardRing {
    /// Reads a register.
    pub fn read(&self, register: RingRegister) -> u32 {
        match register {
            RingRegister::Low => self.base as u32,
            RingRegister::High => (self.base >> 32) as u32,
            RingRegister::Length => self.length,
            RingRegister::Head => self.head.into(),
            RingRegister::Tail => self.tail.into(),
        }
    }

    /// Writes a register. Bits that the register lacks are ignored.
    pub fn write(&mut self, register: RingRegister, value: u32) {
        match register {
            RingRegister::Low => self.base = self.base & !0xffff_ffff | u64::from(value & !0xf),
            RingRegister::High => self.base = self.base & 0xffff_ffff | u64::from(value) << 32,
            RingRegister::Length => self.length = value & LENGTH_BITS,
            RingRegister::Head => self.head = value as u16,
            RingRegister::Tail => self.tail = value as u16,
        }
    }

    /// Whether the registers can have these values, i.e. only writable bits are set.
    pub(crate) fn is_possible(&self) -> bool {
        self.base & 0xf == 0 && self.length & !LENGTH_BITS == 0
    }

    /// Number of descriptors.
    pub fn count(&self) -> u32 {
        self.length / LINE * 8
    }

    /// Number of descriptors that the device owns; zero if head or tail is outside the ring.
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

    /// Guest address of the descriptor `k` places after the head; `None` if the ring's length is zero or the address
    /// overflows.
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

    /// Index of the descriptor `k` places after the head, counted around the ring's end; `None` if the ring's length is
    /// zero.
    #[inline]
    fn ahead(&self, k: u32) -> Option<u32> {
        let n = self.count();
        let index = u32::from(self.head) + k;
        // Avoid a division, which is slow and seldom needed.
        if index < n { Some(index) } else { index.checked_rem(n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(length: u32, head: u32, tail: u32) -> CardRing {
        let mut ring = CardRing::default();
        let all = [(RingRegister::Low, 0x1000), (RingRegister::High, 2), (RingRegister::Length, length)];
        let more = [(RingRegister::Head, head), (RingRegister::Tail, tail)];
        all.into_iter().chain(more).for_each(|(register, value)| ring.write(register, value));
        ring
    }

    /// Objective: the device owns the descriptors from head to tail, even across the end of the ring.
    #[test]
    fn the_device_owns_descriptors_around_the_end() {
        let mut r = ring(256, 14, 3);
        assert_eq!((r.count(), r.owned()), (16, 5));
        let base = 0x2_0000_1000;
        assert_eq!([0, 1, 2, 4].map(|k| r.address(k)), [14, 15, 0, 2].map(|i| Some(base + i * DESCRIPTOR)));
        r.advance(5);
        assert_eq!((r.owned(), r.read(RingRegister::Head)), (0, 3));
    }

    /// Objective: invalid rings have no descriptors; registers have only the bits in the manual.
    #[test]
    fn nonsense_rings_have_no_descriptors() {
        for (length, head, tail) in [(0, 0, 0), (0, 5, 9), (127, 0, 1), (128, 8, 0), (128, 0, 8), (128, 0xffff, 3)] {
            let mut r = ring(length, head, tail);
            assert_eq!(r.owned(), 0, "{length} {head} {tail}");
            r.advance(3);
            let _ = r.address(u32::from(u16::MAX));
        }
        let mut r = ring(u32::MAX, u32::MAX, u32::MAX);
        assert_eq!((r.read(RingRegister::Length), r.read(RingRegister::Head)), (0xf_ff80, 0xffff));
        r.write(RingRegister::Low, u32::MAX);
        r.write(RingRegister::High, u32::MAX);
        assert_eq!(r.read(RingRegister::Low), 0xffff_fff0);
        assert_eq!(r.address(0), None);
        assert_eq!(RingRegister::at(0x0c), None);
    }
}
