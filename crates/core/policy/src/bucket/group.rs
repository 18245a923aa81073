//! A rate shared by several senders, fairly among those that wait.
//!
//! Each member has its own count of bytes served. A sender may be ahead of the waiting member with the least service by
//! at most [`AHEAD`] bytes. A share that its member does not use goes to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Bucket, Limit, PARTS, Weight};

/// Maximum number of members of a group.
pub const MEMBERS: usize = 256;
/// Bytes by which a member may be ahead: two of the longest frames.
const AHEAD: u64 = 128 << 10;
/// Time in nanoseconds, at the group's rate, for which a member keeps an unused share: a sender whose queue is empty
/// until the next answers arrive has not given it up.
const CREDIT: f64 = 1e8;
/// A member that does not ask again within this time, in nanoseconds, no longer waits.
const PATIENCE: u64 = 50_000_000;
/// Wait of a member that is too far ahead, in nanoseconds.
const PAUSE: u64 = 100_000;

#[derive(Debug, Default)]
struct Member {
    is_there: AtomicBool,
    served: AtomicU64,
    /// End of its wait; 0: it does not wait.
    waits_until: AtomicU64,
}

/// A group.
#[derive(Debug)]
pub struct Group {
    limit: Limit,
    /// Bytes by which a returning member may be behind.
    credit: u64,
    bucket: Bucket,
    members: Box<[Member]>,
}

/// A member's share of a group.
#[derive(Debug)]
pub struct Share {
    group: Arc<Group>,
    number: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let me = self.me();
        me.waits_until.store(0, Ordering::Relaxed);
        me.is_there.store(false, Ordering::Release);
    }
}

impl Group {
    /// Creates a group without members.
    #[must_use]
    pub fn new(limit: Limit) -> Arc<Group> {
        let members = (0..MEMBERS).map(|_| Member::default()).collect();
        let credit = AHEAD.max((CREDIT * PARTS / limit.per_byte) as u64);
        Arc::new(Group { limit, credit, bucket: Bucket::default(), members })
    }

    /// Adds a member; `None` if there are already [`MEMBERS`].
    #[must_use]
    pub fn join(self: &Arc<Group>) -> Option<Share> {
        let is_free = |member: &Member| !member.is_there.swap(true, Ordering::Acquire);
        let number = self.members.iter().position(is_free)?;
        Some(Share { group: Arc::clone(self), number })
    }

    /// The least service of the members that wait at `now`, except `besides`.
    fn least(&self, now: u64, besides: usize) -> Option<u64> {
        let others = self.members.iter().enumerate().filter(|(number, _)| *number != besides);
        let waiting = others.filter(|(_, member)| member.waits_until.load(Ordering::Relaxed) > now);
        waiting.map(|(_, member)| member.served.load(Ordering::Relaxed)).min()
    }
}

impl Share {
    fn me(&self) -> &Member {
        &self.group.members[self.number]
    }

    /// Number of frames of these weights, in order, that may pass at `now` (nanoseconds). If not all may, this member
    /// waits.
    pub fn may(&self, now: u64, weights: impl Iterator<Item = Weight> + Clone) -> usize {
        let group = &*self.group;
        let me = self.me();
        let wanted = weights.clone().count();
        let mut may = group.bucket.may(&group.limit, now, weights.clone());
        if let Some(least) = group.least(now, self.number) {
            // A long time without frames gives no further credit.
            let served = me.served.load(Ordering::Relaxed).max(least.saturating_sub(group.credit));
            me.served.store(served, Ordering::Relaxed);
            may = may.min(within(weights, (least + AHEAD).saturating_sub(served)));
        }
        let waits_until = if may < wanted { now + PATIENCE } else { 0 };
        me.waits_until.store(waits_until, Ordering::Relaxed);
        may
    }

    /// Takes the tokens of passing frames.
    pub fn charge(&self, now: u64, weights: impl Iterator<Item = Weight> + Clone) {
        let bytes = weights.clone().map(|weight| u64::from(weight.bytes)).sum();
        self.me().served.fetch_add(bytes, Ordering::Relaxed);
        self.group.bucket.charge(&self.group.limit, now, weights);
    }

