//! Forwarding on a switch with policies: the same two phases, on copied heads of frames.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::steps::{self, Step, step};
use netvale_port::link::Link;
use netvale_port::{Batch, DropReason, Egress, Scratch, Source};

use super::held::Held;
use super::judge::{Judge, takes_flood};
use super::plan::{NO_VARIANT, Plan};
use super::spread::step_to;
use super::{ForPolicies, Forwarder, IDENTITY, Sender, Work, deliver, deliver_or_drop};
use crate::clock::now;
use crate::entry::Entry;
use crate::filters::Filters;
use crate::policies::CompiledPolicies;
use crate::summary::PolicySummary;
use crate::table::Table;

/// The frames of a batch not yet examined, as their port's rate makes them wait.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) frames: Range<usize>,
    /// When it may send again.
    until: u64,
    /// Frames before this one may be sent.
    pub(super) paid: usize,
    /// Whether all frames may go, whatever the port's rates.
    is_hurried: bool,
}

impl Rest {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.start >= self.frames.end
    }

    /// Time until the port may send.
    pub(super) fn nap(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.until.saturating_sub(now())))
    }
}

impl Forwarder {
    /// Forwards the taken frames, as far as their port may send.
    #[inline(never)]
    pub(super) fn forward_policed(&mut self, table: &Table, policed: &PolicySummary, work: &mut Work) {
        let Some(me) = table.get(self.from) else { return };
        let batch = self.source.frames();
        if !me.traces.is_empty() {
            self.tracing.count(batch.len());
        }
        if policed.is_only_traced && !self.has_traced(me) {
            return self.forward_plain(table, me, work);
        }
        // Frames out of the port's link were mirrored when they were sent.
        for to in me.tx_monitors.iter().filter(|_| !self.is_link_end).filter_map(|monitor| monitor.egress(self.ring)) {
            let _ = deliver_or_drop(to, batch, &IDENTITY[..batch.len()], &mut work.scratch);
        }
        self.rest = Rest { frames: 0..batch.len(), ..Rest::default() };
        self.forward_rest(table, policed, me, work);
    }

    /// Passes frames to their port's link.
    fn put_on_link(&mut self, link: &Link, until: usize, work: &mut Work) {
        let picks = IDENTITY.get(self.rest.frames.start..until).unwrap_or_default();
        // Frames without room are dropped there.
        let _ = link.deliver(self.source.frames(), picks, &mut work.scratch);
        self.rest.frames.start = until;
    }

    /// Continues with frames that waited for their port's rate. Returns their number.
    #[inline]
    pub(super) fn go_on_with_rest(&mut self, work: &mut Work) -> usize {
        if self.rest.is_empty() || self.held.is_waiting() {
            return 0;
        }
        self.go_on_now(work)
    }

    #[cold]
    fn go_on_now(&mut self, work: &mut Work) -> usize {
        let table = self.switch.table();
        let before = self.rest.frames.len();
        match (table.get(self.from), table.policed()) {
            (Some(me), Some(policed)) => self.forward_rest(&table, policed, me, work),
            // Its policies are gone: the rest passes unchanged.
            (Some(me), None) => self.forward_rest(&table, &PolicySummary::none(), me, work),
            (None, _) => self.rest = Rest::default(),
        }
        before - self.rest.frames.len()
    }

    /// Sends the frames that wait for the port's rates immediately, as the worker is about to pause. Frames that also
    /// have to wait for a receiver are dropped.
    #[cold]
    pub(super) fn hurry_rest(&mut self, work: &mut Work) {
        self.rest.is_hurried = true;
        self.go_on_with_rest(work);
        let left = std::mem::take(&mut self.rest).frames;
        self.source.ingress().counters().dropped(DropReason::Rate, left.len() as u64);
        self.note_time();
        if !self.held.is_waiting() {
            self.source.release_any(&mut work.spare);
        }
    }

    #[inline]
    fn forward_rest(&mut self, table: &Table, policed: &PolicySummary, me: &Arc<Entry>, work: &mut Work) {
        if me.traces.is_empty() {
            // All of them, or the rest of a port whose trace has ended.
            self.forward_range(table, policed, me, work);
        } else {
            self.forward_traced(table, policed, me, work);
        }
    }

