//! Filters of a port: an ordered list of rules; the first rule that matches decides.
//!
//! A frame may have a pending offload: a checksum to fill in, or a segmentation. Rules must decide on frames as they
//! leave: on each frame that is cut from a segment, and never on bytes that a checksum later overwrites. This costs
//! time only for frames with pending offloads, and only if rules read beyond the frames' headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::steps::{self, Step};
use netvale_policy::bpf::FilterProgram;
use netvale_port::stage::HEAD;
use netvale_port::{DropReason, FrameRef};
use netvale_wire::checksum::Sum;
use netvale_wire::ethernet;
use netvale_wire::layers::Layers;
use netvale_wire::offload::{Gso, Offload};
use netvale_wire::segment::Segmenter;

/// Minimum number of bytes of a long frame that filters see: the head, from which a tag may have been removed.
const SEEN: usize = HEAD - 4;
/// Minimum length of the headers of a frame with a pending offload: Ethernet, IPv4 and UDP.
const SHORTEST: usize = ethernet::HEADER_LEN + 20 + 8;
/// Maximum number of frames into which a segment is cut, so that rules can decide on each frame. No network stack
/// creates segments of more frames, which would take too much of a worker's time.
const MOST_CUT: usize = 1024;

/// A rule of a port's filters.
#[derive(Debug)]
pub struct FilterRule {
    /// Whether matching frames are dropped; otherwise they pass, and later rules do not apply.
    pub drops: bool,
    /// The BPF program that matches frames.
    pub program: FilterProgram,
    frames: AtomicU64,
}

impl FilterRule {
    /// Creates a rule.
    #[must_use]
    pub fn new(drops: bool, program: FilterProgram) -> Arc<FilterRule> {
        Arc::new(FilterRule { drops, program, frames: AtomicU64::new(0) })
    }

    /// Number of frames that the rule decided.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Adds `frames` to the number of frames that the rule decided, in this process or in another process.
    pub fn count(&self, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
    }
}

/// An ordered list of rules.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    rules: Vec<Arc<FilterRule>>,
    /// Maximum number of first bytes of a frame that the rules read; `usize::MAX` if a rule has no limit.
    reach: usize,
}

/// The rules' verdict on a frame of which they saw only a part.
enum RuleVerdict<'a> {
    /// The rule that matches; `None` if no rule matches.
    Fits(Option<&'a Arc<FilterRule>>),
    /// The verdict depends on bytes that the rules did not see.
    Depends,
}

impl Filters {
    /// Creates filters from rules in order.
    #[must_use]
    pub fn new(rules: Vec<Arc<FilterRule>>) -> Filters {
        let reach = |rule: &Arc<FilterRule>| rule.program.reach().map_or(usize::MAX, |reach| reach as usize);
        let reach = rules.iter().map(reach).max().unwrap_or(0);
        Filters { rules, reach }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Arc<FilterRule>] {
        &self.rules
    }

    /// Whether any rule may read beyond a frame's head.
    #[must_use]
    pub fn are_deep(&self) -> bool {
        self.reach > SEEN
    }

    /// Whether any rule may read beyond the headers of a frame with a pending offload.
    pub(crate) fn reach_payload(&self) -> bool {
        self.reach > SHORTEST
    }

    /// Whether a frame of `len` bytes without a pending offload passes. `head` contains its first bytes, or all bytes
    /// if the filters are [deep](Filters::are_deep).
    #[inline]
    pub(crate) fn pass_bare(&self, head: &[u8], len: usize) -> bool {
        self.rules.is_empty() || self.decide(head, len)
    }

    /// Checks a frame. `head` contains its first bytes, or all bytes if the rules [need them](Filters::want_all_of).
    ///
    /// # Errors
    /// The reason for dropping the frame.
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

    /// Whether the rules need the payload of a segment that begins with `head`.
    #[cold]
    pub(crate) fn want_all_of(&self, head: &[u8], len: usize, hdr_len: usize) -> bool {
        self.reach > hdr_len && matches!(self.look(head.get(..hdr_len).unwrap_or(head), len), RuleVerdict::Depends)
    }

