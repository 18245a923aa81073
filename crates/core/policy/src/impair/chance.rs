//! Random numbers, alone and in correlated sequences.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::spec;

/// A sequence of random numbers from 0 to `u32::MAX`, each correlated with the number before it.
#[derive(Clone, Debug)]
pub(super) struct RandomSource {
    last: u32,
    /// The weight of the last number in the next number, in units of 2^-32; 0 if the numbers are independent.
    rho: u64,
}

impl RandomSource {
    /// Creates a sequence with this correlation and a random start.
    pub fn new(correlation: crate::units::Share, rng: &mut Pcg32) -> Self {
        let rho = match correlation.raw() {
            0 => 0,
            raw => u64::from(raw) + 1,
        };
        Self { last: rng.next_u32(), rho }
    }

    /// Draws the next number.
    #[inline]
    pub fn draw(&mut self, rng: &mut Pcg32) -> u32 {
        let fresh = rng.next_u32();
        if self.rho == 0 {
            return fresh;
        }
        // At most (2^32 - 1) * 2^32: the sum does not overflow, and the shifted result fits.
        let mixed = u64::from(fresh) * ((1 << 32) - self.rho) + u64::from(self.last) * self.rho;
        self.last = (mixed >> 32) as u32;
        self.last
    }
}

/// A random event that happens to a share of the frames.
#[derive(Clone, Debug)]
pub(super) struct ChanceEvent {
    share: u32,
    source: RandomSource,
}

impl ChanceEvent {
    /// Creates an event with this chance.
    pub fn new(chance: spec::Chance, rng: &mut Pcg32) -> Self {
        Self { share: chance.share.raw(), source: RandomSource::new(chance.correlation, rng) }
    }

    /// Draws whether the event happens to the next frame.
    #[inline]
    pub fn happens(&mut self, rng: &mut Pcg32) -> bool {
        self.share != 0 && self.share >= self.source.draw(rng)
    }
}

/// Draws whether an independent event of chance `share` happens.
#[inline]
pub(super) fn happens(share: u32, rng: &mut Pcg32) -> bool {
    share != 0 && share >= rng.next_u32()
}
