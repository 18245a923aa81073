//! The state of a VNI as *told* to the daemon, and the changes due next. Pure: the time is a parameter.
//!
//! New and changed entries are sent immediately. *Withdrawn* entries wait until the withdrawal's meaning is clear:
//!
//! - zebra withdraws everything when bgpd ends, entry by entry and the flood list last. So withdrawals are judged only
//!   after a pause.
//! - An address whose VTEP is still on the flood list was withdrawn by itself: it is removed.
//! - A VTEP that left the flood list, and its addresses, are *held*: FRR may be restarting, and the tunnel still works.
//!   An entry that returns in that time counts as never withdrawn. The rest is removed when the time is up. An address
//!   that appears elsewhere meanwhile is a change and does not wait.
//! - An address that has become local is not remote any more: it is removed immediately.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_control::types::Mac;

use crate::tables::{Key, Remote, Tables};

/// Withdrawals are judged after this long without another …
const PAUSE: Duration = Duration::from_millis(500);
/// … or at this age.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Minimum interval of checks of held entries while no new one is withdrawn, however many become due one after the
/// other.
const LOOK: Duration = Duration::from_millis(50);

/// A change to send to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Flood frames to that VTEP, too.
    Flood(IpAddr),
    /// Stop flooding to that VTEP.
    Unflood(IpAddr),
    /// The address is behind a VTEP; sticky or not.
    Address(Mac, IpAddr, bool),
    /// The address is removed.
    NoAddress(Mac),
    /// The IP address belongs to that MAC address; a router or not.
    Neighbor(IpAddr, Mac, bool),
    /// The IP address is removed.
    NoNeighbor(IpAddr),
}

/// The state sent to the daemon.
#[derive(Debug, Default)]
pub struct Feed {
    flood: BTreeSet<IpAddr>,
    addresses: HashMap<Mac, Remote>,
    neighbors: HashMap<IpAddr, (Mac, bool)>,
    touched: HashSet<Key>,
    /// Withdrawn entries not yet passed on, with the time of withdrawal.
    held: HashMap<Key, Instant>,
    last_withdrawal: Option<Instant>,
    /// Whether all held entries were checked since the last withdrawal and the last change of a VTEP.
    is_judged: bool,
    /// Time of the next check of held entries in any case.
    look_at: Option<Instant>,
}

/// Counts of entries sent to the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// VTEPs on the flood list.
    pub vteps: usize,
    /// Remote addresses.
    pub addresses: usize,
    /// Remote IP addresses.
    pub neighbors: usize,
    /// Withdrawn and held entries among all of these.
    pub held: usize,
}

impl Feed {
    /// Records that an entry may have changed.
    pub fn touch(&mut self, key: Key) {
        self.touched.insert(key);
    }

    /// Records that every entry may have changed, after the tables were read again.
    pub fn touch_all(&mut self, tables: &Tables) {
        self.touched.extend(tables.keys());
        self.touched.extend(self.flood.iter().copied().map(Key::Vtep));
        self.touched.extend(self.addresses.keys().copied().map(Key::Address));
        self.touched.extend(self.neighbors.keys().copied().map(Key::Neighbor));
    }

