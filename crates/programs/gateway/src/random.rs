//! A pool of numbers that no guest and no server can guess, from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes taken from the kernel together.
const POOL: usize = 1024;

/// A supply of random bytes.
#[derive(Debug)]
pub struct RandomPool {
    bytes: [u8; POOL],
    used: usize,
}

impl Default for RandomPool {
    fn default() -> Self {
        RandomPool { bytes: [0; POOL], used: POOL }
    }
}

impl RandomPool {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        if self.used + N > POOL {
            self.refill();
        }
        let taken = std::array::from_fn(|i| self.bytes[self.used + i]);
        self.used += N;
        taken
    }

    /// Requests of up to 256 bytes are never cut short once the kernel has started.
    fn refill(&mut self) {
        for part in self.bytes.chunks_mut(256) {
            while getrandom(&mut *part, GetRandomFlags::empty()).is_err() {}
        }
        self.used = 0;
    }

    /// A number of 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_beyond_a_refill() {
        let mut pool = RandomPool::default();
        let mut numbers: Vec<u32> = (0..POOL).map(|_| pool.u32()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() > POOL - 4);
        assert!((0..64).any(|_| pool.u16() != 0));
    }
}
