//! Ingress from a local application's tx ring.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use netvale_abi::NetmapSlot;
use netvale_abi::slot::{NS_INDIRECT, NS_MOREFRAG, NS_NO_LEARN, NS_UNREADABLE};
use netvale_mem::PortMem;
use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::host::HostTx;
use netvale_mem::lease::BadHead;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::offsets::{AtStart, OffsetRule, OffsetSource};
use netvale_mem::region::RingSide;
use netvale_wire::vnet::VnetHdr;

use crate::Ingress;
use crate::batch::{Batch, MAX_FRAGS, MAX_FRAME};
use crate::hdr::HdrLen;

/// The switch's end of a tx ring.
///
/// Each slot is read once per batch; its buffer index and length are checked against the pool before they become a
/// pointer. A frame is always in the buffers of its slots: for indirect slots, the application's library copies the
/// data there, and `ptr` is never followed.
pub struct RingIngress<S = HostTx> {
    tx: S,
    /// Index of the slot after the last frame taken.
    taken: u32,
    hdr_len: HdrLen,
    doorbell: Doorbell,
    counters: Arc<RingCounters>,
    /// Keeps the ring allocated in its region while it is in use.
    _mem: Arc<PortMem>,
}

/// Number of slots whose buffers are prefetched together.
const AHEAD: u32 = 32;

/// The result of reading the slots of one frame.
enum NextFrame {
    /// A frame was added to the batch; index of the slot after the frame.
    Frame(u32),
    /// The frame is unusable; index of the slot after the frame, and the reason.
    Drop(u32, DropReason),
    /// The frame's last slot is not published yet.
    Incomplete,
}

/// The slots from which an ingress takes frames: published by an application, or filled by an egress
/// ([`crate::far_end`]).
pub trait Intake: Send {
    /// The ring and its status block.
    fn side(&self) -> &RingSide;

    /// Index of the first slot that was not returned to the application yet.
    fn hwcur(&self) -> u32;

    /// Index of the slot after the last filled slot, always inside the ring.
    ///
    /// # Errors
    /// [`BadHead`] if the application published an index outside the ring. The same bad value is reported only once.
    fn head(&mut self) -> Result<u32, BadHead>;

    /// Hands all slots before `to` back to the application.
    fn complete(&mut self, to: u32);

    /// Records that the slots up to `head` end in the middle of a frame, so [`Intake::arm`] reports new slots only once
    /// `head` moves.
    fn wait_beyond(&mut self, _head: u32) {}

    /// Requests a wake-up. Returns true if there are new slots already.
    fn arm(&self) -> bool;

    /// Turns wake-ups off.
    fn disarm(&self);

    /// Counts a kick received.
    fn count_kick(&self);
}

impl Intake for HostTx {
    #[inline]
    fn side(&self) -> &RingSide {
        HostTx::side(self)
    }

    #[inline]
    fn hwcur(&self) -> u32 {
        HostTx::hwcur(self)
    }

    #[inline]
    fn head(&mut self) -> Result<u32, BadHead> {
        HostTx::head(self)
    }

    #[inline]
    fn complete(&mut self, to: u32) {
        HostTx::complete(self, to);
    }

    fn wait_beyond(&mut self, head: u32) {
        HostTx::wait_beyond(self, head);
    }

    fn arm(&self) -> bool {
        HostTx::arm(self)
    }

    fn disarm(&self) {
        HostTx::disarm(self);
    }

    fn count_kick(&self) {
        HostTx::count_kick(self);
    }
}

impl RingIngress {
    /// Requests no kicks from the application: a switch that runs in the application's own calls needs no kicks.
    pub fn quiet(&self) {
        self.tx.disarm();
    }

    /// Whether the application published slots that are not taken yet.
    pub fn has_news(&self) -> bool {
        self.tx.has_news()
    }

    /// The counters of kicks sent to the application or suppressed, and of kicks received from it.
    pub fn kicks(&self) -> Arc<KickCounts> {
        self.tx.kicks()
    }
}

