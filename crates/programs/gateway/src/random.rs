//! A pool of random numbers from the kernel, which guests and servers cannot predict.

use rustix::rand::{GetRandomFlags, getrandom};

/// Number of bytes that one refill takes from the kernel.
const POOL: usize = 1024;

/// Random bytes from the kernel, of which the first `used` have been given out.
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

    /// Refills the pool with requests of 256 bytes. Requests of this size are never cut short once the kernel's
    /// generator is initialized (getrandom(2)).
    fn refill(&mut self) {
        for part in self.bytes.chunks_mut(256) {
            while getrandom(&mut *part, GetRandomFlags::empty()).is_err() {}
        }
        self.used = 0;
    }

    /// Returns 16 random bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// Returns 32 random bits.
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
