//! Second phase of forwarding: delivers a batch whose frames have been classified, destination by destination.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::steps::{self, Step, step};
use netvale_port::link::LinkEnd;
use netvale_port::origin::Origin;
use netvale_port::stage::Stage;
use netvale_port::{BATCH, Batch, DropReason, Egress, Ingress, PassResult, Scratch, Source, Task};

use crate::classify::DestinationGroups;
use crate::entry::PortEntry;
use crate::fdb::PortId;
use crate::table::{PortTable, Switch};

mod held;
mod judge;
mod listener;
mod plan;
mod policed;
mod scatter;
mod spread;
mod sum;
mod timing;
mod traced;

pub use held::WaitingFrames;
use held::{HeldFrames, waits_for};
use plan::BatchPlan;
use policed::BatchRest;
use scatter::OpenDestination;
use spread::{BatchSender, deliver_spread};
use timing::BatchTiming;
use traced::ForwarderTrace;

/// The picks (indices of frames in a batch) if all frames of the batch go to the same port: 0, 1, 2, …
pub(crate) const IDENTITY: [u16; BATCH] = {
    let mut a = [0; BATCH];
    let mut i = 0;
    while i < BATCH {
        a[i] = i as u16;
        i += 1;
    }
    a
};

/// A worker's memory for forwarding, reused for each batch. Each thread has separate memory.
pub struct ForwardMemory {
    /// An empty batch. A source of this thread swaps it with its own batch while that batch holds frames.
    pub spare: Box<Batch>,
    /// Memory for computing checksums, segmentation and merging.
    pub scratch: Scratch,
    groups: Box<DestinationGroups>,
    picks: [u16; BATCH],
    /// Destinations of a delivery in steps (reserve, fill, publish, kick). Empty between batches, and kept to avoid
    /// allocations.
    open: Vec<OpenDestination<'static>>,
    /// Destinations that do not support delivery in steps. Empty between batches, and kept to avoid allocations.
    stepless: Vec<PortId>,
    /// Memory for switches with policies, allocated on first use.
    policed: Option<Box<ForPolicies>>,
}

/// Memory for forwarding under policies.
#[derive(Default)]
struct ForPolicies {
    plan: BatchPlan,
    stage: Option<Box<Stage>>,
}

impl Default for ForwardMemory {
    fn default() -> Self {
        let open = Vec::with_capacity(BATCH);
        let stepless = Vec::with_capacity(BATCH);
        let spare = Box::default();
        let groups = Box::default();
        let scratch = Scratch::new();
        ForwardMemory { spare, scratch, groups, picks: [0; BATCH], open, stepless, policed: None }
    }
}

/// Forwards the frames of one ingress. One worker at a time owns it.
pub struct Forwarder {
    switch: Arc<Switch>,
    from: PortId,
    ring: usize,
    source: Source,
    held: HeldFrames,
    /// The frames of the batch that are not yet forwarded, because the sending port is at its rate limit or the pass
    /// has flooded enough frames.
    rest: BatchRest,
    /// Whether the ingress is the far end of the port's impaired link.
    is_link_end: bool,
    tracing: ForwarderTrace,
    timing: BatchTiming,
}

impl Forwarder {
    /// Creates the forwarder of `ingress`, ring `ring` of port `from`.
    pub fn new(switch: Arc<Switch>, from: PortId, ring: usize, ingress: Box<dyn Ingress>) -> Self {
        Forwarder {
            switch,
            from,
            ring,
            source: Source::new(ingress),
            held: HeldFrames::new(),
            rest: BatchRest::default(),
            is_link_end: false,
            tracing: ForwarderTrace::default(),
            timing: BatchTiming::default(),
        }
    }

    /// Creates the forwarder of `end`, the far end of port `from`'s impaired link.
    pub fn of_link(switch: Arc<Switch>, from: PortId, end: LinkEnd) -> Self {
        Forwarder { is_link_end: true, ..Self::new(switch, from, 0, Box::new(end)) }
    }

