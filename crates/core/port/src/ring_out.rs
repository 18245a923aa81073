//! Egress to a local application's rx ring.
#![allow(unsafe_code)]

use std::sync::Arc;

use netvale_abi::slot::{NS_MOREFRAG, NS_PORT_SHIFT};
use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::host::HostRx;
use netvale_mem::lease::Lease;
use netvale_mem::lent::Loan;
use netvale_mem::notify::Doorbell;
use netvale_mem::offsets::OffsetRule;
use netvale_mem::{PortMem, RingMem};
use netvale_wire::offload::Offload;

use crate::ahead::SlotPrefetcher;
use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAGS};
use crate::hdr::HdrLen;
use crate::soft::{FrameForm, Scratch};

mod reservation;

pub use reservation::Reservation;

/// The switch's end of an rx ring. Any number of workers may deliver at the same time: each reserves slots (a *lease*),
/// copies frames into them and completes the lease.
pub struct RingEgress {
    rx: HostRx,
    hdr_len: HdrLen,
    /// Whether large UDP segments are delivered uncut (USO), if the port has a virtio-net header.
    uso: bool,
    counters: Arc<RingCounters>,
    /// Doorbell that the receiver rings when it makes room; `None` if the receiver does not support that.
    room_bell: Option<Arc<Doorbell>>,
    /// Keeps the ring allocated in its region during deliveries.
    _mem: Arc<PortMem>,
}

/// Flags of the slot of a single-slot frame: as in netmap, each slot contains the number of slots of its frame.
const ALONE: u16 = 1 << NS_PORT_SHIFT;

impl RingEgress {
    /// Creates the egress of `rx`, a ring of `mem`.
    pub fn new(mem: Arc<PortMem>, rx: HostRx, hdr_len: impl Into<HdrLen>, counters: Arc<RingCounters>) -> Self {
        RingEgress { rx, hdr_len: hdr_len.into(), uso: true, counters, room_bell: None, _mem: mem }
    }

    /// Cuts large UDP segments into datagrams, for receivers with a virtio-net header that do not support USO.
    #[must_use]
    pub fn without_uso(self) -> Self {
        RingEgress { uso: false, ..self }
    }

    /// Sets the doorbell that the receiver can be asked to ring when it makes room.
    #[must_use]
    pub fn with_room_bell(self, bell: Arc<Doorbell>) -> Self {
        RingEgress { room_bell: Some(bell), ..self }
    }

    pub(crate) fn room_bell(&self) -> Option<&Doorbell> {
        self.room_bell.as_deref()
    }

    /// As [`crate::Egress::takes_uso`].
    pub(crate) fn takes_uso(&self) -> bool {
        self.uso && self.hdr_len.get() > 0 && !self.hdr_len.is_cut()
    }

    /// Returns the form in which a frame reaches the receiver: unchanged, with its checksum filled in, or cut into
    /// segments.
    fn form(&self, frame: &FrameRef<'_>) -> FrameForm {
        let cut = match frame.offload() {
            Offload::Gso(gso) => self.hdr_len.is_cut() || !self.uso && !gso.kind.is_tcp(),
            _ => false,
        };
        FrameForm::of(frame, self.hdr_len.get() > 0 && !cut)
    }

