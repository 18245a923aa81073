//! What a peer sends.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use netvale_port::seat::Seat;
use netvale_port::{Batch, Ingress, RingCounters};

use crate::egress::PeerEgress;
use crate::news::PeerNews;
use crate::reader::{FrameReader, ReadOn};
use crate::room::AwaitedRoom;
use crate::rules::{FrameRules, PeerIntake};

/// What a peer sends, as an ingress that lies in a seat.
pub struct PeerIngress {
    socket: Arc<OwnedFd>,
    reader: FrameReader,
    rules: Arc<FrameRules>,
    counters: Arc<RingCounters>,
    news: PeerNews,
    /// Its seat, and that of what goes to the peer.
    seat: Weak<Seat<PeerIngress>>,
    output: Weak<Seat<PeerEgress>>,
    room: AwaitedRoom,
}

/// What both queues of a peer have.
pub(crate) struct PeerParts {
    pub socket: Arc<OwnedFd>,
    pub rules: Arc<FrameRules>,
    pub news: PeerNews,
    pub input: Weak<Seat<PeerIngress>>,
    pub output: Weak<Seat<PeerEgress>>,
    pub room: AwaitedRoom,
}

impl PeerIngress {
    pub(crate) fn new(parts: PeerParts, reader: FrameReader, counters: Arc<RingCounters>) -> PeerIngress {
        let PeerParts { socket, rules, news, input, output, room } = parts;
        PeerIngress { socket, reader, rules, counters, news, seat: input, output, room }
    }

    /// The beginning of a frame that is not in the socket any more. The worker must have released all frames.
    pub(crate) fn begun(&self) -> &[u8] {
        match &self.reader {
            FrameReader::Stream(stream) => stream.begun(),
            FrameReader::Messages(_) => &[],
        }
    }

    /// Looks again soon.
    fn poke(&self) {
        self.seat.upgrade().iter().for_each(|seat| seat.poke());
    }

    /// The socket may have room again for what was accepted before.
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
    // SAFETY: frames lie in memory of `reader`, which is written here only.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.room.is_awaited() {
            self.flush();
        }
        if self.news.is_over() {
            return;
        }
        let mut intake = PeerIntake { batch, rules: &self.rules, counters: &self.counters, bytes: 0 };
        let on = self.reader.take(&self.socket, &mut intake, &self.news);
        let bytes = intake.bytes;
        self.counters.passed(batch.len() as u64, bytes);
        // One that brings nothing is not asked again before it is announced.
        if on != ReadOn::Wait && batch.is_empty() {
            self.poke();
        }
    }

    fn release(&mut self) {}

    fn arm(&mut self) -> bool {
        // The socket itself wakes.
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
