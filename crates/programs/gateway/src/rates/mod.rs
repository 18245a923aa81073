//! Limits of guests: bytes per second each way, flows that begin in a second, connections at a time ([`GuestRates`]).
//!
//! Each limited guest has buckets of its own. A connection that finds its guest's bucket empty waits in that guest's
//! queue, and its bytes stay in the socket, or with the guest, whose window closes: nothing is lost. Datagrams cannot
//! wait: beyond the rate, they are dropped. They may take what a stream would get, down to a debt of one burst, so that
//! a download does not cost a guest its DNS.
//!
//! A guest's limit takes nothing from others: what waits takes no turns, and one timer of the guest wakes the next
//! connections.

pub mod bucket;
pub mod rule;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use netvale_policy::units::Rate;
use netvale_wire::MacAddr;

use self::bucket::TokenBucket;
use self::rule::{GuestLimit, LimitRules};
use crate::guests::{GuestId, NetworkId};
use crate::ports::PortNames;
use crate::slots::{NumberedValues, SlotId};
use crate::timers::{TimedThing, TimerHeap};

/// Maximum number of guests of the network without tags with buckets of their own; the others share one set.
const MAX_GUESTS: usize = 4096;

/// The least time between two wake-ups of a guest's connections.
const PAUSE: Duration = Duration::from_millis(1);

/// A direction of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateWay {
    /// From the guest.
    Sent,
    /// To the guest.
    Received,
}

impl RateWay {
    /// Both directions.
    pub const BOTH: [RateWay; 2] = [RateWay::Sent, RateWay::Received];
}

/// A connection that may pass bytes in one direction again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedFlow {
    /// The connection.
    pub flow: SlotId,
    /// The direction.
    pub way: RateWay,
}

/// How often limits have held something up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LimitedCounts {
    /// Datagrams that were dropped.
    pub dropped: u64,
    /// How often a connection has waited for its guest's rate.
    pub waits: u64,
}

#[derive(Debug, Default)]
struct RateQueue {
    bucket: Option<TokenBucket>,
    /// The connections that wait, by the number of their turn.
    waiting: BTreeMap<u64, SlotId>,
    next: u64,
}

#[derive(Debug)]
struct GuestRate {
    key: GuestId,
    limit: GuestLimit,
    ways: [RateQueue; 2],
    new: Option<TokenBucket>,
    /// When the guest's timer fires.
    timer: Option<Instant>,
}

/// The rules that limit guests, and the state of each limited guest.
#[derive(Debug, Default)]
pub struct GuestRates {
    rules: LimitRules,
    guests: NumberedValues<GuestRate>,
    by_key: HashMap<GuestId, SlotId>,
    counts: LimitedCounts,
}

