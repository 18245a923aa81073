//! Filters of a port: rules in order, of which the first to match decides.
//!
//! A frame may come with a pending offload: a checksum to fill in, a segment to cut. Rules must match the frames that
//! leave: each frame cut from a segment, and no bytes under a checksum that is filled in later. Only frames with
//! offloads, under rules that look behind their headers, pay for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::steps::{self, Step};
use netvale_policy::bpf::Program;
use netvale_port::stage::HEAD;
use netvale_port::{DropReason, FrameRef};
use netvale_wire::checksum::Sum;
use netvale_wire::ethernet;
use netvale_wire::layers::Layers;
use netvale_wire::offload::{Gso, Offload};
use netvale_wire::segment::Segmenter;

/// Bytes of a long frame that filters see at least: a tag may have been removed from the copied bytes.
const SEEN: usize = HEAD - 4;
/// Bytes of UDP over IPv4 headers, the shortest in front of an offload.
const SHORTEST: usize = ethernet::HEADER_LEN + 20 + 8;
/// Limit of frames cut from a segment for rules: no stack makes larger segments, and they would take too much of a
/// worker's time.
const MOST_CUT: usize = 1024;

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Whether matching frames are dropped; otherwise they pass, whatever later rules say.
    pub drops: bool,
    /// Matches frames.
    pub program: Program,
    frames: AtomicU64,
}

impl Rule {
    /// Creates a rule.
    #[must_use]
    pub fn new(drops: bool, program: Program) -> Arc<Rule> {
        Arc::new(Rule { drops, program, frames: AtomicU64::new(0) })
    }

    /// Number of frames that it decided.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Adds the frames that another process's rule decided.
    pub fn count(&self, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
    }
}

/// Rules in order.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    rules: Vec<Arc<Rule>>,
    /// Number of leading bytes of a frame that the rules look at, at most.
    reach: usize,
}

/// The rules' verdict on a frame of which they saw a part.
enum Ruled<'a> {
    /// The matching rule, if any.
    Fits(Option<&'a Arc<Rule>>),
    /// The verdict depends on bytes that they did not see.
    Depends,
}

impl Filters {
    /// Creates filters from rules in order.
    #[must_use]
    pub fn new(rules: Vec<Arc<Rule>>) -> Filters {
        let reach = |rule: &Arc<Rule>| rule.program.reach().map_or(usize::MAX, |reach| reach as usize);
        let reach = rules.iter().map(reach).max().unwrap_or(0);
        Filters { rules, reach }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Whether they may look behind a frame's head.
    #[must_use]
    pub fn are_deep(&self) -> bool {
        self.reach > SEEN
    }

    /// Whether they may look behind the headers of a frame with a pending offload.
    pub(crate) fn reach_payload(&self) -> bool {
        self.reach > SHORTEST
    }

    /// Whether a frame without a pending offload passes: `len` bytes, of which `head` are the first, or all if the
    /// filters are [deep](Filters::are_deep).
    #[inline]
    pub(crate) fn pass_bare(&self, head: &[u8], len: usize) -> bool {
        self.rules.is_empty() || self.decide(head, len)
    }

    /// Checks a frame of which `head` are the first bytes, or all; all are needed for one that [must be seen
    /// whole](Filters::want_all_of).
    ///
    /// # Errors
    /// The reason for dropping it.
    #[inline]
    pub(crate) fn pass(&self, head: &[u8], frame: &FrameRef<'_>) -> Result<(), DropReason> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let passes = match frame.offload() {
            Offload::CsumPartial { start, offset } if self.reach_payload() => {
                self.pass_unsummed(head, frame.len(), start, offset)?
            }
            Offload::Gso(gso) if self.reach > usize::from(gso.hdr_len) => self.pass_uncut(head, frame.len(), &gso)?,
            _ => self.decide(head, frame.len()),
        };
        if passes { Ok(()) } else { Err(DropReason::Filter) }
    }