    pub(super) fn forward_range(&mut self, table: &Table, policed: &PolicySummary, me: &Arc<Entry>, work: &mut Work) {
        if me.state.is_blocked() {
            let left = std::mem::take(&mut self.rest).frames;
            return self.source.ingress().counters().dropped(DropReason::Loop, left.len() as u64);
        }
        let policies = policed.policies(me);
        let until = if self.is_link_end { self.rest.frames.end } else { self.permitted(policies, me) };
        self.rest.paid = until;
        if let Some(link) = policies.link.as_deref().filter(|_| !self.is_link_end) {
            return self.put_on_link(link, until, work);
        }
        let mut memory = work.policed.take().unwrap_or_default();
        while self.rest.frames.start < until && !self.held.is_waiting() {
            let range = self.rest.frames.start..until;
            let next = self.plan(table, policed, me, range.clone(), &mut memory);
            self.rest.frames.start = next;
            match memory.plan.only().and_then(|id| table.get(id)).filter(|to| takes_all(policed, me, to)) {
                Some(to) => self.deliver_all(me, to, work),
                None => self.deliver_planned(table, policed, me, range.start..next, &mut memory.plan, work),
            }
        }
        if !self.held.is_waiting() {
            self.source.unstage(&mut memory.stage);
        }
        work.policed = Some(memory);
    }

    /// The end of the frames that the port may send now. Frames that it may not send at all are dropped.
    pub(super) fn permitted(&mut self, policies: &CompiledPolicies, me: &Entry) -> usize {
        let frames = self.rest.frames.clone();
        if frames.start < self.rest.paid {
            return self.rest.paid.min(frames.end);
        }
        if policies.rates.is_empty() && policies.group.is_none() {
            return frames.end;
        }
        let now = now();
        let batch = self.source.frames();
        if frames.len() == batch.len() && may_pass(policies, me, now, batch) {
            self.rest.until = now;
            return frames.end;
        }
        // A control thread waits for the frames' queue.
        let is_wanted = self.rest.is_hurried || self.source.ingress().is_wanted();
        if now < self.rest.until && !is_wanted {
            return frames.start;
        }
        let weights = frames.clone().filter_map(|i| batch.get(i)).map(|frame| frame.weight());
        let mut may = frames.len();
        let buckets = || policies.rates.iter().zip(&me.state.rates);
        for (limit, bucket) in buckets() {
            may = may.min(bucket.may(limit, now, weights.clone()));
        }
        if let Some(share) = &policies.group {
            may = may.min(share.may(now, weights.clone()));
        }
        if is_wanted {
            may = frames.len();
        }
        for (limit, bucket) in buckets() {
            bucket.charge(limit, now, weights.clone().take(may));
        }
        if let Some(share) = &policies.group {
            share.charge(now, weights.clone().take(may));
        }
        if may < frames.len() && !self.source.ingress().can_wait() {
            self.rest.frames.end = frames.start + may;
            self.source.ingress().counters().dropped(DropReason::Rate, (frames.len() - may) as u64);
        }
        let own = buckets().map(|(limit, bucket)| bucket.wait(limit, now)).max().unwrap_or(0);
        self.rest.until = now + own.max(policies.group.as_ref().map_or(0, |share| share.wait(now)));
        frames.start + may
    }

    /// Plans frames of a range, as far as there is room. Returns the number of the next one.
    fn plan(
        &mut self,
        table: &Table,
        policed: &PolicySummary,
        me: &Entry,
        range: Range<usize>,
        memory: &mut ForPolicies,
    ) -> usize {
        let mut judge = Judge::new(table, policed, me, &self.switch);
        let mut staging = self.source.stage(&mut memory.stage);
        let next = judge.plan_all(range, &mut staging, &mut memory.plan);
        memory.plan.count_drops(self.source.ingress().counters());
        next
    }

    /// Delivers all variants to a port.
    fn deliver_all(&mut self, me: &Entry, to: &Arc<Entry>, work: &mut Work) {
        let batch = self.source.variants();
        let picks = IDENTITY.get(..batch.len()).unwrap_or(&IDENTITY);
        let sender = Sender { port: me, ring: self.ring };
        hand_over(to, sender, batch, picks, true, &mut work.scratch, &mut self.held);
    }

