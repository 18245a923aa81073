//! The forwarding table: the port behind which each address was last seen.
//!
//! An entry is one 64-bit word (address 48 bits, age 4, port 12); a cache line contains eight. Workers read and write
//! entries without a lock: a lost race costs one flooded frame, or one address that is learned with the next frame.
//!
//! The table has a fixed size, and its hash is keyed with a secret: a flood of forged addresses can neither make it
//! grow nor aim at one line. The ports' owners share it (module `owners`). In a full line, the owner with the most
//! entries loses an entry, so a flooder displaces its own addresses. New addresses of an owner at its limit displace
//! only the same owner's addresses. If the table is sticky, an address of one owner does not move to another owner's
//! port until it expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use netvale_port::changes::ChangeCount;

use crate::elsewhere::AddressFinders;
use crate::mix::Mix;
pub use crate::owners::PortId;
use crate::owners::{MAX_PORTS, OwnerId, Owners};

/// Number of entries in the default table: room for 8,192 addresses at half load.
pub const DEFAULT_ENTRIES: usize = 16_384;
/// Time without frames after which an address expires (default of IEEE 802.1D).
pub const DEFAULT_AGEING: Duration = Duration::from_secs(300);

const WAYS: usize = 8;
const MAC: u64 = (1 << 48) - 1;
/// Position in an entry of the tick in which the address was last seen.
const TICK_AT: u32 = 48;
/// Position in an entry of the port: the highest bits, so that one shift returns it.
const PORT_AT: u32 = 52;
const TICK: u64 = (1 << PORT_AT) - (1 << TICK_AT);
/// Number of ticks per ageing time: the longest age that the four bits of an entry's tick distinguish from no age. An
/// address that many ticks old is removed immediately, before its age wraps around.
const TICKS: u8 = 15;

const _: () = assert!(MAX_PORTS <= 1 << (u64::BITS - PORT_AT) && TICKS as u64 == TICK >> TICK_AT);

#[derive(Debug)]
#[repr(align(64))]
struct FdbLine([AtomicU64; WAYS]);

/// A forwarding table of a switch: it maps addresses, or addresses and VLANs, to ports.
#[derive(Debug)]
pub struct Fdb {
    lines: Box<[FdbLine]>,
    key: [u64; 2],
    /// Maps a VLAN and an address to a line of the table and the word in the entry; `None` without VLANs.
    vlans: Option<Mix>,
    /// The current tick, at its position in an entry.
    tick: AtomicU64,
    owners: Owners,
    /// Whether an address moves to another owner's port only after it has expired.
    sticky: AtomicBool,
    /// Number of frames whose source address was not learned, because the address belongs to another owner or port, or
    /// because of a limit.
    refused: AtomicU64,
    beside: Arc<SharedFdb>,
}

/// State shared by a switch's forwarding tables.
#[derive(Debug, Default)]
pub(crate) struct SharedFdb {
    /// The number of changes of the tables: addresses learned, forgotten or moved.
    pub changes: ChangeCount,
    /// Ports that are asked about addresses missing from the table.
    pub elsewhere: AddressFinders,
}

/// An entry of a forwarding table, as [`Fdb::entries`] lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The address; its lowest byte is the first byte on the wire.
    pub mac: u64,
    /// The address's VLAN; 0 if the switch has no VLANs.
    pub vlan: u16,
    /// The port behind which the address was last seen.
    pub port: PortId,
    /// Ticks since the address was last seen; see [`Fdb::tick_length`].
    pub ticks: u8,
}

/// The outcome of learning a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnResult {
    /// The address was already known behind this port, or is a group address.
    Known,
    /// The address was added.
    New,
    /// The address moved from this port.
    Moved(PortId),
    /// The address stays behind this other port: that port's addresses do not move at all, or its owner's addresses do
    /// not move to another owner's port.
    Kept(PortId),
    /// The port or its owner is at its limit of addresses, or the table has no room for the address.
    TooMany,
    /// The batch is at its limit of changes in the table; a later batch learns the address.
    Later,
}

impl Fdb {
    /// Creates a table of at least `entries` entries, with the random key `key` for its hash. If `sticky`, an address
    /// stays with its owner until it expires or its port is detached.
    pub fn new(entries: usize, key: [u64; 2], sticky: bool) -> Self {
        let lines = Self::entries_of(entries) / WAYS;
        let line = || FdbLine(std::array::from_fn(|_| AtomicU64::new(0)));
        let lines = (0..lines).map(|_| line()).collect();
        let key = [key[0], key[1] | 1];
        let tick = AtomicU64::new(0);
        let owners = Owners::default();
        let refused = AtomicU64::new(0);
        Fdb { lines, key, vlans: None, tick, owners, sticky: AtomicBool::new(sticky), refused, beside: Arc::default() }
    }

