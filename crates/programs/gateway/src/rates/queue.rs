//! The connections of one guest that wait for the guest's rate limit in one direction ([`RateQueue`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::bucket::TokenBucket;
use crate::slots::SlotId;

/// Time for which datagrams stay limited to half of the rate after a connection has waited.
const SHARING: Duration = Duration::from_millis(100);

/// A rate, and the connections that wait for it.
#[derive(Debug, Default)]
pub struct RateQueue {
    rate: Option<QueueRate>,
    /// The connections that wait, by the number of their turn.
    waiting: BTreeMap<u64, SlotId>,
    next: u64,
    /// Time at which a connection last began to wait or got its turn; `None` if none has waited yet.
    waited: Option<Instant>,
}

#[derive(Debug)]
struct QueueRate {
    bucket: TokenBucket,
    /// A bucket with half of the rate, which also limits datagrams while connections wait.
    datagrams: TokenBucket,
}

impl RateQueue {
    /// Sets the rate in bytes per second; `None` removes the limit. The levels of the buckets are kept.
    pub fn set(&mut self, rate: Option<u64>, now: Instant) {
        let before = self.rate.take();
        self.rate = rate.map(|rate| {
            let new = [rate, rate / 2].map(|rate| TokenBucket::of_bytes(rate, now));
            let [bucket, datagrams] = match before {
                Some(QueueRate { bucket, datagrams }) => {
                    let [all, half] = new;
                    [bucket.changed_to(all), datagrams.changed_to(half)]
                }
                None => new,
            };
            QueueRate { bucket, datagrams }
        });
    }

    /// Returns how many bytes a connection may pass now: 0 while other connections wait, unless it was `granted` its
    /// turn.
    pub fn allowance(&mut self, granted: bool, now: Instant) -> usize {
        let Some(QueueRate { bucket, .. }) = &mut self.rate else { return usize::MAX };
        match (granted, self.waiting.is_empty()) {
            (_, true) => bucket.stream(now),
            (true, false) => bucket.stream(now).min(bucket.piece()),
            (false, false) => 0,
        }
    }

    /// Returns the minimum number of bytes that a connection passes in its turn; a very large number if the rate is not
    /// limited.
    pub fn piece(&self) -> usize {
        self.rate.as_ref().map_or(usize::MAX / 2, |rate| rate.bucket.piece())
    }

    /// Counts bytes that a connection has passed.
    pub fn spend(&mut self, bytes: usize) {
        if let Some(rate) = &mut self.rate {
            rate.bucket.spend(bytes);
        }
    }

    /// Returns whether a datagram passes. While connections wait, datagrams get at most half of the rate, so that a
    /// flood of datagrams cannot stop connections.
    pub fn passes(&mut self, bytes: usize, now: Instant) -> bool {
        let is_shared = !self.waiting.is_empty() || self.waited.is_some_and(|waited| waited + SHARING > now);
        let Some(QueueRate { bucket, datagrams }) = &mut self.rate else { return true };
        (!is_shared || datagrams.pass(bytes, now)) && bucket.pass(bytes, now)
    }

    /// Makes a connection wait. Returns the number of the connection's turn.
    pub fn wait(&mut self, flow: SlotId, now: Instant) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.waiting.insert(turn, flow);
        self.waited = Some(now);
        turn
    }

    /// Removes a connection that has ended.
    pub fn leave(&mut self, turn: u64) {
        self.waiting.remove(&turn);
    }

    /// Removes and returns those waiting connections that may each pass a piece now.
    pub fn grant(&mut self, now: Instant) -> Vec<SlotId> {
        let Some(QueueRate { bucket, .. }) = &mut self.rate else { return Vec::new() };
        let pieces = bucket.stream(now) / bucket.piece().max(1);
        let granted: Vec<_> =
            std::iter::from_fn(|| self.waiting.pop_first()).take(pieces).map(|(_, flow)| flow).collect();
        if !granted.is_empty() {
            self.waited = Some(now);
        }
        granted
    }

    /// Removes and returns all connections.
    pub fn release(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Returns the time at which the next connection may pass a piece; `None` if no connection waits.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let rate = self.rate.as_ref().filter(|_| !self.waiting.is_empty())?;
        Some(rate.bucket.next(now))
    }

    /// Returns whether no connection waits and the bucket is full, as in a new queue.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        self.waiting.is_empty() && self.rate.as_mut().is_none_or(|rate| rate.bucket.is_full(now))
    }
}