    /// Like [`crate::Egress::reserve`], for a ring that a control thread may remove, such as a guest's. The ring cannot
    /// be removed until the reservation is dropped.
    #[inline]
    pub fn reserve_at<'b>(at: Loan<'b, Self>, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        let lease = at.takes_plain(batch).then(|| at.lease(picks.len() as u32, |room| room))?;
        if lease.is_none() && at.is_idle() {
            return None;
        }
        Some(Reservation::new(at, batch, picks, lease))
    }

    /// The host's end of the ring, with its indices and kick counters.
    pub fn host(&self) -> &HostRx {
        &self.rx
    }

    /// Delivers frames that fit into one slot each, unchanged: the common case, without a branch for each feature. The
    /// slots get the flags `mark` in addition to their own flags.
    #[inline]
    fn deliver_plain(&self, batch: &Batch, picks: &[u16], mark: u16) -> usize {
        let Some(lease) = self.lease(picks.len() as u32, |room| room) else { return self.without_room(picks) };
        let count = lease.count as usize;
        self.fill_any_plain(batch, picks, &lease, mark);
        self.rx.complete(lease);
        count
    }

    #[inline]
    fn fill_any_plain(&self, batch: &Batch, picks: &[u16], lease: &Lease, mark: u16) {
        let flags = ALONE | mark;
        if let Some(rule) = self.rx.side().offsets.rule() {
            return self.fill_at_offsets(&rule, batch, picks, lease, flags);
        }
        match (self.hdr_len.get(), batch.is_whole()) {
            (0, true) => self.fill_plain::<0, true>(batch, picks, lease, flags),
            (10, true) => self.fill_plain::<10, true>(batch, picks, lease, flags),
            (_, true) => self.fill_plain::<12, true>(batch, picks, lease, flags),
            (0, false) => self.fill_plain::<0, false>(batch, picks, lease, flags),
            (10, false) => self.fill_plain::<10, false>(batch, picks, lease, flags),
            (_, false) => self.fill_plain::<12, false>(batch, picks, lease, flags),
        }
    }

    /// Copies as many picks as the lease has slots, each after a header that requests no offload; `WHOLE`: all frames
    /// are single pieces. Not inlined: an inlined loop runs out of registers, which costs ten instructions per frame.
    #[inline(never)]
    fn fill_plain<const HDR: usize, const WHOLE: bool>(&self, batch: &Batch, picks: &[u16], lease: &Lease, flags: u16) {
        let ring = &self.rx.side().ring;
        let mut slot = lease.slot;
        let mut bytes = 0u64;
        let mut bad = 0u64;
        let mut ahead = SlotPrefetcher::<HDR>::new(ring, lease);
        for &pick in picks.get(..lease.count as usize).unwrap_or(picks) {
            ahead.step(ring);
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            // The header's length may have changed since the reservation.
            let fits = HDR == 0 || frame.len() + HDR <= ring.room(0) as usize;
            match ring.buf(ring.slot_word(slot).buf_idx).filter(|_| fits) {
                Some(buf) => {
                    // SAFETY: header and frame together have at most buf_size bytes, and the frame is a single piece if
                    // `WHOLE`; `buf` is a whole buffer of our live mapping; a frame from the same region is in another
                    // port's slot or, if the application named the buffer twice, at worst overlaps itself.
                    unsafe {
                        netvale_mem::copy::copy_bytes([0u8; HDR].as_ptr(), buf.as_ptr(), HDR);
                        if WHOLE {
                            frame.copy_single_to(buf.as_ptr().add(HDR));
                        } else {
                            frame.copy_out_raw(0, buf.as_ptr().add(HDR), frame.len());
                        }
                    }
                    bytes += frame.len() as u64;
                    ring.set_len_flags(slot, (frame.len() + HDR) as u16, flags);
                }
                None => {
                    bad += 1;
                    self.blank(slot);
                }
            }
            slot = ring.next(slot);
        }
        self.count(u64::from(lease.count) - bad, bytes, bad);
    }

    /// Like `fill_plain`, for rings whose slots contain an offset for the frame. A frame that does not fit after the
    /// offset is lost, as in netmap: its slot arrives empty.
    #[cold]
    fn fill_at_offsets(&self, rule: &OffsetRule, batch: &Batch, picks: &[u16], lease: &Lease, flags: u16) {
        let ring = &self.rx.side().ring;
        let header = [0u8; 12];
        let lead = (self.hdr_len.get() as usize).min(header.len());
        let mut slot = lease.slot;
        let mut bytes = 0u64;
        let mut bad = 0u64;
        let mut long = 0u64;
        for &pick in picks.iter().take(lease.count as usize) {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            let buf_idx = ring.slot_word(slot).buf_idx;
            let offset = self.agreed_offset(rule, slot);
            match ring.within(buf_idx, offset, lead + frame.len()) {
                Some(place) => {
                    // SAFETY: `within` found lead + len bytes of a buffer of our live mapping there.
                    unsafe {
                        netvale_mem::copy::copy_bytes(header.as_ptr(), place.as_ptr(), lead);
                        frame.copy_out_raw(0, place.as_ptr().add(lead), frame.len());
                    }
                    bytes += frame.len() as u64;
                    ring.set_len_flags(slot, (frame.len() + lead) as u16, flags);
                }
                None => {
                    *(if ring.buf(buf_idx).is_some() { &mut long } else { &mut bad }) += 1;
                    self.blank(slot);
                }
            }
            slot = ring.next(slot);
        }
        self.count(u64::from(lease.count) - bad - long, bytes, bad);
        if long > 0 {
            self.counters.dropped(DropReason::TooLong, long);
        }
    }

    /// The offset that a slot requests, in bytes, limited to the maximum. An offset above the maximum is corrected in
    /// the slot, too.
    fn agreed_offset(&self, rule: &OffsetRule, slot: u32) -> u32 {
        let ring = &self.rx.side().ring;
        let ptr = ring.ptr(slot);
        let offset = rule.of(ptr);
        if rule.put(ptr, offset) != ptr {
            ring.set_ptr(slot, rule.put(ptr, offset));
        }
        offset
    }

    /// Empties a slot whose frame was lost after it had found room. If the port has virtio-net headers, the slot gets a
    /// blank header, because receivers subtract the header's length from the slot's length.
    #[cold]
    fn blank(&self, slot: u32) {
        let side = self.rx.side();
        let ring = &side.ring;
        let buf_idx = side.ring.slot_word(slot).buf_idx;
        let offset = side.offsets.rule().map_or(0, |rule| self.agreed_offset(&rule, slot));
        let header = [0u8; 12];
        let lead = header.get(..self.hdr_len.get() as usize).unwrap_or(&header);
        // If the buffer lacks room after the offset, the slot's length becomes 0. An invalid buffer index needs no such
        // care: nobody can read such a slot.
        let told = ring.write(buf_idx, offset, lead) || ring.buf(buf_idx).is_none();
        ring.set_len_flags(slot, if told { lead.len() as u16 } else { 0 }, 0);
    }

    /// Empties `count` reserved slots from `slot` on that no frame fills and that can no longer be given back.
    #[cold]
    fn blank_from(&self, mut slot: u32, count: u32) {
        for _ in 0..count {
            self.blank(slot);
            slot = self.rx.side().ring.next(slot);
        }
    }

    /// Number of bytes that fit into a slot with the initial offset.
    #[inline]
    fn slot_size(&self) -> u32 {
        let side = self.rx.side();
        side.ring.room(side.offsets.initial())
    }

    /// The counters of frames delivered and dropped.
    pub(crate) fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }

    fn count(&self, frames: u64, bytes: u64, bad: u64) {
        self.counters.passed(frames, bytes);
        if bad > 0 {
            self.counters.dropped(DropReason::BadRxBuffer, bad);
        }
    }

    /// Whether every frame of a batch is a single piece that fits into one slot unchanged.
    #[inline]
    fn takes_plain(&self, batch: &Batch) -> bool {
        batch.is_plain(self.slot_size().saturating_sub(self.hdr_len.get()))
    }

    /// Whether every frame fits into one slot unchanged, even if some frames are in several pieces.
    fn takes_in_one(&self, batch: &Batch) -> bool {
        batch.is_short(self.slot_size().saturating_sub(self.hdr_len.get()))
    }

    #[inline]
    fn lease(&self, want: u32, fit: impl Fn(u32) -> u32) -> Option<Lease> {
        if self.rx.side().offsets.is_closed() {
            return None;
        }
        match self.rx.reserve(want, fit) {
            Ok(lease) => lease,
            Err(_) => {
                self.counters.dropped(DropReason::BadHead, 1);
                None
            }
        }
    }

    /// Delivers frames of any kind, including those that need several slots, a header, or an offload finished in
    /// software.
    fn deliver_any(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch, mark: u16) -> usize {
        // For each pick, the number of slots that this pick and all earlier picks need.
        let mut need = [0u32; BATCH];
        let mut total = 0u32;
        for (sum, &pick) in need.iter_mut().zip(picks) {
            total += batch.get(usize::from(pick)).map_or(0, |f| self.slots_for(&f));
            *sum = total;
        }
        let need = &need[..picks.len().min(BATCH)];
        let fit = |room: u32| need.iter().rev().copied().find(|&n| n <= room).unwrap_or(0);
        let Some(lease) = self.lease(total, fit) else {
            // A total of 0: no pick can ever be delivered, as all picked frames are too long.
            return if total == 0 { self.drop_too_long(picks.len()) } else { self.without_room(picks) };
        };
        let count = need.iter().take_while(|&&n| n <= lease.count).count();
        let mut out = SlotWriter::new(self, &lease, mark);
        for &pick in picks.iter().take(count) {
            if let Some(frame) = batch.get(usize::from(pick)) {
                self.write_frame(&frame, &mut out, scratch);
            }
        }
        let frames = out.frames;
        let bytes = out.bytes;
        let bad = out.bad;
        let long = out.long;
        let left = out.left;
        let used = lease.count - left;
        let next = out.slot;
        if let Some(lease) = self.rx.give_back(lease, used) {
            if lease.count > used {
                self.blank_from(next, left);
            }
            self.rx.complete(lease);
        }
        self.count(frames, bytes, bad);
        if long > 0 {
            self.counters.dropped(DropReason::TooLong, long);
        }
        count
    }

    /// Like [`crate::Egress::deliver`], with the flags `mark` for all slots.
    #[inline]
    pub(crate) fn deliver_marked(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch, mark: u16) -> usize {
        if self.takes_in_one(batch) {
            self.deliver_plain(batch, picks, mark)
        } else {
            self.deliver_any(batch, picks, scratch, mark)
        }
    }

    /// Whether the ring has no reader.
    pub fn is_idle(&self) -> bool {
        self.rx.side().offsets.is_idle()
    }

    /// Handles frames that found no room. If the ring has no reader, they are dropped and count as finished.
    #[cold]
    fn without_room(&self, picks: &[u16]) -> usize {
        if !self.is_idle() {
            return 0;
        }
        self.counters.dropped(DropReason::Idle, picks.len() as u64);
        picks.len()
    }

    fn drop_too_long(&self, count: usize) -> usize {
        self.counters.dropped(DropReason::TooLong, count as u64);
        count
    }

    /// Number of slots that a frame needs; 0 if the frame can never be delivered.
    fn slots_for(&self, frame: &FrameRef<'_>) -> u32 {
        let size = self.slot_size();
        if size <= self.hdr_len.get() {
            return 0;
        }
        let slots = |bytes: usize| (bytes as u32 + self.hdr_len.get()).div_ceil(size).max(1);
        let limit = MAX_FRAGS.min(self.rx.side().ring.num_slots() as usize - 1) as u32;
        match self.form(frame) {
            FrameForm::AsIs | FrameForm::Checksum => Some(slots(frame.len())).filter(|&n| n <= limit).unwrap_or(0),
            FrameForm::Segments { count, longest, last } => {
                let each = slots(longest);
                let all = each.saturating_mul(count - 1).saturating_add(slots(last));
                if each <= limit && all < self.rx.side().ring.num_slots() { all } else { 0 }
            }
        }
    }

    fn write_frame(&self, frame: &FrameRef<'_>, out: &mut SlotWriter<'_>, scratch: &mut Scratch) {
        if self.slots_for(frame) == 0 {
            self.counters.dropped(DropReason::TooLong, 1);
            return;
        }
        let sent = match self.form(frame) {
            FrameForm::AsIs => {
                out.frame(self.hdr_len.get(), frame);
                Ok(())
            }
            FrameForm::Checksum | FrameForm::Segments { .. } => {
                scratch.soften(frame, |bytes| out.bytes(self.hdr_len.get(), bytes)).map(|_| ())
            }
        };
        if let Err(why) = sent {
            self.counters.dropped(why, 1);
        }
    }
}

