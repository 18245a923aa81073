//! Traces of single frames.
//!
//! A traced frame takes the path for ports with policies, alone, and its steps are recorded ([`netvale_mem::steps`]).
//! Workers put records into a queue of fixed size; the tracing connection reads them. Ports without a trace are
//! unaffected, and so are untraced frames of a port under trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use netvale_mem::steps::{Steps, Tracing};
use netvale_policy::bpf::Program;
use netvale_port::FrameRef;
use netvale_wire::VnetHdr;

pub use crate::clock::now;
use crate::fdb::PortId;

/// Leading bytes of a frame in a record.
pub const HEAD: usize = 128;
/// Bytes that filters see, at most.
const SEEN: usize = 512;

/// Selection of the frames to trace.
#[derive(Debug)]
pub struct TraceOptions {
    /// Traces only frames that this program matches; `None`: all.
    pub filter: Option<Program>,
    /// Traces only frames with a drop.
    pub only_drops: bool,
    /// Examines one frame of this many, in each ring.
    pub one_of: u32,
    /// Records that may wait to be read.
    pub room: usize,
}

/// A trace of one or several ports.
#[derive(Debug)]
pub struct Trace {
    options: TraceOptions,
    records: ArrayQueue<Record>,
    lost: AtomicU64,
    seed: u64,
    _wanted: Tracing,
}

/// The record of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its time, by [`now`].
    pub at: u64,
    /// Its port.
    pub from: PortId,
    /// Its ring.
    pub ring: u16,
    /// Its length; 0 in a record without a frame.
    pub len: u32,
    /// The number of its pieces.
    pub pieces: u16,
    /// The pending offload.
    pub left: VnetHdr,
    /// Its first bytes.
    pub head: [u8; HEAD],
    /// Its steps.
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

    /// Takes the oldest record.
    #[must_use]
    pub fn next(&self) -> Option<Record> {
        self.records.pop()
    }

    /// Number of records without room since the last call.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Number of frames from `number` until the next examined one. One frame of each run of `one_of` is examined, at a
    /// random place in it: regular traffic is not examined always or never at the same beat.
    pub(crate) fn ahead(&self, number: u64) -> u64 {
        let one_of = u64::from(self.options.one_of.max(1));
        let run = number / one_of;
        let place = number % one_of;
        let chosen = |run: u64| spread(run ^ self.seed) % one_of;
        chosen(run).checked_sub(place).unwrap_or_else(|| one_of - place + chosen(run + 1))
    }

    /// Whether to trace the frame of this number.
    fn wants(&self, number: u64, head: &[u8], len: usize) -> bool {
        let fits = |program: &Program| program.run(head, len as u32).is_ok_and(|verdict| verdict != 0);
        self.ahead(number) == 0 && self.options.filter.as_ref().is_none_or(fits)
    }

    pub(crate) fn put(&self, record: &Record) {
        if (!self.options.only_drops || record.steps.has_drop()) && self.records.push(*record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the drop of frames that cannot be examined, unless there is a filter: they cannot match it.
    pub(crate) fn put_refused(&self, record: &Record) {
        if self.options.filter.is_none() {
            self.put(record);
        }
    }
}

/// Mixes a number: each bit changes about half of the result's bits (the finalizer of SplitMix64).
pub(crate) fn spread(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl Record {
    /// A record of steps without a frame.
    pub(crate) fn without_frame(from: PortId, ring: usize, steps: Steps) -> Record {
        let ring = ring as u16;
        let left = VnetHdr::default();
        Record { at: now(), from, ring, len: 0, pieces: 0, left, head: [0; HEAD], steps }
    }
}

/// A frame wanted by at least one trace.
pub(crate) struct Traced {
    record: Record,
    /// The port's traces that want it, a bit for each of the first 64.
    wanted: u64,
}

impl Traced {
    /// Checks whether one of `traces` wants frame number `number`.
    pub(crate) fn of(
        traces: &[Arc<Trace>],
        number: u64,
        from: PortId,
        ring: usize,
        frame: &FrameRef<'_>,
    ) -> Option<Traced> {
        let mut seen = [0; SEEN];
        let known = frame.copy_out(0, &mut seen);
        let seen = seen.get(..known).unwrap_or_default();
        let wants = |trace: &Arc<Trace>| trace.wants(number, seen, frame.len());
        let wanted = traces.iter().take(64).enumerate().fold(0, |bits, (i, trace)| bits | u64::from(wants(trace)) << i);
        let mut head = [0; HEAD];
        head.iter_mut().zip(seen).for_each(|(to, from)| *to = *from);
        let record = Record {
            len: frame.len() as u32,
            pieces: frame.pieces() as u16,
            left: frame.offload().to_header(),
            head,
            ..Record::without_frame(from, ring, Steps::NONE)
        };
        (wanted != 0).then_some(Traced { record, wanted })
    }

    /// Adds further steps.
    pub(crate) fn append(&mut self, steps: &Steps) {
        self.record.steps.append(steps);
    }

    /// Passes the record to the traces that want it.
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

    /// Objective: one frame of each run is chosen, each place in a run sometimes, and the distance to the next one is
    /// right from everywhere.
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