    /// Makes the forwarder send as port `from` of `switch`. If the switch has no such port, frames are dropped.
    pub fn rehome(&mut self, switch: Arc<Switch>, from: PortId) {
        self.switch = switch;
        self.from = from;
    }

    /// Whether frames wait for room at a destination, for the sending port's rate limit, or for the next pass because
    /// this pass has flooded enough frames.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.is_waiting() || !self.rest.is_empty()
    }

    /// Copies of the frames that wait for room, after [`Task::settle`].
    pub fn waiting(&self) -> Vec<WaitingFrames> {
        self.held.copies(self.source.variants())
    }

    /// Takes over frames that waited for room in another process, at most a batch of them, and lets them wait here.
    /// Frames for a missing port or ring are dropped. Does nothing if this forwarder already holds frames.
    pub fn wait_with(&mut self, waiting: Vec<WaitingFrames>) {
        if self.is_held() {
            return;
        }
        let table = self.switch.table();
        let mut next = 0;
        let mut places = Vec::new();
        for w in &waiting {
            let to = table.all().iter().find(|to| to.port.name == w.port);
            places.extend(to.map(|to| (to, w.ring, next..next + w.frames.len())));
            next += w.frames.len();
        }
        let count = self.source.begin_with(waiting.into_iter().flat_map(|w| w.frames));
        for (to, ring, picks) in places {
            self.held.go_on(to, ring, picks.start.min(count) as u16..picks.end.min(count) as u16);
        }
    }

    /// Forwards one batch, or tries again to deliver the frames of the last batch that wait.
    #[inline]
    pub fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        if steps::are_noted() {
            return self.pass_noting(work);
        }
        if self.is_held() {
            return self.pass_held(work);
        }
        let frames = self.source.take(&mut work.spare).len();
        if frames > 0 {
            self.forward(work);
        }
        self.finish(frames, work)
    }

    /// Releases the forwarded batch, unless some of its frames still wait.
    #[inline(always)]
    fn finish(&mut self, frames: usize, work: &mut ForwardMemory) -> PassResult {
        if frames == 0 {
            // All of the taken slots contained unusable frames, so the slots are released immediately.
            self.source.release(&mut work.spare);
            return PassResult::Idle;
        }
        if self.is_held() {
            // The batch stays in its source; the worker continues with another ingress.
            return PassResult::Held;
        }
        self.source.release(&mut work.spare);
        PassResult::Frames(frames)
    }

    fn forward(&mut self, work: &mut ForwardMemory) {
        let table = self.switch.table();
        // If the port has just been detached, its frames must no longer be delivered.
        let Some(me) = table.get(self.from) else { return };
        self.held.from = me.owner;
        work.scratch.sent_by(me.origin());
        if let Some(policed) = table.policed() {
            return self.forward_policed(&table, policed, work);
        }
        self.forward_plain(&table, me, work);
    }

    /// Forwards a batch on a switch without policies.
    #[inline(always)]
    fn forward_plain(&mut self, table: &PortTable, me: &Arc<PortEntry>, work: &mut ForwardMemory) {
        if table.is_wide() && self.floods_widely(table) {
            return self.forward_in_parts(table, me, work);
        }
        let ForwardMemory { groups, scratch, .. } = work;
        let batch = self.source.frames();
        groups.classify(batch, self.from, self.switch.fdb(), self.source.ingress().counters());
        for to in me.tx_monitors.iter().filter_map(|monitor| monitor.egress(self.ring)) {
            let _ = deliver_or_drop(to, batch, &IDENTITY[..batch.len()], scratch);
        }
        let held = &mut self.held;
        let sender = BatchSender { port: me, ring: self.ring };
        if let Some(to) = groups.only().and_then(|id| table.get(id)) {
            deliver(to, sender, batch, &IDENTITY[..batch.len()], true, scratch, held);
            return;
        }
        if !groups.floods() {
            scatter::scatter(table, sender, batch, work, held);
            return;
        }
        self.deliver_groups(table, me, work);
    }

    /// Whether the batch has more flooded frames than one pass may deliver to all ports.
    #[cold]
    fn floods_widely(&self, table: &PortTable) -> bool {
        let fdb = self.switch.fdb();
        let floods = |dst: u64| dst & 1 != 0 || fdb.lookup(dst).or_else(|| fdb.elsewhere(0, dst)).is_none();
        let destinations = self.source.frames().iter().filter_map(|frame| Some(frame.addresses()?.0));
        destinations.filter(|&dst| floods(dst)).nth(table.most_floods()).is_some()
    }

    /// Delivers the frames of each port's list, and flooded frames.
    #[inline(always)]
    fn deliver_groups(&mut self, table: &PortTable, me: &PortEntry, work: &mut ForwardMemory) {
        let ForwardMemory { groups, picks, scratch, .. } = work;
        let batch = self.source.frames();
        let sender = BatchSender { port: me, ring: self.ring };
        for to in groups.active().iter().filter_map(|&id| table.get(id)) {
            let picks = groups.picks(to.id, true, sender.joins_flood(to), picks);
            deliver(to, sender, batch, picks, true, scratch, &mut self.held);
        }
        if groups.floods() {
            self.flood(table, sender, work);
        }
    }

    /// Delivers flooded frames to the first open ring of each port. Skips ports that have already got these frames, in
    /// one delivery with the frames addressed to them.
    fn flood(&mut self, table: &PortTable, sender: BatchSender<'_>, work: &mut ForwardMemory) {
        let ForwardMemory { groups, picks, scratch, .. } = work;
        let batch = self.source.frames();
        let picks = groups.picks(self.from, false, true, picks);
        let mut reached = false;
        // Holding a sender back for a flood would let one slow receiver stop all others, so a sender is held back only
        // if there is a single receiver.
        let may_hold = table.all().len() == 2;
        for to in table.all().iter().filter(|e| e.id != self.from) {
            reached = true;
            if groups.has(to.id) && sender.joins_flood(to) {
                continue;
            }
            deliver(to, BatchSender { ring: 0, ..sender }, batch, picks, may_hold, scratch, &mut self.held);
        }
        if !reached {
            self.source.ingress().counters().dropped(DropReason::NoPort, picks.len() as u64);
        }
    }

    fn retry(&mut self, work: &mut ForwardMemory) {
        let origin = self.switch.table().get(self.from).map(|me| me.origin());
        work.scratch.sent_by(origin.unwrap_or(Origin::UNKNOWN));
        self.held.retry(self.source.variants(), &mut work.scratch);
    }

    /// Tries again to deliver the frames that wait for room. Afterwards, continues with the frames that wait for the
    /// port's rate.
    fn pass_held(&mut self, work: &mut ForwardMemory) -> PassResult {
        let before = self.held.frames();
        self.held.is_wanted = self.source.ingress().is_wanted();
        if self.tracing.is_waiting() {
            self.retry_noting(work)
        } else {
            self.retry(work)
        }
        let moved = before - self.held.frames() + self.go_on_with_rest(work);
        if self.timing.is_under_way() {
            self.note_time();
        }
        if !self.is_held() {
            // A worker that has memory for policies may have staged the frames. If this worker has no such memory, the
            // stage is freed.
            let mut none = None;
            self.source.unstage(work.policed.as_mut().map_or(&mut none, |policed| &mut policed.stage));
            self.source.release_any(&mut work.spare);
            return PassResult::Frames(moved);
        }
        if moved > 0 { PassResult::Frames(moved) } else { PassResult::Held }
    }
}

