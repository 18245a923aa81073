//! Limits of guests ([`GuestRates`]): bytes per second in each direction, new flows per second, and the number of open
//! connections.
//!
//! Each limited guest has separate buckets. A connection that finds its guest's bucket empty waits in that guest's
//! queue. The connection's bytes stay in the socket, or at the guest, whose TCP window closes, so nothing is lost.
//! Datagrams cannot wait: datagrams that exceed the rate are dropped. Datagrams may run the bucket into a debt of one
//! burst, so that a download does not starve a guest's DNS; but while connections wait, datagrams get only half of the
//! rate.
//!
//! A guest's limit costs other guests nothing: waiting connections take no turns, and one timer per guest wakes the
//! connections that may continue.

pub mod bucket;
pub mod queue;
pub mod rule;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use self::bucket::TokenBucket;
use self::queue::RateQueue;
use self::rule::{GuestLimit, LimitRules};
use crate::flows::FlowDirection;
use crate::guests::{GuestId, NetworkId};
use crate::ports::PortNames;
use crate::slots::{NumberedValues, SlotId};
use crate::timers::{TimedThing, TimerHeap};

/// Maximum number of guests in the network without tags that have separate buckets. Further guests share one set of
/// buckets, except those that a rule names.
const MAX_GUESTS: usize = 4096;

/// Minimum time between two wake-ups of a guest's connections.
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

/// A connection that has waited, and may now pass bytes in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedFlow {
    /// The connection.
    pub flow: SlotId,
    /// The direction.
    pub way: RateWay,
}

/// How often limits have dropped datagrams or delayed connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LimitedCounts {
    /// Number of datagrams that were dropped.
    pub dropped: u64,
    /// Number of times that a connection had to wait because of its guest's rate limit.
    pub waits: u64,
}

/// The place of a waiting connection in its guest's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateTurn {
    state: SlotId,
    number: u64,
}

#[derive(Debug)]
struct GuestRate {
    /// The guest; `None` for the buckets that all guests beyond [`MAX_GUESTS`] share.
    key: Option<GuestId>,
    limit: GuestLimit,
    ways: [RateQueue; 2],
    /// Buckets for new flows: the first for flows that the guest begins, the second for flows to the guest that clients
    /// begin at the host's side.
    new: [Option<TokenBucket>; 2],
    /// Time at which the guest's timer expires; `None` if no timer is set.
    timer: Option<Instant>,
}

/// The rules that limit guests, and the state of each limited guest.
#[derive(Debug, Default)]
pub struct GuestRates {
    rules: LimitRules,
    guests: NumberedValues<GuestRate>,
    by_key: HashMap<Option<GuestId>, SlotId>,
    counts: LimitedCounts,
}

