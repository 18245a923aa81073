//! The remote entries of a VNI (VTEPs, MAC addresses, IP addresses) that were sent to the daemon, and the changes that
//! must be sent next ([`Feed`]). Callers pass the current time.
//!
//! New and changed entries are sent immediately. *Withdrawn* entries, which zebra has removed from the kernel, wait
//! until the reason is clear:
//!
//! - When bgpd ends, zebra withdraws everything, entry by entry, and the flood list last. Therefore, the reason for a
//!   withdrawal is determined ("judged") only after a pause.
//! - A MAC address whose VTEP is still on the flood list was withdrawn on its own, so it is removed from the daemon.
//! - A VTEP that was removed from the flood list is *held* together with its addresses: FRR may be restarting, and the
//!   tunnel still works. An entry that returns during the hold time stays, and the daemon does not notice the
//!   withdrawal. At the end of the hold time, all other held entries are removed. If a MAC address appears behind
//!   another VTEP during the hold time, this is a change, which is sent immediately.
//! - A MAC address that has become local is removed immediately.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_control::types::Mac;

use crate::tables::{EntryKey, RemoteAddress, Tables};

/// Withdrawals are judged once no further withdrawal has arrived for this time.
const PAUSE: Duration = Duration::from_millis(500);
/// At this age, a withdrawal is judged even if further withdrawals follow without a pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Minimum interval between checks of held entries while no further entry is withdrawn. It limits the work if many
/// entries become due one after the other.
const LOOK: Duration = Duration::from_millis(50);

/// A change to send to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeedChange {
    /// Adds a VTEP to the flood list.
    Flood(IpAddr),
    /// Removes a VTEP from the flood list.
    Unflood(IpAddr),
    /// Adds or changes a MAC address: the VTEP behind which the address is, and `true` if the address is sticky.
    Address(Mac, IpAddr, bool),
    /// Removes a MAC address.
    NoAddress(Mac),
    /// Adds or changes an IP address: its MAC address, and `true` if the IP address belongs to a router.
    Neighbor(IpAddr, Mac, bool),
    /// Removes an IP address.
    NoNeighbor(IpAddr),
}

/// The remote entries that the daemon has, and withdrawals that it has not received yet.
#[derive(Debug, Default)]
pub struct Feed {
    flood: BTreeSet<IpAddr>,
    addresses: HashMap<Mac, RemoteAddress>,
    neighbors: HashMap<IpAddr, (Mac, bool)>,
    touched: HashSet<EntryKey>,
    /// Withdrawn entries that the daemon still has, with the time of withdrawal.
    held: HashMap<EntryKey, Instant>,
    last_withdrawal: Option<Instant>,
    /// Whether all withdrawn entries have been judged since the last withdrawal and the last change of the flood list.
    is_judged: bool,
    /// When withdrawn entries must be checked even without a change.
    look_at: Option<Instant>,
}

/// Numbers of entries that were sent to the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Number of VTEPs on the flood list.
    pub vteps: usize,
    /// Number of remote MAC addresses.
    pub addresses: usize,
    /// Number of remote IP addresses.
    pub neighbors: usize,
    /// Number of withdrawn entries that the daemon still has. The other counts include these entries.
    pub held: usize,
}

impl Feed {
    /// Records that the kernel's entry with this key may have changed.
    pub fn touch(&mut self, key: EntryKey) {
        self.touched.insert(key);
    }

    /// Records that every entry may have changed because the tables were read again.
    pub fn touch_all(&mut self, tables: &Tables) {
        self.touched.extend(tables.keys());
        self.touched.extend(self.flood.iter().copied().map(EntryKey::Vtep));
        self.touched.extend(self.addresses.keys().copied().map(EntryKey::Address));
        self.touched.extend(self.neighbors.keys().copied().map(EntryKey::Neighbor));
    }

