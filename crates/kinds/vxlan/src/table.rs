//! The table of Ethernet addresses and their VTEPs.
//!
//! Workers look up and learn addresses without waiting for each other. Each slot has a version, which is odd while the
//! slot is written. Only one thread at a time writes; a worker that finds another thread writing does not wait, but
//! learns the address from a later frame. The hash is keyed, so that nobody can choose addresses that collide. Learned
//! addresses expire. Given addresses (from an operator or a control plane) stay until they are removed, and learned
//! addresses do not replace them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::ip::{self, IpWords};

/// Maximum number of slots that are examined for an address.
const PROBES: usize = 32;
/// Maximum number of slots: four times the maximum number of addresses.
const MOST: usize = 1 << 20;
/// Value that replaces a removed address. Unlike a free slot, a slot with this value does not end the search for an
/// address.
const REMOVED: u64 = 1 << 63;

/// Mask, in a slot's state, of the time in seconds at which the address was last seen.
const SEEN: u64 = 0xffff_ffff;
/// Flag in a slot's state: the address is given.
const GIVEN: u64 = 1 << 32;
/// Flag in a slot's state: the address must not move to another VTEP.
const STICKY: u64 = 1 << 33;
/// Shift of the version in a slot's state.
const VERSION_SHIFT: u32 = 40;

#[derive(Debug, Default)]
#[repr(align(32))]
struct Slot {
    /// The address in wire order, first byte lowest; 0 if the slot is free, [`REMOVED`] if its address was removed.
    mac: AtomicU64,
    state: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

/// A table of a fixed size.
#[derive(Debug)]
pub struct VtepTable {
    slots: Box<[Slot]>,
    key: u64,
    /// Number of slots with a present or former address.
    used: AtomicUsize,
    writing: AtomicBool,
}

/// The entry of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VtepEntry {
    /// The address in wire order, first byte lowest.
    pub mac: u64,
    /// The VTEP behind which the address is.
    pub vtep: IpAddr,
    /// Whether the address was given rather than learned.
    pub given: bool,
    /// Whether the address must not move to another VTEP.
    pub sticky: bool,
    /// When the address was last seen, in seconds, as passed to [`VtepTable::learn`]; 0 for a given address.
    pub seen: u32,
}

/// The result of adding an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddResult {
    /// The address was added.
    Done,
    /// The table must grow first.
    Full,
}

impl VtepTable {
    /// Creates a table for `room` addresses, whose hash is keyed with `key`, a random number.
    #[must_use]
    pub fn new(room: usize, key: u64) -> VtepTable {
        let slots = room.saturating_mul(2).clamp(PROBES, MOST).next_power_of_two();
        let slots = (0..slots).map(|_| Slot::default()).collect();
        VtepTable { slots, key: key | 1, used: AtomicUsize::new(0), writing: AtomicBool::new(false) }
    }

    /// Returns whether the table cannot grow further.
    #[must_use]
    pub fn is_largest(&self) -> bool {
        self.slots.len() >= MOST
    }

