//! The ingress from a peer.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use netvale_port::seat::Seat;
use netvale_port::{Batch, Ingress, RingCounters};

use crate::egress::PeerEgress;
use crate::parts::PeerParts;
use crate::reader::{FrameReader, ReadStep};
use crate::rules::PeerIntake;

/// The ingress from a peer. While the peer is connected, the ingress is in a seat: the part of the port's queue that
/// outlives peers.
pub struct PeerIngress {
    pub(crate) parts: PeerParts,
    pub(crate) reader: FrameReader,
    pub(crate) counters: Arc<RingCounters>,
    /// The seat that contains this ingress.
    pub(crate) input: Weak<Seat<PeerIngress>>,
    /// The seat that contains the peer's egress.
    pub(crate) output: Weak<Seat<PeerEgress>>,
}

impl PeerIngress {
    /// Returns the start of a frame that was taken from the socket before the frame was complete; empty if there is no
    /// such frame. The worker must have released all frames.
    pub(crate) fn begun(&self) -> &[u8] {
        match &self.reader {
            FrameReader::Stream(stream) => stream.begun(),
            FrameReader::Messages(_) => &[],
        }
    }

    /// Makes the worker poll the ingress again soon.
    fn poke(&self) {
        self.input.upgrade().iter().for_each(|seat| seat.poke());
    }

    /// Sends the backlog of the peer's egress as far as the socket has room.
    #[cold]
    fn flush(&self) {
        let Some(output) = self.output.upgrade() else { return };
        match output.queue.enter_now() {
            Ok(mut queue) => {
                queue.flush();
            }
            Err(away) if away.is_busy() => self.poke(),
            Err(_) => {}
        }
    }
}

impl Ingress for PeerIngress {
    // SAFETY: the frames are in memory of `reader`, which is written only here.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.parts.room.is_awaited() {
            self.flush();
        }
        if self.parts.news.is_over() {
            return;
        }
        let mut intake = PeerIntake { batch, rules: &self.parts.rules, counters: &self.counters, bytes: 0 };
        let on = self.reader.take(&self.parts.socket, &mut intake, &self.parts.news);
        let bytes = intake.bytes;
        self.counters.passed(batch.len() as u64, bytes);
        // With an empty batch, the worker would now wait for an event of the socket. Data that is already in the socket
        // may cause no event.
        if on != ReadStep::Wait && batch.is_empty() {
            self.poke();
        }
    }

    fn release(&mut self) {}

    fn arm(&mut self) -> bool {
        // The socket itself wakes the worker.
        false
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