    /// Returns whether no entry waits to be sent or judged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.touched.is_empty() && self.held.is_empty()
    }

    /// Returns the numbers of entries that were sent to the daemon.
    #[must_use]
    pub fn told(&self) -> FeedCounts {
        FeedCounts {
            vteps: self.flood.len(),
            addresses: self.addresses.len(),
            neighbors: self.neighbors.len(),
            held: self.held.len(),
        }
    }

    /// Returns the changes that must be sent now. They count as sent afterwards. `hold` is the hold time.
    pub fn changes(&mut self, tables: &Tables, now: Instant, hold: Duration) -> Vec<FeedChange> {
        let mut changes = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            self.is_judged &= !matches!(key, EntryKey::Vtep(_));
            self.take_up(key, tables, now, hold, &mut changes);
        }
        self.judge(tables, now, hold, &mut changes);
        // VTEPs precede addresses, and addresses precede their neighbours.
        changes.sort_unstable();
        changes
    }

    /// Returns all entries that count as sent, so that the caller can send them to another daemon.
    #[must_use]
    pub fn everything(&self) -> Vec<FeedChange> {
        let flood = self.flood.iter().map(|vtep| FeedChange::Flood(*vtep));
        let addresses = self.addresses.iter().map(|(mac, r)| FeedChange::Address(*mac, r.vtep, r.sticky));
        let neighbors = self.neighbors.iter().map(|(ip, (mac, router))| FeedChange::Neighbor(*ip, *mac, *router));
        flood.chain(addresses).chain(neighbors).collect()
    }

    /// Drops all withdrawn entries without sending their removal. Returns whether there were any withdrawn entries. If
    /// so, the caller must send all entries again, in a request that replaces the daemon's entries.
    pub fn forget_held(&mut self) -> bool {
        let held: Vec<EntryKey> = self.held.keys().copied().collect();
        let mut changes = Vec::new();
        held.iter().for_each(|key| self.drop_told(*key, &mut changes));
        !held.is_empty()
    }

    fn take_up(&mut self, key: EntryKey, tables: &Tables, now: Instant, hold: Duration, changes: &mut Vec<FeedChange>) {
        let (is_there, change) = self.compare(key, tables);
        if is_there {
            self.held.remove(&key);
            changes.extend(change);
        } else if self.was_told(key) {
            if matches!(key, EntryKey::Address(mac) if tables.is_local(mac)) {
                self.drop_told(key, changes);
            } else if let Entry::Vacant(place) = self.held.entry(key) {
                place.insert(now);
                self.last_withdrawal = Some(now);
                self.is_judged = false;
                let due = now + LONGEST_PAUSE.min(hold);
                self.look_at = Some(self.look_at.map_or(due, |at| at.min(due)));
            }
        }
    }

    /// Returns whether the kernel's tables have the entry, and the change that must be sent; `None` if the entry is the
    /// same as the one that was sent. The returned change counts as sent.
    fn compare(&mut self, key: EntryKey, tables: &Tables) -> (bool, Option<FeedChange>) {
        match key {
            EntryKey::Vtep(vtep) => {
                let is_there = tables.floods_to(vtep);
                (is_there, (is_there && self.flood.insert(vtep)).then_some(FeedChange::Flood(vtep)))
            }
            EntryKey::Address(mac) => {
                let Some(remote) = tables.remote(mac) else { return (false, None) };
                let is_new = self.addresses.insert(mac, remote) != Some(remote);
                (true, is_new.then_some(FeedChange::Address(mac, remote.vtep, remote.sticky)))
            }
            EntryKey::Neighbor(ip) => {
                let Some(n) = tables.neighbor(ip).filter(|n| n.remote) else { return (false, None) };
                let is_new = self.neighbors.insert(ip, (n.mac, n.router)) != Some((n.mac, n.router));
                (true, is_new.then_some(FeedChange::Neighbor(ip, n.mac, n.router)))
            }
        }
    }

    fn was_told(&self, key: EntryKey) -> bool {
        match key {
            EntryKey::Vtep(vtep) => self.flood.contains(&vtep),
            EntryKey::Address(mac) => self.addresses.contains_key(&mac),
            EntryKey::Neighbor(ip) => self.neighbors.contains_key(&ip),
        }
    }

    fn drop_told(&mut self, key: EntryKey, changes: &mut Vec<FeedChange>) {
        self.held.remove(&key);
        changes.extend(match key {
            EntryKey::Vtep(vtep) => self.flood.remove(&vtep).then_some(FeedChange::Unflood(vtep)),
            EntryKey::Address(mac) => self.addresses.remove(&mac).map(|_| FeedChange::NoAddress(mac)),
            EntryKey::Neighbor(ip) => self.neighbors.remove(&ip).map(|_| FeedChange::NoNeighbor(ip)),
        });
    }

    /// Adds removals for withdrawn entries that must not be held, and for withdrawn entries whose hold time has passed.
    /// There may be very many withdrawn entries, so they are checked only if the result can differ from the last check.
    fn judge(&mut self, tables: &Tables, now: Instant, hold: Duration, changes: &mut Vec<FeedChange>) {
        let has_paused = self.last_withdrawal.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE.min(hold));
        let is_late = self.look_at.is_some_and(|at| now >= at);
        if self.held.is_empty() || !(is_late || (has_paused && !self.is_judged)) {
            return;
        }
        self.is_judged = has_paused;
        let mut next: Option<Instant> = None;
        let is_due = |key: &EntryKey, since: &Instant| {
            let age = now.saturating_duration_since(*since);
            age >= hold || ((has_paused || age >= LONGEST_PAUSE) && !self.is_for_hold(*key, tables))
        };
        let mut due = Vec::new();
        for (key, since) in &self.held {
            if is_due(key, since) {
                due.push(*key);
                continue;
            }
            let is_young = now.saturating_duration_since(*since) < LONGEST_PAUSE;
            let at = *since + if is_young { LONGEST_PAUSE.min(hold) } else { hold };
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        self.look_at = next.map(|at| at.max(now + LOOK));
        due.into_iter().for_each(|key| self.drop_told(key, changes));
    }

    /// Returns whether a withdrawn entry must be held: it is a VTEP, or an address whose VTEP is no longer on the flood
    /// list.
    fn is_for_hold(&self, key: EntryKey, tables: &Tables) -> bool {
        let lost = |mac: &Mac| self.addresses.get(mac).is_some_and(|remote| !tables.floods_to(remote.vtep));
        match key {
            EntryKey::Vtep(_) => true,
            EntryKey::Address(mac) => lost(&mac),
            EntryKey::Neighbor(ip) => self.neighbors.get(&ip).is_some_and(|(mac, _)| lost(mac)),
        }
    }
}

#[cfg(test)]
mod tests;
