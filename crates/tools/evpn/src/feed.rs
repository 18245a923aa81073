//! What the daemon was told of a VNI, and what it has to be told next. Pure: the time is given.
//!
//! What is new or has changed is told immediately. What is *withdrawn* waits until that has a meaning:
//!
//! - zebra withdraws everything when bgpd ends, entry by entry and the flood list last. So nothing is judged before
//!   withdrawals have paused.
//! - An address whose VTEP is still on the flood list was withdrawn by itself: it goes.
//! - A VTEP that left the flood list, and its addresses, are *held*: FRR may be restarting, and the tunnel still works.
//!   What comes back in that time was never gone. The rest goes when the time is up. An address that appears elsewhere
//!   meanwhile is a change, which does not wait.
//! - An address that has become local is not remote any more: it goes immediately.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netvale_control::types::Mac;

use crate::tables::{Key, Remote, Tables};

/// Withdrawals are judged when none has come for this long …
const PAUSE: Duration = Duration::from_millis(500);
/// … or when they are this old.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// While nothing new is withdrawn, what is held is not looked at more often than this, however many become due one
/// after the other.
const LOOK: Duration = Duration::from_millis(50);

/// Something to tell the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Frames for all go to that VTEP, too.
    Flood(IpAddr),
    /// They do not any more.
    Unflood(IpAddr),
    /// The address is behind a VTEP.
    Address(Mac, IpAddr, bool),
    /// It is not any more.
    NoAddress(Mac),
    /// The IP address is that MAC address's, and whether it is a router.
    Neighbor(IpAddr, Mac, bool),
    /// It is not any more.
    NoNeighbor(IpAddr),
}

/// What the daemon was told.
#[derive(Debug, Default)]
pub struct Feed {
    flood: BTreeSet<IpAddr>,
    addresses: HashMap<Mac, Remote>,
    neighbors: HashMap<IpAddr, (Mac, bool)>,
    touched: HashSet<Key>,
    /// What was withdrawn and not passed on yet, since when.
    held: HashMap<Key, Instant>,
    last_withdrawal: Option<Instant>,
    /// Whether all that is held was looked at since the last withdrawal, and since a VTEP came or went.
    is_judged: bool,
    /// When something that is held is due in any case.
    look_at: Option<Instant>,
}

/// Counts of what the daemon was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// VTEPs on the flood list.
    pub vteps: usize,
    /// Remote addresses.
    pub addresses: usize,
    /// Remote IP addresses.
    pub neighbors: usize,
    /// Of all of these: withdrawn, and held.
    pub held: usize,
}

impl Feed {
    /// Remembers that something may have changed.
    pub fn touch(&mut self, key: Key) {
        self.touched.insert(key);
    }

    /// The same of everything, after the tables were read anew.
    pub fn touch_all(&mut self, tables: &Tables) {
        self.touched.extend(tables.keys());
        self.touched.extend(self.flood.iter().copied().map(Key::Vtep));
        self.touched.extend(self.addresses.keys().copied().map(Key::Address));
        self.touched.extend(self.neighbors.keys().copied().map(Key::Neighbor));
    }

    /// Whether something waits to be told or judged.
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

    /// What to tell now. From now on it counts as told.
    pub fn changes(&mut self, tables: &Tables, now: Instant, hold: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            self.is_judged &= !matches!(key, Key::Vtep(_));
            self.take_up(key, tables, now, hold, &mut changes);
        }
        self.judge(tables, now, hold, &mut changes);
        // Who floods comes before addresses, addresses before their neighbours.
        changes.sort_unstable();
        changes
    }

    /// All that the daemon was told, to tell it another one.
    #[must_use]
    pub fn everything(&self) -> Vec<Change> {
        let flood = self.flood.iter().map(|vtep| Change::Flood(*vtep));
        let addresses = self.addresses.iter().map(|(mac, r)| Change::Address(*mac, r.vtep, r.sticky));
        let neighbors = self.neighbors.iter().map(|(ip, (mac, router))| Change::Neighbor(*ip, *mac, *router));
        flood.chain(addresses).chain(neighbors).collect()
    }

    /// Gives up what is held, as if its time were up, without telling that. Returns whether anything was: then
    /// everything has to be told anew.
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
                (self.last_withdrawal, self.is_judged) = (Some(now), false);
                let due = now + LONGEST_PAUSE.min(hold);
                self.look_at = Some(self.look_at.map_or(due, |at| at.min(due)));
            }
        }
    }

    /// Whether the tables have it, and what is new about it.
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

    /// Passes on the withdrawals that have a meaning by now. All that is held may be very much: it is looked at when
    /// that can change something only.
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

    /// Whether a withdrawn entry goes with its VTEP.
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
