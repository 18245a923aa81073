//! Checksum and segmentation in software, for destinations that lack the offload.
//!
//! A frame crosses the switch as it came: a 64 KiB segment without a checksum stays one as long as its receiver takes such frames. Only
//! here, at the boundary to one that does not, is the work done: on a private copy of the frame, so that nothing a peer
//! changes meanwhile is relied upon.

use netvale_mem::drops::{DropReason, RingCounters};
use netvale_wire::checksum::Sum;
use netvale_wire::offload::{Gso, MAX_HEADERS, Offload};
use netvale_wire::segment::{Segmenter, complete_checksum};
use netvale_wire::vnet::{Form as HdrForm, VnetHdr};

use crate::batch::{Batch, FrameRef, MAX_FRAME};
use crate::gather::Work;

/// In which form a frame reaches a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Unchanged.
    AsIs,
    /// With its checksum filled in.
    Checksum,
    /// Cut into segments.
    Segments {
        /// How many.
        count: u32,
        /// Bytes of the longest, headers included.
        longest: usize,
    },
}

impl Form {
    /// The form for a destination that does, or does not, take a virtio-net header and so the offloads.
    #[inline]
    pub fn of(frame: &FrameRef<'_>, takes_offloads: bool) -> Form {
        match frame.offload() {
            _ if takes_offloads => Form::AsIs,
            Offload::None => Form::AsIs,
            Offload::CsumPartial { .. } => Form::Checksum,
            Offload::Gso(gso) => {
                let (hdr_len, size) = (usize::from(gso.hdr_len), usize::from(gso.gso_size).max(1));
                let payload = frame.len().saturating_sub(hdr_len);
                Form::Segments { count: payload.div_ceil(size).max(1) as u32, longest: hdr_len + size.min(payload) }
            }
        }
    }
}

/// Checks `header` against the frame pushed last and notes what is to be done to it.
///
/// # Errors
/// [`DropReason::BadVnetHeader`]; the frame is taken out of the batch again.
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

/// Reads a virtio-net header of 10 or 12 bytes; none for other lengths.
pub fn parse_header(bytes: &[u8]) -> Option<VnetHdr> {
    VnetHdr::parse(bytes, HdrForm::from_len(bytes.len())?).ok()
}

/// The 12-byte virtio-net header that says `offload`; its first 10 bytes are the short form.
pub fn header_bytes(offload: &Offload) -> [u8; 12] {
    offload.to_header().to_bytes_mrg()
}

/// Whether a frame found room at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It did.
    Done,
    /// There is none now.
    Full,
    /// It never will.
    TooLong,
}

/// Private memory to work in. One a thread.
#[derive(Debug)]
pub struct Scratch {
    frame: Vec<u8>,
    segment: Vec<u8>,
    /// For [`crate::gro`]; away while that works.
    pub(crate) gro: Option<Box<Work>>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// The only allocations it makes.
    pub fn new() -> Self {
        Scratch {
            frame: vec![0; MAX_FRAME],
            segment: vec![0; MAX_FRAME + MAX_HEADERS],
            gro: Some(Box::new(Work::new())),
        }
    }

    /// Finishes what is left to do to `frame` and passes the resulting frames on, in order. Returns how many there were.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] when the frame's headers no longer are what they were when they were checked.
    pub fn soften(&mut self, frame: &FrameRef<'_>, mut out: impl FnMut(&[u8])) -> Result<u32, DropReason> {
        let len = frame.copy_out(0, &mut self.frame);
        let Some(bytes) = self.frame.get_mut(..len) else { return Err(DropReason::TooLong) };
        match frame.offload() {
            Offload::None => {}
            Offload::CsumPartial { start, offset } => {
                complete_checksum(&mut [bytes], start, offset).map_err(|_| DropReason::BadVnetHeader)?;
            }
            Offload::Gso(gso) => return segments(bytes, &gso, &mut self.segment, out),
        }
        out(&self.frame[..len]);
        Ok(1)
    }
}

impl Scratch {
    /// As [`Scratch::soften`], each resulting frame going to `put` as long as there is room. Frames lost for another reason than room are counted
    /// in `counters`.
    pub fn soften_into(
        &mut self,
        frame: &FrameRef<'_>,
        counters: &RingCounters,
        mut put: impl FnMut(&[u8]) -> Put,
    ) -> Put {
        let (mut result, mut any) = (Put::Done, false);
        let softened = self.soften(frame, |bytes| {
            if result == Put::Done {
                result = put(bytes);
                any |= result == Put::Done;
            }
        });
        match (softened, result) {
            (Err(why), _) => counters.dropped(why, 1),
            // Segments that found no room after others did are lost, as on a wire.
            (Ok(_), Put::Full) if any => counters.dropped(DropReason::NoRoom, 1),
            (Ok(_), other) => return other,
        }
        Put::Done
    }
}

fn segments(frame: &[u8], gso: &Gso, place: &mut [u8], mut out: impl FnMut(&[u8])) -> Result<u32, DropReason> {
    let (headers, payload) = frame.split_at_checked(usize::from(gso.hdr_len)).ok_or(DropReason::BadVnetHeader)?;
    let mut cutter = Segmenter::new(headers, payload.len(), gso).map_err(|_| DropReason::BadVnetHeader)?;
    let mut count = 0;
    while let Some(segment) = cutter.next_segment() {
        let part = payload.get(segment.payload()).unwrap_or(&[]);
        let header = segment.finish_checksum(Sum::of(part));
        let (h, end) = (header.len(), header.len() + part.len());
        let Some(bytes) = place.get_mut(..end) else { return Err(DropReason::TooLong) };
        bytes[..h].copy_from_slice(header);
        bytes[h..].copy_from_slice(part);
        out(bytes);
        count += 1;
    }
    Ok(count)
}
