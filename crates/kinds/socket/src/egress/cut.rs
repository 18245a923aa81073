//! Cuts a frame with pending segmentation for a peer. Once the frame's first segment is sent, segments that find no
//! room wait in the backlog, so that the caller need not retry the frame, which would send its first segments twice.

use netvale_port::{DropReason, FrameRef, Scratch};
use netvale_wire::offload::Offload;

use super::send::SentOff;
use super::{Delivery, OutOfRoom, PRIVATE, PeerEgress};

/// State of a frame while it is cut into segments.
#[derive(Default)]
struct CutFrame {
    pick: usize,
    /// Whether one of its segments has been sent.
    has_begun: bool,
    /// Whether the first segment found no room.
    is_refused: bool,
    too_long: u64,
    lost: u64,
}

impl PeerEgress {
    /// Cuts a frame into segments and sends the segments, after the frames that already wait.
    pub(super) fn put_segments(
        &mut self,
        pick: usize,
        frame: &FrameRef<'_>,
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), OutOfRoom> {
        self.send_all(pick, delivery)?;
        let mut cut = CutFrame { pick, ..CutFrame::default() };
        let softened = scratch.soften(frame, |segment| self.put_segment(segment, &mut cut, delivery));
        self.send_segments(&mut cut, delivery);
        self.forget();
        if let Err(why) = softened {
            self.counters.dropped(why, 1);
            return Ok(());
        }
        if cut.is_refused {
            return Err(OutOfRoom(pick));
        }
        for (why, count) in [(DropReason::TooLong, cut.too_long), (DropReason::NoRoom, cut.lost)] {
            if count > 0 {
                self.counters.dropped(why, count);
            }
        }
        if self.backlog.is_empty() { Ok(()) } else { Err(OutOfRoom(pick + 1)) }
    }

    fn put_segment(&mut self, segment: &[u8], cut: &mut CutFrame, delivery: &mut Delivery<'_>) {
        if !self.parts.rules.fits_whole(segment) {
            cut.too_long += 1;
            return;
        }
        if !self.parcels.has_room(1) || self.private.len() + segment.len() > PRIVATE {
            self.send_segments(cut, delivery);
        }
        if cut.is_refused {
            return;
        }
        if !self.backlog.is_empty() {
            return self.keep(segment, cut, delivery);
        }
        let begin = self.private.len();
        self.private.extend_from_slice(segment);
        self.add_private(cut.pick, begin);
    }

    /// Moves a segment into the backlog.
    fn keep(&mut self, segment: &[u8], cut: &mut CutFrame, delivery: &mut Delivery<'_>) {
        let (head, len) = self.parts.rules.head(self.carrier.format, &Offload::None, segment.len());
        let is_kept = self.backlog.add(len + segment.len(), |bytes| {
            bytes.extend_from_slice(&head[..len]);
            bytes.extend_from_slice(segment);
        });
        if !is_kept {
            cut.lost += 1;
            return;
        }
        delivery.frames += 1;
        delivery.bytes += segment.len() as u64;
    }

    /// Sends the segments added so far. If the socket has no room for some of them, these go to the backlog; but if no
    /// segment of the frame has been sent, all are discarded, and the caller retries the whole frame.
    fn send_segments(&mut self, cut: &mut CutFrame, delivery: &mut Delivery<'_>) {
        if self.entries.is_empty() {
            return;
        }
        let SentOff { done, is_full } = self.send(delivery);
        cut.has_begun |= done > 0;
        cut.is_refused = is_full && !cut.has_begun;
        if is_full && cut.has_begun {
            self.keep_from(done, cut, delivery);
        }
        self.forget();
    }

    fn keep_from(&mut self, first: usize, cut: &mut CutFrame, delivery: &mut Delivery<'_>) {
        for i in first..self.entries.len() {
            let Some(entry) = self.entries.get(i).copied() else { break };
            let parcels = &self.parcels;
            if self.backlog.add(entry.bytes, |bytes| parcels.copy_rest(i, 0, bytes)) {
                delivery.frames += 1;
                delivery.bytes += entry.frame as u64;
            } else {
                cut.lost += 1;
            }
        }
        self.await_room();
    }
}