impl<S: Intake> RingIngress<S> {
    /// Creates the ingress of `tx`, a ring of `mem`. The application rings `doorbell`.
    pub fn new(
        mem: Arc<PortMem>,
        tx: S,
        doorbell: Doorbell,
        hdr_len: impl Into<HdrLen>,
        counters: Arc<RingCounters>,
    ) -> Self {
        let taken = tx.hwcur();
        RingIngress { tx, taken, hdr_len: hdr_len.into(), doorbell, counters, _mem: mem }
    }

    /// Reads the frame that begins at slot `i`.
    #[inline]
    fn next_frame<B: OffsetSource>(&self, begin: B, i: u32, head: u32, batch: &mut Batch) -> NextFrame {
        let slot = self.tx.side().ring.slot_word(i);
        let hdr_len = self.hdr_len.get();
        if slot.flags & (NS_MOREFRAG | NS_UNREADABLE) == 0 {
            if hdr_len == 0 {
                return self.single(begin, i, slot, batch);
            }
            if let Some(next) = self.behind_header(begin, i, slot, hdr_len, batch) {
                return next;
            }
        }
        self.multi(begin, i, head, batch)
    }

    /// Offset of a slot's frame in its buffer, in bytes. An indirect slot has offset 0, where the library copied the
    /// data.
    #[inline(always)]
    fn offset<B: OffsetSource>(&self, begin: B, i: u32, slot: &NetmapSlot) -> u32 {
        if slot.flags & NS_INDIRECT != 0 { 0 } else { begin.of_slot(&self.tx.side().ring, i) }
    }

    /// Adds a single-slot frame without its virtio-net header. `None` if the header requests an offload or the slot is
    /// invalid: `multi` then handles the frame.
    #[inline]
    fn behind_header<B: OffsetSource>(
        &self,
        begin: B,
        i: u32,
        slot: NetmapSlot,
        hdr_len: u32,
        batch: &mut Batch,
    ) -> Option<NextFrame> {
        let ring = &self.tx.side().ring;
        let buf = ring.within(slot.buf_idx, self.offset(begin, i, &slot), slot.len.into())?;
        let len = u32::from(slot.len).checked_sub(hdr_len).filter(|&len| len > 0)?;
        // The header's first two bytes are flags and the segmentation type: 0 means that no offload is requested.
        // SAFETY: at least hdr_len > 2 bytes of a buffer, of which two are read, once, into a register.
        if unsafe { buf.as_ptr().cast::<u16>().read_unaligned() } != 0 {
            return None;
        }
        // SAFETY: as in `single`, without the header.
        unsafe { batch.push(buf.as_ptr().add(hdr_len as usize), len) };
        if slot.flags & NS_NO_LEARN != 0 {
            batch.set_no_learn();
        }
        Some(NextFrame::Frame(ring.next(i)))
    }

    /// Prefetches the headers of the next frames, which are in the cache of the sender's core. Returns the slot after
    /// those frames.
    fn prefetch_headers(&self, from: u32, head: u32) -> u32 {
        let ring = &self.tx.side().ring;
        let mut i = from;
        for _ in 0..AHEAD {
            if i == head {
                break;
            }
            ring.prefetch_read_two(ring.slot_word(i).buf_idx);
            i = ring.next(i);
        }
        i
    }

    #[inline]
    fn single<B: OffsetSource>(&self, begin: B, i: u32, slot: NetmapSlot, batch: &mut Batch) -> NextFrame {
        let ring = &self.tx.side().ring;
        let behind = ring.next(i);
        let buf = match self.place(begin, i, &slot) {
            Ok(buf) => buf,
            Err(why) => return NextFrame::Drop(behind, why),
        };
        // The header is in the cache of the sender's core. Classification reads it after all slots have been examined.
        netvale_mem::copy::prefetch_read(buf.as_ptr());
        // SAFETY: `place` found `len` bytes of a buffer of the mapping that `tx` keeps alive; the slot goes back only
        // in `release`.
        unsafe { batch.push(buf.as_ptr(), u32::from(slot.len)) };
        if slot.flags & NS_NO_LEARN != 0 {
            batch.set_no_learn();
        }
        NextFrame::Frame(behind)
    }

