//! Merging for receivers that take large segments (GRO): adjacent TCP segments of a flow become one frame, and so do
//! adjacent UDP datagrams if the receiver takes these uncut (USO).
//!
//! A merged frame has new headers, and its payload stays in the original pieces. No frame waits for other frames. Only
//! adjacent frames are merged, so the order stays the same.

use std::sync::Arc;

use netvale_mem::drops::RingCounters;
use netvale_wire::merge::MergeFields;
use netvale_wire::offload::MAX_HEADERS;

use crate::batch::{Batch, FrameRef};
use crate::egress::{Egress, Room};
use crate::gather::MergeScratch;
use crate::ring_out::Reservation;
use crate::soft::Scratch;

/// An egress that merges adjacent frames and delivers them to another egress.
pub struct GroEgress {
    inner: Arc<dyn Egress>,
}

impl GroEgress {
    /// Creates a merging egress in front of `inner`.
    pub fn new(inner: Arc<dyn Egress>) -> Self {
        GroEgress { inner }
    }
}

impl Egress for GroEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let merges = self.may_merge(batch, picks);
        let Some(mut work) = scratch.gro.take_if(|_| merges) else { return self.inner.deliver(batch, picks, scratch) };
        let done = deliver_merged(&mut work, self.inner.as_ref(), batch, picks, scratch);
        scratch.gro = Some(work);
        done
    }

    #[inline]
    fn reserve<'b>(&'b self, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        // Only a batch of single-piece frames without pending offloads can be delivered in steps; for other batches,
        // the search for mergeable frames is skipped.
        if !batch.is_plain(u32::MAX) || self.may_merge(batch, picks) {
            return None;
        }
        self.inner.reserve(batch, picks)
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn takes_uso(&self) -> bool {
        self.inner.takes_uso()
    }

    fn room(&self) -> Option<&dyn Room> {
        self.inner.room()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.inner.counters()
    }
}

fn deliver_merged(
    work: &mut MergeScratch,
    to: &dyn Egress,
    batch: &Batch,
    picks: &[u16],
    scratch: &mut Scratch,
) -> usize {
    let udp = to.takes_uso();
    let mut done = 0;
    while let Some(rest) = picks.get(done..).filter(|rest| !rest.is_empty()) {
        work.gather(batch, rest, udp);
        let count = work.out.len();
        let taken = to.deliver(&work.out, work.all.get(..count).unwrap_or(&[]), scratch);
        done += work.spans.iter().take(taken).map(|&n| usize::from(n)).sum::<usize>();
        // The merged frames refer to pieces of the caller's batch, which may be cleared after this call.
        work.out.clear();
        if taken < count || count == 0 {
            break;
        }
    }
    done
}

impl GroEgress {
    /// Whether any adjacent frames look mergeable.
    fn may_merge(&self, batch: &Batch, picks: &[u16]) -> bool {
        let mut bytes = [0; MAX_HEADERS];
        let mut last = None::<MergeFields>;
        let mut follows = |frame: FrameRef<'_>| {
            let known = frame.copy_out(0, &mut bytes);
            let part = bytes.get(..known).and_then(|bytes| MergeFields::of(bytes, frame.len()));
            let last = std::mem::replace(&mut last, part);
            last.zip(part).is_some_and(|(last, part)| last.may_precede(&part) && self.may_take(&part))
        };
        picks.len() > 1 && picks.iter().filter_map(|&pick| batch.get(pick.into())).any(&mut follows)
    }

    fn may_take(&self, merged: &MergeFields) -> bool {
        !merged.is_udp() || self.inner.takes_uso()
    }
}

#[cfg(test)]
mod tests {
    use netvale_wire::offload::Offload;

    use super::*;
    use crate::loopback::loopback;
    use crate::tests::{deliver, received, ring, taken, with_batch};

    fn tcp(seq: u32, payload: usize, port: u16) -> Vec<u8> {
        let tcp = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(port, 2, seq, 1000)
            .ack(5);
        let mut frame = Vec::new();
        tcp.write(&mut frame, &vec![seq as u8; payload]).unwrap();
        frame
    }

    /// Objective: adjacent frames of a flow become one frame, in order, and other frames stay unchanged; segmentation
    /// of the merged frames yields the original frames.
    #[test]
    fn neighbours_of_a_flow_become_one_frame() {
        let mut frames: Vec<Vec<u8>> = (0..100).map(|i| tcp(i * 1000, 1000, 1)).collect();
        frames.insert(10, vec![9; 60]);
        frames.insert(20, tcp(7, 100, 3));
        let (inner, mut out) = loopback(256).unwrap();
        let gro = GroEgress::new(Arc::new(inner));
        assert_eq!(deliver(&gro, &frames, |_| {}), 102);
        let came = taken(&mut out);
        assert!(came.len() < 8, "{}", came.len());
        assert_eq!(came[1], frames[10]);
        assert_eq!(came[0].len(), 54 + 10 * 1000);
        let payload: usize = came.iter().map(|f| f.len().saturating_sub(54)).sum();
        assert_eq!(payload, 100_000 + 100 + 6);
    }

