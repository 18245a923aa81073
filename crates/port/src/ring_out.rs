//! Egress to a local application's rx ring.
#![allow(unsafe_code)]

use std::sync::Arc;

use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::host::HostRx;
use netvale_mem::lease::Lease;
use netvale_mem::{PortMem, RingMem};

use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAGS};
use crate::drops::{DropReason, RingCounters};
use crate::hdr::HdrLen;
use crate::soft::{Form, Scratch};
use crate::{Egress, Reserved, Staged};

/// The switch's end of an rx ring. Any number of workers deliver at the same time: each leases slots, copies, completes.
pub struct RingEgress {
    rx: HostRx,
    hdr_len: HdrLen,
    counters: Arc<RingCounters>,
    /// The ring goes back to its region only when nobody delivers to it any more.
    _mem: Arc<PortMem>,
}

impl RingEgress {
    /// `rx` is a ring of `mem`.
    pub fn new(mem: Arc<PortMem>, rx: HostRx, hdr_len: impl Into<HdrLen>, counters: Arc<RingCounters>) -> Self {
        RingEgress { rx, hdr_len: hdr_len.into(), counters, _mem: mem }
    }

    /// The host's end of the ring: indices and kicks for `netvale show`.
    pub fn host(&self) -> &HostRx {
        &self.rx
    }

    /// Frames of one slot each, as they are: the common case, without a branch per feature.
    #[inline]
    fn deliver_plain(&self, batch: &Batch, picks: &[u16]) -> usize {
        let Some(lease) = self.lease(picks.len() as u32, |room| room) else { return 0 };
        let count = lease.count as usize;
        self.fill_any_plain(batch, picks, &lease);
        self.rx.complete(lease);
        count
    }

    #[inline]
    fn fill_any_plain(&self, batch: &Batch, picks: &[u16], lease: &Lease) {
        match self.hdr_len.get() {
            0 => self.fill_plain::<0>(batch, picks, lease),
            10 => self.fill_plain::<10>(batch, picks, lease),
            _ => self.fill_plain::<12>(batch, picks, lease),
        }
    }

    /// Copies as many picks as the lease has slots, each behind a header that says that nothing is left to do.
    #[inline]
    fn fill_plain<const HDR: usize>(&self, batch: &Batch, picks: &[u16], lease: &Lease) {
        let ring = &self.rx.side().ring;
        let mut slot = lease.slot;
        let (mut bytes, mut bad) = (0u64, 0u64);
        let mut ahead = Ahead::<HDR>::new(ring, lease);
        for &pick in picks.iter().take(lease.count as usize) {
            ahead.step(ring);
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            // The header's length may have been changed since room was made for the frames.
            let fits = HDR == 0 || frame.len() + HDR <= ring.buf_size() as usize;
            match ring.buf(ring.slot_word(slot).buf_idx).filter(|_| fits) {
                Some(buf) => {
                    // SAFETY: a plain frame has one piece and, behind the header, at most buf_size bytes; `buf` is a whole buffer of
                    // our live mapping; a frame from the same region lies in another port's slot or, if the application named the
                    // buffer twice, at worst overlaps itself.
                    unsafe {
                        netvale_mem::copy::copy_bytes([0u8; HDR].as_ptr(), buf.as_ptr(), HDR);
                        frame.copy_single_to(buf.as_ptr().add(HDR));
                    }
                    bytes += frame.len() as u64;
                    ring.set_len_flags(slot, (frame.len() + HDR) as u16, 0);
                }
                None => {
                    bad += 1;
                    ring.set_len_flags(slot, 0, 0);
                }
            }
            slot = ring.next(slot);
        }
        self.count(u64::from(lease.count) - bad, bytes, bad);
    }

    fn count(&self, frames: u64, bytes: u64, bad: u64) {
        self.counters.passed(frames, bytes);
        if bad > 0 {
            self.counters.dropped(DropReason::BadRxBuffer, bad);
        }
    }

    /// Whether every frame of a batch can be copied into one slot as it is.
    #[inline]
    fn takes_plain(&self, batch: &Batch) -> bool {
        batch.is_plain(self.rx.side().ring.buf_size() - self.hdr_len.get())
    }

