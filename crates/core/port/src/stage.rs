//! Frames with first bytes that their sender cannot change any more: what is decided on is a private copy, and the copy
//! is what is delivered.
//!
//! A frame can be had in several variants at the same time: as it came, and with another VLAN tag or none. Only the
//! first bytes are copied. The rest stays where it is; a frame that is not longer than that is a single piece.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;

use netvale_wire::offload::{Gso, Offload};

use crate::DropReason;
use crate::batch::{BATCH, BATCH_FRAGS, Batch, MAX_FRAGS, MAX_FRAME};

/// Bytes of a frame that are copied, at most, unless more are asked for.
pub const HEAD: usize = 192;
/// Bytes of both addresses.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
pub const TAG: usize = 4;
/// Variants of a frame beside that in which it came.
const OTHERS: usize = 2;
/// Copies of a frame's first bytes, at most: as they came, and for each variant.
const COPIES: usize = 2 + OTHERS;
/// Room for frames of which more than [`HEAD`] bytes are looked at.
const DEEP: usize = COPIES * (MAX_FRAME + TAG);

/// Bytes that all frames of a [run](Staging::run) begin with: both addresses, the EtherType, and what a tag says.
pub const ALIKE: usize = 16;
/// Shorter frames are no part of a run: whether a tag is whole depends on more than their first bytes.
const LEAST_ALIKE: usize = 20;

/// A cache line of memory for first bytes. Short frames take one each, so that a batch of them leaves room in the cache
/// for the frames themselves.
#[repr(align(64))]
#[expect(dead_code, reason = "several lines in a row are used together, by the address of the first")]
struct Line(UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// Lines of the longest first bytes.
const LINES: usize = (HEAD + TAG).div_ceil(LINE);

/// What a variant does to the outermost tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retag {
    /// Whether the frame came with a tag, which is taken away.
    pub strip: bool,
    /// The tag that it gets: protocol and control information, in wire order.
    pub push: Option<[u8; TAG]>,
}

impl Retag {
    /// Leaves a frame as it is.
    pub const NONE: Retag = Retag { strip: false, push: None };

    /// A copy of a frame's first bytes as they are then. `None` if they are too short.
    #[must_use]
    pub fn apply<'a>(self, head: &[u8], into: &'a mut [u8; HEAD + TAG]) -> Option<&'a [u8]> {
        let rest = head.get(ADDRESSES + if self.strip { TAG } else { 0 }..)?;
        let tag = self.push.as_ref().map_or(&[][..], |tag| &tag[..]);
        let mut len = 0;
        for part in [head.get(..ADDRESSES)?, tag, rest] {
            into.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        into.get(..len)
    }

    /// What a length becomes.
    #[must_use]
    pub fn len_of(self, len: usize) -> usize {
        (len + if self.push.is_some() { TAG } else { 0 }).saturating_sub(if self.strip { TAG } else { 0 })
    }
}

/// How frames with the same first bytes get another tag where they lie: all that changes is in their first bytes.
struct Start {
    /// What an area begins with then.
    bytes: [u8; ALIKE],
    /// Where in the area the frame has to be copied to, and where it begins then.
    lead: usize,
    begin: usize,
}

impl Start {
    fn of(like: [u8; ALIKE], retag: Retag) -> Start {
        let [addresses @ .., _, _, _, _] = like;
        let mut bytes = like;
        let (lead, begin) = match retag {
            Retag { strip: false, push: None } => (0, 0),
            Retag { strip: false, push: Some(tag) } => {
                bytes[ADDRESSES..].copy_from_slice(&tag);
                (TAG, 0)
            }
            Retag { strip: true, push: None } => {
                bytes[TAG..].copy_from_slice(&addresses);
                (0, TAG)
            }
            Retag { strip: true, push: Some(tag) } => {
                bytes[ADDRESSES..].copy_from_slice(&tag);
                (0, 0)
            }
        };
        Start { bytes, lead, begin }
    }
}

/// The first bytes of a frame, copied.
#[derive(Clone, Copy, Debug)]
struct Head {
    at: *const u8,
    len: u32,
}

/// Variants of the frames of a batch. Its memory is reused from batch to batch.
pub struct Stage {
    variants: Batch,
    lines: Box<[Line]>,
    used_lines: usize,
    deep: Box<[UnsafeCell<u8>]>,
    used_deep: usize,
    /// The frame whose first bytes were copied last, and where they are.
    last: Option<(usize, Head)>,
    /// Frames that were copied as a whole, to stay when their ingress is released.
    own: Vec<Box<[u8]>>,
}

