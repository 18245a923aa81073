//! An egress that discards every frame, for measuring the path before it.

use std::sync::Arc;

use crate::{Batch, Egress, RingCounters, Scratch};

/// An egress that counts frames and bytes and discards the frames unread.
#[derive(Default)]
pub struct NullEgress {
    counters: Arc<RingCounters>,
}

impl Egress for NullEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let lengths = picks.iter().filter_map(|&pick| batch.get(pick.into())).map(|frame| frame.len() as u64);
        let (frames, bytes) = lengths.fold((0, 0), |(frames, bytes), len| (frames + 1, bytes + len));
        self.counters.passed(frames, bytes);
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::deliver;

    /// Objective: every frame is accepted and counted, in any number.
    #[test]
    fn every_frame_is_accepted_and_counted() {
        let egress = NullEgress::default();
        for _ in 0..100 {
            assert_eq!(deliver(&egress, &[vec![1; 60], vec![2; 1514]], |_| {}), 2);
        }
        assert_eq!((egress.counters().frames(), egress.counters().bytes()), (200, 157_400));
    }
}