    /// Whether no entry waits to be sent or judged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.touched.is_empty() && self.held.is_empty()
    }

    /// Counts.
    #[must_use]
    pub fn told(&self) -> Told {
        Told {
            vteps: self.flood.len(),
            addresses: self.addresses.len(),
            neighbors: self.neighbors.len(),
            held: self.held.len(),
        }
    }

    /// The changes to send now. They then count as sent.
    pub fn changes(&mut self, tables: &Tables, now: Instant, hold: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            self.is_judged &= !matches!(key, Key::Vtep(_));
            self.take_up(key, tables, now, hold, &mut changes);
        }
        self.judge(tables, now, hold, &mut changes);
        // Flood list before addresses, addresses before their neighbours.
        changes.sort_unstable();
        changes
    }

    /// All entries sent so far, for another daemon.
    #[must_use]
    pub fn everything(&self) -> Vec<Change> {
        let flood = self.flood.iter().map(|vtep| Change::Flood(*vtep));
        let addresses = self.addresses.iter().map(|(mac, r)| Change::Address(*mac, r.vtep, r.sticky));
        let neighbors = self.neighbors.iter().map(|(ip, (mac, router))| Change::Neighbor(*ip, *mac, *router));
        flood.chain(addresses).chain(neighbors).collect()
    }

    /// Drops held entries, as if their time were up, without sending their removal. Returns whether any were held: if
    /// so, everything must be sent again.
    pub fn forget_held(&mut self) -> bool {
        let held: Vec<Key> = self.held.keys().copied().collect();
        let mut changes = Vec::new();
        held.iter().for_each(|key| self.drop_told(*key, &mut changes));
        !held.is_empty()
    }

    fn take_up(&mut self, key: Key, tables: &Tables, now: Instant, hold: Duration, changes: &mut Vec<Change>) {
        let (is_there, change) = self.compare(key, tables);
        if is_there {
            self.held.remove(&key);
            changes.extend(change);
        } else if self.was_told(key) {
            if matches!(key, Key::Address(mac) if tables.is_local(mac)) {
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

    /// Whether the tables have the entry, and the change from its last sent state.
    fn compare(&mut self, key: Key, tables: &Tables) -> (bool, Option<Change>) {
        match key {
            Key::Vtep(vtep) => {
                let is_there = tables.floods_to(vtep);
                (is_there, (is_there && self.flood.insert(vtep)).then_some(Change::Flood(vtep)))
            }
            Key::Address(mac) => {
                let Some(remote) = tables.remote(mac) else { return (false, None) };
                let is_new = self.addresses.insert(mac, remote) != Some(remote);
                (true, is_new.then_some(Change::Address(mac, remote.vtep, remote.sticky)))
            }
            Key::Neighbor(ip) => {
                let Some(n) = tables.neighbor(ip).filter(|n| n.remote) else { return (false, None) };
                let is_new = self.neighbors.insert(ip, (n.mac, n.router)) != Some((n.mac, n.router));
                (true, is_new.then_some(Change::Neighbor(ip, n.mac, n.router)))
            }
        }
    }

    fn was_told(&self, key: Key) -> bool {
        match key {
            Key::Vtep(vtep) => self.flood.contains(&vtep),
            Key::Address(mac) => self.addresses.contains_key(&mac),
            Key::Neighbor(ip) => self.neighbors.contains_key(&ip),
        }
    }

    fn drop_told(&mut self, key: Key, changes: &mut Vec<Change>) {
        self.held.remove(&key);
        changes.extend(match key {
            Key::Vtep(vtep) => self.flood.remove(&vtep).then_some(Change::Unflood(vtep)),
            Key::Address(mac) => self.addresses.remove(&mac).map(|_| Change::NoAddress(mac)),
            Key::Neighbor(ip) => self.neighbors.remove(&ip).map(|_| Change::NoNeighbor(ip)),
        });
    }

    /// Passes on the withdrawals whose meaning is clear. Very many entries may be held: they are checked only when the
    /// outcome can differ.
    fn judge(&mut self, tables: &Tables, now: Instant, hold: Duration, changes: &mut Vec<Change>) {
        let has_paused = self.last_withdrawal.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE.min(hold));
        let is_late = self.look_at.is_some_and(|at| now >= at);
        if self.held.is_empty() || !(is_late || (has_paused && !self.is_judged)) {
            return;
        }
        self.is_judged = has_paused;
        let mut next: Option<Instant> = None;
        let is_due = |key: &Key, since: &Instant| {
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

    /// Whether a withdrawn entry is held because of its VTEP.
    fn is_for_hold(&self, key: Key, tables: &Tables) -> bool {
        let lost = |mac: &Mac| self.addresses.get(mac).is_some_and(|remote| !tables.floods_to(remote.vtep));
        match key {
            Key::Vtep(_) => true,
            Key::Address(mac) => lost(&mac),
            Key::Neighbor(ip) => self.neighbors.get(&ip).is_some_and(|(mac, _)| lost(mac)),
        }
    }
}

#[cfg(test)]
mod tests;