    /// Time from `now` until a frame may pass, in nanoseconds.
    #[must_use]
    pub fn wait(&self, now: u64) -> u64 {
        let served = self.me().served.load(Ordering::Relaxed);
        let is_ahead = self.group.least(now, self.number).is_some_and(|least| served >= least + AHEAD);
        self.group.bucket.wait(&self.group.limit, now).max(if is_ahead { PAUSE } else { 0 })
    }
}

/// Number of frames that begin within `bytes` bytes.
fn within(weights: impl Iterator<Item = Weight>, bytes: u64) -> usize {
    let mut sum = 0;
    let begins = |weight: &Weight| {
        let is_within = sum < bytes;
        sum += u64::from(weight.bytes);
        is_within
    };
    weights.take_while(begins).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Runs members that always want to send frames of these lengths, asked in an order that favours the first, for ten
    /// seconds; returns the bytes of each.
    fn compete(lens: &[usize], rate: u64) -> Vec<u64> {
        let group = Group::new(Limit::bits(rate, 128 << 10));
        let shares: Vec<_> = lens.iter().map(|_| group.join().unwrap()).collect();
        let mut now = 0;
        let mut got = vec![0; lens.len()];
        while now < 10 * SECOND {
            for ((share, &len), got) in shares.iter().zip(lens).zip(&mut got) {
                let frames = || std::iter::repeat_n(Weight::frame(len), 256);
                let may = share.may(now, frames());
                share.charge(now, frames().take(may));
                *got += (may * len) as u64;
            }
            now += shares.iter().map(|share| share.wait(now)).min().unwrap().max(1000);
        }
        got
    }

    /// Objective: members that always want to send get equal shares, within 5 %, whatever their frames' lengths and
    /// their turn, and together the rate.
    #[test]
    fn fair() {
        for (lens, rate) in
            [(&[1500, 1500][..], 10_000_000), (&[60, 1500, 65_000], 1_000_000_000), (&[9000; 5], 100_000_000)]
        {
            let got = compete(lens, rate);
            let sum = got.iter().sum::<u64>();
            let mean = got.iter().sum::<u64>() as f64 / got.len() as f64;
            assert!(got.iter().all(|&part| (part as f64 / mean - 1.0).abs() < 0.05), "{got:?}");
            let expected = rate / 8 * 10;
            assert!(sum.abs_diff(expected) < expected / 20, "{sum} of {expected}");
        }
    }

    /// Objective: a member with nothing to send leaves its share to the others; one that starts later gets an equal
    /// share from then on, and nothing for the time before.
    #[test]
    fn parts_that_nobody_wants() {
        let group = Group::new(Limit::bits(80_000_000, 128 << 10));
        let a = group.join().unwrap();
        let b = group.join().unwrap();
        let _idle = group.join().unwrap();
        let mut now = 0;
        let mut got = [0u64; 2];
        while now < 4 * SECOND {
            let active = if now < 2 * SECOND { &[&a][..] } else { &[&a, &b][..] };
            for (share, got) in active.iter().zip(&mut got) {
                let frames = || std::iter::repeat_n(Weight::frame(1500), 256);
                let may = share.may(now, frames());
                share.charge(now, frames().take(may));
                *got += may as u64 * 1500;
            }
            now += active.iter().map(|share| share.wait(now)).min().unwrap().max(1000);
        }
        assert!(got[0].abs_diff(30_000_000) < 1_500_000 && got[1].abs_diff(10_000_000) < 1_000_000, "{got:?}");
    }

    /// Objective: a member that leaves makes room for another one, and no member waits for it.
    #[test]
    fn members_come_and_go() {
        let group = Group::new(Limit::bits(1_000_000, 1000));
        let mut shares: Vec<_> = (0..MEMBERS).map(|_| group.join().unwrap()).collect();
        assert!(group.join().is_none());
        assert_eq!(shares[0].may(0, [Weight::frame(10_000); 2].into_iter()), 1);
        shares.remove(0);
        assert!(group.join().is_some());
        assert_eq!(group.least(1, MEMBERS), None);
    }
}
