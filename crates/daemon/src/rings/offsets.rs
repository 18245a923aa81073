//! netmap's offsets option: the request of a client, the rules in force, and how a rule is applied to rings in use.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::attach::OffsetsRequest;
use netvale_mem::offsets::OffsetRule;
use netvale_mem::region::{RingRanges, RingSide};
use netvale_mem::{PortMem, Region};
use netvale_port::domain::TimeDomain;
use rustix::io::Errno;

use super::holders::Holders;
use super::local::{LocalRings, empty};
use crate::refusal::Refusal;
use crate::worker::Worker;

/// How long to wait for the answer of a trusted worker.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the answer of an untrusted user's worker, which that user may block.
const USERS_TIMEOUT: Duration = Duration::from_millis(200);

/// A ring that a client is about to hold.
#[derive(Clone)]
pub(crate) struct OffsetRing {
    side: RingSide,
    is_rx: bool,
    /// Whether the client will be the ring's only holder.
    alone: bool,
}

/// Returns a refusal caused by the offsets option.
pub(crate) fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { offsets_at_fault: true, ..Refusal::new(errno, text) })
}

/// Returns the refusal for a kind of port that does not support offsets.
pub(crate) fn unsupported<T>(what: &str) -> Result<T, Refusal> {
    refuse(Errno::OPNOTSUPP, format!("{what} does not support offsets; omit the option"))
}

/// Checks the request against the buffer size, in netmap's order of checks.
fn checked(asked: &OffsetsRequest, buf_size: u32) -> Result<OffsetRule, Refusal> {
    let bits = if asked.bits == 0 { 64 } else { asked.bits };
    let rule = OffsetRule { bits, max: asked.max, initial: asked.initial };
    if bits > 64 {
        return refuse(Errno::INVAL, format!("invalid offsets of {bits} bits: expected at most 64"));
    }
    if rule.max > buf_size {
        return refuse(
            Errno::INVAL,
            format!("invalid maximum offset {}: expected at most {buf_size}, the size of a buffer", rule.max),
        );
    }
    if u64::from(rule.max) & rule.mask() != u64::from(rule.max) {
        return refuse(Errno::INVAL, format!("invalid maximum offset {}: it does not fit {bits} bits", rule.max));
    }
    if rule.initial > rule.max {
        return refuse(
            Errno::INVAL,
            format!("invalid initial offset {}: expected at most {}, the maximum", rule.initial, rule.max),
        );
    }
    Ok(rule)
}

/// Returns the rings of a port in these ranges, rx rings first, which is the order in which netmap examines them.
/// `alone` returns whether a ring (true for rx, index) has no other holder.
pub(crate) fn rings(mem: &PortMem, ranges: &RingRanges, alone: impl Fn(bool, usize) -> bool) -> Vec<OffsetRing> {
    let of = |sides: &[RingSide], range: &Range<u32>, is_rx: bool| -> Vec<OffsetRing> {
        let all = sides.iter().enumerate().skip(range.start as usize).take(range.len());
        all.map(|(i, side)| OffsetRing { side: side.clone(), is_rx, alone: alone(is_rx, i) }).collect()
    };
    let mut rings = of(&mem.rx, &ranges.rx, true);
    rings.extend(of(&mem.tx, &ranges.tx, false));
    rings
}

/// Rings, each with its new rule.
type OffsetRules = Vec<(OffsetRing, OffsetRule)>;

/// Returns the largest offset, and the rule for each ring: the existing rule if it satisfies the request, otherwise the
/// requested rule.
fn agreed(asked: &OffsetsRequest, rings: &[OffsetRing]) -> Result<(u32, OffsetRules), Refusal> {
    let buf_size = rings.first().map_or(u32::MAX, |r| r.side.ring.buf_size());
    let mut rule = checked(asked, buf_size)?;
    let mut rules = Vec::new();
    for ring in rings {
        if let Some(has) = ring.side.offsets.rule() {
            if has.mask() & rule.mask() != rule.mask() || has.max < rule.max {
                return refuse(
                    Errno::BUSY,
                    format!(
                        "the ring is open with offsets of {} bits up to {}; request no more than that",
                        has.bits, has.max
                    ),
                );
            }
            rule = OffsetRule { bits: has.bits, max: has.max, ..rule };
        }
        // The initial offset, at which the daemon places frames, is set by the first program that opened the ring.
        let initial = if ring.alone { rule.initial } else { ring.side.offsets.initial() };
        rules.push((ring.clone(), OffsetRule { initial, ..rule }));
    }
    Ok((rule.max, rules))
}

/// Applies the offsets option to rings that are not in use. Returns the largest offset.
pub(crate) fn begin(region: &Region, asked: &OffsetsRequest, rings: &[OffsetRing]) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, rings)?;
    region.touch(move || rules.into_iter().for_each(|(ring, rule)| ring.side.begin_offsets(rule)))?;
    Ok(max)
}

/// Returns the free slots of a ring: the index of the first free slot, and the index after the last free slot. If the
/// two are equal, all slots are free.
fn free_slots(ring: &OffsetRing) -> (u32, u32) {
    let csb = &ring.side.csb;
    let n = ring.side.ring.num_slots();
    let inside = |i: u32| if i < n { i } else { 0 };
    if ring.is_rx { (inside(csb.hwtail()), inside(csb.head())) } else { (inside(csb.head()), inside(csb.hwcur())) }
}

