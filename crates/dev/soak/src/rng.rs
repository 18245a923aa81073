//! Random numbers from a seed (SplitMix64): the same seed yields the same numbers.

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns a random number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    /// Returns a random index into a list of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Shuffles a list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.index(i + 1));
        }
    }

    /// Returns `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a seed determines all numbers, and a shuffled list has the same elements.
    #[test]
    fn a_seed_determines_all_numbers() {
        let [mut a, mut b] = [Rng::new(7), Rng::new(7)];
        assert_eq!((0..99).map(|_| a.word()).collect::<Vec<_>>(), (0..99).map(|_| b.word()).collect::<Vec<_>>());
        let mut list: Vec<u32> = (0..50).collect();
        a.shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }
}
