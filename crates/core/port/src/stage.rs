//! Variants of frames with a private head: policies decide on a private copy of a frame's first bytes, and that copy is
//! delivered.
//!
//! A frame can have several variants at the same time: unchanged, with another VLAN tag, and without a VLAN tag. Only
//! the head is copied; the rest stays in place.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;

use netvale_wire::offload::{Gso, Offload};

use crate::DropReason;
use crate::batch::{BATCH, BATCH_FRAGS, Batch, MAX_FRAGS, MAX_FRAME};

/// Maximum length in bytes of a frame's head, i.e. of the copy of its first bytes, unless the whole frame is copied.
pub const HEAD: usize = 192;
/// Length of both addresses in bytes.
const ADDRESSES: usize = 12;
/// Length of a VLAN tag in bytes.
pub const TAG: usize = 4;
/// Maximum number of a frame's variants with another tag.
const OTHERS: usize = 2;
/// Maximum number of copies of a frame's head: the head itself, and a copy for each variant.
const COPIES: usize = 2 + OTHERS;
/// Memory in bytes for frames that are copied whole.
const DEEP: usize = COPIES * (MAX_FRAME + TAG);

/// Number of first bytes that are equal in all frames of a [run](Staging::run): both addresses, the EtherType, and the
/// tag's control information.
pub const ALIKE: usize = 16;
/// Minimum length of a frame in a run: a shorter frame may contain an incomplete tag.
const LEAST_ALIKE: usize = 20;

/// A cache line of memory for heads. A short frame takes only one line, so that a batch leaves room in the cache for
/// the frames themselves.
#[repr(align(64))]
#[expect(dead_code, reason = "several lines in a row are used together, by the address of the first")]
struct CacheLine(UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// Number of cache lines for the longest head with a tag.
const LINES: usize = (HEAD + TAG).div_ceil(LINE);

/// A change of a frame's outermost VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retag {
    /// Whether to remove the frame's tag.
    pub strip: bool,
    /// The tag to add: protocol and control information, in wire order; `None`: no tag.
    pub push: Option<[u8; TAG]>,
}

impl Retag {
    /// No change.
    pub const NONE: Retag = Retag { strip: false, push: None };

    /// Copies a frame's head to `into` with the change applied. `None` if the head is too short to contain the
    /// addresses and the tag to remove.
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

/// A [`Retag`] for frames with equal first bytes: it changes only these bytes, so they are computed once and then
/// written over the start of each frame's copy.
struct RetagStart {
    /// The bytes to write at the start of the memory area that contains a frame's copy.
    bytes: [u8; ALIKE],
    /// Offset of the frame's copy in the area.
    lead: usize,
    /// Offset of the variant's first byte in the area.
    begin: usize,
}

impl RetagStart {
    fn of(like: [u8; ALIKE], retag: Retag) -> RetagStart {
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
        RetagStart { bytes, lead, begin }
    }
}

/// A private copy of a frame's head.
#[derive(Clone, Copy, Debug)]
struct CopiedHead {
    at: *const u8,
    len: u32,
}

/// The variants of a batch's frames. The memory is reused for the next batch.
pub struct Stage {
    variants: Batch,
    lines: Box<[CacheLine]>,
    used_lines: usize,
    deep: Box<[UnsafeCell<u8>]>,
    used_deep: usize,
    /// Index of the frame whose head was copied last, and the copy; `None` if no head has been copied.
    last: Option<(usize, CopiedHead)>,
    /// The bytes of [kept](Stage::keep) variants, which no longer refer to the ingress's memory.
    own: Vec<Box<[u8]>>,
}

// SAFETY: the memory to which the pointers and cells of this value refer belongs to the value, or is lent by an ingress
// to the source that owns the value; neither depends on the thread. Nothing is written through a shared reference.
unsafe impl Send for Stage {}
// SAFETY: as above: a shared stage only reads.
unsafe impl Sync for Stage {}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Creates an empty stage. Apart from this, only `keep` allocates memory.
    #[must_use]
    pub fn new() -> Stage {
        let variants = (1 + OTHERS) * BATCH;
        Stage {
            variants: Batch::with_room(variants, (1 + OTHERS) * (BATCH + BATCH_FRAGS)),
            lines: (0..COPIES * BATCH * LINES).map(|_| CacheLine(UnsafeCell::new([0; LINE]))).collect(),
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

    /// Returns a memory area to which nothing refers, with room for a head and a tag; `None` if no area is left.
    /// [`Stage::use_area`] sets how much of the area is used.
    #[inline]
    fn area(&self) -> Option<*mut u8> {
        let lines = self.lines.get(self.used_lines..)?.get(..LINES)?;
        Some(UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>()))
    }

    /// Marks the first `len` bytes of the current area as used: the next area begins after them.
    #[inline]
    fn use_area(&mut self, len: usize) {
        self.used_lines += len.div_ceil(LINE);
    }

    /// The first bytes of the head that was copied last; `None` if that head is shorter than [`LEAST_ALIKE`].
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
        // SAFETY: the first piece of each variant is in memory of this value, and is not written before the variants
        // are cleared.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    #[inline]
    pub(crate) fn variants(&self) -> &Batch {
        &self.variants
    }

    /// Copies all variants into their own memory, so that they no longer refer to the ingress's memory. Allocates: not
    /// for the packet path.
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
    /// Creates the staging of `frames`, and discards the stage's contents.
    ///
    /// # Safety
    /// The stage must be cleared before the frames are cleared.
    #[inline]
    pub(crate) unsafe fn new(frames: &'s Batch, stage: &'s mut Stage) -> Staging<'s> {
        stage.clear();
        Staging { frames, stage }
    }