    /// Whether a frame with a pending checksum passes. In a tunnel, that checksum is in the payload, at an offset that
    /// the sender chooses: rules that read there would see bytes other than the delivered bytes, so the frame is
    /// dropped as `BadVnetHeader`.
    #[cold]
    fn pass_unsummed(&self, head: &[u8], len: usize, start: u16, offset: u16) -> Result<bool, DropReason> {
        let at = usize::from(start) + usize::from(offset);
        match self.look(head.get(..at).unwrap_or(head), len) {
            RuleVerdict::Fits(rule) => Ok(self.follow(rule)),
            RuleVerdict::Depends if is_inner(head, start) => Err(DropReason::BadVnetHeader),
            RuleVerdict::Depends => Ok(self.decide(head, len)),
        }
    }

    /// Whether all frames that will be cut from a segment pass. If one of these frames does not pass, the whole segment
    /// is dropped. A segment that cannot be cut is an error.
    #[cold]
    fn pass_uncut(&self, head: &[u8], len: usize, gso: &Gso) -> Result<bool, DropReason> {
        let (headers, payload) = head.split_at_checked(gso.hdr_len.into()).unwrap_or((head, &[]));
        if let RuleVerdict::Fits(rule) = self.look(headers, len) {
            return Ok(self.follow(rule));
        }
        let cut = Segmenter::new(headers, payload.len(), gso).ok();
        let cut = cut.filter(|cut| head.len() == len && cut.remaining() <= MOST_CUT);
        let mut cut = cut.ok_or(DropReason::BadVnetHeader)?;
        let mut decided = None;
        while let Some(segment) = cut.next_segment() {
            let part = payload.get(segment.payload()).unwrap_or_default();
            let headers = segment.finish_checksum(Sum::ZERO.add_bytes(part));
            let fits = |rule: &&Arc<FilterRule>| rule.program.run_parts(headers, part) != 0;
            let rule = self.rules.iter().find(fits);
            if rule.is_some_and(|rule| rule.drops) {
                return Ok(self.follow(rule));
            }
            decided = decided.or(rule);
        }
        Ok(self.follow(decided))
    }

    /// Runs the rules on a frame of `len` bytes, of which they see only the first bytes, `shown`.
    fn look(&self, shown: &[u8], len: usize) -> RuleVerdict<'_> {
        for rule in &self.rules {
            match rule.program.run(shown, len as u32) {
                Ok(0) => {}
                Ok(_) => return RuleVerdict::Fits(Some(rule)),
                Err(_) => return RuleVerdict::Depends,
            }
        }
        RuleVerdict::Fits(None)
    }

    /// Applies the rule that matched, if any. Returns whether the frame passes.
    #[inline]
    fn follow(&self, rule: Option<&Arc<FilterRule>>) -> bool {
        let Some(rule) = rule else { return true };
        rule.count(1);
        if steps::are_wanted() {
            return self.tell(rule);
        }
        !rule.drops
    }

    /// Reports a rule's decision to traces, and returns whether the frame passes. Called in tail position, so the
    /// caller saves no registers while no trace runs.
    #[cold]
    fn tell(&self, rule: &Arc<FilterRule>) -> bool {
        let number = self.rules.iter().position(|one| Arc::ptr_eq(one, rule)).unwrap_or_default();
        steps::step(Step::Rule(number as u16, rule.drops));
        !rule.drops
    }

    fn decide(&self, head: &[u8], len: usize) -> bool {
        // All bytes that the rules may read were copied; a rule that reads beyond the end of the frame does not match.
        let fits = |rule: &&Arc<FilterRule>| rule.program.run(head, len as u32).is_ok_and(|verdict| verdict != 0);
        self.follow(self.rules.iter().find(fits))
    }
}

/// Whether a checksum that covers the bytes from `start` on belongs to a packet inside a tunnel.
fn is_inner(head: &[u8], start: u16) -> bool {
    Layers::parse(head).ok().and_then(|layers| layers.ip).is_none_or(|ip| ip.l4 != usize::from(start))
}