    /// Creates a table that maps addresses and VLANs, with at least `entries` entries.
    pub(crate) fn by_vlan(entries: usize, key: [u64; 2], sticky: bool) -> Self {
        let vlans = Some(Mix::new(key));
        Fdb { vlans, ..Fdb::new(entries.max(Mix::LINES * WAYS), key, sticky) }
    }

    /// The state shared with the switch's other table.
    pub(crate) fn beside(&self) -> &Arc<SharedFdb> {
        &self.beside
    }

    /// Makes this a table of the same switch as `other`: shares the other table's state, and copies the owners and
    /// limits of ports.
    pub(crate) fn beside_of(self, other: &Fdb) -> Fdb {
        self.owners.copy(&other.owners);
        Fdb { beside: Arc::clone(&other.beside), ..self }
    }

    /// Removes an address that is behind a port other than `port`, unless that other port keeps its addresses (they
    /// neither expire nor move). Returns whether the address was removed.
    pub(crate) fn forget_elsewhere(&self, vlan: u16, mac: u64, port: PortId) -> bool {
        let (line, word) = self.place(vlan, mac);
        let known = line.iter().map(|entry| (entry, entry.load(Ordering::Relaxed))).find(|(_, e)| e & MAC == word);
        let Some((entry, old)) = known.filter(|(_, e)| *e != 0) else { return false };
        if port_of(old) == port || self.owners.keeps(port_of(old)) {
            return false;
        }
        self.replace(entry, old, 0);
        true
    }