    /// Whether the rules look behind the headers of a segment that begins with `head`, and thus need its payload.
    #[cold]
    pub(crate) fn want_all_of(&self, head: &[u8], len: usize, hdr_len: usize) -> bool {
        self.reach > hdr_len && matches!(self.look(head.get(..hdr_len).unwrap_or(head), len), Ruled::Depends)
    }

    /// Whether a frame with a pending checksum passes. In a tunnel that checksum lies in the payload that rules may
    /// look at, at a place of the sender's choice: rules that look there would see other bytes than are delivered.
    #[cold]
    fn pass_unsummed(&self, head: &[u8], len: usize, start: u16, offset: u16) -> Result<bool, DropReason> {
        let at = usize::from(start) + usize::from(offset);
        match self.look(head.get(..at).unwrap_or(head), len) {
            Ruled::Fits(rule) => Ok(self.follow(rule)),
            Ruled::Depends if is_inner(head, start) => Err(DropReason::BadVnetHeader),
            Ruled::Depends => Ok(self.decide(head, len)),
        }
    }

    /// Whether each frame cut from a segment passes: otherwise the whole segment is dropped.
    #[cold]
    fn pass_uncut(&self, head: &[u8], len: usize, gso: &Gso) -> Result<bool, DropReason> {
        let (headers, payload) = head.split_at_checked(gso.hdr_len.into()).unwrap_or((head, &[]));
        if let Ruled::Fits(rule) = self.look(headers, len) {
            return Ok(self.follow(rule));
        }
        let cut = Segmenter::new(headers, payload.len(), gso).ok();
        let cut = cut.filter(|cut| head.len() == len && cut.remaining() <= MOST_CUT);
        let mut cut = cut.ok_or(DropReason::BadVnetHeader)?;
        let mut decided = None;
        while let Some(segment) = cut.next_segment() {
            let part = payload.get(segment.payload()).unwrap_or_default();
            let headers = segment.finish_checksum(Sum::ZERO.add_bytes(part));
            let fits = |rule: &&Arc<Rule>| rule.program.run_parts(headers, part) != 0;
            let rule = self.rules.iter().find(fits);
            if rule.is_some_and(|rule| rule.drops) {
                return Ok(self.follow(rule));
            }
            decided = decided.or(rule);
        }
        Ok(self.follow(decided))
    }

    /// The rules' verdict on a frame of `len` bytes, of which they see `shown`.
    fn look(&self, shown: &[u8], len: usize) -> Ruled<'_> {
        for rule in &self.rules {
            match rule.program.run(shown, len as u32) {
                Ok(0) => {}
                Ok(_) => return Ruled::Fits(Some(rule)),
                Err(_) => return Ruled::Depends,
            }
        }
        Ruled::Fits(None)
    }

    /// Applies the matching rule: returns whether the frame passes.
    #[inline]
    fn follow(&self, rule: Option<&Arc<Rule>>) -> bool {
        let Some(rule) = rule else { return true };
        rule.count(1);
        if steps::are_wanted() {
            return self.tell(rule);
        }
        !rule.drops
    }

    /// Reports a decision of a rule to traces. Called last: nothing is saved for the call while no trace runs.
    #[cold]
    fn tell(&self, rule: &Arc<Rule>) -> bool {
        let number = self.rules.iter().position(|one| Arc::ptr_eq(one, rule)).unwrap_or_default();
        steps::step(Step::Rule(number as u16, rule.drops));
        !rule.drops
    }

    fn decide(&self, head: &[u8], len: usize) -> bool {
        // A rule does not match bytes that it cannot see: all bytes that it may look at were copied.
        let fits = |rule: &&Arc<Rule>| rule.program.run(head, len as u32).is_ok_and(|verdict| verdict != 0);
        self.follow(self.rules.iter().find(fits))
    }
}

/// Whether a checksum belongs to a packet inside this one.
fn is_inner(head: &[u8], start: u16) -> bool {
    Layers::parse(head).ok().and_then(|layers| layers.ip).is_none_or(|ip| ip.l4 != usize::from(start))
}
