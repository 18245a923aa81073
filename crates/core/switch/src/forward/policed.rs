//! Forwarding on a switch with policies. Batches are classified and delivered as without policies, but each decision is
//! made on a copy of the frame's first bytes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::steps::{self, Step, step};
use netvale_port::link::Link;
use netvale_port::{Batch, DropReason, Egress, Scratch, Source};

use super::held::HeldFrames;
use super::judge::{Judge, takes_flood};
use super::plan::{BatchPlan, NO_VARIANT};
use super::spread::step_to;
use super::{BatchSender, ForPolicies, ForwardMemory, Forwarder, IDENTITY, deliver, deliver_or_drop};
use crate::clock::now;
use crate::entry::PortEntry;
use crate::filters::Filters;
use crate::policies::CompiledPolicies;
use crate::summary::PolicySummary;
use crate::table::PortTable;

/// The frames of a batch that are not examined yet, because the sending port is at its rate limit, or because the pass
/// has flooded enough frames ([`PortTable::most_floods`]).
#[derive(Debug, Default)]
pub(super) struct BatchRest {
    pub(super) frames: Range<usize>,
    /// Time from which the port may send again, in nanoseconds of the policies' clock.
    until: u64,
    /// Index of the first frame that the port's rates do not allow yet.
    pub(super) paid: usize,
    /// Whether all frames may be sent regardless of the port's rates.
    is_hurried: bool,
    /// Number of frames that this pass has flooded.
    floods: usize,
}

impl BatchRest {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.start >= self.frames.end
    }

    /// Time until the port may send again; `None` if no frames wait for its rates.
    pub(super) fn nap(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.until.saturating_sub(now())))
    }
}

impl Forwarder {
    /// Forwards the taken frames that the port's rates allow; the other frames wait.
    #[inline(never)]
    pub(super) fn forward_policed(&mut self, table: &PortTable, policed: &PolicySummary, work: &mut ForwardMemory) {
        let Some(me) = table.get(self.from) else { return };
        let batch = self.source.frames();
        if !me.traces.is_empty() {
            self.tracing.count(batch.len());
        }
        if policed.is_only_traced && !self.has_traced(me) {
            return self.forward_plain(table, me, work);
        }
        // Frames from the far end of the port's link were copied to monitors when the port sent them.
        for to in me.tx_monitors.iter().filter(|_| !self.is_link_end).filter_map(|monitor| monitor.egress(self.ring)) {
            let _ = deliver_or_drop(to, batch, &IDENTITY[..batch.len()], &mut work.scratch);
        }
        self.rest = BatchRest { frames: 0..batch.len(), ..BatchRest::default() };
        self.forward_rest(table, policed, me, work);
    }

    /// Whether this pass has flooded the maximum number of frames.
    #[inline]
    pub(super) fn has_flooded(&self, table: &PortTable) -> bool {
        self.rest.floods >= table.most_floods()
    }

    /// Forwards a batch on a switch with many ports and without policies; each pass floods only some of the frames.
    #[cold]
    pub(super) fn forward_in_parts(&mut self, table: &PortTable, me: &Arc<PortEntry>, work: &mut ForwardMemory) {
        let batch = self.source.frames();
        for to in me.tx_monitors.iter().filter_map(|monitor| monitor.egress(self.ring)) {
            let _ = deliver_or_drop(to, batch, &IDENTITY[..batch.len()], &mut work.scratch);
        }
        self.rest = BatchRest { frames: 0..batch.len(), ..BatchRest::default() };
        self.forward_range(table, &PolicySummary::none(), me, work);
    }

    /// Puts the remaining frames up to index `until` on the sending port's impaired link.
    fn put_on_link(&mut self, link: &Link, until: usize, work: &mut ForwardMemory) {
        let picks = IDENTITY.get(self.rest.frames.start..until).unwrap_or_default();
        // The link drops frames that find no room.
        let _ = link.deliver(self.source.frames(), picks, &mut work.scratch);
        self.rest.frames.start = until;
    }

    /// Continues with frames that waited because of their port's rates. Returns the number of frames that no longer
    /// wait.
    #[inline]
    pub(super) fn go_on_with_rest(&mut self, work: &mut ForwardMemory) -> usize {
        if self.rest.is_empty() || self.held.is_waiting() {
            return 0;
        }
        self.go_on_now(work)
    }

    #[cold]
    fn go_on_now(&mut self, work: &mut ForwardMemory) -> usize {
        let table = self.switch.table();
        let before = self.rest.frames.len();
        self.rest.floods = 0;
        match (table.get(self.from), table.policed()) {
            (Some(me), Some(policed)) => self.forward_rest(&table, policed, me, work),
            // The policies were removed, so the other frames of the batch pass without policies.
            (Some(me), None) => self.forward_rest(&table, &PolicySummary::none(), me, work),
            (None, _) => self.rest = BatchRest::default(),
        }
        before - self.rest.frames.len()
    }

    /// Sends the frames that wait because of the port's rates immediately, before the worker pauses. Frames that find
    /// no room are dropped.
    #[cold]
    pub(super) fn hurry_rest(&mut self, work: &mut ForwardMemory) {
        self.rest.is_hurried = true;
        while self.go_on_with_rest(work) > 0 {}
        let left = std::mem::take(&mut self.rest).frames;
        self.source.ingress().counters().dropped(DropReason::Rate, left.len() as u64);
        self.note_time();
        if !self.held.is_waiting() {
            self.source.release_any(&mut work.spare);
        }
    }

    #[inline]
    fn forward_rest(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &Arc<PortEntry>,
        work: &mut ForwardMemory,
    ) {
        if me.traces.is_empty() {
            // The port is not traced, or its trace has just ended.
            self.forward_range(table, policed, me, work);
        } else {
            self.forward_traced(table, policed, me, work);
        }
    }

