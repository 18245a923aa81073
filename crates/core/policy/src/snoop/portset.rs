//! Sets of ports.

use std::fmt;

const WORDS: usize = 4;

/// A set of ports, as a bitmap.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PortSet([u64; WORDS]);

impl PortSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds `port` to the set (`member`), or removes it.
    pub fn set(&mut self, port: u8, member: bool) {
        let (word, bit) = place(port);
        if member {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    /// Whether `port` is in the set.
    #[inline]
    pub fn has(&self, port: u8) -> bool {
        let (word, bit) = place(port);
        self.0[word] & bit != 0
    }

    /// Returns the ports that are in at least one of the sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The bitmap. Port 0 is the lowest bit of the first word.
    #[inline]
    pub fn words(&self) -> &[u64; 4] {
        &self.0
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Number of ports in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The ports in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        let set = *self;
        (0..=u8::MAX).filter(move |&port| set.has(port))
    }
}

/// Returns the index of the word of `port`, which is below [`WORDS`], and the port's bit in it.
#[inline]
fn place(port: u8) -> (usize, u64) {
    (usize::from(port >> 6), 1 << (port & 63))
}

impl FromIterator<u8> for PortSet {
    fn from_iter<I: IntoIterator<Item = u8>>(ports: I) -> Self {
        let mut set = Self::EMPTY;
        ports.into_iter().for_each(|port| set.set(port, true));
        set
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Objective: a set of ports behaves like a set of numbers.
        #[test]
        fn a_set_of_ports_is_a_set(first: BTreeSet<u8>, second: BTreeSet<u8>, port: u8, member: bool) {
            let mut set: PortSet = first.iter().copied().collect();
            prop_assert!(set.iter().eq(first.iter().copied()));
            prop_assert_eq!((set.len(), set.is_empty()), (first.len(), first.is_empty()));
            prop_assert_eq!(set.has(port), first.contains(&port));
            let both: PortSet = first.union(&second).copied().collect();
            prop_assert_eq!(set.union(second.iter().copied().collect()), both);
            set.set(port, member);
            prop_assert_eq!(set.has(port), member);
        }
    }

    /// Objective: the words have the layout that the switch reads, and a set prints its ports.
    #[test]
    fn the_first_and_last_port_are_where_they_belong() {
        let set: PortSet = [0, 63, 64, 254].into_iter().collect();
        assert_eq!(set.words(), &[1 | 1 << 63, 1, 0, 1 << 62]);
        assert_eq!(format!("{set:?}"), "{0, 63, 64, 254}");
    }
}
