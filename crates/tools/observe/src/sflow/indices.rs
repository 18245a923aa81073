//! Interface *indices* ([`Indices`]), by which collectors identify ports.
//!
//! An index is a hash of the port's name, so that it stays the same after a restart of the agent, the daemon or the
//! host. If another port already has this index, the next free index is used.

use std::collections::BTreeMap;

/// Exclusive upper bound of indices, since sFlow's data source indices have 24 bits. The index 0 is not used.
const END: u32 = 1 << 24;

/// Indices of ports by name.
#[derive(Clone, Debug, Default)]
pub struct Indices {
    by_name: BTreeMap<String, u32>,
    taken: BTreeMap<u32, String>,
}

impl Indices {
    /// Returns the index of a port. Assigns one if the port has none.
    pub fn of(&mut self, name: &str) -> u32 {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let mut index = first(name);
        while self.taken.contains_key(&index) {
            index = index % (END - 1) + 1;
        }
        self.by_name.insert(name.to_owned(), index);
        self.taken.insert(index, name.to_owned());
        index
    }

    /// Removes the indices of ports that no longer exist.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| is_there(name));
        self.taken.retain(|_, name| is_there(name));
    }
}

/// Returns a port's preferred index: the FNV-1a hash of its name, reduced to the range from 1 to `END` - 1.
fn first(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ hash >> 24) % (END - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a port keeps its index, even in another agent, and no two ports have the same index.
    #[test]
    fn numbers_stay() {
        let mut indices = Indices::default();
        let names: Vec<String> = (0..20_000).map(|n| format!("vale0:p{n}")).collect();
        let numbers: Vec<u32> = names.iter().map(|name| indices.of(name)).collect();
        let apart: std::collections::BTreeSet<u32> = numbers.iter().copied().collect();
        assert_eq!(apart.len(), names.len());
        assert!(apart.iter().all(|n| (1..END).contains(n)));
        assert_eq!(indices.of("vale0:p7"), numbers[7]);
        assert_eq!(Indices::default().of("vale0:p0"), numbers[0]);
    }

    /// Objective: the index of a removed port can be used again.
    #[test]
    fn numbers_are_freed() {
        let mut indices = Indices::default();
        let index = indices.of("vale0:a");
        indices.retain(|name| name != "vale0:a");
        assert!(indices.by_name.is_empty() && indices.taken.is_empty());
        assert_eq!(indices.of("vale0:a"), index);
    }
}
