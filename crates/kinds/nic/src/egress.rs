//! The transmit side of a queue as a switch's egress: each frame is copied once, into memory from which the kernel or
//! the driver sends.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use netvale_afxdp::socket::{BufferLayout, CONTINUES, XdpDesc, XdpSender};
use netvale_mem::Mapping;
use netvale_mem::copy::copy_bytes;
use netvale_mem::lent::Lent;
use netvale_port::batch::Batch;
use netvale_port::pace::{MachineClock, Meter, QueuePace};
use netvale_port::soft::{FrameForm, PutResult, SegmentRoom};
use rustix::io::Errno;

use netvale_port::{DropReason, Egress, FrameRef, RingCounters, Scratch};

use crate::QueueGuard;

/// Minimum length of a frame in bytes: the kernel refuses frames shorter than an Ethernet header.
const SHORTEST: usize = 14;

/// The transmit side of a queue, as an egress.
pub struct NicEgress {
    /// The rings, which are never removed: [`Lent`] serves only to exclude other workers.
    sending: Lent<NicEgressRings>,
    counters: Arc<RingCounters>,
    pace: QueuePace,
}

struct NicEgressRings {
    sender: XdpSender,
    memory: Arc<Mapping>,
    buffers: BufferLayout,
    free: Vec<u32>,
    /// Highest number of buffers that were free at the same time.
    most_free: usize,
    /// Whether a frame may use several buffers.
    multi_buffer: bool,
    /// The kernel's error on the last attempt to send, if the interface was down or deleted; otherwise `Ok`.
    stopped: Result<(), Errno>,
    _queue: QueueGuard,
}

impl NicEgress {
    /// Creates an egress whose free buffers are the buffers with the indices `own`. Buffers that the kernel still has
    /// become free when it completes them.
    pub fn new(
        sender: XdpSender,
        memory: Arc<Mapping>,
        buffers: BufferLayout,
        own: impl IntoIterator<Item = u32>,
        multi_buffer: bool,
        queue: Arc<impl Any + Send + Sync>,
    ) -> NicEgress {
        let free: Vec<u32> = own.into_iter().collect();
        let most_free = free.len();
        let stopped = Ok(());
        let sending = NicEgressRings { sender, memory, buffers, free, most_free, multi_buffer, stopped, _queue: queue };
        NicEgress { sending: Lent::with(sending), counters: Arc::default(), pace: QueuePace::default() }
    }

    /// Indices of the free buffers, and whether a frame may use several buffers. `None` while a worker uses the egress.
    pub fn free(&self) -> Option<(Vec<u32>, bool)> {
        let sending = self.sending.enter().ok()?;
        Some((sending.free.clone(), sending.multi_buffer))
    }

    fn deliver_to(&self, s: &mut NicEgressRings, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut meter = self.pace.begin(picks.len());
        let mut rest = picks;
        let mut done = 0;
        while !rest.is_empty() {
            if meter.at_once() == 0 {
                return self.drop_all(DropReason::Device, rest, done);
            }
            if let Err(why) = s.stopped.or_else(|_| s.push(&mut meter)) {
                let why = if why == Errno::NETDOWN { DropReason::Idle } else { DropReason::Device };
                return self.drop_all(why, rest, done);
            }
            let (some, others) = rest.split_at(meter.at_once().min(rest.len()));
            let took = self.send_some(s, batch, some, scratch, &mut meter);
            done += took;
            if took < some.len() {
                break;
            }
            rest = others;
        }
        meter.end();
        done
    }

    /// Counts the frames `picks` as dropped. Returns the number of finished frames, including the `done` frames that
    /// were finished earlier.
    #[cold]
    fn drop_all(&self, why: DropReason, picks: &[u16], done: usize) -> usize {
        self.counters.dropped(why, picks.len() as u64);
        done + picks.len()
    }