    #[inline]
    fn lease(&self, want: u32, fit: impl Fn(u32) -> u32) -> Option<Lease> {
        match self.rx.reserve(want, fit) {
            Ok(lease) => lease,
            Err(_) => {
                self.counters.dropped(DropReason::BadHead, 1);
                None
            }
        }
    }

    /// Frames of several slots, with headers, or with offloads to be finished here.
    fn deliver_any(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        // Slots needed up to and including each pick.
        let mut need = [0u32; BATCH];
        let mut total = 0u32;
        for (sum, &pick) in need.iter_mut().zip(picks) {
            total += batch.get(usize::from(pick)).map_or(0, |f| self.slots_for(&f));
            *sum = total;
        }
        let need = &need[..picks.len().min(BATCH)];
        let fit = |room: u32| need.iter().rev().copied().find(|&n| n <= room).unwrap_or(0);
        let Some(lease) = self.lease(total, fit) else {
            // Nothing needed slots: all picks are dropped as too long.
            return if total == 0 { self.drop_too_long(picks.len()) } else { 0 };
        };
        let count = need.iter().take_while(|&&n| n <= lease.count).count();
        let mut out = SlotWriter::new(self, &lease);
        for &pick in picks.iter().take(count) {
            if let Some(frame) = batch.get(usize::from(pick)) {
                self.write_frame(&frame, &mut out, scratch);
            }
        }
        let (frames, bytes, bad) = (out.frames, out.bytes, out.bad);
        out.blank_rest();
        self.rx.complete(lease);
        self.count(frames, bytes, bad);
        count
    }

    fn drop_too_long(&self, count: usize) -> usize {
        self.counters.dropped(DropReason::TooLong, count as u64);
        count
    }

    /// Slots a frame takes here; 0 when it cannot be delivered at all.
    fn slots_for(&self, frame: &FrameRef<'_>) -> u32 {
        let size = self.rx.side().ring.buf_size();
        let slots = |bytes: usize| (bytes as u32 + self.hdr_len.get()).div_ceil(size).max(1);
        let limit = MAX_FRAGS.min(self.rx.side().ring.num_slots() as usize - 1) as u32;
        match Form::of(frame, self.hdr_len.get() > 0) {
            Form::AsIs | Form::Checksum => Some(slots(frame.len())).filter(|&n| n <= limit).unwrap_or(0),
            Form::Segments { count, longest } => {
                let each = slots(longest);
                let all = each.saturating_mul(count);
                if each <= limit && all < self.rx.side().ring.num_slots() { all } else { 0 }
            }
        }
    }

    fn write_frame(&self, frame: &FrameRef<'_>, out: &mut SlotWriter<'_>, scratch: &mut Scratch) {
        if self.slots_for(frame) == 0 {
            self.counters.dropped(DropReason::TooLong, 1);
            return;
        }
        let sent = match Form::of(frame, self.hdr_len.get() > 0) {
            Form::AsIs => {
                out.frame(self.hdr_len.get(), frame);
                Ok(())
            }
            Form::Checksum | Form::Segments { .. } => {
                scratch.soften(frame, |bytes| out.bytes(self.hdr_len.get(), bytes)).map(|_| ())
            }
        };
        if let Err(why) = sent {
            self.counters.dropped(why, 1);
        }
    }
}

/// Asks for the buffers of slots that are to be filled, some frames ahead: the receiver's core read them last.
struct Ahead<const HDR: usize> {
    slot: u32,
    left: u32,
}

impl<const HDR: usize> Ahead<HDR> {
    const FRAMES: u32 = 8;

    #[inline]
    fn ask(ring: &RingMem, slot: u32) {
        let buf_idx = ring.slot_word(slot).buf_idx;
        if HDR == 0 { ring.prefetch_write(buf_idx) } else { ring.prefetch_write_two(buf_idx) }
    }

    #[inline]
    fn new(ring: &RingMem, lease: &Lease) -> Self {
        let mut slot = lease.slot;
        for _ in 0..lease.count.min(Self::FRAMES) {
            Self::ask(ring, slot);
            slot = ring.next(slot);
        }
        Self { slot, left: lease.count.saturating_sub(Self::FRAMES) }
    }

