//! Checksum and segmentation in software, for destinations that lack the offload.
//!
//! A frame crosses the switch unchanged, for example as a 64 KiB segment without a checksum. For a receiver that does
//! not accept such frames, this module finishes the offload, on a private copy of the frame: a peer that changes the
//! original meanwhile has no effect.

use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::steps::{Step, step};
use netvale_wire::checksum::Sum;
use netvale_wire::offload::{Gso, MAX_HEADERS, Offload};
use netvale_wire::segment::{Segmenter, complete_checksum};
use netvale_wire::vnet::{VnetForm, VnetHdr};

use crate::batch::{Batch, FrameRef, MAX_FRAME};
use crate::gather::MergeScratch;
use crate::origin::Origin;

/// The form in which a frame reaches a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameForm {
    /// Unchanged.
    AsIs,
    /// With the pending checksum filled in.
    Checksum,
    /// Cut into segments.
    Segments {
        /// Number of segments.
        count: u32,
        /// Length in bytes of each segment but the last, headers included.
        longest: usize,
        /// Length of the last segment in bytes, headers included.
        last: usize,
    },
}

impl FrameForm {
    /// Returns the form in which a frame reaches a destination. `takes_offloads`: whether the destination accepts
    /// frames with pending offloads, because it has virtio-net headers.
    #[inline]
    pub fn of(frame: &FrameRef<'_>, takes_offloads: bool) -> FrameForm {
        match frame.offload() {
            _ if takes_offloads => FrameForm::AsIs,
            Offload::None => FrameForm::AsIs,
            Offload::CsumPartial { .. } => FrameForm::Checksum,
            Offload::Gso(gso) => {
                let hdr_len = usize::from(gso.hdr_len);
                let size = usize::from(gso.gso_size).max(1);
                let payload = frame.len().saturating_sub(hdr_len);
                let count = payload.div_ceil(size).max(1);
                let longest = size.min(payload);
                let last = hdr_len + payload - (count - 1) * longest;
                FrameForm::Segments { count: count as u32, longest: hdr_len + longest, last }
            }
        }
    }
}

/// Checks `header` against the last frame of the batch and sets the offload pending on that frame.
///
/// # Errors
/// [`DropReason::BadVnetHeader`] if the header does not match; the frame is then removed from the batch.
pub fn set_offload(batch: &mut Batch, header: &VnetHdr) -> Result<(), DropReason> {
    let mut prefix = [0u8; MAX_HEADERS];
    let Some(frame) = batch.len().checked_sub(1).and_then(|i| batch.get(i)) else { return Ok(()) };
    let known = if header.flags | header.gso_type == 0 { 0 } else { frame.copy_out(0, &mut prefix) };
    match header.check(frame.len(), &prefix[..known]) {
        Ok(offload) => {
            batch.set_offload(offload);
            Ok(())
        }
        Err(_) => {
            batch.pop();
            Err(DropReason::BadVnetHeader)
        }
    }
}

/// Reads a virtio-net header of 10 or 12 bytes; `None` for other lengths.
pub fn parse_header(bytes: &[u8]) -> Option<VnetHdr> {
    VnetHdr::parse(bytes, VnetForm::from_len(bytes.len())?).ok()
}

/// Encodes `offload` as a 12-byte virtio-net header; its first 10 bytes are the short form.
pub fn header_bytes(offload: &Offload) -> [u8; 12] {
    offload.to_header().to_bytes_mrg()
}

/// Outcome of putting a frame into a destination's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// The frame found room.
    Done,
    /// There is no room at present.
    Full,
    /// The frame is too long and can never find room.
    TooLong,
}

/// A destination's room for the segments of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRoom {
    /// Number of free buffers.
    pub free: usize,
    /// Total number of buffers.
    pub all: usize,
    /// Size of a buffer in bytes.
    pub bytes: usize,
    /// Bytes in front of each segment, e.g. its virtio-net header.
    pub lead: usize,
}

impl SegmentRoom {
    /// Whether to deliver a frame now: either all its segments find room, or the segments are so numerous that they can
    /// never find room.
    fn takes(&self, form: FrameForm) -> bool {
        let FrameForm::Segments { count, longest, .. } = form else { return true };
        let need = (count as usize).saturating_mul((self.lead + longest).div_ceil(self.bytes.max(1)));
        need <= self.free || need > self.all
    }
}