    /// Sends the frames `picks` in order, until a frame finds no room. Returns the number of finished frames, sent or
    /// dropped.
    fn send_some(
        &self,
        s: &mut NicEgressRings,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
        meter: &mut Meter<'_, MachineClock>,
    ) -> usize {
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        s.reclaim();
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            match self.send(s, &frame, scratch) {
                PutResult::Done => {
                    frames += 1;
                    bytes += frame.len() as u64;
                }
                PutResult::TooLong => self.counters.dropped(DropReason::TooLong, 1),
                PutResult::Full => break,
            }
            done += 1;
        }
        s.stopped = s.push(meter);
        if s.stopped == Err(Errno::NXIO) {
            self.counters.dropped(DropReason::Device, frames);
        } else {
            self.counters.passed(frames, bytes);
        }
        done
    }

    fn send(&self, s: &mut NicEgressRings, frame: &FrameRef<'_>, scratch: &mut Scratch) -> PutResult {
        if FrameForm::of(frame, false) == FrameForm::AsIs {
            // SAFETY: `put` passes addresses with room for `n` bytes in this egress's buffers.
            return s.put(frame.len(), |at, to, n| unsafe { frame.copy_out_raw(at, to, n) });
        }
        let room = s.room();
        scratch.soften_into(frame, &self.counters, &room, |bytes| {
            s.put(bytes.len(), |at, to, n| {
                let rest = bytes.get(at..).unwrap_or(&[]);
                let n = rest.len().min(n);
                // SAFETY: `put` passes room in our buffers; `rest` is private.
                unsafe { copy_bytes(rest.as_ptr(), to, n) };
                n
            })
        })
    }
}

impl NicEgressRings {
    /// Makes the kernel send the frames in the tx ring while `meter` permits, which limits the worker's time for slow
    /// frames.
    fn push(&mut self, meter: &mut Meter<'_, MachineClock>) -> Result<(), Errno> {
        self.sender.push_while(|frames| meter.took(frames))
    }

    /// Frees the buffers whose frames were sent.
    fn reclaim(&mut self) {
        let count = self.sender.completion.ready();
        for _ in 0..count {
            let at = self.sender.completion.take();
            self.free.extend(self.buffers.index(at));
        }
        self.most_free = self.most_free.max(self.free.len());
        if count > 0 {
            self.sender.completion.release();
        }
    }

    /// Returns how much room there is for a frame that may have to be cut into segments.
    fn room(&mut self) -> SegmentRoom {
        let free = self.free.len().min(self.sender.tx.room() as usize);
        let all = self.most_free.min(self.sender.tx.size() as usize);
        SegmentRoom { free, all, bytes: self.buffers.chunk().unwrap_or(0) as usize, lead: 0 }
    }

    /// Writes a frame of `len` bytes to as many buffers as it needs. `read(at, to, n)` copies `n` bytes at offset `at`
    /// of the frame to the address `to`.
    #[inline]
    fn put(&mut self, len: usize, mut read: impl FnMut(usize, *mut u8, usize) -> usize) -> PutResult {
        let room = self.buffers.chunk().unwrap_or(0) as usize;
        let count = len.div_ceil(room.max(1));
        if len < SHORTEST || count > 1 && !self.multi_buffer {
            return PutResult::TooLong;
        }
        if self.free.len() < count || (self.sender.tx.room() as usize) < count {
            return PutResult::Full;
        }
        for i in 0..count {
            let at = i * room;
            let n = room.min(len - i * room);
            let Some(addr) = self.free.pop().and_then(|index| self.buffers.at(index)) else { break };
            let Some(place) = self.memory.at(addr, n as u64, 1) else { break };
            read(at, place.as_ptr(), n);
            let options = if i + 1 < count { CONTINUES } else { 0 };
            self.sender.tx.put(XdpDesc { addr, len: n as u32, options });
        }
        PutResult::Done
    }
}

impl Egress for NicEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let Ok(mut sending) = self.sending.enter() else { return picks.len() };
        self.deliver_to(&mut sending, batch, picks, scratch)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
