//! The forwarding table: the port behind which each address was last seen.
//!
//! Each entry is one 64-bit word (address 48 bits, port 8, age 8), with eight entries per cache line, so that workers
//! read and write it without a lock: a lost race costs one frame that is flooded or one address that is learned with
//! the next frame.
//!
//! It is bounded, and its hash is keyed with a secret, so that a flood of made-up addresses can neither grow it nor aim
//! at one line. In a full line the port that holds most of it loses an entry, hence a flooding port displaces its own
//! addresses.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Number of a port on its switch.
pub type PortId = u8;

/// Number of entries in the default table: room for 8,192 addresses at half load.
pub const DEFAULT_ENTRIES: usize = 16_384;
/// An address not seen for this long is forgotten (IEEE 802.1D's default).
pub const DEFAULT_AGEING: Duration = Duration::from_secs(300);

const WAYS: usize = 8;
const MAC: u64 = (1 << 48) - 1;
/// Ages are counted in ticks of this fraction of the ageing time; the 8-bit tick must not wrap within two ageing times.
const TICKS: u8 = 100;

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

/// The forwarding table of one switch.
#[derive(Debug)]
pub struct Fdb {
    lines: Box<[Line]>,
    key: (u64, u64),
    tick: AtomicU8,
}

/// An entry that [`Fdb::entries`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The address in wire order, first byte lowest.
    pub mac: u64,
    /// The port behind which it was seen.
    pub port: PortId,
    /// Ticks since it was last seen; see [`Fdb::tick_length`].
    pub ticks: u8,
}

impl Fdb {
    /// Creates a table of at least `entries` entries, its hash keyed with `key` (from a random source).
    pub fn new(entries: usize, key: (u64, u64)) -> Self {
        let lines = entries.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two();
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Fdb { lines: (0..lines).map(|_| line()).collect(), key: (key.0, key.1 | 1), tick: AtomicU8::new(0) }
    }

    #[inline]
    fn line(&self, mac: u64) -> &[AtomicU64; WAYS] {
        // Multiply-shift: the product's top bits are a universal hash for a secret odd factor.
        let product = (mac ^ self.key.0).wrapping_mul(self.key.1);
        let line = ((product >> 32) * self.lines.len() as u64) >> 32;
        // A 32-bit fraction of the number of lines is below that number.
        &self.lines[line as usize].0
    }

    /// The port behind which `mac` was last seen.
    #[inline]
    pub fn lookup(&self, mac: u64) -> Option<PortId> {
        let line = self.line(mac);
        let entry = line.iter().map(|e| e.load(Ordering::Relaxed)).find(|e| e & MAC == mac)?;
        (mac != 0).then(|| port_of(entry))
    }

    /// Records that `mac` was seen behind `port`. Writes only when that is new. The zero address and group addresses
    /// are not learned.
    #[inline]
    pub fn learn(&self, mac: u64, port: PortId) {
        if mac & 1 != 0 || mac == 0 {
            return;
        }
        let fresh = mac | u64::from(port) << 48 | u64::from(self.tick.load(Ordering::Relaxed)) << 56;
        let line = self.line(mac);
        for entry in line {
            let old = entry.load(Ordering::Relaxed);
            if old == fresh {
                return;
            }
            if old & MAC == mac {
                entry.store(fresh, Ordering::Relaxed);
                return;
            }
        }
        self.insert(line, fresh);
    }