/// Private memory for deliveries, one per thread.
#[derive(Debug)]
pub struct Scratch {
    /// Whether frames may wait for room: a frame is then cut only if all its segments find room.
    whole: bool,
    /// The sender of the current delivery's frames.
    origin: Origin,
    frame: Vec<u8>,
    segment: Vec<u8>,
    /// The memory of [`crate::gro`]; `None` while it is in use.
    pub(crate) gro: Option<Box<MergeScratch>>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Creates the memory. No other method allocates.
    pub fn new() -> Self {
        Scratch {
            whole: false,
            origin: Origin::UNKNOWN,
            frame: vec![0; MAX_FRAME],
            segment: vec![0; MAX_FRAME + MAX_HEADERS],
            gro: Some(Box::new(MergeScratch::new())),
        }
    }

    /// Finishes the offload pending on `frame` in software, and passes the resulting frames to `out`, in order. Returns
    /// the number of resulting frames.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] if the frame's headers have changed since they were checked.
    pub fn soften(&mut self, frame: &FrameRef<'_>, mut out: impl FnMut(&[u8])) -> Result<u32, DropReason> {
        let len = frame.copy_out(0, &mut self.frame);
        let Some(bytes) = self.frame.get_mut(..len) else { return Err(DropReason::TooLong) };
        match frame.offload() {
            Offload::None => {}
            Offload::CsumPartial { start, offset } => {
                complete_checksum(&mut [bytes], start, offset).map_err(|_| DropReason::BadVnetHeader)?;
                step(Step::Summed);
            }
            Offload::Gso(gso) => return segments(bytes, &gso, &mut self.segment, out),
        }
        out(&self.frame[..len]);
        Ok(1)
    }
}

impl Scratch {
    /// Sets whether frames of later deliveries may wait. If so, a frame is cut only if there is room for all its
    /// segments.
    #[inline]
    pub fn may_wait(&mut self, whole: bool) {
        self.whole = whole;
    }

    /// Sets the sender of later deliveries.
    #[inline]
    pub fn sent_by(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The sender of the current delivery's frames, as set by [`Scratch::sent_by`].
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether frames of the current delivery may wait for room, as set by [`Scratch::may_wait`].
    pub fn may_have_to_wait(&self) -> bool {
        self.whole
    }

    /// Like [`Scratch::soften`], but passes the resulting frames to `put` only while `put` finds room. Frames lost for
    /// reasons other than lack of room are counted in `counters`. If frames may wait, a frame is not begun until all
    /// its segments fit into `room`.
    pub fn soften_into(
        &mut self,
        frame: &FrameRef<'_>,
        counters: &RingCounters,
        room: &SegmentRoom,
        mut put: impl FnMut(&[u8]) -> PutResult,
    ) -> PutResult {
        if self.whole && !room.takes(FrameForm::of(frame, false)) {
            return PutResult::Full;
        }
        let mut result = PutResult::Done;
        let mut any = false;
        let softened = self.soften(frame, |bytes| {
            if result == PutResult::Done {
                result = put(bytes);
                any |= result == PutResult::Done;
            }
        });
        match (softened, result) {
            (Err(why), _) => counters.dropped(why, 1),
            // Earlier segments were delivered; the rest is lost, as on a wire.
            (Ok(_), PutResult::Full) if any => counters.dropped(DropReason::NoRoom, 1),
            (Ok(_), other) => return other,
        }
        PutResult::Done
    }
}

fn segments(frame: &[u8], gso: &Gso, place: &mut [u8], mut out: impl FnMut(&[u8])) -> Result<u32, DropReason> {
    let (headers, payload) = frame.split_at_checked(usize::from(gso.hdr_len)).ok_or(DropReason::BadVnetHeader)?;
    let mut cutter = Segmenter::new(headers, payload.len(), gso).map_err(|_| DropReason::BadVnetHeader)?;
    let mut count = 0;
    while let Some(segment) = cutter.next_segment() {
        let part = payload.get(segment.payload()).unwrap_or(&[]);
        let header = segment.finish_checksum(Sum::of(part));
        let h = header.len();
        let end = header.len() + part.len();
        let Some(bytes) = place.get_mut(..end) else { return Err(DropReason::TooLong) };
        bytes[..h].copy_from_slice(header);
        bytes[h..].copy_from_slice(part);
        out(bytes);
        count += 1;
    }
    step(Step::Cut(count));
    Ok(count)
}