impl Task<ForwardMemory> for Forwarder {
    fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        Forwarder::pass(self, work)
    }

    fn arm(&mut self) -> bool {
        self.source.arm()
    }

    fn disarm(&mut self) {
        self.source.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.ingress().wake_fd()
    }

    fn woken(&mut self) {
        self.source.woken();
    }

    fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        self.held.ask_for_room()
    }

    fn stop_asking(&mut self, forget: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.held.stop_asking(forget);
    }

    fn is_cheap(&self) -> bool {
        self.source.ingress().is_cheap()
    }

    fn stop_waiting(&mut self) {
        self.held.stop_waiting();
    }

    fn hurry(&mut self, work: &mut ForwardMemory) {
        if self.is_link_end {
            self.source.hurry();
            while matches!(self.pass(work), PassResult::Frames(_)) {}
        }
        if !self.rest.is_empty() {
            self.hurry_rest(work);
        }
    }

    fn settle(&mut self) {
        if self.is_held() {
            self.source.keep();
        }
        self.source.settle();
    }

    fn nap(&self) -> Option<Duration> {
        if self.held.is_waiting() { None } else { self.rest.nap().or_else(|| self.source.ingress().nap()) }
    }
}

/// One of a port's queues, with its index.
type NumberedQueue<'a> = (usize, &'a Arc<dyn Egress>);