/// A monitor's ring for copies of frames that the watched port sends, marked `NS_TXMON` (netmap.h).
pub struct SentCopies(pub Arc<RingEgress>);

/// Writes frames into the slots of a lease one after another, each into one or more slots.
struct SlotWriter<'a> {
    egress: &'a RingEgress,
    slot: u32,
    left: u32,
    /// Flags that every slot gets, e.g. `NS_TXMON`.
    mark: u16,
    frames: u64,
    bytes: u64,
    bad: u64,
    long: u64,
    offsets: Option<OffsetRule>,
}

impl<'a> SlotWriter<'a> {
    fn new(egress: &'a RingEgress, lease: &Lease, mark: u16) -> Self {
        let offsets = egress.rx.side().offsets.rule();
        SlotWriter { egress, slot: lease.slot, left: lease.count, mark, frames: 0, bytes: 0, bad: 0, long: 0, offsets }
    }

    /// Writes a frame of a batch, after a virtio-net header if the receiver has headers.
    fn frame(&mut self, hdr_len: u32, frame: &FrameRef<'_>) {
        let header = crate::soft::header_bytes(&frame.offload());
        self.put(hdr_len, &header, frame.len(), |at, ring, buf, to, n| {
            if let Some(place) = ring.within(buf, to, n) {
                // SAFETY: `within` checked that the n bytes are inside a buffer of our live mapping.
                unsafe { frame.copy_out_raw(at, place.as_ptr(), n) };
            }
        });
    }

