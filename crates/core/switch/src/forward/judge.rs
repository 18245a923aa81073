//! Applies policies to each frame of a batch: decides the frame's destination, VLAN and variants, or drops the frame.

use std::ops::Range;
use std::sync::Arc;

use netvale_mem::steps::{Step, step};
use netvale_policy::guard::{Guard, Violation};
use netvale_policy::snoop;
use netvale_policy::vlan::{Vlan, VlanViolation};
use netvale_port::stage::{ALIKE, HEAD, Retag, Staging, TAG};
use netvale_port::{DropReason, FrameRef, MOST_NEWS};
use netvale_wire::MacAddr;
use netvale_wire::offload::{Gso, Offload};

use super::listener::GroupKnowledge;
use super::plan::{ALL, BatchPlan, FramePlan, FrameRun, NO_VARIANT, PortSets};
use super::sum;
use crate::classify::FLOOD;
use crate::clock::now;
use crate::entry::PortEntry;
use crate::fdb::{Fdb, LearnResult, PortId};
use crate::policies::{Class, CompiledPolicies, KINDS, protocol};
use crate::snooping::CurrentGroups;
use crate::summary::PolicySummary;
use crate::table::{PortTable, Switch};

/// The fields that decide a frame's destination. They are equal in consecutive frames of a conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Conversation {
    dst: u64,
    src: u64,
    vlan: u16,
}

/// Applies policies to frames of one port.
pub(super) struct Judge<'a> {
    pub(super) table: &'a PortTable,
    pub(super) policed: &'a PolicySummary,
    pub(super) me: &'a PortEntry,
    pub(super) policies: &'a CompiledPolicies,
    pub(super) fdb: &'a Fdb,
    /// Number of bytes to copy and examine at the start of each frame longer than [`HEAD`].
    want: usize,
    /// Whether to copy and examine all bytes of each frame.
    is_deep: bool,
    last: Option<(Conversation, PortId)>,
    /// Number of changes that the rest of the batch may make in the forwarding table.
    news: u32,
    /// The multicast groups; `None` if no port snoops.
    listener: Option<GroupKnowledge<'a>>,
    /// The change of tag of the last planned frame that goes to a single port.
    retag: Retag,
    /// Whether a policy must examine each frame, even a frame that begins like the previous frame.
    looks_deeper: bool,
    /// Whether filter rules may read beyond the headers of a segment.
    looks_at_payload: bool,
}

/// Number of bytes to copy from the start of a long frame if no policy needs more: a cache line, which contains
/// addresses and tags.
const LEAST: usize = 64;
/// Number of bytes at the start of a frame that distinguish a multicast control message from other frames.
const CONTROL: usize = 96;