    fn deliver_planned(
        &mut self,
        table: &Table,
        policed: &PolicySummary,
        me: &Arc<Entry>,
        range: Range<usize>,
        plan: &mut Plan,
        work: &mut Work,
    ) {
        let Work { groups, picks, scratch, .. } = work;
        plan.fill();
        groups.sort(range.clone(), |i| plan.frame(i).to);
        let batch = self.source.variants();
        let source = &self.source;
        let sender = Sender { port: me, ring: self.ring };
        let select = |to: &Entry, list: &mut [u16], plan: &mut Plan| {
            let count = select(policed, me, to, list, plan);
            let filters = &policed.policies(to).filters[1];
            if filters.rules().is_empty() { count } else { filter(source, to, filters, &mut list[..count], plan) }
        };
        if groups.floods() {
            plan.begin_flood();
        }
        for to in groups.active().iter().filter_map(|&id| table.get(id)) {
            let count = groups.picks(to.id, true, sender.joins_flood(to), picks).len();
            let count = select(to, &mut picks[..count], plan);
            hand_over(to, sender, batch, &picks[..count], true, scratch, &mut self.held);
        }
        let counters = Arc::clone(self.source.ingress().counters());
        if groups.floods() {
            let may_hold = table.all().len() == 2;
            for to in table.all().iter().filter(|e| e.id != me.id) {
                if groups.active().contains(&to.id) && sender.joins_flood(to) {
                    continue;
                }
                let count = groups.picks(to.id, false, true, picks).len();
                let count = select(to, &mut picks[..count], plan);
                hand_over(to, Sender { ring: 0, ..sender }, batch, &picks[..count], may_hold, scratch, &mut self.held);
            }
            plan.end_flood(groups.picks(me.id, false, true, picks));
        }
        plan.count_drops(&counters);
    }
}

/// Delivers, and reports the destination to traces.
#[inline]
fn hand_over(
    to: &Arc<Entry>,
    sender: Sender<'_>,
    batch: &Batch,
    picks: &[u16],
    may_hold: bool,
    scratch: &mut Scratch,
    held: &mut Held,
) {
    if steps::are_noted() {
        step_to(to, sender, batch, picks);
    }
    deliver(to, sender, batch, picks, may_hold, scratch, held);
}

/// Whether a batch may pass as a whole, as its port may send all of it: nearly always, unless the port is at its limit.
fn may_pass(policies: &CompiledPolicies, me: &Entry, now: u64, batch: &Batch) -> bool {
    let together = batch.weight();
    let buckets = || policies.rates.iter().zip(&me.state.rates);
    let may = policies.group.is_none() && buckets().all(|(limit, bucket)| bucket.may_all(limit, now, together));
    if may {
        buckets().for_each(|(limit, bucket)| bucket.charge(limit, now, [together].into_iter()));
    }
    may
}

/// Whether a port takes every frame from `me` addressed to it alone.
fn takes_all(policed: &PolicySummary, me: &Entry, to: &Entry) -> bool {
    let mine = policed.policies(me);
    let its = policed.policies(to);
    let is_apart = mine.isolated && its.isolated;
    !is_apart && !to.state.is_blocked() && its.filters[1].rules().is_empty()
}

/// Leaves only variants that pass the filters of the receiving port. Returns their number.
fn filter(source: &Source, to: &Entry, filters: &Filters, list: &mut [u16], plan: &mut Plan) -> usize {
    let mut count = 0;
    step(Step::Out(to.id));
    for i in 0..list.len() {
        let variant = list[i];
        let frame = source.variants().get(variant.into());
        match frame.map_or(Ok(()), |frame| filters.pass(source.head_of(variant), &frame)) {
            Ok(()) => {
                list[count] = variant;
                count += 1;
            }
            Err(why) => plan.drop(why),
        }
    }
    count
}

/// Replaces frames for a port by the variants that it gets, without those it does not take. Returns their number.
fn select(policed: &PolicySummary, me: &Entry, to: &Entry, list: &mut [u16], plan: &mut Plan) -> usize {
    let mine = policed.policies(me);
    let its = policed.policies(to);
    let is_apart = mine.isolated && its.isolated;
    let is_blocked = to.state.is_blocked();
    let mut count = 0;
    for i in 0..list.len() {
        let Some(&frame) = list.get(i) else { break };
        let planned = *plan.frame(usize::from(frame));
        let is_own = planned.to == to.id;
        let kind = policed.kind(its, planned.vlan);
        let gets = is_own || takes_flood(its, me.id, to.id, &planned, &plan.sets);
        if is_apart || is_blocked || !gets {
            if is_own {
                step(Step::Out(to.id));
                plan.drop(if is_apart { DropReason::Isolated } else { DropReason::Loop });
            }
            continue;
        }
        let variant = kind.map_or(NO_VARIANT, |kind| planned.variants[kind]);
        if let Some(place) = list.get_mut(count).filter(|_| variant != NO_VARIANT) {
            *place = variant;
            count += 1;
            if !is_own {
                plan.reach(frame);
            }
        }
    }
    count
}
