//! Traces of single frames.
//!
//! A traced frame is forwarded alone, on the path for ports with policies, and its steps are recorded
//! ([`netvale_mem::steps`]). Workers put records into a queue of fixed size, from which the tracing connection reads
//! them. A trace does not affect other ports or the port's untraced frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use netvale_mem::steps::{Steps, Tracing};
use netvale_policy::bpf::FilterProgram;
use netvale_port::FrameRef;
use netvale_wire::VnetHdr;

pub use crate::clock::now;
use crate::fdb::PortId;

/// Number of first bytes of a frame in a record.
pub const HEAD: usize = 128;
/// Maximum number of bytes of a frame to which a trace's filter is applied.
const SEEN: usize = 512;

/// Selection of the frames to trace.
#[derive(Debug)]
pub struct TraceOptions {
    /// Traces only frames that this program matches; `None`: all frames.
    pub filter: Option<FilterProgram>,
    /// Traces only frames of which at least one copy is dropped.
    pub only_drops: bool,
    /// Selects one frame in each run of this many frames of a ring. The filter is applied only to the selected frames.
    pub one_of: u32,
    /// Maximum number of records that wait to be read.
    pub room: usize,
}

/// A trace: a queue of records of the frames that one or more ports send.
#[derive(Debug)]
pub struct Trace {
    options: TraceOptions,
    records: ArrayQueue<TraceRecord>,
    lost: AtomicU64,
    seed: u64,
    _wanted: Tracing,
}

/// The record of a traced frame.
#[derive(Clone, Copy, Debug)]
pub struct TraceRecord {
    /// Time of the record, in nanoseconds of [`now`].
    pub at: u64,
    /// The sending port.
    pub from: PortId,
    /// Index of the ring from which the port sent the frame.
    pub ring: u16,
    /// Length of the frame in bytes; 0 in a record without a frame.
    pub len: u32,
    /// Number of pieces (slots or descriptors) of the frame.
    pub pieces: u16,
    /// The offload pending on the frame, as a virtio-net header.
    pub left: VnetHdr,
    /// First bytes of the frame.
    pub head: [u8; HEAD],
    /// Steps of the frame through the switch: decisions, deliveries and drops.
    pub steps: Steps,
}

impl Trace {
    /// Creates a trace.
    #[must_use]
    pub fn new(options: TraceOptions) -> Trace {
        let records = ArrayQueue::new(options.room.max(1));
        let lost = AtomicU64::new(0);
        Trace { options, records, lost, seed: spread(now()), _wanted: Tracing::new() }
    }

    /// Takes the oldest record; `None` if no record waits.
    #[must_use]
    pub fn next(&self) -> Option<TraceRecord> {
        self.records.pop()
    }

    /// Number of records that were lost since the last call because the queue was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Number of frames between frame `number` and the next frame to examine; 0 if frame `number` itself is examined.
    /// One frame in each run of `one_of` frames is examined, at a pseudo-random position, so that sampling does not
    /// lock onto periodic traffic.
    pub(crate) fn ahead(&self, number: u64) -> u64 {
        let one_of = u64::from(self.options.one_of.max(1));
        let run = number / one_of;
        let place = number % one_of;
        let chosen = |run: u64| spread(run ^ self.seed) % one_of;
        chosen(run).checked_sub(place).unwrap_or_else(|| one_of - place + chosen(run + 1))
    }

    /// Whether to trace frame number `number`.
    fn wants(&self, number: u64, head: &[u8], len: usize) -> bool {
        let fits = |program: &FilterProgram| program.run(head, len as u32).is_ok_and(|verdict| verdict != 0);
        self.ahead(number) == 0 && self.options.filter.as_ref().is_none_or(fits)
    }

    pub(crate) fn put(&self, record: &TraceRecord) {
        if (!self.options.only_drops || record.steps.has_drop()) && self.records.push(*record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the drop of frames whose bytes are not available. If the trace has a filter, nothing is recorded, as
    /// such frames cannot match the filter.
    pub(crate) fn put_refused(&self, record: &TraceRecord) {
        if self.options.filter.is_none() {
            self.put(record);
        }
    }
}

/// Hashes a number with the finalizer of SplitMix64: each bit changes about half of the result's bits.
pub(crate) fn spread(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl TraceRecord {
    /// Creates a record of steps without a frame.
    pub(crate) fn without_frame(from: PortId, ring: usize, steps: Steps) -> TraceRecord {
        let ring = ring as u16;
        let left = VnetHdr::default();
        TraceRecord { at: now(), from, ring, len: 0, pieces: 0, left, head: [0; HEAD], steps }
    }
}

/// A frame that at least one trace selects.
pub(crate) struct TraceHit {
    record: TraceRecord,
    /// The port's traces that select the frame: bit *i* stands for trace *i*, for the first 64 traces.
    wanted: u64,
}

impl TraceHit {
    /// Creates the record of frame number `number`; `None` if none of `traces` selects the frame.
    pub(crate) fn of(
        traces: &[Arc<Trace>],
        number: u64,
        from: PortId,
        ring: usize,
        frame: &FrameRef<'_>,
    ) -> Option<TraceHit> {
        let mut seen = [0; SEEN];
        let known = frame.copy_out(0, &mut seen);
        let seen = seen.get(..known).unwrap_or_default();
        let wants = |trace: &Arc<Trace>| trace.wants(number, seen, frame.len());
        let wanted = traces.iter().take(64).enumerate().fold(0, |bits, (i, trace)| bits | u64::from(wants(trace)) << i);
        let mut head = [0; HEAD];
        head.iter_mut().zip(seen).for_each(|(to, from)| *to = *from);
        let record = TraceRecord {
            len: frame.len() as u32,
            pieces: frame.pieces() as u16,
            left: frame.offload().to_header(),
            head,
            ..TraceRecord::without_frame(from, ring, Steps::NONE)
        };
        (wanted != 0).then_some(TraceHit { record, wanted })
    }

    /// Adds further steps to the record.
    pub(crate) fn append(&mut self, steps: &Steps) {
        self.record.steps.append(steps);
    }

    /// Passes the record to the traces that select the frame.
    pub(crate) fn put(self, traces: &[Arc<Trace>]) {
        for (i, trace) in traces.iter().take(64).enumerate() {
            if self.wanted & 1 << i != 0 {
                trace.put(&self.record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: one frame of each run of `one_of` frames is selected, at varying positions; from every frame, the
    /// distance to the next selected frame is right.
    #[test]
    fn one_of_each_run() {
        let trace = Trace::new(TraceOptions { filter: None, only_drops: false, one_of: 5, room: 1 });
        let chosen: Vec<u64> = (0..5000).filter(|&number| trace.ahead(number) == 0).collect();
        assert_eq!(chosen.iter().map(|number| number / 5).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
        for place in 0..5 {
            let times = chosen.iter().filter(|&number| number % 5 == place).count();
            assert!((100..300).contains(&times), "place {place}: {times} times");
        }
        for number in 0..4000 {
            let next = chosen.iter().find(|&&next| next >= number).unwrap();
            assert_eq!(number + trace.ahead(number), *next);
        }
        let all = Trace::new(TraceOptions { one_of: 1, ..trace.options });
        assert!((0..100).all(|number| all.ahead(number) == 0));
    }
}