    fn udp(payload: usize, port: u16) -> Vec<u8> {
        let udp = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(port, 2);
        let mut frame = Vec::new();
        udp.write(&mut frame, &vec![7; payload]).unwrap();
        frame
    }

    /// A receiver that takes large UDP frames uncut.
    struct UsoEgress(crate::loopback::LoopbackEgress);

    impl Egress for UsoEgress {
        fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
            self.0.deliver(batch, picks, scratch)
        }

        fn takes_uso(&self) -> bool {
            true
        }

        fn counters(&self) -> &Arc<RingCounters> {
            self.0.counters()
        }
    }

    /// Objective: adjacent UDP datagrams of a flow become one frame if and only if the receiver takes these uncut; a
    /// shorter datagram ends a frame.
    #[test]
    fn datagrams_are_merged_for_receivers_with_uso() {
        let lengths = [(100, 1), (100, 1), (100, 1), (40, 1), (100, 1), (100, 2), (100, 2)];
        let frames: Vec<Vec<u8>> = lengths.iter().map(|&(payload, port)| udp(payload, port)).collect();
        let (inner, mut out) = loopback(256).unwrap();
        let gro = GroEgress::new(Arc::new(UsoEgress(inner)));
        assert_eq!(deliver(&gro, &frames, |_| {}), frames.len());
        let payloads: Vec<usize> = taken(&mut out).iter().map(|frame| frame.len() - 62).collect();
        assert_eq!(payloads, [340, 100, 200]);
        let (inner, mut out) = loopback(256).unwrap();
        let gro = GroEgress::new(Arc::new(inner));
        assert_eq!(deliver(&gro, &frames, |_| {}), frames.len());
        assert_eq!(taken(&mut out), frames);
    }

    /// Objective: a delivery is counted in the sender's frames: if a merged frame finds no room, none of its original
    /// frames counts as delivered.
    #[test]
    fn counts_in_frames_of_the_sender() {
        let frames: Vec<Vec<u8>> = (0..30).map(|i| tcp(i / 10 * 50_000 + i * 1000, 1000, 1)).collect();
        let (inner, mut out) = loopback(2).unwrap();
        let gro = GroEgress::new(Arc::new(inner));
        assert_eq!(deliver(&gro, &frames, |_| {}), 20);
        assert_eq!(taken(&mut out).len(), 2);
    }

    /// Objective: a batch is delivered in steps if and only if no frames for this receiver look mergeable; the frames
    /// arrive unchanged and are counted.
    #[test]
    fn steps_where_nothing_is_merged() {
        let flow = |port: u16, count: u32| (0..count).map(move |i| tcp(u32::from(port) * 100_000 + i * 100, 100, port));
        let mixed: Vec<_> = flow(1, 4).zip(flow(2, 4)).flat_map(|(a, b)| [a, b]).collect();
        let no_tcp = vec![vec![9; 60]; 5];
        let again = vec![tcp(7, 100, 1); 4];
        let acknowledgements: Vec<_> = (0..4).map(|_| tcp(7, 0, 1)).collect();
        for frames in [no_tcp, again, acknowledgements, mixed.clone(), vec![tcp(0, 100, 1)]] {
            let (inner, mut receiver) = ring();
            let gro = GroEgress::new(Arc::new(inner));
            with_batch(
                &frames,
                |_| {},
                |batch, picks| {
                    let mut room = gro.reserve(batch, picks).unwrap();
                    room.fill();
                },
            );
            assert_eq!(received(&mut receiver), frames);
            assert_eq!(gro.counters().frames(), frames.len() as u64);
        }
        let (inner, mut receiver) = ring();
        let gro = GroEgress::new(Arc::new(inner));
        with_batch(
            &mixed,
            |_| {},
            |batch, _| {
                assert!(gro.reserve(batch, &[0, 2]).is_none(), "neighbours in what this receiver gets");
                assert!(gro.reserve(batch, &[1, 6, 7, 4]).is_some(), "neighbours in the batch alone");
            },
        );
        // The dropped reservations leave empty slots.
        assert_eq!(received(&mut receiver), vec![Vec::<u8>::new(); 4]);
        let undone = |batch: &mut Batch| batch.set_offload(Offload::CsumPartial { start: 34, offset: 16 });
        with_batch(&mixed, undone, |batch, picks| {
            assert!(gro.reserve(batch, picks).is_none(), "something is left to do")
        });
        assert_eq!(received(&mut receiver), Vec::<Vec<u8>>::new());
    }
}