    /// The taken frames, in the ingress's memory, where senders may change them. Policies decide on [`Staging::head`]
    /// instead.
    #[inline]
    pub fn frames(&self) -> &'s Batch {
        self.frames
    }

    /// Copies the head of frame `i`, and returns the copy: the whole frame if it has at most [`HEAD`] bytes, otherwise
    /// `want` bytes, at most [`HEAD`]. Returns no bytes if the frame does not exist, or the memory is used up.
    #[inline]
    pub fn head(&mut self, i: usize, want: usize) -> &[u8] {
        let (Some(frame), Some(at)) = (self.frames.get(i), self.stage.area()) else { return &[] };
        // SAFETY: room for HEAD bytes and more, unreferenced: variants are made of it only later.
        let len = unsafe { frame.copy_out_raw(0, at, if frame.len() <= HEAD { HEAD } else { want.min(HEAD) }) };
        self.stage.use_area(len);
        self.stage.last = Some((i, CopiedHead { at, len: len as u32 }));
        // SAFETY: written just now, and not written again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Copies all of the frame whose head was copied last; the copy becomes the frame's head. `None` if there is no
    /// room for the frame and its variants: the earlier variants must be delivered first. There is always room for one
    /// frame.
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
        self.stage.last = Some((i, CopiedHead { at, len: len as u32 }));
        // SAFETY: written just now, and not written again while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Creates variants of a run: consecutive frames that are single pieces with no offload pending and begin with the
    /// same [`ALIKE`] bytes as the head that was copied last. Of frames longer than [`HEAD`], copies `want` bytes; if
    /// `want` is `None`, such a frame ends the run. `takes` gets each frame's index, head and length, and returns
    /// whether to create a variant. Returns the index of the first frame after the run.
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

    /// Like `run`, but either only for frames longer than [`HEAD`] (`LONG`), of which it copies `want` bytes, or only
    /// for frames of up to [`HEAD`] bytes. Not inlined, so that the loop gets the registers that it needs.
    #[inline(never)]
    fn run_of<const LONG: bool>(
        &mut self,
        frames: Range<usize>,
        retag: Retag,
        want: usize,
        takes: &mut impl FnMut(usize, &[u8], usize) -> bool,
    ) -> usize {
        let Some(like) = self.stage.first_bytes() else { return frames.start };
        let start = RetagStart::of(like, retag);
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
            // SAFETY: LINES unused lines are left for each of these frames, enough for HEAD bytes of the frame, a
            // single piece, and a tag. Nothing else refers to these lines yet, so they stay unchanged while `head` is
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
                // SAFETY: as above, and `head` is no longer used. The bytes from `begin` to `end` begin the variant,
                // and are not written until the variants are cleared; the bytes after them stay as long as the frames
                // do.
                unsafe {
                    area.cast::<[u8; ALIKE]>().write(start.bytes);
                    let first = (area.add(start.begin).cast_const(), (end - start.begin) as u32);
                    if !LONG {
                        variants.push_bare(first.0, first.1);
                    } else if variants.push_variant(first.0, first.1, &frame, copied).is_none() {
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

    /// Creates a variant of frame `i`, whose head must be the head that was copied last. Returns the variant's index.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] if a pending checksum would begin in the removed tag; [`DropReason::TooLong`] if
    /// the variant would be too long or have too many pieces; [`DropReason::Runt`] if the head is too short for the
    /// change, or belongs to another frame.
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
        // SAFETY: `first` is in the stage's memory, and the frames are cleared only after the stage (`new`).
        let variant =
            unsafe { self.stage.variants.push_variant(first.0, first.1, &frame, behind) }.ok_or(DropReason::TooLong)?;
        self.stage.variants.set_offload(offload);
        Ok(variant)
    }

    /// Copies the head, with the tag changed, into a new area. Returns the address and length of the copy; `None` if
    /// there is no room, or if the head is too short.
    #[inline]
    fn retagged(&mut self, head: CopiedHead, retag: Retag) -> Option<(*const u8, u32)> {
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

    /// Like `retagged`, for a head longer than an area. `None` if there is no room, or if the head is too short to
    /// contain the tag to remove.
    #[cold]
    fn retagged_deep(&mut self, head: CopiedHead, retag: Retag) -> Option<(*const u8, u32)> {
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

/// Copies the first `len` bytes of a frame to `to` and changes the tag. Returns the new length.
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

/// Adjusts an offload's offsets to the change of tag. `None` if the checksum begins in the removed tag.
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