/// Applies the offsets option to one end of a pipe. Returns the largest offset.
///
/// The rings of the other end get the offset mask as well, unless they already have a mask, because a sender's sync
/// copies offsets only if the sender's own ring has a mask. If a program has opened the other end (`held`), the slots
/// of that end remain unchanged. The rx slots of this end also remain unchanged in that case, because that program may
/// be filling them.
pub(crate) fn begin_pipe(
    region: &Region,
    asked: &OffsetsRequest,
    own: &[OffsetRing],
    other: Vec<OffsetRing>,
    held: bool,
) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, own)?;
    region.touch(move || begin_at_ends(&rules, &other, held))?;
    Ok(max)
}

fn begin_at_ends(rules: &OffsetRules, other: &[OffsetRing], held: bool) {
    for (ring, rule) in rules {
        ring.side.offsets.set(Some(*rule));
        ring.side.ring.set_offset_mask(rule.mask());
        let theirs = other.iter().filter(|o| o.is_rx != ring.is_rx && o.side.ring.offset_mask() == 0);
        for side in theirs.map(|o| &o.side) {
            side.ring.set_offset_mask(rule.mask());
            if !held && rule.initial != 0 {
                let (first, end) = free_slots(&OffsetRing { side: side.clone(), is_rx: !ring.is_rx, alone: true });
                side.write_offset(rule, rule.initial, first, end);
            }
        }
        if ring.alone && rule.initial != 0 && !(held && ring.is_rx) {
            let (first, end) = free_slots(ring);
            ring.side.write_offset(rule, rule.initial, first, end);
        }
    }
}

/// Applies the offsets option to rings of a port on a switch, even while frames are in flight. Returns the largest
/// offset.
pub(crate) fn begin_live(
    region: &Region,
    workers: &[&Worker],
    asked: &OffsetsRequest,
    rings: &[OffsetRing],
) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, rings)?;
    let closed = || rings.iter().filter(|r| r.is_rx && r.alone).map(|r| &r.side);
    if !close_rings(workers, closed()) {
        closed().for_each(|side| side.offsets.set(side.offsets.rule()));
        return refuse(Errno::BUSY, "the daemon's workers did not answer in time; try again");
    }
    region.touch(move || {
        for (ring, rule) in &rules {
            if ring.alone && rule.initial != 0 {
                // For slots that contain frames, the offsets remain unchanged.
                let (first, end) = free_slots(ring);
                ring.side.write_offset(rule, rule.initial, first, end);
            }
            ring.side.ring.set_offset_mask(rule.mask());
            ring.side.offsets.set(Some(*rule));
        }
    })?;
    Ok(max)
}

/// Whether rings of a persistent port still have offsets that a program set before closing the port.
pub(crate) fn are_left(local: &LocalRings) -> bool {
    let mem = &local.rings.mem;
    local.is_unheld() && mem.rx.iter().chain(&mem.tx).any(|s| s.offsets.rule().is_some())
}

/// Resets a persistent port after the last program has closed it: removes the offsets, and discards the frames that
/// were delivered at offsets. Before the call, the caller must have forwarded the frames that the program sent.
pub(crate) fn end(workers: &[&Worker], local: &LocalRings) {
    let mem = &local.rings.mem;
    // If a worker does not answer, that is ignored: no program is left to get the error, and the next program sets its
    // own offsets.
    let _ = close_rings(workers, mem.rx.iter());
    let egresses = local.rings.rx.clone();
    let mem = Arc::clone(mem);
    let _ = local.rings.mem.region().touch(move || {
        egresses.iter().for_each(|egress| empty(egress));
        mem.rx.iter().chain(&mem.tx).for_each(RingSide::end_offsets);
    });
}

/// Stops deliveries to these rings until their rule is set. Returns true when no delivery is in progress any more, and
/// false if workers do not confirm this in time.
fn close_rings<'a>(workers: &[&Worker], sides: impl Iterator<Item = &'a RingSide>) -> bool {
    sides.for_each(|side| side.offsets.close());
    // Workers execute commands between two batches, so a worker that answers has finished all earlier deliveries. The
    // command has no other effect, because the task that it names does not exist.
    let begun = Instant::now();
    let limit = |worker: &Worker| if worker.domain() == TimeDomain::TRUSTED { TIMEOUT } else { USERS_TIMEOUT };
    let answers: Vec<_> = workers.iter().map(|worker| (worker.drain(0), begun + limit(worker))).collect();
    answers.iter().all(|(answer, end)| answer.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok())
}

/// Whether a ring has at most one holder.
pub(crate) fn is_alone(held: &[Holders], i: usize) -> bool {
    held.get(i).is_none_or(|h| h.clients().count() <= 1)
}

/// Returns the rings of one end of a pipe, for its next holder.
pub(crate) fn of_pipe(mem: &PortMem, held: &Holders) -> Vec<OffsetRing> {
    let alone = held.is_empty();
    rings(mem, &RingRanges { tx: 0..1, rx: 0..1 }, |_, _| alone)
}