impl GuestRates {
    /// Creates the state for some rules.
    pub fn new(rules: LimitRules) -> Self {
        GuestRates { rules, ..GuestRates::default() }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &LimitRules {
        &self.rules
    }

    /// Returns how often limits have held something up.
    pub fn counts(&self) -> LimitedCounts {
        self.counts
    }

    /// Returns the state of a guest; `None` without any rule.
    fn guest(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> Option<&mut GuestRate> {
        if self.rules.is_empty() {
            return None;
        }
        let key = self.key(who);
        if let Some(id) = self.by_key.get(&key) {
            return self.guests.get(*id);
        }
        let limit = self.rules.limit(key, ports);
        let guest = GuestRate { key, limit: GuestLimit::default(), ways: Default::default(), new: None, timer: None };
        let id = self.guests.insert(guest);
        self.by_key.insert(key, id);
        let guest = self.guests.get(id)?;
        guest.set(limit, now);
        Some(guest)
    }

    /// Returns the id under which a guest is counted. Beyond a number of guests, all have the same one.
    fn key(&self, who: GuestId) -> GuestId {
        let key = who.share();
        let is_known = key.network != NetworkId::UNTAGGED || self.by_key.contains_key(&key);
        if is_known || self.guests.len() < MAX_GUESTS { key } else { key.network.station(MacAddr::ZERO) }
    }

    /// Returns how many bytes a connection may pass now. While others of its guest wait, it must wait behind them,
    /// unless it was `granted` its turn.
    pub fn allowance(&mut self, who: GuestId, way: RateWay, granted: bool, ports: &PortNames, now: Instant) -> usize {
        let Some(guest) = self.guest(who, ports, now) else { return usize::MAX };
        let queue = &mut guest.ways[way as usize];
        let Some(bucket) = &mut queue.bucket else { return usize::MAX };
        match (granted, queue.waiting.is_empty()) {
            (_, true) => bucket.stream(now),
            (true, false) => bucket.stream(now).min(bucket.piece()),
            (false, false) => 0,
        }
    }

    /// Counts bytes that a connection has passed.
    pub fn spend(&mut self, who: GuestId, way: RateWay, bytes: usize) {
        if self.rules.is_empty() {
            return;
        }
        let id = self.by_key.get(&self.key(who)).copied();
        let queue = id.and_then(|id| self.guests.get(id)).map(|guest| &mut guest.ways[way as usize]);
        if let Some(bucket) = queue.and_then(|queue| queue.bucket.as_mut()) {
            bucket.spend(bytes);
        }
    }

    /// Returns whether a datagram passes. One that does not is counted.
    pub fn passes(&mut self, who: GuestId, way: RateWay, bytes: usize, ports: &PortNames, now: Instant) -> bool {
        let Some(guest) = self.guest(who, ports, now) else { return true };
        let bucket = guest.ways[way as usize].bucket.as_mut();
        let passes = bucket.is_none_or(|bucket| bucket.pass(bytes, now));
        self.counts.dropped += u64::from(!passes);
        passes
    }

    /// Counts a flow that begins. Returns `false` if its guest has begun too many.
    pub fn may_begin(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> bool {
        let guest = self.guest(who, ports, now);
        guest.and_then(|guest| guest.new.as_mut()).is_none_or(|bucket| bucket.take(now))
    }

    /// Returns how many TCP connections a guest may have at a time, if a rule says so.
    pub fn most_open(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> Option<u32> {
        self.guest(who, ports, now)?.limit.open
    }

    /// Lets a connection wait until its guest may pass bytes. Returns the number of its turn.
    pub fn wait(&mut self, who: GuestId, waiting: GrantedFlow, now: Instant, timers: &mut TimerHeap) -> Option<u64> {
        let id = self.by_key.get(&self.key(who)).copied()?;
        let guest = self.guests.get(id)?;
        let queue = &mut guest.ways[waiting.way as usize];
        let turn = queue.next;
        queue.next += 1;
        queue.waiting.insert(turn, waiting.flow);
        self.counts.waits += 1;
        guest.set_timer(id, now, now, timers);
        Some(turn)
    }

    /// Removes a connection that has ended from its guest's queue.
    pub fn leave(&mut self, who: GuestId, way: RateWay, turn: u64) {
        let id = self.by_key.get(&self.key(who)).copied();
        if let Some(guest) = id.and_then(|id| self.guests.get(id)) {
            guest.ways[way as usize].waiting.remove(&turn);
        }
    }

    /// Handles a guest's timer: returns the connections whose turn it is.
    pub fn timer(&mut self, id: SlotId, now: Instant, timers: &mut TimerHeap) -> Vec<GrantedFlow> {
        let Some(guest) = self.guests.get(id) else { return Vec::new() };
        if guest.timer.is_none_or(|timer| timer > now) {
            return Vec::new();
        }
        guest.timer = None;
        let granted = RateWay::BOTH.into_iter().flat_map(|way| guest.grant(way, now)).collect();
        // What is granted has not passed yet.
        guest.set_timer(id, now, now + PAUSE, timers);
        granted
    }

    /// Sets the rules. Returns the connections that may ask again.
    pub fn set_rules(&mut self, rules: LimitRules, ports: &PortNames, now: Instant) -> Vec<GrantedFlow> {
        self.rules = rules;
        self.refresh(ports, now)
    }

    /// Looks up the limits of all guests again, after rules or names of ports have changed. Returns the connections
    /// that may ask again.
    pub fn refresh(&mut self, ports: &PortNames, now: Instant) -> Vec<GrantedFlow> {
        let mut released = Vec::new();
        for id in self.guests.ids() {
            let Some(guest) = self.guests.get(id) else { continue };
            let limit = self.rules.limit(guest.key, ports);
            for way in guest.set(limit, now) {
                // They wait again, for a time by the new rate.
                let all = std::mem::take(&mut guest.ways[way as usize].waiting).into_values();
                released.extend(all.map(|flow| GrantedFlow { flow, way }));
            }
        }
        released
    }

    /// Forgets a network's guest. Its flows must have ended.
    pub fn forget(&mut self, network: NetworkId) {
        let gone: Vec<_> = self.by_key.extract_if(|key, _| key.network == network).map(|(_, id)| id).collect();
        gone.into_iter().for_each(|id| drop(self.guests.remove(id)));
    }

    /// Forgets guests whose buckets are as good as new ones.
    pub fn clean(&mut self, now: Instant) {
        for id in self.guests.ids() {
            if let Some(guest) = self.guests.get(id)
                && guest.is_idle(now)
            {
                self.by_key.remove(&guest.key);
                self.guests.remove(id);
            }
        }
    }
}

impl GuestRate {
    /// Sets the limits. What a bucket has stays in it, so that a change of rules gives no burst. Returns the directions
    /// whose rates have changed.
    fn set(&mut self, limit: GuestLimit, now: Instant) -> Vec<RateWay> {
        let mut ways = Vec::new();
        let changed = |old: &Option<TokenBucket>, new: TokenBucket| match old {
            Some(old) => old.changed_to(new),
            None => new,
        };
        let bytes = |rate: Rate| TokenBucket::of_bytes(rate.bits() / 8, now);
        let rates = [(self.limit.sent, limit.sent), (self.limit.received, limit.received)];
        for ((queue, (before, rate)), way) in self.ways.iter_mut().zip(rates).zip(RateWay::BOTH) {
            if before != rate {
                ways.push(way);
                queue.bucket = rate.map(|rate| changed(&queue.bucket, bytes(rate)));
            }
        }
        if self.limit.new != limit.new {
            self.new = limit.new.map(|new| changed(&self.new, TokenBucket::of_events(new, now)));
        }
        self.limit = limit;
        ways
    }

    /// Removes from a queue the connections that may pass a piece each.
    fn grant(&mut self, way: RateWay, now: Instant) -> Vec<GrantedFlow> {
        let queue = &mut self.ways[way as usize];
        let Some(bucket) = &mut queue.bucket else { return Vec::new() };
        let pieces = bucket.stream(now) / bucket.piece().max(1);
        let turns: Vec<_> = std::iter::from_fn(|| queue.waiting.pop_first()).take(pieces).collect();
        turns.into_iter().map(|(_, flow)| GrantedFlow { flow, way }).collect()
    }

    /// Sets the timer for the next connection, not before `earliest`, if one waits and no timer is set.
    fn set_timer(&mut self, id: SlotId, now: Instant, earliest: Instant, timers: &mut TimerHeap) {
        let waiting = self.ways.iter().filter(|queue| !queue.waiting.is_empty());
        let next = waiting.filter_map(|queue| queue.bucket.as_ref()).map(|bucket| bucket.next(now).max(earliest)).min();
        let Some(at) = next.filter(|at| self.timer.is_none_or(|timer| *at < timer)) else { return };
        self.timer = Some(at);
        timers.add(at, TimedThing::Rate(id));
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        let is_full = |bucket: &mut Option<TokenBucket>| bucket.as_mut().is_none_or(|bucket| bucket.is_full(now));
        self.ways.iter_mut().all(|queue| queue.waiting.is_empty() && is_full(&mut queue.bucket))
            && is_full(&mut self.new)
    }
}

#[cfg(test)]
mod tests;
