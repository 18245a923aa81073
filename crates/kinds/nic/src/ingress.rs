//! The receive side of a queue as a switch's ingress: frames stay in their receive buffers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_afxdp::socket::{BufferLayout, CONTINUES, HEADROOM, XdpDesc, XdpReceiver};
use netvale_fdio::state::BadState;
use netvale_mem::Mapping;
use netvale_port::batch::{BATCH, Batch, MAX_FRAGS};
use netvale_port::{DropReason, Ingress, RingCounters};

use crate::QueueGuard;
use crate::continued::PausedIngress;

/// The receive side of a queue, as an ingress.
pub struct NicIngress {
    receiver: XdpReceiver,
    memory: Arc<Mapping>,
    buffers: BufferLayout,
    /// Indices of the buffers of the last batch and of an incomplete frame.
    taken: Vec<u32>,
    /// Address and length in bytes of each piece of an incomplete frame.
    pieces: Vec<(*const u8, u32)>,
    counters: Arc<RingCounters>,
    /// State that is saved when the worker pauses.
    settled: Arc<Mutex<PausedIngress>>,
    _queue: QueueGuard,
}

// SAFETY: the pointers lead into `memory`, which this value keeps mapped, and are used by the thread that owns this
// value.
unsafe impl Send for NicIngress {}

impl NicIngress {
    /// Creates an ingress that receives into the buffers with the indices `own`.
    pub fn new(
        mut receiver: XdpReceiver,
        memory: Arc<Mapping>,
        buffers: BufferLayout,
        own: std::ops::Range<u32>,
        queue: QueueGuard,
    ) -> NicIngress {
        for at in own.filter_map(|index| buffers.at(index)) {
            receiver.fill.put(at - HEADROOM);
        }
        receiver.fill.publish();
        Self::with(receiver, memory, buffers, queue)
    }

    fn with(receiver: XdpReceiver, memory: Arc<Mapping>, buffers: BufferLayout, queue: QueueGuard) -> NicIngress {
        let taken = Vec::with_capacity(2 * BATCH);
        let pieces = Vec::with_capacity(MAX_FRAGS);
        let counters = Arc::default();
        let settled = Arc::default();
        NicIngress { receiver, memory, buffers, taken, pieces, counters, settled, _queue: queue }
    }

    /// Restores a queue whose buffers [`PausedIngress::check`] has checked.
    ///
    /// # Errors
    /// [`BadState`] if a piece of an incomplete frame is outside the queue's buffers.
    pub fn continued(
        receiver: XdpReceiver,
        memory: Arc<Mapping>,
        buffers: BufferLayout,
        settled: &PausedIngress,
        queue: QueueGuard,
    ) -> Result<NicIngress, BadState> {
        let mut this = Self::with(receiver, memory, buffers, queue);
        this.taken.extend_from_slice(&settled.taken);
        for &(at, len) in settled.pieces.iter().take(MAX_FRAGS) {
            let is_taken = this.buffers.index(at).is_some_and(|index| this.taken.contains(&index));
            let place = this.memory.at(at, len.into(), 1).filter(|_| is_taken);
            this.pieces.push((
                place.ok_or_else(|| BadState::new("a piece is outside the queue's buffers"))?.as_ptr().cast_const(),
                len,
            ));
        }
        Ok(this)
    }

    /// The state that the worker saves when it pauses, shared with the control thread.
    pub fn settled(&self) -> Arc<Mutex<PausedIngress>> {
        Arc::clone(&self.settled)
    }

    /// Returns address and length of the piece in a descriptor's buffer, and adds the buffer to `taken`. `None` if the
    /// descriptor is outside the buffers.
    fn place(&mut self, desc: XdpDesc) -> Option<(*const u8, u32)> {
        let begin = desc.begin();
        let index = self.buffers.index(begin)?;
        self.taken.push(index);
        let at = self.memory.at(begin, desc.len.into(), 1)?;
        Some((at.as_ptr().cast_const(), desc.len))
    }

    /// Adds complete frames to the batch; a frame of several pieces is complete once its last piece has arrived.
    /// Returns the number of frames and bytes.
    fn fill(&mut self, batch: &mut Batch) -> (u64, u64) {
        let mut frames = 0;
        let mut bytes = 0;
        for _ in 0..self.receiver.rx.ready() {
            // A frame whose first pieces were read is read to its end.
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
            // SAFETY: our buffers, which the kernel has filled, and which stay ours until `release` returns them.
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
        // While frames are not taken, the kernel drops later frames, which the port's drop counters do not show.
        false
    }

    // SAFETY: frames are in buffers in `memory` that the kernel gets back only in `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        let (frames, bytes) = self.fill(batch);
        if !self.taken.is_empty() {
            self.receiver.rx.release();
            self.counters.passed(frames, bytes);
        }
    }

    fn release(&mut self) {
        if self.taken.is_empty() || !self.pieces.is_empty() {
            // The buffers of an incomplete frame are needed until the rest has arrived.
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
        // Arming is unnecessary: the socket is polled level-triggered.
        self.receiver.rx.ready() > 0
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.socket.as_fd())
    }

    fn settle(&mut self) {
        let start = self.memory.start().as_ptr() as u64;
        let offset = |&(at, len): &(*const u8, u32)| (at as u64 - start, len);
        let settled = PausedIngress { taken: self.taken.clone(), pieces: self.pieces.iter().map(offset).collect() };
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = settled;
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