    /// Returns the number of addresses for which the table has room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() / 2
    }

    /// Returns the slots in which an address may be, in the order of the search.
    #[inline]
    fn places(&self, mac: u64) -> impl Iterator<Item = &Slot> {
        let product = (mac ^ self.key.rotate_left(32)).wrapping_mul(self.key);
        let mask = self.slots.len() - 1;
        let first = (product >> 32) as usize & mask;
        (0..PROBES).map(move |i| &self.slots[(first + i) & mask])
    }

    #[inline]
    fn find(&self, mac: u64) -> Option<&Slot> {
        for slot in self.places(mac) {
            match slot.mac.load(Ordering::Acquire) {
                found if found == mac => return Some(slot),
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns the VTEP of an address that was given, or seen within `ageing` seconds before `now`; `None` for other
    /// addresses.
    #[inline]
    #[must_use]
    pub fn lookup(&self, mac: u64, now: u32, ageing: u32) -> Option<IpWords> {
        let (state, words) = self.find(mac)?.read(mac)?;
        (state & GIVEN != 0 || is_fresh(state, now, ageing)).then_some(words)
    }

    /// Records that an address was seen behind a VTEP. Returns false if the table could not be updated: the address is
    /// given for another VTEP, another thread was writing, or no slot was free.
    #[inline]
    pub fn learn(&self, mac: u64, vtep: IpWords, now: u32, ageing: u32) -> bool {
        self.known(mac, vtep, now).unwrap_or_else(|| self.learn_anew(mac, vtep, now, ageing))
    }

    /// Returns the result of [`VtepTable::learn`] if that would change nothing; `None` if it would change the table.
    #[inline]
    pub(crate) fn known(&self, mac: u64, vtep: IpWords, now: u32) -> Option<bool> {
        if mac & 1 != 0 || mac == 0 {
            return Some(true);
        }
        let (state, words) = self.find(mac)?.read(mac)?;
        let is_given = state & GIVEN != 0;
        (is_given || words == vtep && (state & SEEN) as u32 == now).then_some(!is_given || words == vtep)
    }

    /// Records an address that is not [known](VtepTable::known). Returns the same as [`VtepTable::learn`].
    #[cold]
    pub(crate) fn learn_anew(&self, mac: u64, vtep: IpWords, now: u32, ageing: u32) -> bool {
        if self.writing.swap(true, Ordering::Acquire) {
            return false;
        }
        let put = self.put_in(mac, vtep, u64::from(now), Some((now, ageing)));
        self.writing.store(false, Ordering::Release);
        put == AddResult::Done
    }

    /// Adds an address that stays until it is [removed](VtepTable::remove).
    pub fn give(&self, mac: u64, vtep: IpWords, sticky: bool) -> AddResult {
        self.lock();
        let put = self.put_in(mac, vtep, GIVEN | if sticky { STICKY } else { 0 }, None);
        self.writing.store(false, Ordering::Release);
        put
    }

    /// Waits until no other thread writes. A writer executes a few dozen instructions.
    fn lock(&self) {
        while self.writing.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Puts an address into the slot that has it, into a free slot or, if the address is learned, into the slot of an
    /// expired address. `learned` is the present time and the ageing time; `None` for a given address.
    fn put_in(&self, mac: u64, vtep: IpWords, state: u64, learned: Option<(u32, u32)>) -> AddResult {
        let mut free = None;
        for slot in self.places(mac) {
            match slot.mac.load(Ordering::Relaxed) {
                found if found == mac => {
                    // Another thread may have given the address since the caller's check; a learned address must not
                    // replace it.
                    if learned.is_none() || slot.state.load(Ordering::Relaxed) & GIVEN == 0 {
                        slot.write(mac, vtep, state);
                    }
                    return AddResult::Done;
                }
                0 => {
                    free = free.or(Some((slot, true)));
                    break;
                }
                REMOVED => free = free.or(Some((slot, false))),
                _ => {
                    let old = slot.state.load(Ordering::Relaxed);
                    let expired = learned.is_some_and(|(now, ageing)| old & GIVEN == 0 && !is_fresh(old, now, ageing));
                    free = free.or(expired.then_some((slot, false)));
                }
            }
        }
        match free {
            // Given addresses may fill half of the table before it grows. Learned addresses may fill the whole table,
            // after which further learned addresses may find no slot.
            Some((_, true))
                if learned.is_none() && self.used.load(Ordering::Relaxed) >= self.room() && !self.is_largest() =>
            {
                AddResult::Full
            }
            Some((slot, is_new)) => {
                self.used.fetch_add(usize::from(is_new), Ordering::Relaxed);
                slot.write(mac, vtep, state);
                AddResult::Done
            }
            None => AddResult::Full,
        }
    }

    /// Removes an address. Returns whether the table had it.
    pub fn remove(&self, mac: u64) -> bool {
        self.remove_where(|entry| entry.mac == mac, Some(mac)) > 0
    }

    /// Removes the entries for which `gone` returns true. Returns the number of removed entries.
    pub fn remove_all(&self, gone: impl Fn(&VtepEntry) -> bool) -> usize {
        self.remove_where(gone, None)
    }

    fn remove_where(&self, gone: impl Fn(&VtepEntry) -> bool, only: Option<u64>) -> usize {
        self.lock();
        let remove = |slot: &Slot| {
            let is_gone = slot.entry().is_some_and(|entry| gone(&entry));
            if is_gone {
                slot.mac.store(REMOVED, Ordering::Release);
            }
            usize::from(is_gone)
        };
        let count = match only {
            Some(mac) => self.find(mac).map_or(0, remove),
            None => self.slots.iter().map(remove).sum(),
        };
        self.writing.store(false, Ordering::Release);
        count
    }

    /// Returns all entries, including expired ones.
    #[must_use]
    pub fn entries(&self) -> Vec<VtepEntry> {
        self.slots.iter().filter_map(Slot::entry).collect()
    }

    /// Returns a copy that has room for `room` addresses and omits expired addresses.
    #[must_use]
    pub fn grown(&self, room: usize, now: u32, ageing: u32) -> VtepTable {
        let table = VtepTable::new(room, self.key);
        for entry in self.entries() {
            let state =
                u64::from(entry.seen) | if entry.given { GIVEN } else { 0 } | if entry.sticky { STICKY } else { 0 };
            if entry.given || is_fresh(state, now, ageing) {
                let _ = table.put_in(entry.mac, ip::words(entry.vtep), state, None);
            }
        }
        table
    }
}

fn is_fresh(state: u64, now: u32, ageing: u32) -> bool {
    now.saturating_sub((state & SEEN) as u32) < ageing
}

impl Slot {
    /// Returns the slot's state and VTEP; `None` if the slot has another address or a thread is writing it.
    #[inline]
    fn read(&self, mac: u64) -> Option<(u64, IpWords)> {
        let before = self.state.load(Ordering::Acquire);
        let words = [self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed)];
        let still = self.mac.load(Ordering::Relaxed) == mac;
        fence(Ordering::Acquire);
        let after = self.state.load(Ordering::Relaxed);
        let version = before >> VERSION_SHIFT;
        (still && version.is_multiple_of(2) && after == before).then_some((before, words))
    }

    /// Writes the slot; only one thread at a time may call this.
    fn write(&self, mac: u64, [high, low]: IpWords, state: u64) {
        let version = (self.state.load(Ordering::Relaxed) >> VERSION_SHIFT) & !1;
        self.state.store((version + 1) << VERSION_SHIFT, Ordering::Relaxed);
        fence(Ordering::Release);
        self.mac.store(mac, Ordering::Relaxed);
        self.high.store(high, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
        self.state.store(state | (version + 2) << VERSION_SHIFT, Ordering::Release);
        // This order ensures that a reader that sees the address also sees its data.
        self.mac.store(mac, Ordering::Release);
    }

    fn entry(&self) -> Option<VtepEntry> {
        let mac = self.mac.load(Ordering::Acquire);
        if mac == 0 || mac == REMOVED {
            return None;
        }
        let (state, words) = self.read(mac)?;
        let given = state & GIVEN != 0;
        let sticky = state & STICKY != 0;
        Some(VtepEntry { mac, vtep: ip::of(words), given, sticky, seen: (state & SEEN) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const AGEING: u32 = 300;

    fn vtep(n: u8) -> IpWords {
        ip::words(IpAddr::from([10, 0, 0, n]))
    }

    proptest! {
        /// Objective: the table maps each address to its latest VTEP; learned addresses do not displace given
        /// addresses.
        #[test]
        fn addresses_map_to_their_latest_vtep(steps in proptest::collection::vec((0u64..24, 1u8..9, 0u8..4), 0..300)) {
            let table = VtepTable::new(64, 0x1234_5678_9abc_def1);
            let mut model: HashMap<u64, (u8, bool)> = HashMap::new();
            for (n, at, what) in steps {
                let mac = (n + 1) << 9;
                match what {
                    0 => {
                        prop_assert_eq!(table.give(mac, vtep(at), false), AddResult::Done);
                        model.insert(mac, (at, true));
                    }
                    1 => prop_assert_eq!(table.remove(mac), model.remove(&mac).is_some()),
                    _ => {
                        table.learn(mac, vtep(at), 7, AGEING);
                        let entry = model.entry(mac).or_insert((at, false));
                        if !entry.1 { *entry = (at, false); }
                    }
                }
            }
            for n in 0..24u64 {
                let mac = (n + 1) << 9;
                prop_assert_eq!(table.lookup(mac, 7, AGEING), model.get(&mac).map(|(at, _)| vtep(*at)));
            }
            prop_assert_eq!(table.entries().len(), model.len());
        }
    }

    /// Objective: learned addresses expire, and their slots are reused; given addresses stay; group addresses are not
    /// learned.
    #[test]
    fn only_learned_addresses_expire() {
        let table = VtepTable::new(16, 99);
        for n in 1..=16u64 {
            assert!(table.learn(n << 8, vtep(1), 10, AGEING));
        }
        assert_eq!(table.give(18 << 8, vtep(1), false), AddResult::Full);
        let learned = (17..1000u64).filter(|n| table.learn(n << 8, vtep(1), 10, AGEING)).count();
        assert_eq!(learned, 16, "as many as there are slots");
        assert_eq!(table.lookup(1 << 8, 309, AGEING), Some(vtep(1)));
        assert_eq!(table.lookup(1 << 8, 310, AGEING), None);
        assert!(table.learn(17 << 8, vtep(2), 310, AGEING));
        let grown = table.grown(100, 310, AGEING);
        assert_eq!(grown.entries().len(), 1);
        assert_eq!(grown.give(18 << 8, vtep(3), true), AddResult::Done);
        assert_eq!(grown.lookup(18 << 8, u32::MAX, AGEING), Some(vtep(3)));
        assert!(!grown.learn(18 << 8, vtep(4), 310, AGEING), "it is given");
        assert!(grown.learn(1, vtep(1), 310, AGEING) && grown.lookup(1, 310, AGEING).is_none());
        assert_eq!(grown.remove_all(|entry| entry.given), 1);
    }

    /// Objective: while an address moves between VTEPs and other addresses use its slot, a reader never finds the
    /// address with a VTEP that the address never had.
    #[test]
    fn a_torn_read_never_yields_a_wrong_vtep() {
        let table = VtepTable::new(16, 5);
        let places = [1u64, 2].map(|n| [n << 60 | n, n]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 0..100_000u64 {
                    table.give(1 << 8, places[(i % 2) as usize], false);
                    if i % 16 == 0 {
                        table.remove(1 << 8);
                        table.give(i << 8 | 4, [3, 3], false);
                        table.remove(i << 8 | 4);
                    }
                }
            });
            while !writer.is_finished() {
                if let Some(found) = table.lookup(1 << 8, 0, AGEING) {
                    assert!(places.contains(&found), "{found:?}");
                }
            }
        });
    }
}
