//! Towards the device: the transmit queue as an egress. A frame is copied into as many buffers as it takes.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;

use netvale_mem::copy::copy_bytes;
use netvale_port::batch::{Batch, MAX_FRAGS};
use netvale_port::soft::{Form, header_bytes};
use netvale_port::{DropReason, Egress, FrameRef, RingCounters, Scratch};

use super::BadDevice;
use super::frontend::Started;
use super::ram::BUF;
use crate::driver::port::{DriverSlot, Trouble};

/// The transmit queue.
pub struct VirtioEgress {
    slot: Arc<DriverSlot>,
    trouble: Trouble,
    counters: Arc<RingCounters>,
}

/// Whether a frame found buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    Done,
    Full,
    TooLong,
}

impl VirtioEgress {
    /// Sends on the queue in `slot`.
    pub fn new(slot: Arc<DriverSlot>, trouble: Trouble, counters: Arc<RingCounters>) -> Self {
        VirtioEgress { slot, trouble, counters }
    }

    fn deliver_to(
        &self,
        s: &mut Started,
        batch: &Batch,
        picks: &[u16],
        scratch: &mut Scratch,
    ) -> Result<usize, BadDevice> {
        let (mut done, mut frames, mut bytes) = (0, 0, 0);
        if s.queue.ids().free() < picks.len() {
            reclaim(s)?;
        }
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            let mut put = self.send(s, &frame, scratch);
            if put == Put::Full {
                reclaim(s)?;
                put = self.send(s, &frame, scratch);
            }
            match put {
                Put::Done => (frames, bytes) = (frames + 1, bytes + frame.len() as u64),
                Put::TooLong => self.counters.dropped(DropReason::TooLong, 1),
                Put::Full => break,
            }
            done += 1;
        }
        if s.queue.publish() {
            s.kick.ring();
        }
        self.counters.passed(frames, bytes);
        Ok(done)
    }

    fn send(&self, s: &mut Started, frame: &FrameRef<'_>, scratch: &mut Scratch) -> Put {
        if s.framing.to_device(frame) == Form::AsIs {
            let header = header_bytes(&frame.offload());
            // SAFETY: `put` hands out room in buffers of ours.
            return put(s, &header, frame.len(), |at, to, n| unsafe { frame.copy_out_raw(at, to, n) });
        }
        let (mut result, mut any) = (Put::Done, false);
        let softened = scratch.soften(frame, |bytes| {
            if result == Put::Done {
                result = put(s, &[0; 12], bytes.len(), |at, to, n| {
                    let rest = bytes.get(at..).unwrap_or(&[]);
                    let n = rest.len().min(n);
                    // SAFETY: `put` hands out room in buffers of ours; `rest` is private.
                    unsafe { copy_bytes(rest.as_ptr(), to, n) };
                    n
                });
                any |= result == Put::Done;
            }
        });
        match (softened, result) {
            (Err(why), _) => self.counters.dropped(why, 1),
            // Segments that found no room after others did are lost, as on a wire.
            (Ok(_), Put::Full) if any => self.counters.dropped(DropReason::NoRoom, 1),
            (Ok(_), other) => return other,
        }
        Put::Done
    }
}

/// Takes back what the device has sent.
fn reclaim(s: &mut Started) -> Result<(), BadDevice> {
    while let Some(used) = s.queue.next_used()? {
        s.queue.ids().recycle(used.id);
    }
    Ok(())
}

/// Header and frame into a chain of buffers, and the chain to the device.
fn put(s: &mut Started, header: &[u8; 12], len: usize, mut read: impl FnMut(usize, *mut u8, usize) -> usize) -> Put {
    let (hdr_len, size) = (s.framing.hdr_len, BUF as usize);
    let need = hdr_len + len;
    let count = need.div_ceil(size);
    if count > MAX_FRAGS || count > usize::from(s.ram.size()) {
        return Put::TooLong;
    }
    let Some(first) = s.queue.ids().take(count) else { return Put::Full };
    let (mut id, mut at) = (Some(first), 0);
    while let Some(i) = id {
        let to = s.ram.buf(i).as_ptr();
        let skip = hdr_len.saturating_sub(at);
        let n = (need - at).min(size);
        // SAFETY: the buffer has `size` bytes, and the header, which is shorter, comes to lie in the first one.
        unsafe {
            copy_bytes(header.as_ptr(), to, skip);
            read(at + skip - hdr_len, to.add(skip), n - skip);
        }
        at += n;
        id = s.queue.ids().next(i);
    }
    let left = Cell::new(need as u32);
    s.queue.post(&s.ram, first, false, |_| {
        let n = left.get().min(BUF);
        left.set(left.get() - n);
        n
    });
    Put::Done
}

impl Egress for VirtioEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut inside = self.slot.enter();
        let Some(s) = inside.as_mut() else {
            self.counters.dropped(DropReason::NotReady, picks.len() as u64);
            return picks.len();
        };
        self.deliver_to(s, batch, picks, scratch).unwrap_or_else(|why| {
            self.trouble.report(why);
            *inside = None;
            picks.len()
        })
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
