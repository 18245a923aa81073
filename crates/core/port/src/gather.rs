//! Merges neighbouring frames of a batch into larger frames, whose payloads stay in their original pieces.
#![allow(unsafe_code)]

use netvale_wire::Merge;
use netvale_wire::offload::{MAX_HEADERS, Offload};

use crate::batch::{BATCH, Batch, FrameRef, MAX_FRAGS, MAX_FRAME};

/// Private memory for merging frames; each thread has its own.
#[derive(Debug)]
pub(crate) struct MergeScratch {
    /// The batch to deliver: merged frames, and frames that stay unchanged.
    pub(crate) out: Batch,
    /// For each frame of `out`, the number of frames merged into it.
    pub(crate) spans: Vec<u16>,
    /// The indices 0, 1, 2, …, as the picks of a delivery: the first [`Batch::len`] select all frames of `out`.
    pub(crate) all: Vec<u16>,
    /// Headers of the merged frames. The memory stays in place while `out` refers to it.
    heads: Box<[[u8; MAX_HEADERS]]>,
    /// Buffer for a copy of the next frame to merge: of its headers, or of the whole frame.
    look: Box<[u8]>,
}

/// A merged frame under construction. Its first piece is for the new headers, the other pieces are the payloads.
struct GrowingFrame {
    merge: Merge,
    first: u16,
    pieces: [(*const u8, u32); MAX_FRAGS],
    used: usize,
}

impl MergeScratch {
    pub(crate) fn new() -> MergeScratch {
        MergeScratch {
            out: Batch::new(),
            spans: Vec::with_capacity(BATCH),
            all: (0..BATCH as u16).collect(),
            heads: vec![[0; MAX_HEADERS]; BATCH].into_boxed_slice(),
            look: vec![0; MAX_FRAME].into_boxed_slice(),
        }
    }

    /// Fills `out` with the picked frames until `out` is full, and merges adjacent frames where possible; UDP datagrams
    /// only if `udp`.
    pub(crate) fn gather(&mut self, batch: &Batch, picks: &[u16], udp: bool) {
        self.spans.clear();
        let mut growing: Option<GrowingFrame> = None;
        for &pick in picks {
            // One entry of `out` must stay free for the frame under construction.
            if !self.out.has_room_for_frags() || self.out.room() < 2 {
                break;
            }
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            let known = self.copy(&frame);
            let offload = frame.offload();
            let bytes = self.look.get(..known).unwrap_or(&[]);
            let fits = growing.as_ref().is_some_and(|g| g.used + frame.pieces() <= MAX_FRAGS);
            if let Some(g) = growing.as_mut().filter(|_| fits)
                && g.merge.append(bytes, frame.len(), offload)
            {
                g.add(&frame);
                continue;
            }
            let next = Merge::begin(bytes, frame.len(), offload).filter(|merge| udp || !merge.is_udp());
            self.close(growing.take(), batch);
            match next.filter(|_| frame.pieces() < MAX_FRAGS) {
                Some(merge) => growing = Some(GrowingFrame::new(merge, pick, &frame)),
                None => self.pass(&frame),
            }
        }
        self.close(growing, batch);
    }

    /// Copies a frame's headers to `look`, or the whole frame if its checksum must be verified. Returns the number of
    /// bytes copied.
    fn copy(&mut self, frame: &FrameRef<'_>) -> usize {
        let whole = frame.offload() == Offload::None;
        let wanted = if whole { frame.len() } else { frame.len().min(MAX_HEADERS) };
        self.look.get_mut(..wanted).map_or(0, |look| frame.copy_out(0, look))
    }

    fn close(&mut self, growing: Option<GrowingFrame>, batch: &Batch) {
        let Some(mut g) = growing else { return };
        let first = batch.get(usize::from(g.first));
        if let (1, Some(frame)) = (g.merge.count(), first) {
            return self.pass(&frame);
        }
        let Some(head) = self.heads.get_mut(self.out.len()) else { return };
        let count = g.merge.count();
        let (headers, offload) = g.merge.finish();
        if let Some(place) = head.get_mut(..headers.len()) {
            place.copy_from_slice(headers);
        }
        g.pieces[0] = (head.as_ptr(), headers.len() as u32);
        // SAFETY: `heads` stays unchanged until `out` is cleared, and so does the caller's batch, which owns the other
        // pieces.
        if unsafe { self.out.push_frags(g.pieces.get(..g.used).unwrap_or(&[])) } {
            self.out.set_offload(offload);
            self.spans.push(count as u16);
        }
    }

    /// Adds a frame to `out` unchanged.
    fn pass(&mut self, frame: &FrameRef<'_>) {
        let mut pieces = [(std::ptr::null(), 0); MAX_FRAGS];
        let mut used = 0;
        for place in pieces.iter_mut().take(frame.pieces()) {
            let (ptr, len) = frame.piece(used).raw();
            *place = (ptr, len as u32);
            used += 1;
        }
        // SAFETY: the pieces are part of the caller's batch, which outlives the contents of `out`.
        if unsafe { self.out.push_frags(&pieces[..used]) } {
            self.out.set_offload(frame.offload());
            self.spans.push(1);
        }
    }
}

impl GrowingFrame {
    fn new(merge: Merge, first: u16, frame: &FrameRef<'_>) -> GrowingFrame {
        let mut growing = GrowingFrame { merge, first, pieces: [(std::ptr::null(), 0); MAX_FRAGS], used: 1 };
        growing.add(frame);
        growing
    }

    /// Adds the pieces of a frame's payload.
    fn add(&mut self, frame: &FrameRef<'_>) {
        let mut skip = self.merge.header_len();
        for i in 0..frame.pieces() {
            let (ptr, len) = frame.piece(i).raw();
            let skipped = skip.min(len);
            skip -= skipped;
            if let Some(place) = self.pieces.get_mut(self.used).filter(|_| len > skipped) {
                *place = (ptr.wrapping_add(skipped), (len - skipped) as u32);
                self.used += 1;
            }
        }
    }
}