    /// Inserts a new address: in an empty entry, or over the oldest one of the port that holds most of the line.
    #[cold]
    fn insert(&self, line: &[AtomicU64; WAYS], fresh: u64) {
        let now = self.tick.load(Ordering::Relaxed);
        let all: [u64; WAYS] = std::array::from_fn(|i| line[i].load(Ordering::Relaxed));
        let held = |e: u64| all.iter().filter(|&&o| port_of(o) == port_of(e)).count();
        let rank = |e: u64| if e == 0 { (usize::MAX, u8::MAX) } else { (held(e), age(e, now)) };
        if let Some((entry, &old)) = line.iter().zip(&all).max_by_key(|(_, e)| rank(**e)) {
            // A failed exchange means that another thread learned here at this moment: the next frame tries again.
            let _ = entry.compare_exchange(old, fresh, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// How often [`Fdb::advance`] must be called for a given ageing time.
    pub fn tick_length(ageing: Duration) -> Duration {
        (ageing / u32::from(TICKS)).max(Duration::from_millis(1))
    }

    /// Advances the clock by one tick, and forgets addresses that have not been seen for the ageing time.
    pub fn advance(&self) {
        let now = self.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.remove_where(|e| age(e, now) >= TICKS);
    }

    /// Forgets all addresses behind a port.
    pub fn forget_port(&self, port: PortId) {
        self.remove_where(|e| port_of(e) == port);
    }

    fn remove_where(&self, gone: impl Fn(u64) -> bool) {
        for entry in self.lines.iter().flat_map(|l| &l.0) {
            let e = entry.load(Ordering::Relaxed);
            if e != 0 && gone(e) {
                // If it changed meanwhile, the address was seen again: keep it.
                let _ = entry.compare_exchange(e, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Lists all entries.
    pub fn entries(&self) -> Vec<FdbEntry> {
        let now = self.tick.load(Ordering::Relaxed);
        let words = self.lines.iter().flat_map(|l| &l.0).map(|e| e.load(Ordering::Relaxed)).filter(|&e| e != 0);
        words.map(|e| FdbEntry { mac: e & MAC, port: port_of(e), ticks: age(e, now) }).collect()
    }

    /// Maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }
}

#[inline]
fn port_of(entry: u64) -> PortId {
    (entry >> 48) as u8
}

#[inline]
fn age(entry: u64, now: u8) -> u8 {
    now.wrapping_sub((entry >> 56) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn fdb() -> Fdb {
        Fdb::new(256, (0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321))
    }

    proptest! {
        /// Objective: while no line overflows, the table is a map with the latest port of each address.
        #[test]
        fn is_a_map(seen in proptest::collection::vec((0u64..24, 0u8..254), 0..200)) {
            let t = fdb();
            let mut model = HashMap::new();
            for (m, port) in seen {
                let mac = m << 9;
                t.learn(mac, port);
                if mac != 0 { model.insert(mac, port); }
            }
            for m in 0..24u64 {
                let mac = m << 9;
                prop_assert_eq!(t.lookup(mac), model.get(&mac).copied());
            }
            prop_assert_eq!(t.entries().len(), model.len());
        }
    }

    /// Objective: a port that floods made-up addresses displaces its own, not those of others.
    #[test]
    fn flood_hurts_the_flooder() {
        let t = fdb();
        let honest: Vec<u64> = (1..=24).map(|i| i << 8).collect();
        honest.iter().for_each(|&m| t.learn(m, 1));
        (0..200_000u64).for_each(|i| t.learn((i << 20) | 2, 9));
        let kept = honest.iter().filter(|&&m| t.lookup(m) == Some(1)).count();
        assert!(kept >= 22, "only {kept} of 24 honest addresses survived");
        assert!(t.entries().len() <= t.capacity());
    }

    /// Objective: addresses expire after the ageing time, those still seen stay; a port's addresses are removed with
    /// the port.
    #[test]
    fn ageing_and_removal() {
        let t = fdb();
        t.learn(0x100, 1);
        t.learn(0x200, 2);
        for _ in 0..TICKS - 1 {
            t.advance();
        }
        t.learn(0x200, 2);
        assert_eq!(t.lookup(0x100), Some(1));
        t.advance();
        assert_eq!((t.lookup(0x100), t.lookup(0x200)), (None, Some(2)));
        t.forget_port(2);
        assert_eq!(t.lookup(0x200), None);
    }

    /// Objective: group addresses and the zero address are never learned.
    #[test]
    fn not_learned() {
        let t = fdb();
        t.learn(0xffff_ffff_ffff, 1);
        t.learn(0x01, 1);
        t.learn(0, 1);
        assert!(t.entries().is_empty());
        assert_eq!(t.lookup(0), None);
    }
}