impl<'a> Judge<'a> {
    pub(super) fn new(
        table: &'a PortTable,
        policed: &'a PolicySummary,
        me: &'a PortEntry,
        switch: &'a Switch,
    ) -> Judge<'a> {
        let policies = policed.policies(me);
        let fdb = switch.fdb_of(Some(policed));
        let listener = if policed.snoops { switch.snooping_of().map(GroupKnowledge::new) } else { None };
        let filtered = policed.is_filtered || !policies.filters[0].rules().is_empty();
        let least = if listener.is_some() { CONTROL } else { LEAST };
        let want = if filtered { HEAD } else { policies.guard.as_ref().map_or(0, Guard::head_len).max(least) };
        let is_deep = policed.is_deep || policies.filters[0].are_deep();
        let guarded = policies.guard.as_ref().is_some_and(|guard| guard.head_len() > ALIKE);
        let looks_deeper = guarded || !policies.filters[0].rules().is_empty();
        let looks_at_payload = policed.looks_at_payload || policies.filters[0].reach_payload();
        let last = None;
        let retag = Retag::NONE;
        Judge {
            table,
            policed,
            me,
            policies,
            fdb,
            want,
            is_deep,
            last,
            news: MOST_NEWS,
            listener,
            retag,
            looks_deeper,
            looks_at_payload,
        }
    }

    /// Plans the frames of a range, and stops when the plan's maximum of flooded frames is reached. Returns the index
    /// of the first unplanned frame; the caller must deliver the planned frames before it plans the others.
    #[inline]
    pub(super) fn plan_all(&mut self, range: Range<usize>, staging: &mut Staging<'_>, plan: &mut BatchPlan) -> usize {
        plan.begin();
        let mut next = range.start;
        while next < range.end {
            let made = staging.variants();
            let Some(planned) = self.plan(next, staging) else { break };
            plan.set(next, planned);
            next += 1;
            let Ok(planned) = planned else {
                if staging.variants() > made {
                    // The frame is dropped, but some of its variants were already created, so the variants of this
                    // range do not all go to one port.
                    plan.note(FLOOD);
                }
                continue;
            };
            plan.note(planned.to);
            if planned.to == FLOOD {
                if plan.floods_enough() {
                    break;
                }
            } else if self.last.is_some() {
                next = self.plan_run(next..range.end, planned, staging, plan);
            }
        }
        next
    }

    /// The multicast groups by which the frames were planned; `None` if no port snoops.
    pub(super) fn into_groups(self) -> Option<CurrentGroups> {
        self.listener.map(GroupKnowledge::into_groups)
    }

    /// Plans the frames that begin like the last planned frame. Decisions based on the first bytes of that frame also
    /// hold for these frames.
    #[inline]
    fn plan_run(&self, range: Range<usize>, like: FramePlan, staging: &mut Staging<'_>, plan: &mut BatchPlan) -> usize {
        let mut first = like;
        let start = range.start;
        let kind = like.variants.iter().position(|&variant| variant != NO_VARIANT).unwrap_or(0);
        first.variants[kind] = staging.variants() as u16;
        let want = (!self.is_deep).then_some(self.want);
        if !self.looks_deeper {
            let next = staging.run(range, self.retag, want, |_, _, _| true);
            plan.runs.push(FrameRun { frames: start..next, first, kind });
            return next;
        }
        staging.run(range, self.retag, want, |i, head, len| {
            let allowed = self.look_deeper(head, len);
            plan.set(i, allowed.map(|()| first));
            first.variants[kind] += u16::from(allowed.is_ok());
            allowed.is_ok()
        })
    }

    /// Applies the policies that must examine each frame, even a frame that begins like the previous frame. Returns the
    /// reason if the frame must be dropped.
    fn look_deeper(&self, head: &[u8], len: usize) -> Result<(), DropReason> {
        if !self.policies.filters[0].pass_bare(head, len) {
            return Err(DropReason::Filter);
        }
        self.policies.guard.as_ref().map_or(Ok(()), |guard| guard.check(head, len).map_err(spoofed))
    }

    /// Plans frame `i`, and creates its variants. Returns `None` if the memory for variants is used up: the planned
    /// frames must then be delivered first.
    #[inline]
    fn plan(&mut self, i: usize, staging: &mut Staging<'_>) -> Option<Result<FramePlan, DropReason>> {
        let Some(frame) = staging.frames().get(i) else { return Some(Err(DropReason::Runt)) };
        let len = frame.len();
        let mut head = staging.head(i, self.want);
        let is_control = self.listener.is_some() && snoop::is_control(head);
        if (self.is_deep || is_control) && len > head.len() {
            head = staging.whole()?;
        }
        let sum = match frame.offload() {
            Offload::None => None,
            Offload::CsumPartial { start, offset } => Some((start, offset)),
            Offload::Gso(gso) => {
                if self.looks_at_payload && len > head.len() && self.wants_all_of(head, len, &gso) {
                    head = staging.whole()?;
                }
                Some((gso.csum_start, gso.csum_offset))
            }
        };
        if sum.is_some_and(|(start, offset)| !sum::is_beside_headers(head, start, offset)) {
            return Some(Err(DropReason::BadVnetHeader));
        }
        let judged = self.judge(head, frame).and_then(|(to, vlan, class)| {
            let members = match &self.listener {
                Some(listener) if to == FLOOD => {
                    listener.members(self.policies, self.me, vlan.id, head, is_control)?.unwrap_or(ALL)
                }
                _ => ALL,
            };
            Ok((to, vlan, class, members))
        });
        Some(judged.and_then(|(to, vlan, class, members)| {
            let variants = self.variants(i, to, vlan, staging)?;
            Ok(FramePlan { to, vlan: vlan.id, class, members, variants })
        }))
    }

    /// Whether filter rules need the payload of a segment: rules of the sending port, or of a possible destination.
    #[cold]
    fn wants_all_of(&self, head: &[u8], len: usize, gso: &Gso) -> bool {
        let hdr_len = usize::from(gso.hdr_len);
        if self.policies.filters[0].want_all_of(head, len, hdr_len) {
            return true;
        }
        let kinds = (0..KINDS).filter(|&kind| self.policed.looks_at_payload && self.policed.kinds[kind]);
        // A frame without a valid VLAN is dropped, so no destination needs its payload.
        self.vlan(head).is_ok_and(|vlan| {
            kinds.map(|kind| self.retag(vlan, kind)).any(|retag| {
                let mut memory = [0; HEAD + TAG];
                let Some(head) = retag.apply(head, &mut memory) else { return false };
                let hdr_len = retag.len_of(hdr_len);
                let mut filters = self.table.all().iter().map(|to| &self.policed.policies(to).filters[1]);
                filters.any(|filters| filters.want_all_of(head, retag.len_of(len), hdr_len))
            })
        })
    }

    /// Returns a frame's destination, VLAN and class, or the reason for dropping the frame.
    #[inline]
    fn judge(&mut self, head: &[u8], frame: FrameRef<'_>) -> Result<(PortId, Vlan, Class), DropReason> {
        let len = frame.len();
        let (dst, src) = addresses(head).ok_or(DropReason::Runt)?;
        self.policies.filters[0].pass(head, &frame)?;
        let vlan = self.vlan(head)?;
        if self.policed.vlans {
            step(Step::Vlan(vlan.id));
        }
        if let Some(guard) = &self.policies.guard {
            guard.check(head, len).map_err(spoofed)?;
        }
        let to = self.destination(Conversation { dst, src, vlan: vlan.id }, frame.no_learn())?;
        let class = if dst & 1 == 0 { Class::Unknown } else { Class::of_group(dst) };
        if to == FLOOD {
            if dst & 1 == 0 {
                step(Step::Unknown);
            }
            step(Step::Floods);
            self.storm(class, frame)?;
        }
        Ok((to, vlan, class))
    }

    #[inline]
    fn vlan(&self, head: &[u8]) -> Result<Vlan, DropReason> {
        if !self.policed.vlans {
            return Ok(Vlan { id: 0, priority: 0, tagged: false, stays: false });
        }
        self.policed.vlans(self.policies).of(head).map_err(|why| match why {
            VlanViolation::NoMember => DropReason::Vlan,
            VlanViolation::BadTag => DropReason::BadTag,
        })
    }

    /// Learns the source address, and returns the destination, or the reason for dropping the frame.
    #[inline]
    fn destination(&mut self, now: Conversation, no_learn: bool) -> Result<PortId, DropReason> {
        if let Some((last, to)) = self.last
            && last == now
            && !no_learn
        {
            return Ok(to);
        }
        self.source(now.vlan, now.src, no_learn)?;
        let to = match self.policed.pinned(now.dst) {
            _ if now.dst & 1 != 0 => FLOOD,
            Some(port) => port,
            None => {
                self.fdb.lookup_in(now.vlan, now.dst).or_else(|| self.fdb.elsewhere(now.vlan, now.dst)).unwrap_or(FLOOD)
            }
        };
        if to == self.me.id {
            return Err(DropReason::SamePort);
        }
        self.last = (!no_learn).then_some((now, to));
        Ok(to)
    }

    /// Checks whether the port may send frames from this address, and learns the address unless the frame is marked
    /// `NS_NO_LEARN`. If the port may not send from the address, returns the reason for dropping the frame.
    #[inline]
    fn source(&mut self, vlan: u16, src: u64, no_learn: bool) -> Result<(), DropReason> {
        match self.policed.pinned(src) {
            Some(port) if port == self.me.id => return Ok(()),
            Some(_) => return Err(DropReason::AddressTaken),
            None => {}
        }
        if self.policies.locked {
            if self.fdb.lookup_in(vlan, src) != Some(self.me.id) {
                return Err(DropReason::Locked);
            }
            // Learning refreshes the address, so that it does not expire while it is in use.
            self.fdb.learn_in(vlan, src, self.me.id, &mut self.news);
            return Ok(());
        }
        if !self.policies.learning {
            return Ok(());
        }
        if no_learn {
            return self.unlearned(vlan, src);
        }
        match self.fdb.learn_in(vlan, src, self.me.id, &mut self.news) {
            LearnResult::Known => Ok(()),
            LearnResult::Later => self.later(vlan, src),
            other => self.not_learned(other),
        }
    }

    /// Handles a new address when the batch has made its maximum number of changes. If the port has a limit of
    /// addresses, that limit decides whether frames pass, so the address is learned nevertheless; the limit then bounds
    /// the cost.
    #[cold]
    fn later(&self, vlan: u16, src: u64) -> Result<(), DropReason> {
        if self.policies.most_addresses.is_none() {
            return self.unlearned(vlan, src);
        }
        self.not_learned(self.fdb.learn_in(vlan, src, self.me.id, &mut 1))
    }

    /// Checks a source address that must not be learned, because the frame has the flag `NS_NO_LEARN`, or because the
    /// batch has made its maximum number of changes. The flag must not let a sender evade the port's policies.
    #[cold]
    fn unlearned(&self, vlan: u16, src: u64) -> Result<(), DropReason> {
        match self.fdb.lookup_in(vlan, src) {
            Some(port) if port == self.me.id => Ok(()),
            Some(other) => self.not_learned(LearnResult::Kept(other)),
            None => self.not_learned(LearnResult::TooMany),
        }
    }

    #[cold]
    fn not_learned(&self, learned: LearnResult) -> Result<(), DropReason> {
        match learned {
            LearnResult::Known | LearnResult::Later => Ok(()),
            LearnResult::New => {
                step(Step::Learned);
                Ok(())
            }
            LearnResult::Moved(from) => {
                step(Step::Moved(from));
                if self.policies.loop_guard {
                    self.me.state.note_move();
                }
                Ok(())
            }
            LearnResult::Kept(other) => {
                step(Step::Kept(other));
                let keeps = |entry: &Arc<PortEntry>| self.policed.policies(entry).sticky;
                // If the port of the address does not keep it by its own policies, and only the switch's rule for moves
                // between owners prevents the move, the frame passes, as it does without policies, and the address is
                // not learned.
                if self.table.get(other).is_some_and(keeps) { Err(DropReason::AddressTaken) } else { Ok(()) }
            }
            LearnResult::TooMany if self.policies.most_addresses.is_some() => Err(DropReason::AddressLimit),
            LearnResult::TooMany => {
                step(Step::NotLearned);
                Ok(())
            }
        }
    }

    #[inline]
    fn storm(&self, class: Class, frame: FrameRef<'_>) -> Result<(), DropReason> {
        let Some(limit) = self.policies.storm.of(class) else { return Ok(()) };
        let may = self.me.state.storm.of(class).take(limit, now(), [frame.weight()].into_iter());
        if may == 0 { Err(DropReason::Storm) } else { Ok(()) }
    }

    /// Creates the variants of frame `i`: one variant for its destination or, if the frame is flooded, one variant for
    /// each kind of tag.
    #[inline]
    fn variants(
        &mut self,
        i: usize,
        to: PortId,
        vlan: Vlan,
        staging: &mut Staging<'_>,
    ) -> Result<[u16; KINDS], DropReason> {
        let mut variants = [NO_VARIANT; KINDS];
        if to != FLOOD {
            let to = self.table.get(to).ok_or(DropReason::NoPort)?;
            let kind = self.policed.kind(self.policed.policies(to), vlan.id).ok_or(DropReason::Vlan)?;
            self.retag = self.retag(vlan, kind);
            variants[kind] = staging.variant(i, self.retag)?;
            return Ok(variants);
        }
        for kind in (0..KINDS).filter(|&kind| self.policed.kinds[kind]) {
            variants[kind] = staging.variant(i, self.retag(vlan, kind))?;
        }
        Ok(variants)
    }

    #[inline]
    fn retag(&self, vlan: Vlan, kind: usize) -> Retag {
        let push = protocol(kind);
        let stays = vlan.stays && push == Some(self.policed.vlans(self.policies).protocol);
        match push {
            _ if stays => Retag::NONE,
            push => Retag { strip: vlan.tagged, push: push.map(|protocol| vlan.tag(protocol)) },
        }
    }
}

