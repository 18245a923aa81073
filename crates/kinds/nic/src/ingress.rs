//! A queue as an ingress of a switch: frames stay in their receive buffers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_afxdp::socket::{Buffers, CONTINUES, Desc, HEADROOM, Receiver};
use netvale_fdio::state::BadState;
use netvale_mem::Mapping;
use netvale_port::batch::{BATCH, Batch, MAX_FRAGS};
use netvale_port::{DropReason, Ingress, RingCounters};

use crate::Keep;
use crate::continued::Settled;

/// The receive side of a queue, as an ingress.
pub struct NicIngress {
    receiver: Receiver,
    memory: Arc<Mapping>,
    buffers: Buffers,
    /// Buffers of the batch taken last.
    taken: Vec<u32>,
    /// Pieces of an incomplete frame.
    pieces: Vec<(*const u8, u32)>,
    counters: Arc<RingCounters>,
    /// State saved when its worker pauses.
    settled: Arc<Mutex<Settled>>,
    _queue: Keep,
}

// SAFETY: the pointers lie in `memory`, kept by this value, and are used by the thread that owns it.
unsafe impl Send for NicIngress {}

impl NicIngress {
    /// Creates an ingress that receives into the buffers numbered `own`.
    pub fn new(
        mut receiver: Receiver,
        memory: Arc<Mapping>,
        buffers: Buffers,
        own: std::ops::Range<u32>,
        queue: Keep,
    ) -> NicIngress {
        for at in own.filter_map(|index| buffers.at(index)) {
            receiver.fill.put(at - HEADROOM);
        }
        receiver.fill.publish();
        Self::with(receiver, memory, buffers, queue)
    }

    fn with(receiver: Receiver, memory: Arc<Mapping>, buffers: Buffers, queue: Keep) -> NicIngress {
        let taken = Vec::with_capacity(2 * BATCH);
        let pieces = Vec::with_capacity(MAX_FRAGS);
        let counters = Arc::default();
        let settled = Arc::default();
        NicIngress { receiver, memory, buffers, taken, pieces, counters, settled, _queue: queue }
    }

    /// Restores a queue whose buffers [`Settled::check`] has found in their places.
    ///
    /// # Errors
    /// [`BadState`] if pieces of an incomplete frame are not in its buffers.
    pub fn continued(
        receiver: Receiver,
        memory: Arc<Mapping>,
        buffers: Buffers,
        settled: &Settled,
        queue: Keep,
    ) -> Result<NicIngress, BadState> {
        let mut this = Self::with(receiver, memory, buffers, queue);
        this.taken.extend_from_slice(&settled.taken);
        for &(at, len) in settled.pieces.iter().take(MAX_FRAGS) {
            let is_taken = this.buffers.index(at).is_some_and(|index| this.taken.contains(&index));
            let place = this.memory.at(at, len.into(), 1).filter(|_| is_taken);
            this.pieces.push((
                place.ok_or_else(|| BadState::new("a piece of a frame lies elsewhere"))?.as_ptr().cast_const(),
                len,
            ));
        }
        Ok(this)
    }

    /// Where its state is saved when its worker pauses.
    pub fn settled(&self) -> Arc<Mutex<Settled>> {
        Arc::clone(&self.settled)
    }

    /// The address of a frame's piece; `None` if the kernel put it outside its buffers.
    fn place(&mut self, desc: Desc) -> Option<(*const u8, u32)> {
        let begin = desc.begin();
        let index = self.buffers.index(begin)?;
        self.taken.push(index);
        let at = self.memory.at(begin, desc.len.into(), 1)?;
        Some((at.as_ptr().cast_const(), desc.len))
    }

    /// Adds frames of one piece, and those of several once their last piece has arrived.
    fn fill(&mut self, batch: &mut Batch) -> (u64, u64) {
        let mut frames = 0;
        let mut bytes = 0;
        for _ in 0..self.receiver.rx.ready() {
            // A frame that has begun is read to its end.
            let full = !batch.has_room_for_frags() || self.taken.len() >= 2 * BATCH;
            if full && self.pieces.is_empty() {
                break;
            }
            let desc = self.receiver.rx.take();
            let place = self.place(desc);
            self.pieces.extend(place.filter(|_| self.pieces.len() < MAX_FRAGS));
            if desc.options & CONTINUES != 0 {
                continue;
            }
            // SAFETY: our buffers, returned by the kernel, and ours until `release` gives them back.
            if unsafe { batch.push_frags(&self.pieces) } {
                frames += 1;
                bytes += self.pieces.iter().map(|piece| u64::from(piece.1)).sum::<u64>();
            } else {
                self.counters.dropped(DropReason::TooLong, 1);
            }
            self.pieces.clear();
        }
        (frames, bytes)
    }
}

impl Ingress for NicIngress {
    fn can_wait(&self) -> bool {
        // The kernel drops frames that are not taken, without a drop reason.
        false
    }

    // SAFETY: frames lie in buffers in `memory` that the kernel gets back only in `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let (frames, bytes) = self.fill(batch);
        if !self.taken.is_empty() {
            self.receiver.rx.release();
            self.counters.passed(frames, bytes);
        }
    }

    fn release(&mut self) {
        if self.taken.is_empty() || !self.pieces.is_empty() {
            // The first pieces of an incomplete frame are needed until the rest has arrived.
            return;
        }
        for index in self.taken.drain(..) {
            if let Some(at) = self.buffers.at(index) {
                self.receiver.fill.put(at - HEADROOM);
            }
        }
        self.receiver.fill.publish();
        if self.receiver.fill.needs_wakeup() {
            self.receiver.socket.poke();
        }
    }

    fn arm(&mut self) -> bool {
        // The socket itself wakes a level-triggered sleeper.
        self.receiver.rx.ready() > 0
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.socket.as_fd())
    }

    fn settle(&mut self) {
        let start = self.memory.start().as_ptr() as u64;
        let offset = |&(at, len): &(*const u8, u32)| (at as u64 - start, len);
        let settled = Settled { taken: self.taken.clone(), pieces: self.pieces.iter().map(offset).collect() };
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = settled;
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