    pub(super) fn forward_range(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &Arc<PortEntry>,
        work: &mut ForwardMemory,
    ) {
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
        while self.rest.frames.start < until && !self.held.is_waiting() && !self.has_flooded(table) {
            let range = self.rest.frames.start..until;
            let next = self.plan(table, policed, me, range.clone(), &mut memory);
            self.rest.frames.start = next;
            self.rest.floods += memory.plan.floods;
            match memory.plan.only().and_then(|id| table.get(id)).filter(|to| takes_all(policed, me, to)) {
                Some(to) => self.deliver_all(me, to, work),
                None => self.deliver_planned(table, policed, me, range.start..next, &mut memory.plan, work),
            }
        }
        if policed.snoops {
            memory.plan.sets.set(None);
        }
        if !self.held.is_waiting() {
            self.source.unstage(&mut memory.stage);
        }
        work.policed = Some(memory);
    }

    /// Returns the index of the first frame that the port's rates do not allow now, and charges the frames before that
    /// frame. Drops the remaining frames if they cannot wait.
    pub(super) fn permitted(&mut self, policies: &CompiledPolicies, me: &PortEntry) -> usize {
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
        // Before a pause, or if a control thread waits to remove the frames' queue, all frames pass.
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

    /// Decides the destinations and variants (copies with the right tags) of the frames of a range, while there is room
    /// for variants. Returns the index of the first undecided frame.
    fn plan(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &PortEntry,
        range: Range<usize>,
        memory: &mut ForPolicies,
    ) -> usize {
        let mut judge = Judge::new(table, policed, me, &self.switch);
        let mut staging = self.source.stage(&mut memory.stage);
        memory.plan.most_floods = table.most_floods() - self.rest.floods;
        let next = judge.plan_all(range, &mut staging, &mut memory.plan);
        if policed.snoops {
            memory.plan.sets.set(judge.into_groups());
        }
        memory.plan.count_drops(self.source.ingress().counters());
        next
    }

    /// Delivers all variants to a port.
    fn deliver_all(&mut self, me: &PortEntry, to: &Arc<PortEntry>, work: &mut ForwardMemory) {
        let batch = self.source.variants();
        let picks = IDENTITY.get(..batch.len()).unwrap_or(&IDENTITY);
        let sender = BatchSender { port: me, ring: self.ring };
        hand_over(to, sender, batch, picks, true, &mut work.scratch, &mut self.held);
    }

    fn deliver_planned(
        &mut self,
        table: &PortTable,
        policed: &PolicySummary,
        me: &Arc<PortEntry>,
        range: Range<usize>,
        plan: &mut BatchPlan,
        work: &mut ForwardMemory,
    ) {
        let ForwardMemory { groups, picks, scratch, .. } = work;
        plan.fill();
        groups.sort(range.clone(), |i| plan.frame(i).to);
        let batch = self.source.variants();
        let source = &self.source;
        let sender = BatchSender { port: me, ring: self.ring };
        let select = |to: &PortEntry, list: &mut [u16], plan: &mut BatchPlan| {
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
                if groups.has(to.id) && sender.joins_flood(to) {
                    continue;
                }
                let count = groups.picks(to.id, false, true, picks).len();
                let count = select(to, &mut picks[..count], plan);
                if count == 0 {
                    // On a switch with many ports, most ports may be in none of the frames' VLANs or groups.
                    continue;
                }
                hand_over(
                    to,
                    BatchSender { ring: 0, ..sender },
                    batch,
                    &picks[..count],
                    may_hold,
                    scratch,
                    &mut self.held,
                );
            }
            plan.end_flood(groups.picks(me.id, false, true, picks));
        }
        plan.count_drops(&counters);
    }
}

/// Delivers frames to a port, and reports the port to traces.
#[inline]
fn hand_over(
    to: &Arc<PortEntry>,
    sender: BatchSender<'_>,
    batch: &Batch,
    picks: &[u16],
    may_hold: bool,
    scratch: &mut Scratch,
    held: &mut HeldFrames,
) {
    if steps::are_noted() {
        step_to(to, sender, batch, picks);
    }
    deliver(to, sender, batch, picks, may_hold, scratch, held);
}

/// Whether the port's own rates allow the whole batch. If so, charges the batch. Always false for a port in a rate
/// group.
fn may_pass(policies: &CompiledPolicies, me: &PortEntry, now: u64, batch: &Batch) -> bool {
    let together = batch.weight();
    let buckets = || policies.rates.iter().zip(&me.state.rates);
    let may = policies.group.is_none() && buckets().all(|(limit, bucket)| bucket.may_all(limit, now, together));
    if may {
        buckets().for_each(|(limit, bucket)| bucket.charge(limit, now, [together].into_iter()));
    }
    may
}

/// Whether port `to` takes all frames from port `me` that are addressed to `to`.
fn takes_all(policed: &PolicySummary, me: &PortEntry, to: &PortEntry) -> bool {
    let mine = policed.policies(me);
    let its = policed.policies(to);
    let is_apart = mine.isolated && its.isolated;
    !is_apart && !to.state.is_blocked() && its.filters[1].rules().is_empty()
}

/// Removes variants that the receiving port's filters drop from `list`. Returns the number that remain.
fn filter(source: &Source, to: &PortEntry, filters: &Filters, list: &mut [u16], plan: &mut BatchPlan) -> usize {
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

/// Replaces the frames in `list` by the variants that port `to` gets, and removes frames that the port does not take.
/// Returns the number that remain.
fn select(policed: &PolicySummary, me: &PortEntry, to: &PortEntry, list: &mut [u16], plan: &mut BatchPlan) -> usize {
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
