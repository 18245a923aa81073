//! Sets of ports.

use std::fmt;

/// A set of ports, as a bitmap that is as long as the highest port in the set requires.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PortSet {
    /// Port 0 is the lowest bit of the first word. The last word is not 0, so that equal sets have equal words.
    words: Vec<u64>,
}

impl PortSet {
    /// The empty set.
    pub const EMPTY: Self = Self { words: Vec::new() };

    /// Adds `port` to the set (`member`), or removes it.
    pub fn set(&mut self, port: u16, member: bool) {
        let (word, bit) = place(port);
        if member {
            self.words.resize(self.words.len().max(word + 1), 0);
            self.words[word] |= bit;
        } else if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
            let used = self.words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
            self.words.truncate(used);
        }
    }

    /// Whether `port` is in the set.
    #[inline]
    pub fn has(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the ports that are in at least one of the sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut both = long.clone();
        both.words.iter_mut().zip(&short.words).for_each(|(word, other)| *word |= other);
        both
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Number of ports in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The ports in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let bits = |word: u64| (0..64u16).filter(move |bit| word >> bit & 1 != 0);
        self.words.iter().enumerate().flat_map(move |(i, &word)| bits(word).map(move |bit| i as u16 * 64 + bit))
    }
}

/// Returns the index of the word of `port`, and the port's bit in that word.
#[inline]
fn place(port: u16) -> (usize, u64) {
    (usize::from(port >> 6), 1 << (port & 63))
}

impl FromIterator<u16> for PortSet {
    fn from_iter<I: IntoIterator<Item = u16>>(ports: I) -> Self {
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

    fn ports() -> impl Strategy<Value = BTreeSet<u16>> {
        proptest::collection::btree_set(prop_oneof![0..300u16, any::<u16>()], 0..40)
    }

    proptest! {
        /// Objective: a set of ports behaves like a set of numbers, and sets with the same ports are equal, whatever
        /// ports they had before.
        #[test]
        fn a_set_of_ports_is_a_set(first in ports(), second in ports(), port: u16, member: bool) {
            let mut set: PortSet = first.iter().copied().collect();
            prop_assert!(set.iter().eq(first.iter().copied()));
            prop_assert_eq!((set.len(), set.is_empty()), (first.len(), first.is_empty()));
            prop_assert_eq!(set.has(port), first.contains(&port));
            let other: PortSet = second.iter().copied().collect();
            let both: PortSet = first.union(&second).copied().collect();
            prop_assert_eq!(set.union(&other), both.clone());
            prop_assert_eq!(other.union(&set), both);
            set.set(port, member);
            prop_assert_eq!(set.has(port), member);
            set.set(port, false);
            let without: PortSet = first.iter().copied().filter(|&other| other != port).collect();
            prop_assert_eq!(set, without);
        }
    }

    /// Objective: the memory of a set depends on its highest port, and a set prints its ports.
    #[test]
    fn a_set_is_as_long_as_its_highest_port_requires() {
        let mut set: PortSet = [0, 63, 64, 4095].into_iter().collect();
        assert_eq!((set.words.len(), format!("{set:?}").as_str()), (64, "{0, 63, 64, 4095}"));
        set.set(4095, false);
        assert_eq!(set.words, [1 | 1 << 63, 1]);
    }
}