    /// Writes a frame from private memory, on which no offload is pending.
    fn bytes(&mut self, hdr_len: u32, bytes: &[u8]) {
        self.put(hdr_len, &[0; 12], bytes.len(), |at, ring, buf, to, n| {
            if let Some(part) = bytes.get(at..at + n) {
                ring.write(buf, to, part);
            }
        });
    }

    fn put(&mut self, hdr_len: u32, header: &[u8; 12], len: usize, copy: impl Fn(usize, &RingMem, u32, u32, usize)) {
        match self.offsets {
            None => self.put_at(hdr_len, header, len, |_| 0, copy),
            Some(rule) => self.put_at_offsets(&rule, hdr_len, header, len, copy),
        }
    }

    /// Like `put`, for rings whose slots contain an offset. A frame that finds less room in its slots than expected is
    /// lost, and the slots arrive empty.
    #[cold]
    fn put_at_offsets(
        &mut self,
        rule: &OffsetRule,
        hdr_len: u32,
        header: &[u8; 12],
        len: usize,
        copy: impl Fn(usize, &RingMem, u32, u32, usize),
    ) {
        let ring = &self.egress.rx.side().ring;
        let all = hdr_len as usize + len;
        let slots = all.div_ceil(self.egress.slot_size().max(1) as usize).clamp(1, MAX_FRAGS).min(self.left as usize);
        let mut offsets = [0u32; MAX_FRAGS];
        let mut room = 0;
        let mut slot = self.slot;
        for offset in offsets.iter_mut().take(slots) {
            *offset = self.egress.agreed_offset(rule, slot);
            room += ring.room(*offset) as usize;
            slot = ring.next(slot);
        }
        let leads = ring.room(offsets[0]) >= hdr_len;
        if room >= all && leads {
            return self.put_at(hdr_len, header, len, |k| offsets.get(k).copied().unwrap_or(0), copy);
        }
        for _ in 0..slots {
            self.egress.blank(self.slot);
            self.slot = ring.next(self.slot);
            self.left -= 1;
        }
        self.long += 1;
    }