#[cold]
fn spoofed(violation: Violation) -> DropReason {
    match violation {
        Violation::SpoofedMac => DropReason::SpoofedMac,
        Violation::SpoofedIp => DropReason::SpoofedIp,
        Violation::SpoofedArp => DropReason::SpoofedArp,
        Violation::SpoofedNd => DropReason::SpoofedNd,
        Violation::RogueDhcp => DropReason::RogueDhcp,
        Violation::RogueRa => DropReason::RogueRa,
    }
}

/// Destination and source address as words whose lowest byte is the first on the wire; `None` if the Ethernet header is
/// truncated.
#[inline]
fn addresses(head: &[u8]) -> Option<(u64, u64)> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, _, _] = *head.first_chunk()?;
    Some((MacAddr([a, b, c, d, e, f]).to_word(), MacAddr([g, h, i, j, k, l]).to_word()))
}

/// Whether port `id` with policies `to` takes a flooded frame, or a frame for a multicast group, that port `me` sent.
#[inline]
pub(super) fn takes_flood(to: &CompiledPolicies, me: PortId, id: PortId, planned: &FramePlan, sets: &PortSets) -> bool {
    let wanted = if to.multicast.snooping { sets.has(planned.members, id) } else { None };
    id != me && wanted.unwrap_or(*to.flood.of(planned.class))
}
