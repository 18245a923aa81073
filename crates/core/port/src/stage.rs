//! Variants of frames with a private head: decisions are made on a private copy of the first bytes, and that copy is
//! delivered.
//!
//! A frame can have several variants at the same time: unchanged, and with another VLAN tag or none. Only the first
//! bytes are copied, the rest stays in place; a frame no longer than its head is a single piece.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;

use netvale_wire::offload::{Gso, Offload};

use crate::DropReason;
use crate::batch::{BATCH, BATCH_FRAGS, Batch, MAX_FRAGS, MAX_FRAME};

/// Bytes of a frame's head, unless more are requested.
pub const HEAD: usize = 192;
/// Bytes of both addresses.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
pub const TAG: usize = 4;
/// Variants of a frame besides the unchanged one.
const OTHERS: usize = 2;
/// Copies of a frame's head, at most: the head itself, and one for each variant.
const COPIES: usize = 2 + OTHERS;
/// Room for frames with heads longer than [`HEAD`].
const DEEP: usize = COPIES * (MAX_FRAME + TAG);

/// Leading bytes that all frames of a [run](Staging::run) share: both addresses, the EtherType, and the tag's content.
pub const ALIKE: usize = 16;
/// Shorter frames are not part of a run: their length decides whether a tag is complete.
const LEAST_ALIKE: usize = 20;

/// A cache line of memory for heads. Short frames take one each: a batch of them leaves room in the cache for the
/// frames themselves.
#[repr(align(64))]
#[expect(dead_code, reason = "several lines in a row are used together, by the address of the first")]
struct Line(UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// Lines of the longest head.
const LINES: usize = (HEAD + TAG).div_ceil(LINE);

/// A variant's change of the outermost tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retag {
    /// Whether to remove the frame's tag.
    pub strip: bool,
    /// The tag to add: protocol and control information, in wire order.
    pub push: Option<[u8; TAG]>,
}

impl Retag {
    /// No change.
    pub const NONE: Retag = Retag { strip: false, push: None };

    /// Copies a frame's head with the change applied. `None` if the head is too short.
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

    /// The frame's length after the change.
    #[must_use]
    pub fn len_of(self, len: usize) -> usize {
        (len + if self.push.is_some() { TAG } else { 0 }).saturating_sub(if self.strip { TAG } else { 0 })
    }
}

/// How frames with equal first bytes get another tag in place: the whole change lies in their first bytes.
struct Start {
    /// The new first bytes of an area.
    bytes: [u8; ALIKE],
    /// Offset in the area for the frame's copy, and for the variant's first byte.
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

/// A copied head.
#[derive(Clone, Copy, Debug)]
struct Head {
    at: *const u8,
    len: u32,
}

/// Variants of a batch's frames. Its memory is reused from batch to batch.
pub struct Stage {
    variants: Batch,
    lines: Box<[Line]>,
    used_lines: usize,
    deep: Box<[UnsafeCell<u8>]>,
    used_deep: usize,
    /// The frame whose head was copied last, and that copy.
    last: Option<(usize, Head)>,
    /// Frames copied as a whole, which stay when their ingress is released.
    own: Vec<Box<[u8]>>,
}

// SAFETY: the memory behind its pointers and cells belongs to this value, or is lent by an ingress to the source that
// owns the value; neither depends on the thread. Nothing is written through a shared reference.
unsafe impl Send for Stage {}
// SAFETY: as above: a shared stage only reads.
unsafe impl Sync for Stage {}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Creates the memory: the only allocation except in `keep`.
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

    /// Discards all variants.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.variants.clear();
        self.last = None;
        self.used_lines = 0;
        self.used_deep = 0;
        if !self.own.is_empty() {
            self.own.clear();
        }
    }

    /// Unreferenced room for a head with a tag; [`Stage::use_area`] sets how much of it is used.
    #[inline]
    fn area(&self) -> Option<*mut u8> {
        let lines = self.lines.get(self.used_lines..)?.get(..LINES)?;
        Some(UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>()))
    }

    /// Starts the next area behind the first `len` bytes of this one.
    #[inline]
    fn use_area(&mut self, len: usize) {
        self.used_lines += len.div_ceil(LINE);
    }

    /// The first bytes shared with the frame whose head was copied last; `None` if that is too short to tell.
    #[inline]
    fn first_bytes(&self) -> Option<[u8; ALIKE]> {
        let (_, head) = self.last.filter(|(_, head)| head.len as usize >= LEAST_ALIKE)?;
        // SAFETY: a head of at least that many bytes.
        Some(unsafe { head.at.cast::<[u8; ALIKE]>().read() })
    }

    /// The head of a variant, which no other process can change.
    #[inline]
    pub(crate) fn head_of(&self, variant: u16) -> &[u8] {
        let Some(frame) = self.variants.get(variant.into()) else { return &[] };
        let (at, len) = frame.piece(0).raw();
        // SAFETY: the first piece of each variant lies in memory of this value, and is not written before the variants
        // are cleared.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// The variants.
    #[inline]
    pub(crate) fn variants(&self) -> &Batch {
        &self.variants
    }

    /// Copies the variants that lie partly in the ingress's memory. Allocates: not for the packet path.
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

/// A source's taken frames, and their variants.
pub struct Staging<'s> {
    frames: &'s Batch,
    stage: &'s mut Stage,
}