    /// Whether there are address finders to ask about addresses missing from the table.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.beside.elsewhere.is_there()
    }

    /// Asks the address finders for the port of an address missing from the table; `None` if no address finder finds
    /// the address.
    #[inline]
    pub(crate) fn elsewhere(&self, vlan: u16, mac: u64) -> Option<PortId> {
        self.beside.elsewhere.find(vlan, mac)
    }

    /// Limits the number of addresses behind a port, and sets whether the port keeps its addresses, i.e. they neither
    /// expire nor move.
    pub(crate) fn restrict(&self, port: PortId, most: Option<u32>, keeps: bool) {
        self.owners.restrict(port, most.unwrap_or(u32::MAX), keeps);
    }

    /// Sets whether an address moves to another owner's port only after it has expired.
    pub(crate) fn set_sticky(&self, sticky: bool) {
        self.sticky.store(sticky, Ordering::Relaxed);
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.sticky.load(Ordering::Relaxed)
    }

    /// Number of entries that a table has if `asked` entries are requested: lines of eight, whose number is a power of
    /// two.
    #[must_use]
    pub fn entries_of(asked: usize) -> usize {
        asked.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two() * WAYS
    }

    /// Sets the owner of a port, and that owner's limit of addresses. Must be called before the port sends; until then,
    /// each port counts as an owner of its own.
    pub(crate) fn own(&self, port: PortId, owner: OwnerId, most: u32) {
        self.owners.own(port, owner, most);
    }

    /// The line and the word of an address in a VLAN. The word 0 is never stored and never found, so frames to one in
    /// 2^48 pairs of VLAN and address are always flooded.
    #[inline]
    fn place(&self, vlan: u16, mac: u64) -> (&[AtomicU64; WAYS], u64) {
        match &self.vlans {
            None => (self.line(mac), mac),
            Some(mix) => {
                let (line, word) = mix.place(vlan, mac, self.lines.len());
                // The number of lines is a power of two, and `line` is below it.
                (&self.lines[line & (self.lines.len() - 1)].0, word)
            }
        }
    }

    /// Looks up the port behind which `mac` was last seen in a VLAN; `None` if the address is not in the table.
    #[inline]
    pub(crate) fn lookup_in(&self, vlan: u16, mac: u64) -> Option<PortId> {
        let (line, word) = self.place(vlan, mac);
        let entry = line.iter().map(|e| e.load(Ordering::Relaxed)).find(|e| e & MAC == word)?;
        (word != 0 && mac != 0).then(|| port_of(entry))
    }

    /// Like [`Fdb::learn_some`], for an address in a VLAN. Returns the outcome.
    #[inline]
    pub(crate) fn learn_in(&self, vlan: u16, mac: u64, port: PortId, news: &mut u32) -> LearnResult {
        let (line, word) = self.place(vlan, mac);
        if mac & 1 != 0 || mac == 0 || word == 0 {
            return LearnResult::Known;
        }
        let fresh = self.fresh(word, port);
        if line.iter().any(|entry| entry.load(Ordering::Relaxed) == fresh) {
            return LearnResult::Known;
        }
        self.learn_anew(line, fresh, news)
    }

    /// The entry of an address that is seen behind a port now.
    #[inline]
    fn fresh(&self, word: u64, port: PortId) -> u64 {
        word | u64::from(port) << PORT_AT | self.tick.load(Ordering::Relaxed)
    }

    #[inline]
    fn line(&self, mac: u64) -> &[AtomicU64; WAYS] {
        // Multiply-shift hashing: the top bits of a product with a secret odd factor are a universal hash.
        let product = (mac ^ self.key[0]).wrapping_mul(self.key[1]);
        let line = ((product >> 32) * self.lines.len() as u64) >> 32;
        // `line` is a 32-bit fraction of the number of lines, so it is below that number.
        &self.lines[line as usize].0
    }

    /// Looks up the port behind which `mac` was last seen; `None` if the address is not in the table.
    #[inline]
    pub fn lookup(&self, mac: u64) -> Option<PortId> {
        let line = self.line(mac);
        let entry = line.iter().map(|e| e.load(Ordering::Relaxed)).find(|e| e & MAC == mac)?;
        (mac != 0).then(|| port_of(entry))
    }

    /// Records that `mac` was seen behind `port`; writes only if the table changes. Ignores the zero address and group
    /// addresses.
    #[inline]
    pub fn learn(&self, mac: u64, port: PortId) {
        self.learn_some(mac, port, &mut 1);
    }

    /// Like [`Fdb::learn`]. `news` is the number of changes of the table that the batch may still make, and is
    /// decremented.
    #[inline]
    pub(crate) fn learn_some(&self, mac: u64, port: PortId, news: &mut u32) {
        if mac & 1 != 0 || mac == 0 {
            return;
        }
        let fresh = self.fresh(mac, port);
        let line = self.line(mac);
        // Nearly every address is already in the table.
        if !line.iter().any(|entry| entry.load(Ordering::Relaxed) == fresh) {
            let _ = self.learn_anew(line, fresh, news);
        }
    }

    /// Changes the line: adds a new address, or updates the port or age of a known address.
    #[cold]
    fn learn_anew(&self, line: &[AtomicU64; WAYS], fresh: u64, news: &mut u32) -> LearnResult {
        let Some(left) = news.checked_sub(1) else { return LearnResult::Later };
        *news = left;
        let known = line.iter().map(|entry| (entry, entry.load(Ordering::Relaxed)));
        match known.into_iter().find(|(_, old)| old & MAC == fresh & MAC) {
            Some((entry, old)) => self.refresh(entry, old, fresh),
            None => self.insert(line, fresh),
        }
    }

    fn refuse(&self, why: LearnResult) -> LearnResult {
        self.refused.fetch_add(1, Ordering::Relaxed);
        why
    }

    /// Updates the age of a known address, and its port if the address may move.
    fn refresh(&self, entry: &AtomicU64, old: u64, fresh: u64) -> LearnResult {
        let port = port_of(fresh);
        let other = port_of(old);
        if other == port {
            self.replace(entry, old, fresh);
            return LearnResult::Known;
        }
        let before = self.owner_of(old);
        let now = self.owner_of(fresh);
        if self.owners.keeps(other) || before != now && self.sticky.load(Ordering::Relaxed) {
            return self.refuse(LearnResult::Kept(other));
        }
        if self.owners.is_full_port(port) || before != now && self.owners.is_full(now) {
            return self.refuse(LearnResult::TooMany);
        }
        self.replace(entry, old, fresh);
        LearnResult::Moved(other)
    }

    /// Inserts a new address: into an empty entry, or in place of the oldest entry of the owner with the most entries
    /// in the line. For an owner at its limit, replaces only that owner's entries. For a port at its limit, inserts
    /// nothing.
    fn insert(&self, line: &[AtomicU64; WAYS], fresh: u64) -> LearnResult {
        if self.owners.is_full_port(port_of(fresh)) {
            return self.refuse(LearnResult::TooMany);
        }
        let now = self.tick.load(Ordering::Relaxed);
        let all: [u64; WAYS] = std::array::from_fn(|i| line[i].load(Ordering::Relaxed));
        let owners = all.map(|e| (e != 0).then(|| self.owner_of(e)));
        let owner = self.owner_of(fresh);
        let is_full = self.owners.is_full(owner);
        let held = |of: OwnerId| owners.iter().filter(|other| **other == Some(of)).count();
        let rank = |i: usize| match owners[i] {
            Some(_) if self.owners.keeps(port_of(all[i])) => None,
            Some(own) if is_full => (own == owner).then(|| (0, age(all[i], now))),
            None if is_full => None,
            Some(other) => Some((held(other), age(all[i], now))),
            None => Some((usize::MAX, u8::MAX)),
        };
        let Some((_, i)) = (0..WAYS).filter_map(|i| Some((rank(i)?, i))).max() else {
            return self.refuse(LearnResult::TooMany);
        };
        self.replace(&line[i], all[i], fresh);
        LearnResult::New
    }

    /// Replaces an entry. Does nothing if another thread has just changed the entry: the next frame tries again.
    fn replace(&self, entry: &AtomicU64, old: u64, fresh: u64) {
        if entry.compare_exchange(old, fresh, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let behind = |e: u64| (e != 0).then(|| port_of(e));
            self.owners.exchange(behind(old), behind(fresh));
            if behind(old) != behind(fresh) {
                self.beside.changes.note();
            }
        }
    }

    fn owner_of(&self, entry: u64) -> OwnerId {
        self.owners.of(port_of(entry))
    }

    /// Number of frames whose source address was not learned, because the address belongs to another owner or port, or
    /// because of a limit.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Interval at which [`Fdb::advance`] must be called, so that addresses expire after `ageing`.
    pub fn tick_length(ageing: Duration) -> Duration {
        (ageing / u32::from(TICKS)).max(Duration::from_millis(1))
    }

    /// Advances the table's clock by one tick, and removes addresses that have not been seen for the ageing time.
    pub fn advance(&self) {
        let next = |tick: u64| (tick + (1 << TICK_AT)) & TICK;
        let before = self.tick.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tick| Some(next(tick)));
        let now = next(before.unwrap_or_else(|tick| tick));
        let nearly = now.wrapping_sub(u64::from(TICKS - 1) << TICK_AT) & TICK;
        // An address that does not expire keeps this highest age, so that its age does not wrap around.
        let aged = |e: u64| if self.owners.keeps(port_of(e)) { e & !TICK | nearly } else { 0 };
        self.change_where(|e| age(e, now) >= TICKS, aged);
    }

    /// Removes all addresses.
    pub(crate) fn forget_all(&self) {
        self.remove_where(|_| true);
    }

    /// Removes all addresses behind a port.
    pub fn forget_port(&self, port: PortId) {
        self.remove_where(|e| port_of(e) == port);
    }

    /// Removes the addresses behind a port, unless the port keeps them (they neither expire nor move).
    pub(crate) fn forget_learned(&self, port: PortId) {
        if !self.owners.keeps(port) {
            self.forget_port(port);
        }
    }

    fn remove_where(&self, gone: impl Fn(u64) -> bool) {
        self.change_where(gone, |_| 0);
    }

    fn change_where(&self, which: impl Fn(u64) -> bool, fresh: impl Fn(u64) -> u64) {
        for entry in self.lines.iter().flat_map(|l| &l.0) {
            let e = entry.load(Ordering::Relaxed);
            if e != 0 && which(e) {
                // If the entry has changed meanwhile, the address was seen again and stays.
                self.replace(entry, e, fresh(e));
            }
        }
    }

    /// Lists all entries.
    pub fn entries(&self) -> Vec<FdbEntry> {
        let now = self.tick.load(Ordering::Relaxed);
        let words = self.lines.iter().enumerate().flat_map(|(line, l)| l.0.iter().map(move |e| (line, e)));
        let words = words.map(|(line, e)| (line, e.load(Ordering::Relaxed))).filter(|&(_, e)| e != 0);
        let entry = |(line, e): (usize, u64)| {
            let (vlan, mac) = self.vlans.as_ref().map_or((0, e & MAC), |mix| mix.unplace(line, e & MAC));
            FdbEntry { mac, vlan, port: port_of(e), ticks: age(e, now) }
        };
        words.map(entry).collect()
    }

    /// Number of addresses in the table.
    pub fn count(&self) -> usize {
        self.lines.iter().flat_map(|line| &line.0).filter(|entry| entry.load(Ordering::Relaxed) != 0).count()
    }

    /// Maximum number of addresses in the table.
    pub fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }
}