// SAFETY: the memory behind its pointers and cells belongs to this value, or is lent to the source that has it by an
// ingress; neither depends on the thread. Nothing is written through a shared reference.
unsafe impl Send for Stage {}
// SAFETY: as above: a shared stage only reads.
unsafe impl Sync for Stage {}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Creates the memory. This is the only allocation, but for `keep`.
    #[must_use]
    pub fn new() -> Stage {
        let variants = (1 + OTHERS) * BATCH;
        Stage {
            variants: Batch::with_room(variants, (1 + OTHERS) * (BATCH + BATCH_FRAGS)),
            lines: (0..COPIES * BATCH * LINES).map(|_| Line(UnsafeCell::new([0; LINE]))).collect(),
            used_lines: 0,
            deep: (0..DEEP).map(|_| UnsafeCell::new(0)).collect(),
            used_deep: 0,
            last: None,
            own: Vec::new(),
        }
    }

    /// Forgets all frames.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.variants.clear();
        (self.last, self.used_lines, self.used_deep) = (None, 0, 0);
        if !self.own.is_empty() {
            self.own.clear();
        }
    }

    /// Room for first bytes with a tag, of which [`Stage::use_area`] says how many there are. Nothing refers to it.
    #[inline]
    fn area(&self) -> Option<*mut u8> {
        let lines = self.lines.get(self.used_lines..)?.get(..LINES)?;
        Some(UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>()))
    }

    /// The next area begins behind the first `len` bytes of this one.
    #[inline]
    fn use_area(&mut self, len: usize) {
        self.used_lines += len.div_ceil(LINE);
    }

    /// What frames begin with that are like the one whose head was copied last; `None` if that is too short to tell.
    #[inline]
    fn first_bytes(&self) -> Option<[u8; ALIKE]> {
        let (_, head) = self.last.filter(|(_, head)| head.len as usize >= LEAST_ALIKE)?;
        // SAFETY: a head of at least that many bytes.
        Some(unsafe { head.at.cast::<[u8; ALIKE]>().read() })
    }

    /// The first bytes of a variant, which nobody else can change.
    #[inline]
    pub(crate) fn head_of(&self, variant: u16) -> &[u8] {
        let Some(frame) = self.variants.get(variant.into()) else { return &[] };
        let (at, len) = frame.piece(0).raw();
        // SAFETY: the first piece of each variant lies in memory of this value, and is not written before the variants
        // are cleared.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// The variants that were made.
    #[inline]
    pub(crate) fn variants(&self) -> &Batch {
        &self.variants
    }

    /// Copies the variants that lie in the ingress's memory in part. Allocates: not for the packet path.
    pub(crate) fn keep(&mut self) {
        let mut kept = Batch::with_room(self.variants.len(), 0);
        for frame in self.variants.iter() {
            let mut bytes = vec![0u8; frame.len()].into_boxed_slice();
            frame.copy_out(0, &mut bytes);
            // SAFETY: the box is kept beside the batch, and its bytes stay where they are.
            unsafe { kept.push_bare(bytes.as_ptr(), bytes.len() as u32) };
            kept.set_offload(frame.offload());
            self.own.push(bytes);
        }
        self.variants = kept;
    }
}

/// The frames that a source has taken, and their variants.
pub struct Staging<'s> {
    frames: &'s Batch,
    stage: &'s mut Stage,
}