impl<'s> Staging<'s> {
    /// Lends the stage that stays with these frames, and discards its contents.
    ///
    /// # Safety
    /// The stage must be cleared before the frames are.
    #[inline]
    pub(crate) unsafe fn new(frames: &'s Batch, stage: &'s mut Stage) -> Staging<'s> {
        stage.clear();
        Staging { frames, stage }
    }

    /// The unchanged frames. Decisions use [`Staging::head`].
    #[inline]
    pub fn frames(&self) -> &'s Batch {
        self.frames
    }

    /// Copies the head of frame `i`: `want` bytes if the frame is longer than [`HEAD`], otherwise all.
    #[inline]
    pub fn head(&mut self, i: usize, want: usize) -> &[u8] {
        let (Some(frame), Some(at)) = (self.frames.get(i), self.stage.area()) else { return &[] };
        // SAFETY: room for HEAD bytes and more, unreferenced: variants are made of it only later.
        let len = unsafe { frame.copy_out_raw(0, at, if frame.len() <= HEAD { HEAD } else { want.min(HEAD) }) };
        self.stage.use_area(len);
        self.stage.last = Some((i, Head { at, len: len as u32 }));
        // SAFETY: written just now, and not written again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Copies the whole of the frame whose head was copied last; the copy is its head from now on. `None` if there is
    /// no room for it and its variants: earlier ones have to be delivered first. There is always room for one frame.
    pub fn whole(&mut self) -> Option<&[u8]> {
        let (i, old) = self.stage.last.take()?;
        let frame = self.frames.get(i)?;
        let room = self.stage.deep.get(self.stage.used_deep..)?;
        if room.len() < COPIES * (frame.len() + TAG) {
            return None;
        }
        let at = UnsafeCell::raw_get(room.as_ptr());
        // SAFETY: the bytes of the head that decisions were made on, then the rest of the frame, in unreferenced room
        // for all of it.
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

    /// Makes variants of consecutive frames of a range, as long as they are like the one whose head was copied last:
    /// single pieces that begin with the same [`ALIKE`] bytes, with no offload pending. Copies `want` bytes of those
    /// longer than [`HEAD`]; without `want`, such frames end the run. `takes` gets each frame's number, head and
    /// length, and decides whether to make a variant. Returns the number of the first frame that differs.
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

    /// The same for frames `LONG`er than [`HEAD`], of which `want` bytes are copied, or for shorter ones. A separate
    /// function: its loop then gets the registers that it needs.
    #[inline(never)]
    fn run_of<const LONG: bool>(
        &mut self,
        frames: Range<usize>,
        retag: Retag,
        want: usize,
        takes: &mut impl FnMut(usize, &[u8], usize) -> bool,
    ) -> usize {
        let Some(like) = self.stage.first_bytes() else { return frames.start };
        let start = Start::of(like, retag);
        let Stage { variants, lines, used_lines, .. } = &mut *self.stage;
        let lens = if LONG { HEAD + 1..=MAX_FRAME - TAG } else { LEAST_ALIKE..=HEAD };
        let last = frames.end.min(frames.start + (lines.len() - *used_lines) / LINES);
        let mut next = frames.start;
        let mut used = *used_lines;
        let base = UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>());
        for frame in self.frames.range(frames.start..last) {
            if !frame.is_bare() || !lens.contains(&frame.len()) {
                break;
            }
            let copied = if LONG { want } else { frame.len() };
            // SAFETY: each of these frames has LINES more lines, enough for HEAD bytes of the frame, a single piece,
            // and a tag; nothing else refers to them yet: the bytes stay unchanged while `head` is borrowed.
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
                // SAFETY: as above, and `head` is no longer used. The bytes from `begin` to `end` begin the variant,
                // and are not written until the variants are cleared; the bytes behind them stay as long as the frames
                // do.
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

    /// Makes a variant of frame `i`, whose head was copied last. Returns the variant's number.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] if a checksum would begin in the removed tag; [`DropReason::TooLong`] if there is
    /// no room for all pieces.
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

    /// Copies the head with another tag into an area of its own.
    #[inline]
    fn retagged(&mut self, head: Head, retag: Retag) -> Option<(*const u8, u32)> {
        let len = head.len as usize;
        let stripped = if retag.strip { TAG } else { 0 };
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

    /// The same for a head longer than an area, if there is room. A head too short to lose a tag has no variant.
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
/// `from` has `len` readable bytes, at least both addresses and the removed tag; `to` is writable for `len` + [`TAG`]
/// bytes and does not overlap `from`.
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

/// The offload of a frame whose headers move with its tag. `None` if the checksum begins in the removed tag.
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