#[inline]
fn port_of(entry: u64) -> PortId {
    (entry >> PORT_AT) as PortId
}

#[inline]
fn age(entry: u64, now: u64) -> u8 {
    (now.wrapping_sub(entry & TICK) >> TICK_AT) as u8 & TICKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn fdb() -> Fdb {
        Fdb::new(256, [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321], false)
    }

    proptest! {
        /// Objective: while no line overflows, the table maps each address to its latest port.
        #[test]
        fn addresses_map_to_their_latest_ports(
            seen in proptest::collection::vec((0u64..24, 0..MAX_PORTS as PortId), 0..200),
        ) {
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

    proptest! {
        /// Objective: an entry returns its address, its port and its age for every combination of these.
        #[test]
        fn an_entry_is_an_address_a_port_and_an_age(
            mac in 1u64..1 << 47, port in 0..MAX_PORTS as PortId, begun in 0..40u8, aged in 0..TICKS,
        ) {
            let t = fdb();
            (0..begun).for_each(|_| t.advance());
            t.learn(mac << 1, port);
            (0..aged).for_each(|_| t.advance());
            prop_assert_eq!(t.lookup(mac << 1), Some(port));
            prop_assert_eq!(t.entries(), [FdbEntry { mac: mac << 1, vlan: 0, port, ticks: aged }]);
            (aged..TICKS).for_each(|_| t.advance());
            prop_assert_eq!(t.count(), 0);
        }
    }

    /// Objective: a port that floods forged addresses displaces its own addresses, not the addresses of other ports.
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

    /// Objective: addresses expire after the ageing time unless they are seen again; all addresses behind a port can be
    /// removed.
    #[test]
    fn addresses_expire_unless_seen_again() {
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

    /// Objective: an address behind a port that keeps its addresses stays at the highest age; once the port no longer
    /// keeps its addresses, the address expires.
    #[test]
    fn kept_addresses_grow_old_and_stay() {
        let t = fdb();
        t.restrict(4095, None, true);
        t.learn(0x100, 4095);
        (0..TICKS - 1).for_each(|_| t.advance());
        for _ in 0..3 * TICKS {
            t.advance();
            assert_eq!(t.entries(), [FdbEntry { mac: 0x100, vlan: 0, port: 4095, ticks: TICKS - 1 }]);
        }
        t.restrict(4095, None, false);
        t.advance();
        assert_eq!(t.count(), 0);
    }

    /// Objective: a flood from many ports of one owner displaces that owner's addresses, not the addresses of other
    /// owners; at the owner's limit, the flood does not even take free entries; a detached port's addresses free their
    /// entries.
    #[test]
    fn shared_out_by_owner() {
        let t = fdb();
        (0..12).for_each(|port| t.own(port, OwnerId::new(0), u32::MAX));
        t.own(12, OwnerId::new(12), 10);
        let honest: Vec<u64> = (1..=24).map(|i| i << 8).collect();
        t.own(20, OwnerId::new(20), u32::MAX);
        honest.iter().for_each(|&m| t.learn(m, 20));
        (0..200_000u64).for_each(|i| t.learn((i << 20) | 2, (i % 12) as PortId));
        let kept = honest.iter().filter(|&&m| t.lookup(m) == Some(20)).count();
        assert!(kept >= 22, "only {kept} of 24 honest addresses survived");
        (0..1000u64).for_each(|i| t.learn((i << 20) | 4, 12));
        let of = |port: PortId| t.entries().iter().filter(|e| e.port == port).count();
        assert_eq!(of(12), 10);
        assert!(t.refused() > 0);
        t.forget_port(12);
        (0..1000u64).for_each(|i| t.learn((i << 20) | 4, 12));
        assert_eq!(of(12), 10);
    }

    /// Objective: an address moves between ports of one owner; in a sticky table, it moves to another owner's port only
    /// after it expired.
    #[test]
    fn addresses_stay_with_their_owner() {
        for sticky in [false, true] {
            let t = Fdb::new(256, [5, 7], sticky);
            t.own(1, OwnerId::new(1), 100);
            t.own(2, OwnerId::new(1), 100);
            t.own(3, OwnerId::new(3), 100);
            t.learn(0x100, 1);
            t.learn(0x100, 2);
            assert_eq!(t.lookup(0x100), Some(2));
            t.learn(0x100, 3);
            assert_eq!(t.lookup(0x100), Some(if sticky { 2 } else { 3 }));
            assert_eq!(t.refused(), u64::from(sticky));
            (0..=TICKS).for_each(|_| t.advance());
            t.learn(0x100, 3);
            assert_eq!(t.lookup(0x100), Some(3));
        }
    }

    /// Objective: group addresses and the zero address are never learned.
    #[test]
    fn group_and_zero_addresses_are_never_learned() {
        let t = fdb();
        t.learn(0xffff_ffff_ffff, 1);
        t.learn(0x01, 1);
        t.learn(0, 1);
        assert!(t.entries().is_empty());
        assert_eq!(t.lookup(0), None);
    }
}
