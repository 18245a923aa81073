//! netmap's offsets option: the request of a client, the rules already in force, and their application to rings in use.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::attach::OffsetsAsked;
use netvale_mem::offsets::OffsetRule;
use netvale_mem::region::{RingRanges, RingSide};
use netvale_mem::{PortMem, Region};
use netvale_port::domain::TimeDomain;
use rustix::io::Errno;

use super::holders::Holders;
use super::local::{LocalPort, empty};
use crate::refusal::Refusal;
use crate::worker::Worker;

/// Longest waits for the answers of trusted workers, and of others, whose users may hold them up.
const TIMEOUT: Duration = Duration::from_secs(2);
const USERS_TIMEOUT: Duration = Duration::from_millis(200);

/// A ring about to be bound to a client.
#[derive(Clone)]
pub(crate) struct Asked {
    side: RingSide,
    is_rx: bool,
    /// Whether it has no other holder.
    alone: bool,
}

/// Refuses with the option as the cause.
pub(crate) fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { offsets_at_fault: true, ..Refusal::new(errno, text) })
}

/// Refuses the option for a kind of port without offsets.
pub(crate) fn unsupported<T>(what: &str) -> Result<T, Refusal> {
    refuse(Errno::OPNOTSUPP, format!("{what} has no offsets: omit the option"))
}

/// Checks the request against the buffer size, in netmap's order of checks.
fn checked(asked: &OffsetsAsked, buf_size: u32) -> Result<OffsetRule, Refusal> {
    let bits = if asked.bits == 0 { 64 } else { asked.bits };
    let rule = OffsetRule { bits, max: asked.max, initial: asked.initial };
    if bits > 64 {
        return refuse(Errno::INVAL, format!("offsets of {bits} bits: a slot has room for 64"));
    }
    if rule.max > buf_size {
        return refuse(Errno::INVAL, format!("offsets up to {}: a buffer has {buf_size} bytes", rule.max));
    }
    if u64::from(rule.max) & rule.mask() != u64::from(rule.max) {
        return refuse(Errno::INVAL, format!("offsets up to {} take more than {bits} bits", rule.max));
    }
    if rule.initial > rule.max {
        return refuse(
            Errno::INVAL,
            format!("the initial offset, {}, is larger than the largest, {}", rule.initial, rule.max),
        );
    }
    Ok(rule)
}

/// The rings of a port in these ranges, rx first, as netmap examines them. `alone` returns whether a ring has no other
/// holder.
pub(crate) fn rings(mem: &PortMem, ranges: &RingRanges, alone: impl Fn(bool, usize) -> bool) -> Vec<Asked> {
    let of = |sides: &[RingSide], range: &Range<u32>, is_rx: bool| -> Vec<Asked> {
        let all = sides.iter().enumerate().skip(range.start as usize).take(range.len());
        all.map(|(i, side)| Asked { side: side.clone(), is_rx, alone: alone(is_rx, i) }).collect()
    };
    let mut rings = of(&mem.rx, &ranges.rx, true);
    rings.extend(of(&mem.tx, &ranges.tx, false));
    rings
}

/// Rings with their new rules.
type Rules = Vec<(Asked, OffsetRule)>;

/// The rules for these rings: the existing ones if they satisfy the request, otherwise the requested ones.
fn agreed(asked: &OffsetsAsked, rings: &[Asked]) -> Result<(u32, Rules), Refusal> {
    let buf_size = rings.first().map_or(u32::MAX, |r| r.side.ring.buf_size());
    let mut rule = checked(asked, buf_size)?;
    let mut rules = Vec::new();
    for ring in rings {
        if let Some(has) = ring.side.offsets.rule() {
            if has.mask() & rule.mask() != rule.mask() || has.max < rule.max {
                return refuse(
                    Errno::BUSY,
                    format!("the ring is open with {} bits and offsets up to {}: ask for no more", has.bits, has.max),
                );
            }
            rule = OffsetRule { bits: has.bits, max: has.max, ..rule };
        }
        // The first program's rule determines how frames are spread over slots.
        let initial = if ring.alone { rule.initial } else { ring.side.offsets.initial() };
        rules.push((ring.clone(), OffsetRule { initial, ..rule }));
    }
    Ok((rule.max, rules))
}

/// Applies the option to unused rings. Returns the largest offset.
pub(crate) fn begin(region: &Region, asked: &OffsetsAsked, rings: &[Asked]) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, rings)?;
    region.touch(move || rules.into_iter().for_each(|(ring, rule)| ring.side.begin_offsets(rule)))?;
    Ok(max)
}

/// The free slots of a ring: from the first up to (not including) the second; all if the two are equal.
fn free_slots(ring: &Asked) -> (u32, u32) {
    let csb = &ring.side.csb;
    let n = ring.side.ring.num_slots();
    let inside = |i: u32| if i < n { i } else { 0 };
    if ring.is_rx { (inside(csb.hwtail()), inside(csb.head())) } else { (inside(csb.head()), inside(csb.hwcur())) }
}