    /// Address of a slot's bytes, checked to be inside one buffer; otherwise, the reason for dropping the frame.
    #[inline(always)]
    fn place<B: OffsetSource>(&self, begin: B, i: u32, slot: &NetmapSlot) -> Result<NonNull<u8>, DropReason> {
        let ring = &self.tx.side().ring;
        let buf = ring.buf(slot.buf_idx).ok_or(DropReason::BadBuffer)?;
        let offset = self.offset(begin, i, slot);
        if ring.buf_size().checked_sub(offset).is_none_or(|room| u32::from(slot.len) > room) {
            return Err(DropReason::BadLength);
        }
        // SAFETY: offset + len <= buf_size, the length of the buffer.
        Ok(unsafe { buf.add(offset as usize) })
    }

    /// Reads a frame of several slots, or a frame with a virtio-net header.
    fn multi<B: OffsetSource>(&self, begin: B, first: u32, head: u32, batch: &mut Batch) -> NextFrame {
        let ring = &self.tx.side().ring;
        let mut pieces = [(std::ptr::null(), 0u32); MAX_FRAGS];
        let mut i = first;
        let mut count = 0usize;
        let mut wrong = None;
        let mut flags = 0;
        loop {
            if i == head && count > 0 {
                return self.unfinished(first, head, count);
            }
            let slot = ring.slot_word(i);
            let at = i;
            i = ring.next(i);
            flags |= slot.flags;
            match self.piece(begin, at, &slot, count == 0) {
                Ok(p) => match pieces.get_mut(count) {
                    Some(place) => *place = p,
                    None => wrong = Some(DropReason::EndlessFrame),
                },
                Err(why) => wrong = wrong.or(Some(why)),
            }
            count += 1;
            if slot.flags & NS_MOREFRAG == 0 {
                break;
            }
        }
        match wrong.map_or_else(|| self.push(&mut pieces[..count.min(MAX_FRAGS)], batch), Err) {
            Err(why) => NextFrame::Drop(i, why),
            Ok(()) => {
                if flags & NS_NO_LEARN != 0 {
                    batch.set_no_learn();
                }
                NextFrame::Frame(i)
            }
        }
    }

    /// Handles slots that end in the middle of a frame: waits for the rest, or drops the frame if the rest cannot
    /// arrive.
    fn unfinished(&self, first: u32, head: u32, count: usize) -> NextFrame {
        let ring_is_full = first == self.tx.hwcur() && self.tx.side().ring.next(head) == first;
        if count >= MAX_FRAGS || ring_is_full {
            NextFrame::Drop(head, DropReason::EndlessFrame)
        } else {
            NextFrame::Incomplete
        }
    }

    fn piece<B: OffsetSource>(
        &self,
        begin: B,
        i: u32,
        slot: &NetmapSlot,
        is_first: bool,
    ) -> Result<(*const u8, u32), DropReason> {
        const LOST: u16 = NS_INDIRECT | NS_UNREADABLE;
        let lost = slot.flags & LOST == LOST;
        // As in netmap, a frame whose first piece is lost is dropped; if a later piece is lost, the frame passes
        // without that piece.
        if lost && is_first {
            return Err(DropReason::Indirect);
        }
        let bytes = self.place(begin, i, slot)?;
        Ok((bytes.as_ptr().cast_const(), if lost { 0 } else { u32::from(slot.len) }))
    }