/// The queue of port `to` for frames of this sender that are not spread over several queues. `None` if the port has no
/// queue of that index.
#[inline]
fn queue_of<'a>(to: &'a PortEntry, sender: BatchSender<'_>) -> Option<NumberedQueue<'a>> {
    let ring = sender.queue_of(to);
    to.port.egresses.get(ring).map(|egress| (ring, egress))
}

/// Delivers to an open queue of the port, or to several queues by flow. Frames that find no room may wait if `may_hold`
/// is set; otherwise they are dropped.
#[inline]
fn deliver(
    to: &Arc<PortEntry>,
    sender: BatchSender<'_>,
    batch: &Batch,
    picks: &[u16],
    may_hold: bool,
    scratch: &mut Scratch,
    held: &mut HeldFrames,
) {
    if sender.spreads(to) {
        return deliver_spread(to, sender, batch, picks, may_hold, scratch, held);
    }
    let Some(queue) = queue_of(to, sender) else { return };
    scratch.may_wait(may_hold && to.port.lossless);
    let done = queue.1.deliver(batch, picks, scratch);
    settle(to, queue, batch, picks, done, may_hold, scratch, held);
}

/// Completes a delivery that finished the first `done` of `picks`: copies these frames to monitors, and drops or holds
/// the other frames.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the state of a pass, borrowed part by part")]
fn settle(
    to: &Arc<PortEntry>,
    queue: NumberedQueue<'_>,
    batch: &Batch,
    picks: &[u16],
    done: usize,
    may_hold: bool,
    scratch: &mut Scratch,
    held: &mut HeldFrames,
) {
    let (done, rest) = picks.split_at(done);
    if !to.rx_monitors.is_empty() {
        mirror(to, queue.0, batch, done, scratch);
    }
    if !rest.is_empty() {
        leave(to, queue, rest, may_hold, held);
    }
}

/// Lets frames that found no room wait, if they may wait; otherwise, drops them.
#[cold]
fn leave(to: &Arc<PortEntry>, queue: NumberedQueue<'_>, rest: &[u16], may_hold: bool, held: &mut HeldFrames) {
    match waits_for(to, queue.1.as_ref(), may_hold && held.has_room(rest.len()), held.from) {
        Ok(why) => {
            step(Step::Waits);
            held.hold(to, queue, rest, why);
        }
        Err(reason) => queue.1.counters().dropped(reason, rest.len() as u64),
    }
}

/// Copies frames received by ring `ring` to the port's receive monitors.
#[cold]
fn mirror(to: &PortEntry, ring: usize, batch: &Batch, picks: &[u16], scratch: &mut Scratch) {
    // A trace must not record the delivery of the monitor's copy as a step of the frame.
    steps::aside(|| {
        for egress in to.rx_monitors.iter().filter_map(|monitor| monitor.egress(ring)) {
            let _ = deliver_or_drop(egress, batch, picks, scratch);
        }
    });
}

fn deliver_or_drop(egress: &dyn Egress, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
    let done = egress.deliver(batch, picks, scratch);
    if done < picks.len() {
        egress.counters().dropped(DropReason::NoRoom, (picks.len() - done) as u64);
    }
    done
}