/// Applies the option to one end of a pipe. Returns the largest offset.
///
/// The other end's rings get the rule if they have no offsets of their own, since a sender's header tells whether its
/// frames have offsets. Their slots, and those here that the other end may be filling, stay untouched while the other
/// end has a holder.
pub(crate) fn begin_pipe(
    region: &Region,
    asked: &OffsetsAsked,
    own: &[Asked],
    other: Vec<Asked>,
    held: bool,
) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, own)?;
    region.touch(move || begin_at_ends(&rules, &other, held))?;
    Ok(max)
}

fn begin_at_ends(rules: &Rules, other: &[Asked], held: bool) {
    for (ring, rule) in rules {
        ring.side.offsets.set(Some(*rule));
        ring.side.ring.set_offset_mask(rule.mask());
        let theirs = other.iter().filter(|o| o.is_rx != ring.is_rx && o.side.ring.offset_mask() == 0);
        for side in theirs.map(|o| &o.side) {
            side.ring.set_offset_mask(rule.mask());
            if !held && rule.initial != 0 {
                let (first, end) = free_slots(&Asked { side: side.clone(), is_rx: !ring.is_rx, alone: true });
                side.write_offset(rule, rule.initial, first, end);
            }
        }
        if ring.alone && rule.initial != 0 && !(held && ring.is_rx) {
            let (first, end) = free_slots(ring);
            ring.side.write_offset(rule, rule.initial, first, end);
        }
    }
}

/// Applies the option to rings of a switch's port, with frames possibly in flight. Returns the largest offset.
pub(crate) fn begin_live(
    region: &Region,
    workers: &[&Worker],
    asked: &OffsetsAsked,
    rings: &[Asked],
) -> Result<u32, Refusal> {
    let (max, rules) = agreed(asked, rings)?;
    let closed = || rings.iter().filter(|r| r.is_rx && r.alone).map(|r| &r.side);
    if !close_rings(workers, closed()) {
        closed().for_each(|side| side.offsets.set(side.offsets.rule()));
        return refuse(Errno::BUSY, "the daemon's workers are too busy to be asked: try again");
    }
    region.touch(move || {
        for (ring, rule) in &rules {
            if ring.alone && rule.initial != 0 {
                // Frames already there stay in place.
                let (first, end) = free_slots(ring);
                ring.side.write_offset(rule, rule.initial, first, end);
            }
            ring.side.ring.set_offset_mask(rule.mask());
            ring.side.offsets.set(Some(*rule));
        }
    })?;
    Ok(max)
}

/// Whether a persistent port still has the offsets of programs that have closed it.
pub(crate) fn are_left(local: &LocalPort) -> bool {
    let mem = &local.rings.mem;
    local.is_unheld() && mem.rx.iter().chain(&mem.tx).any(|s| s.offsets.rule().is_some())
}

/// Resets a persistent port after its last program: removes offsets, and frames at offsets. Sent frames have been
/// forwarded by then.
pub(crate) fn end(workers: &[&Worker], local: &LocalPort) {
    let mem = &local.rings.mem;
    // A missing answer can be reported to no program, and the next program checks its own frames.
    let _ = close_rings(workers, mem.rx.iter());
    let egresses = local.rings.rx.clone();
    let mem = Arc::clone(mem);
    let _ = local.rings.mem.region().touch(move || {
        egresses.iter().for_each(|egress| empty(egress));
        mem.rx.iter().chain(&mem.tx).for_each(RingSide::end_offsets);
    });
}

/// Stops deliveries to these rings until their rule is set; no delivery is in progress on return. False if workers do
/// not confirm in time.
fn close_rings<'a>(workers: &[&Worker], sides: impl Iterator<Item = &'a RingSide>) -> bool {
    sides.for_each(|side| side.offsets.close());
    // Workers execute commands between two batches (this one names a nonexistent task): one that answers has finished
    // all earlier deliveries.
    let begun = Instant::now();
    let limit = |worker: &Worker| if worker.domain() == TimeDomain::TRUSTED { TIMEOUT } else { USERS_TIMEOUT };
    let answers: Vec<_> = workers.iter().map(|worker| (worker.drain(0), begun + limit(worker))).collect();
    answers.iter().all(|(answer, end)| answer.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok())
}

/// Whether a ring has only one holder.
pub(crate) fn is_alone(held: &[Holders], i: usize) -> bool {
    held.get(i).is_none_or(|h| h.clients().count() <= 1)
}

/// The rings of one end of a pipe, for its next holder.
pub(crate) fn of_pipe(mem: &PortMem, held: &Holders) -> Vec<Asked> {
    let alone = held.is_empty();
    rings(mem, &RingRanges { tx: 0..1, rx: 0..1 }, |_, _| alone)
}