    fn push(&self, pieces: &mut [(*const u8, u32)], batch: &mut Batch) -> Result<(), DropReason> {
        let header = self.strip_header(pieces)?;
        let total: usize = pieces.iter().map(|p| p.1 as usize).sum();
        if total > MAX_FRAME {
            return Err(DropReason::TooLong);
        }
        let used =
            if pieces.first().is_some_and(|p| p.1 == 0) && pieces.len() > 1 { &pieces[1..] } else { &pieces[..] };
        // SAFETY: every piece passed `piece` (that many bytes of a buffer of the live mapping), the first at most
        // shortened by the header; the slots go back only in `release`.
        if !unsafe { batch.push_frags(used) } {
            return Err(DropReason::EndlessFrame);
        }
        let Some(header) = header else { return Ok(()) };
        crate::soft::set_offload(batch, &header)
    }

    /// Removes the virtio-net header from the first piece. Returns a copy of the header; `None` if the port has no
    /// headers.
    fn strip_header(&self, pieces: &mut [(*const u8, u32)]) -> Result<Option<VnetHdr>, DropReason> {
        let hdr_len = self.hdr_len.get();
        if hdr_len == 0 {
            return Ok(None);
        }
        let Some((ptr, len)) = pieces.first_mut() else { return Err(DropReason::BadVnetHeader) };
        if *len < hdr_len {
            return Err(DropReason::BadVnetHeader);
        }
        let mut bytes = [0u8; 12];
        let n = hdr_len.min(12) as usize;
        // SAFETY: n <= hdr_len <= len readable bytes at ptr, `bytes` is private; stepping over them stays inside the
        // buffer.
        unsafe {
            netvale_mem::copy::copy_bytes(*ptr, bytes.as_mut_ptr(), n);
            *ptr = ptr.add(n);
        }
        *len -= hdr_len;
        crate::soft::parse_header(&bytes[..n]).map(Some).ok_or(DropReason::BadVnetHeader)
    }

    /// Adds frames up to slot `head` while the batch has room.
    #[inline(always)]
    fn collect<B: OffsetSource>(&mut self, begin: B, head: u32, batch: &mut Batch) {
        let mut i = self.tx.hwcur();
        let headers = self.hdr_len.get() > 0;
        let mut asked = i;
        while i != head && batch.has_room_for_frags() {
            if headers && i == asked {
                asked = self.prefetch_headers(i, head);
            }
            match self.next_frame(begin, i, head, batch) {
                NextFrame::Frame(behind) => i = behind,
                NextFrame::Drop(behind, why) => {
                    self.counters.dropped(why, 1);
                    i = behind;
                }
                NextFrame::Incomplete => {
                    self.tx.wait_beyond(head);
                    break;
                }
            }
        }
        self.taken = i;
        let bytes = batch.bytes();
        if !batch.is_empty() {
            self.counters.passed(batch.len() as u64, bytes);
        }
    }

    #[cold]
    fn collect_at_offsets(&mut self, rule: OffsetRule, head: u32, batch: &mut Batch) {
        self.collect(rule, head, batch);
    }
}

impl<S: Intake> Ingress for RingIngress<S> {
    // SAFETY: frames are in buffers of slots that go back only in `release`, in a mapping that `tx` keeps alive.
    #[inline]
    unsafe fn take(&mut self, batch: &mut Batch) {
        let head = match self.tx.head() {
            Ok(head) => head,
            Err(_) => {
                self.counters.dropped(DropReason::BadHead, 1);
                return;
            }
        };
        match self.tx.side().offsets.rule() {
            None => self.collect(AtStart, head, batch),
            Some(rule) => self.collect_at_offsets(rule, head, batch),
        }
    }

    #[inline]
    fn release(&mut self) {
        if self.taken != self.tx.hwcur() {
            self.tx.complete(self.taken);
        }
    }

    fn arm(&mut self) -> bool {
        self.tx.arm()
    }

    fn disarm(&mut self) {
        self.tx.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }

    fn woken(&mut self) {
        if self.doorbell.drain() {
            self.tx.count_kick();
        }
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