    #[inline]
    fn step(&mut self, ring: &RingMem) {
        if self.left > 0 {
            Self::ask(ring, self.slot);
            (self.slot, self.left) = (ring.next(self.slot), self.left - 1);
        }
    }
}

impl Egress for RingEgress {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        if self.takes_plain(batch) { self.deliver_plain(batch, picks) } else { self.deliver_any(batch, picks, scratch) }
    }

    #[inline]
    fn staged(&self) -> Option<&dyn Staged> {
        Some(self)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

impl Staged for RingEgress {
    #[inline]
    fn reserve(&self, batch: &Batch, picks: &[u16]) -> Option<Reserved> {
        let lease = self.takes_plain(batch).then(|| self.lease(picks.len() as u32, |room| room))?;
        Some(lease.map_or(Reserved::Full, Reserved::Room))
    }

    #[inline]
    fn fill(&self, batch: &Batch, picks: &[u16], lease: Lease) {
        self.fill_any_plain(batch, picks, &lease);
        self.rx.end(lease);
    }

    #[inline]
    fn publish(&self) -> bool {
        self.rx.publish()
    }

    #[inline]
    fn kick_and_stop(&self) {
        self.rx.kick_and_stop();
    }

    #[inline]
    fn look_after(&self) {
        self.rx.look_after();
    }
}

/// Writes frames into the slots of a lease, one after the other, each into as many slots as it takes.
struct SlotWriter<'a> {
    egress: &'a RingEgress,
    slot: u32,
    left: u32,
    frames: u64,
    bytes: u64,
    bad: u64,
}

impl<'a> SlotWriter<'a> {
    fn new(egress: &'a RingEgress, lease: &Lease) -> Self {
        SlotWriter { egress, slot: lease.slot, left: lease.count, frames: 0, bytes: 0, bad: 0 }
    }

    /// A frame of a batch, behind its header if there is room for one.
    fn frame(&mut self, hdr_len: u32, frame: &FrameRef<'_>) {
        let header = crate::soft::header_bytes(&frame.offload());
        self.put(hdr_len, &header, frame.len(), |at, ring, buf, to, n| {
            if let Some(place) = ring.within(buf, to, n) {
                // SAFETY: `within` checked that n bytes of a buffer of our live mapping lie there.
                unsafe { frame.copy_out_raw(at, place.as_ptr(), n) };
            }
        });
    }

    /// A frame from private memory.
    fn bytes(&mut self, hdr_len: u32, bytes: &[u8]) {
        self.put(hdr_len, &[0; 12], bytes.len(), |at, ring, buf, to, n| {
            if let Some(part) = bytes.get(at..at + n) {
                ring.write(buf, to, part);
            }
        });
    }

    fn put(
        &mut self,
        hdr_len: u32,
        header: &[u8; 12],
        len: usize,
        copy: impl Fn(usize, &netvale_mem::RingMem, u32, u32, usize),
    ) {
        let ring = &self.egress.rx.side().ring;
        let size = ring.buf_size();
        let (mut at, mut lead, mut ok) = (0usize, hdr_len, true);
        loop {
            if self.left == 0 {
                return;
            }
            let n = (len - at).min((size - lead) as usize);
            let buf = ring.slot_word(self.slot).buf_idx;
            ok &= lead == 0 || ring.write(buf, 0, &header[..lead as usize]);
            ok &= ring.buf(buf).is_some();
            copy(at, ring, buf, lead, n);
            at += n;
            let more = if at < len { NS_MOREFRAG } else { 0 };
            ring.set_len_flags(self.slot, (n as u32 + lead) as u16, more);
            (self.slot, self.left, lead) = (ring.next(self.slot), self.left - 1, 0);
            if more == 0 {
                break;
            }
        }
        if ok { (self.frames, self.bytes) = (self.frames + 1, self.bytes + len as u64) } else { self.bad += 1 }
    }

    /// Slots of the lease that no frame used (a frame turned out bad): the receiver sees them empty.
    fn blank_rest(self) {
        let ring = &self.egress.rx.side().ring;
        let mut slot = self.slot;
        for _ in 0..self.left {
            ring.set_len_flags(slot, 0, 0);
            slot = ring.next(slot);
        }
    }
}
