//! Rate groups: several senders share a rate, fairly among the senders that wait.
//!
//! Each member has a count of the bytes that it has sent. A member may be ahead of the waiting member with the smallest
//! count by at most [`AHEAD`] bytes. The other members get the share that a member does not use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Bucket, PARTS, RateLimit, Weight};

/// Maximum number of members of a group.
pub const MEMBERS: usize = 256;
/// Number of bytes by which a member may be ahead of a waiting member: two of the longest frames.
const AHEAD: u64 = 128 << 10;
/// An idle member may later catch up on at most the bytes that the group's rate yields in this time, in nanoseconds: a
/// sender's queue is often empty only until the next acknowledgements arrive.
const CREDIT: f64 = 1e8;
/// Time in nanoseconds after which a member that has not tried to send again no longer counts as waiting.
const PATIENCE: u64 = 50_000_000;
/// Time in nanoseconds for which a member that is too far ahead must wait.
const PAUSE: u64 = 100_000;

#[derive(Debug, Default)]
struct BucketMember {
    is_there: AtomicBool,
    served: AtomicU64,
    /// Time until which the member counts as waiting; 0 if it does not wait.
    waits_until: AtomicU64,
}

/// A group of senders that share a rate limit.
#[derive(Debug)]
pub struct Group {
    limit: RateLimit,
    /// Maximum number of bytes by which a member that was idle may be behind the waiting members, and thus may catch
    /// up.
    credit: u64,
    bucket: Bucket,
    members: Box<[BucketMember]>,
}

/// A sender's membership in a group, which ends when this is dropped.
#[derive(Debug)]
pub struct GroupShare {
    group: Arc<Group>,
    number: usize,
}

impl Drop for GroupShare {
    fn drop(&mut self) {
        let me = self.me();
        me.waits_until.store(0, Ordering::Relaxed);
        me.is_there.store(false, Ordering::Release);
    }
}

impl Group {
    /// Creates a group without members.
    #[must_use]
    pub fn new(limit: RateLimit) -> Arc<Group> {
        let members = (0..MEMBERS).map(|_| BucketMember::default()).collect();
        let credit = AHEAD.max((CREDIT * PARTS / limit.per_byte) as u64);
        Arc::new(Group { limit, credit, bucket: Bucket::default(), members })
    }

    /// Adds a member; `None` if the group already has [`MEMBERS`] members.
    #[must_use]
    pub fn join(self: &Arc<Group>) -> Option<GroupShare> {
        let is_free = |member: &BucketMember| !member.is_there.swap(true, Ordering::Acquire);
        let number = self.members.iter().position(is_free)?;
        Some(GroupShare { group: Arc::clone(self), number })
    }

    /// Returns the smallest byte count of the members that wait at `now`, member `besides` excluded; `None` if no other
    /// member waits.
    fn least(&self, now: u64, besides: usize) -> Option<u64> {
        let others = self.members.iter().enumerate().filter(|(number, _)| *number != besides);
        let waiting = others.filter(|(_, member)| member.waits_until.load(Ordering::Relaxed) > now);
        waiting.map(|(_, member)| member.served.load(Ordering::Relaxed)).min()
    }
}

impl GroupShare {
    fn me(&self) -> &BucketMember {
        &self.group.members[self.number]
    }

    /// Returns how many of the frames with these weights, in order, may pass at time `now` (nanoseconds). If not all
    /// may pass, this member counts as waiting.
    pub fn may(&self, now: u64, weights: impl Iterator<Item = Weight> + Clone) -> usize {
        let group = &*self.group;
        let me = self.me();
        let wanted = weights.clone().count();
        let mut may = group.bucket.may(&group.limit, now, weights.clone());
        if let Some(least) = group.least(now, self.number) {
            // A member that sent nothing for a long time can catch up on no more than the credit.
            let served = me.served.load(Ordering::Relaxed).max(least.saturating_sub(group.credit));
            me.served.store(served, Ordering::Relaxed);
            may = may.min(within(weights, (least + AHEAD).saturating_sub(served)));
        }
        let waits_until = if may < wanted { now + PATIENCE } else { 0 };
        me.waits_until.store(waits_until, Ordering::Relaxed);
        may
    }

    /// Takes the tokens of frames that pass, and counts their bytes for this member.
    pub fn charge(&self, now: u64, weights: impl Iterator<Item = Weight> + Clone) {
        let bytes = weights.clone().map(|weight| u64::from(weight.bytes)).sum();
        self.me().served.fetch_add(bytes, Ordering::Relaxed);
        self.group.bucket.charge(&self.group.limit, now, weights);
    }

    /// Time from `now` until a frame of this member may pass, in nanoseconds; 0 if a frame may pass now.
    #[must_use]
    pub fn wait(&self, now: u64) -> u64 {
        let served = self.me().served.load(Ordering::Relaxed);
        let is_ahead = self.group.least(now, self.number).is_some_and(|least| served >= least + AHEAD);
        self.group.bucket.wait(&self.group.limit, now).max(if is_ahead { PAUSE } else { 0 })
    }
}

/// Returns the number of frames that begin within `bytes` bytes.
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

    /// Runs members that always have frames of these lengths to send, in an order that favours the first member, for
    /// ten seconds. Returns the number of bytes of each member.
    fn compete(lens: &[usize], rate: u64) -> Vec<u64> {
        let group = Group::new(RateLimit::bits(rate, 128 << 10));
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

    /// Objective: members that always have frames to send get equal shares within 5 %, whatever the lengths of their
    /// frames and their order, and together use the group's rate.
    #[test]
    fn greedy_members_get_equal_shares() {
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

    /// Objective: a member without frames leaves its share to the other members; a member that starts later gets an
    /// equal share from then on, and nothing for the time before.
    #[test]
    fn parts_that_nobody_wants() {
        let group = Group::new(RateLimit::bits(80_000_000, 128 << 10));
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

    /// Objective: a member that leaves makes room for another member, and no longer counts as waiting.
    #[test]
    fn members_come_and_go() {
        let group = Group::new(RateLimit::bits(1_000_000, 1000));
        let mut shares: Vec<_> = (0..MEMBERS).map(|_| group.join().unwrap()).collect();
        assert!(group.join().is_none());
        assert_eq!(shares[0].may(0, [Weight::frame(10_000); 2].into_iter()), 1);
        shares.remove(0);
        assert!(group.join().is_some());
        assert_eq!(group.least(1, MEMBERS), None);
    }
}
