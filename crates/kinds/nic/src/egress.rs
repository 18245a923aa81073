//! A queue as an egress of a switch: each frame is copied once, into memory from which the kernel or the driver sends.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use netvale_afxdp::socket::{Buffers, CONTINUES, Desc, Sender};
use netvale_mem::Mapping;
use netvale_mem::copy::copy_bytes;
use netvale_mem::lent::Lent;
use netvale_port::batch::Batch;
use netvale_port::pace::{Machine, Meter, Pace};
use netvale_port::soft::{Form, PutResult, Room};
use rustix::io::Errno;

use netvale_port::{DropReason, Egress, FrameRef, RingCounters, Scratch};

use crate::Keep;

/// Shortest frame: the kernel refuses frames shorter than an Ethernet header.
const SHORTEST: usize = 14;

/// The transmit side of a queue, as an egress.
pub struct NicEgress {
    /// Never empty: it only excludes other workers.
    sending: Lent<Sending>,
    counters: Arc<RingCounters>,
    pace: Pace,
}

struct Sending {
    sender: Sender,
    memory: Arc<Mapping>,
    buffers: Buffers,
    free: Vec<u32>,
    /// Most buffers ever free at a time.
    most_free: usize,
    /// Whether frames may take several buffers.
    multi_buffer: bool,
    /// The reason why the kernel took nothing last time: the interface is down or gone.
    stopped: Result<(), Errno>,
    _queue: Keep,
}

impl NicEgress {
    /// Creates an egress that sends from the buffers numbered `own`, and from those returned to it.
    pub fn new(
        sender: Sender,
        memory: Arc<Mapping>,
        buffers: Buffers,
        own: impl IntoIterator<Item = u32>,
        (multi_buffer, queue): (bool, Arc<impl Any + Send + Sync>),
    ) -> NicEgress {
        let free: Vec<u32> = own.into_iter().collect();
        let most_free = free.len();
        let stopped = Ok(());
        let sending = Sending { sender, memory, buffers, free, most_free, multi_buffer, stopped, _queue: queue };
        NicEgress { sending: Lent::with(sending), counters: Arc::default(), pace: Pace::default() }
    }

    /// The buffers without a frame, and whether frames may take several. `None` while a worker uses it.
    pub fn free(&self) -> Option<(Vec<u32>, bool)> {
        let sending = self.sending.enter().ok()?;
        Some((sending.free.clone(), sending.multi_buffer))
    }

    fn deliver_to(&self, s: &mut Sending, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
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

    /// Counts these frames as dropped. Returns the number handled, including `done` earlier ones.
    #[cold]
    fn drop_all(&self, why: DropReason, picks: &[u16], done: usize) -> usize {
        self.counters.dropped(why, picks.len() as u64);
        done + picks.len()
    }

    /// Sends as many of these frames as fit. Returns the number handled.
    fn send_some(
        &self,
        s: &mut Sending,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
        meter: &mut Meter<'_, Machine>,
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

    fn send(&self, s: &mut Sending, frame: &FrameRef<'_>, scratch: &mut Scratch) -> PutResult {
        if Form::of(frame, false) == Form::AsIs {
            // SAFETY: `put` passes room in our buffers.
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

impl Sending {
    /// Makes the kernel take frames, within their time limit.
    fn push(&mut self, meter: &mut Meter<'_, Machine>) -> Result<(), Errno> {
        self.sender.push_while(|frames| meter.took(frames))
    }

    /// Frees the buffers whose frames are sent.
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

    /// The room for frames to cut.
    fn room(&mut self) -> Room {
        let free = self.free.len().min(self.sender.tx.room() as usize);
        let all = self.most_free.min(self.sender.tx.size() as usize);
        Room { free, all, bytes: self.buffers.chunk().unwrap_or(0) as usize, lead: 0 }
    }

    /// Writes a frame to as many buffers as it takes.
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
            self.sender.tx.put(Desc { addr, len: n as u32, options });
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