    #[inline]
    fn put_at(
        &mut self,
        hdr_len: u32,
        header: &[u8; 12],
        len: usize,
        offset: impl Fn(usize) -> u32,
        copy: impl Fn(usize, &RingMem, u32, u32, usize),
    ) {
        let ring = &self.egress.rx.side().ring;
        let room = |k: usize, lead: u32| ring.room(offset(k)).saturating_sub(lead) as usize;
        let mut left = len.saturating_sub(room(0, hdr_len));
        let mut count = 1;
        while left > 0 && count < MAX_FRAGS {
            left = left.saturating_sub(room(count, 0));
            count += 1;
        }
        let count = (count as u16) << NS_PORT_SHIFT;
        let mut at = 0usize;
        let mut lead = hdr_len;
        let mut ok = true;
        let mut k = 0;
        loop {
            if self.left == 0 {
                return;
            }
            let begin = offset(k);
            let n = (len - at).min(room(k, lead));
            let buf = ring.slot_word(self.slot).buf_idx;
            ok &= lead == 0 || ring.write(buf, begin, &header[..lead as usize]);
            ok &= ring.buf(buf).is_some();
            copy(at, ring, buf, begin + lead, n);
            k += 1;
            at += n;
            let more = if at < len { NS_MOREFRAG } else { 0 };
            ring.set_len_flags(self.slot, (n as u32 + lead) as u16, count | more | self.mark);
            self.slot = ring.next(self.slot);
            self.left -= 1;
            lead = 0;
            if more == 0 {
                break;
            }
        }
        if ok {
            self.frames += 1;
            self.bytes += len as u64;
        } else {
            self.bad += 1
        }
    }
}

#[cfg(test)]
mod tests;