impl<'s> Staging<'s> {
    /// Lends the stage that stays with these frames. What it had is forgotten.
    ///
    /// # Safety
    /// The stage must be cleared before the frames are.
    #[inline]
    pub(crate) unsafe fn new(frames: &'s Batch, stage: &'s mut Stage) -> Staging<'s> {
        stage.clear();
        Staging { frames, stage }
    }

    /// The frames as they came. What they are to be is decided on [`Staging::head`].
    #[inline]
    pub fn frames(&self) -> &'s Batch {
        self.frames
    }

    /// Copies the first bytes of frame `i`: `want` of them if it is longer than [`HEAD`], otherwise all.
    #[inline]
    pub fn head(&mut self, i: usize, want: usize) -> &[u8] {
        let (Some(frame), Some(at)) = (self.frames.get(i), self.stage.area()) else { return &[] };
        // SAFETY: room for HEAD bytes and more that nothing refers to: variants are made of it only later.
        let len = unsafe { frame.copy_out_raw(0, at, if frame.len() <= HEAD { HEAD } else { want.min(HEAD) }) };
        self.stage.use_area(len);
        self.stage.last = Some((i, Head { at, len: len as u32 }));
        // SAFETY: written just now, and not written again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Copies the whole of the frame whose head was copied last, which is its head from now on. `None` if there is no
    /// room for it and its variants: what was made before has to be delivered first. There is room for one frame in any
    /// case.
    pub fn whole(&mut self) -> Option<&[u8]> {
        let (i, old) = self.stage.last.take()?;
        let frame = self.frames.get(i)?;
        let room = self.stage.deep.get(self.stage.used_deep..)?;
        if room.len() < COPIES * (frame.len() + TAG) {
            return None;
        }
        let at = UnsafeCell::raw_get(room.as_ptr());
        // SAFETY: the bytes of the head that was decided on so far, then the rest of the frame, in room for all of it
        // that nothing refers to.
        let len = unsafe {
            netvale_mem::copy::copy_bytes(old.at, at, old.len as usize);
            let done = old.len as usize;
            done + frame.copy_out_raw(done, at.add(done), frame.len() - done)
        };
        self.stage.used_deep += len;
        self.stage.last = Some((i, Head { at, len: len as u32 }));
        // SAFETY: written just now, and not written again while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Makes a variant of each of the frames of a range, in order, that are like the one whose head was copied last:
    /// single pieces that begin with the same [`ALIKE`] bytes, with nothing left to do on them. Of those longer than
    /// [`HEAD`], `want` bytes are copied; if there is no such number, they are others. `takes` gets the number of each,
    /// its first bytes and its length, and says whether there is to be a variant. Returns the number of the first frame
    /// that is another.
    #[inline]
    pub fn run(
        &mut self,
        frames: Range<usize>,
        retag: Retag,
        want: Option<usize>,
        mut takes: impl FnMut(usize, &[u8], usize) -> bool,
    ) -> usize {
        let mut next = self.run_of::<false>(frames.clone(), retag, HEAD, &mut takes);
        let Some(want) = want.map(|want| want.clamp(LEAST_ALIKE, HEAD)) else { return next };
        while next < frames.end {
            let long = self.run_of::<true>(next..frames.end, retag, want, &mut takes);
            if long == next {
                break;
            }
            next = self.run_of::<false>(long..frames.end, retag, HEAD, &mut takes);
        }
        next
    }

    /// The same for frames that are `LONG`er than [`HEAD`], of which `want` bytes are copied, or for those that are
    /// not. A function of its own, as its loop then gets the registers that it needs.
    #[inline(never)]
    fn run_of<const LONG: bool>(
        &mut self,
        frames: Range<usize>,
        retag: Retag,
        want: usize,
        takes: &mut impl FnMut(usize, &[u8], usize) -> bool,
    ) -> usize {
        let Some(like) = self.stage.first_bytes() else { return frames.start };
        let (start, Stage { variants, lines, used_lines, .. }) = (Start::of(like, retag), &mut *self.stage);
        let lens = if LONG { HEAD + 1..=MAX_FRAME - TAG } else { LEAST_ALIKE..=HEAD };
        let last = frames.end.min(frames.start + (lines.len() - *used_lines) / LINES);
        let (mut next, mut used) = (frames.start, *used_lines);
        let base = UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>());
        for frame in self.frames.range(frames.start..last) {
            if !frame.is_bare() || !lens.contains(&frame.len()) {
                break;
            }
            let copied = if LONG { want } else { frame.len() };
            // SAFETY: there are LINES more lines for each of these frames, enough for HEAD bytes of the frame, a single
            // piece, and a tag; nothing else refers to them yet, so that the bytes stay what they are while `head` is
            // borrowed.
            let (area, head) = unsafe {
                let area = base.add(used * LINE);
                frame.copy_start_to(area.add(start.lead), copied);
                (area, std::slice::from_raw_parts(area.add(start.lead), copied))
            };
            if head.first_chunk() != Some(&like) {
                break;
            }
            if takes(next, head, frame.len()) {
                let end = start.lead + copied;
                // SAFETY: as above, and `head` is not used any more. The bytes from `begin` to `end` begin the variant,
                // and are not written any more until the variants are cleared; what follows them stays as long as the
                // frames do.
                unsafe {
                    area.cast::<[u8; ALIKE]>().write(start.bytes);
                    let first = (area.add(start.begin).cast_const(), (end - start.begin) as u32);
                    if !LONG {
                        variants.push_bare(first.0, first.1);
                    } else if variants.push_variant(first, &frame, copied).is_none() {
                        break;
                    }
                }
                used += end.div_ceil(LINE);
            }
            next += 1;
        }
        *used_lines = used;
        next
    }

    /// Number of variants.
    #[inline]
    pub fn variants(&self) -> usize {
        self.stage.variants.len()
    }

    /// Makes a variant of frame `i`, whose head was copied last. Returns its number among the variants.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] if a checksum would begin in the tag that is taken away; [`DropReason::TooLong`]
    /// if there is no room for as many pieces.
    #[inline]
    pub fn variant(&mut self, i: usize, retag: Retag) -> Result<u16, DropReason> {
        let head = self.stage.last.filter(|(last, _)| *last == i);
        let (Some(frame), Some((_, head))) = (self.frames.get(i), head) else {
            return Err(DropReason::Runt);
        };
        let offload = match frame.offload() {
            Offload::None => Offload::None,
            some => moved(some, retag).ok_or(DropReason::BadVnetHeader)?,
        };
        let first = if retag == Retag::NONE { Some((head.at, head.len)) } else { self.retagged(head, retag) };
        let first = first.ok_or(DropReason::Runt)?;
        let behind = head.len as usize;
        let len = first.1 as usize + frame.len() - behind.min(frame.len());
        if len > MAX_FRAME || frame.pieces() > MAX_FRAGS - 1 && behind < frame.len() {
            return Err(DropReason::TooLong);
        }
        // SAFETY: `first` lies in memory of the stage's, and frames are cleared only after the stage (`new`).
        let variant = unsafe { self.stage.variants.push_variant(first, &frame, behind) }.ok_or(DropReason::TooLong)?;
        self.stage.variants.set_offload(offload);
        Ok(variant)
    }

    /// The first bytes with another tag, in an area of their own.
    #[inline]
    fn retagged(&mut self, head: Head, retag: Retag) -> Option<(*const u8, u32)> {
        let (len, stripped) = (head.len as usize, if retag.strip { TAG } else { 0 });
        if len < ADDRESSES + stripped || len - stripped > HEAD {
            return self.retagged_deep(head, retag);
        }
        let to = self.stage.area()?;
        // SAFETY: the parts are within the head's `len` bytes, and end within HEAD + TAG bytes of an area that nothing
        // else refers to yet.
        let written = unsafe { retag_into(head.at, len, retag, to) };
        self.stage.use_area(written);
        Some((to, written as u32))
    }

    /// The same for a head that is longer than an area, if there is room. One too short for what it should lose has no
    /// variant.
    #[cold]
    fn retagged_deep(&mut self, head: Head, retag: Retag) -> Option<(*const u8, u32)> {
        let len = head.len as usize;
        if len < ADDRESSES + if retag.strip { TAG } else { 0 } {
            return None;
        }
        let room = self.stage.deep.get(self.stage.used_deep..).filter(|room| room.len() >= len + TAG)?;
        let to = UnsafeCell::raw_get(room.as_ptr());
        self.stage.used_deep += len + TAG;
        // SAFETY: as in `retagged`; there is room for `len` + TAG bytes.
        let written = unsafe { retag_into(head.at, len, retag, to) };
        Some((to, written as u32))
    }
}