/// Returns the cost of a datagram in bytes: its payload, and the headers of its packet.
pub fn datagram_cost(payload: usize, is_ipv4: bool) -> usize {
    // The header of an ICMP echo message is as long as a UDP header.
    payload + if is_ipv4 { 20 + 8 } else { 40 + 8 }
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

    /// Returns how often limits have dropped datagrams or delayed connections.
    pub fn counts(&self) -> LimitedCounts {
        self.counts
    }

    /// Returns the id of a guest's limits and buckets; `None` if no rule limits the guest.
    pub fn state(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> Option<SlotId> {
        if self.rules.is_empty() {
            return None;
        }
        let own = who.share();
        if let Some(id) = self.by_key.get(&Some(own)) {
            return Some(*id);
        }
        let has_own = own.network != NetworkId::UNTAGGED || self.rules.names(own) || self.guests.len() < MAX_GUESTS;
        let key = has_own.then_some(own);
        if let Some(id) = self.by_key.get(&key) {
            return Some(*id);
        }
        let limit = self.rules.limit(key, ports);
        if limit == GuestLimit::default() {
            return None;
        }
        let mut guest = GuestRate {
            key,
            limit: GuestLimit::default(),
            ways: Default::default(),
            new: Default::default(),
            timer: None,
        };
        guest.set(limit, now);
        let id = self.guests.insert(guest);
        self.by_key.insert(key, id);
        Some(id)
    }

    fn guest(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> Option<&mut GuestRate> {
        let id = self.state(who, ports, now)?;
        self.guests.get(id)
    }

    fn queue(&mut self, state: SlotId, way: RateWay) -> Option<&mut RateQueue> {
        self.guests.get(state).map(|guest| &mut guest.ways[way as usize])
    }

    /// Returns how many bytes a connection may pass now: 0 while other connections of its guest wait, unless it was
    /// `granted` its turn.
    pub fn allowance(&mut self, state: SlotId, way: RateWay, granted: bool, now: Instant) -> usize {
        self.queue(state, way).map_or(usize::MAX, |queue| queue.allowance(granted, now))
    }

    /// Returns the minimum number of bytes that a connection passes in its turn.
    pub fn piece(&mut self, state: SlotId, way: RateWay) -> usize {
        self.queue(state, way).map_or(usize::MAX / 2, |queue| queue.piece())
    }

    /// Counts bytes that a connection has passed.
    pub fn spend(&mut self, state: SlotId, way: RateWay, bytes: usize) {
        if let Some(queue) = self.queue(state, way) {
            queue.spend(bytes);
        }
    }

    /// Returns whether a datagram of this [cost](datagram_cost) passes; if not, counts it as dropped.
    pub fn passes(&mut self, who: GuestId, way: RateWay, cost: usize, ports: &PortNames, now: Instant) -> bool {
        let Some(guest) = self.guest(who, ports, now) else { return true };
        let passes = guest.ways[way as usize].passes(cost, now);
        self.counts.dropped += u64::from(!passes);
        passes
    }

    /// Counts a new flow. Returns `false` if the flow's guest exceeds its limit of new flows per second in this
    /// direction.
    pub fn may_begin(&mut self, who: GuestId, direction: FlowDirection, ports: &PortNames, now: Instant) -> bool {
        let guest = self.guest(who, ports, now);
        guest.and_then(|guest| guest.new[direction as usize].as_mut()).is_none_or(|bucket| bucket.take(now))
    }

    /// Returns the maximum number of TCP connections that a guest may have at a time; `None` if no rule sets a maximum.
    pub fn most_open(&mut self, who: GuestId, ports: &PortNames, now: Instant) -> Option<u32> {
        self.guest(who, ports, now)?.limit.open
    }

    /// Makes a connection wait until its guest may pass bytes. Returns the connection's place in the queue; `None` if
    /// the guest's state was removed.
    pub fn wait(
        &mut self,
        state: SlotId,
        waiting: GrantedFlow,
        now: Instant,
        timers: &mut TimerHeap,
    ) -> Option<RateTurn> {
        let guest = self.guests.get(state)?;
        let number = guest.ways[waiting.way as usize].wait(waiting.flow, now);
        self.counts.waits += 1;
        guest.set_timer(state, now, now, timers);
        Some(RateTurn { state, number })
    }

    /// Removes a connection that has ended from the queue in which it waits.
    pub fn leave(&mut self, way: RateWay, turn: RateTurn) {
        if let Some(queue) = self.queue(turn.state, way) {
            queue.leave(turn.number);
        }
    }

    /// Called when a guest's timer expires. Returns the connections whose turn it is.
    pub fn timer(&mut self, id: SlotId, now: Instant, timers: &mut TimerHeap) -> Vec<GrantedFlow> {
        let Some(guest) = self.guests.get(id) else { return Vec::new() };
        if guest.timer.is_none_or(|timer| timer > now) {
            return Vec::new();
        }
        guest.timer = None;
        let mut granted = Vec::new();
        for way in RateWay::BOTH {
            granted.extend(granted_in(way, guest.ways[way as usize].grant(now)));
        }
        // The granted bytes are not spent yet, so the bucket still contains them. The next timer is therefore at least
        // `PAUSE` away.
        guest.set_timer(id, now, now + PAUSE, timers);
        granted
    }

    /// Sets the rules. Returns the connections that must ask for their allowance again.
    pub fn set_rules(&mut self, rules: LimitRules, ports: &PortNames, now: Instant) -> Vec<GrantedFlow> {
        self.rules = rules;
        self.refresh(ports, now)
    }

    /// Updates the limits of all guests after rules or names of ports have changed. Returns the connections that must
    /// ask for their allowance again.
    pub fn refresh(&mut self, ports: &PortNames, now: Instant) -> Vec<GrantedFlow> {
        let mut released = Vec::new();
        for id in self.guests.ids() {
            let Some(guest) = self.guests.get(id) else { continue };
            let limit = self.rules.limit(guest.key, ports);
            for way in guest.set(limit, now) {
                // The released connections ask for their allowance again, and wait according to the new rate.
                released.extend(granted_in(way, guest.ways[way as usize].release()));
            }
        }
        released
    }

    /// Removes the state of a network's guests. Their flows must have ended.
    pub fn forget(&mut self, network: NetworkId) {
        let is_of = |key: &Option<GuestId>| key.is_some_and(|key| key.network == network);
        let gone: Vec<_> = self.by_key.extract_if(|key, _| is_of(key)).map(|(_, id)| id).collect();
        gone.into_iter().for_each(|id| drop(self.guests.remove(id)));
    }

    /// Removes the state of guests whose buckets are full and whose queues are empty.
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

fn granted_in(way: RateWay, flows: Vec<SlotId>) -> impl Iterator<Item = GrantedFlow> {
    flows.into_iter().map(move |flow| GrantedFlow { flow, way })
}

impl GuestRate {
    /// Sets the limits. The levels of the buckets are kept, so that a change of rules gives no burst. Returns the
    /// directions whose rates have changed.
    fn set(&mut self, limit: GuestLimit, now: Instant) -> Vec<RateWay> {
        let mut ways = Vec::new();
        let rates = [(self.limit.sent, limit.sent), (self.limit.received, limit.received)];
        for ((queue, (before, rate)), way) in self.ways.iter_mut().zip(rates).zip(RateWay::BOTH) {
            if before != rate {
                ways.push(way);
                queue.set(rate.map(|rate| rate.bits() / 8), now);
            }
        }
        if self.limit.new != limit.new {
            for bucket in &mut self.new {
                let new = limit.new.map(|new| TokenBucket::of_events(new, now));
                *bucket = match (&*bucket, new) {
                    (Some(old), Some(new)) => Some(old.changed_to(new)),
                    (_, new) => new,
                };
            }
        }
        self.limit = limit;
        ways
    }

    /// If a connection waits, sets the timer for it, not before `earliest`, unless an earlier timer is set.
    fn set_timer(&mut self, id: SlotId, now: Instant, earliest: Instant, timers: &mut TimerHeap) {
        let next = self.ways.iter().filter_map(|queue| queue.next(now)).map(|next| next.max(earliest)).min();
        let Some(at) = next.filter(|at| self.timer.is_none_or(|timer| *at < timer)) else { return };
        self.timer = Some(at);
        timers.add(at, TimedThing::Rate(id));
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        self.ways.iter_mut().all(|queue| queue.is_idle(now))
            && self.new.iter_mut().flatten().all(|bucket| bucket.is_full(now))
    }
}

#[cfg(test)]
mod tests;