/// Writes the head with another tag. Returns its length.
///
/// # Safety
/// `from` has `len` readable bytes, at least as many as both addresses and the tag that goes; `to` is writable for
/// `len` + [`TAG`] bytes, and no part of `from`.
#[inline]
unsafe fn retag_into(from: *const u8, len: usize, retag: Retag, to: *mut u8) -> usize {
    let skipped = ADDRESSES + if retag.strip { TAG } else { 0 };
    let tag = retag.push.as_ref().map_or(&[][..], |tag| &tag[..]);
    // SAFETY: the caller's contract; the three parts follow one another.
    unsafe {
        netvale_mem::copy::copy_bytes(from, to, ADDRESSES);
        netvale_mem::copy::copy_bytes(tag.as_ptr(), to.add(ADDRESSES), tag.len());
        netvale_mem::copy::copy_bytes(from.add(skipped), to.add(ADDRESSES + tag.len()), len - skipped);
    }
    ADDRESSES + tag.len() + len - skipped
}

/// An offload of a frame whose headers move with its tag. `None` if the sum begins in the tag that goes.
fn moved(offload: Offload, retag: Retag) -> Option<Offload> {
    let by = |at: u16| {
        let at =
            if retag.strip { at.checked_sub(TAG as u16).filter(|at| usize::from(*at) >= ADDRESSES + 2)? } else { at };
        at.checked_add(if retag.push.is_some() { TAG as u16 } else { 0 })
    };
    Some(match offload {
        Offload::None => Offload::None,
        Offload::CsumPartial { start, offset } => Offload::CsumPartial { start: by(start)?, offset },
        Offload::Gso(gso) => Offload::Gso(Gso { hdr_len: by(gso.hdr_len)?, csum_start: by(gso.csum_start)?, ..gso }),
    })
}

#[cfg(test)]
mod tests;
