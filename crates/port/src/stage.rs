//! Frames with first bytes that their sender cannot change any more: what is decided on is a private copy, and the copy is
//! what is delivered.
//!
//! A frame can be had in several variants at the same time: as it came, and with another VLAN tag or none. Only the first bytes
//! are copied. The rest stays where it is; a frame that is not longer than that is a single piece.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;

use netvale_wire::offload::{Gso, Offload};

use crate::DropReason;
use crate::batch::{BATCH, BATCH_FRAGS, Batch, MAX_FRAGS, MAX_FRAME};

/// Bytes of a frame that are copied, at most, unless more are asked for.
pub const HEAD: usize = 192;
/// Bytes of both addresses.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Variants of a frame beside that in which it came.
const OTHERS: usize = 2;
/// Room for frames of which more than [`HEAD`] bytes are looked at.
const DEEP: usize = (1 + OTHERS) * (MAX_FRAME + TAG);

type Area = UnsafeCell<[u8; HEAD + TAG]>;

fn areas(count: usize) -> Box<[Area]> {
    (0..count).map(|_| UnsafeCell::new([0; HEAD + TAG])).collect()
}

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
    heads: Box<[Area]>,
    others: Box<[Area]>,
    used_others: usize,
    deep: Box<[UnsafeCell<u8>]>,
    used_deep: usize,
    /// Where the first bytes of each frame are, from frame `base` on.
    known: Vec<Head>,
    base: usize,
    /// Frames that were copied as a whole, to stay when their ingress is released.
    own: Vec<Box<[u8]>>,
}

// SAFETY: the memory behind its pointers and cells belongs to this value, or is lent to the source that has it by an ingress;
// neither depends on the thread. Nothing is written through a shared reference.
unsafe impl Send for Stage {}
// SAFETY: as above: a shared stage only reads.
unsafe impl Sync for Stage {}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Creates the memory. This is the only allocation, but for [`Stage::keep`].
    #[must_use]
    pub fn new() -> Stage {
        let variants = (1 + OTHERS) * BATCH;
        Stage {
            variants: Batch::with_room(variants, (1 + OTHERS) * (BATCH + BATCH_FRAGS)),
            heads: areas(BATCH),
            others: areas(OTHERS * BATCH),
            used_others: 0,
            deep: (0..DEEP).map(|_| UnsafeCell::new(0)).collect(),
            used_deep: 0,
            known: Vec::with_capacity(BATCH),
            base: 0,
            own: Vec::new(),
        }
    }

    /// Forgets all frames.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.variants.clear();
        self.known.clear();
        (self.used_others, self.used_deep) = (0, 0);
        if !self.own.is_empty() {
            self.own.clear();
        }
    }

    /// The first bytes of a variant, which nobody else can change.
    #[inline]
    pub(crate) fn head_of(&self, variant: u16) -> &[u8] {
        let Some(frame) = self.variants.get(variant.into()) else { return &[] };
        let (at, len) = frame.piece(0).raw();
        // SAFETY: the first piece of each variant lies in memory of this value, and is not written before the variants are cleared.
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
            unsafe { kept.push_whole(&bytes) };
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
    /// Lends the stage that stays with these frames, for those from number `base` on. What it had is forgotten.
    ///
    /// # Safety
    /// The stage must be cleared before the frames are.
    #[inline]
    pub(crate) unsafe fn new(frames: &'s Batch, stage: &'s mut Stage, base: usize) -> Staging<'s> {
        stage.clear();
        stage.base = base;
        Staging { frames, stage }
    }

    /// The frames as they came. What they are to be is decided on [`Staging::head`].
    #[inline]
    pub fn frames(&self) -> &'s Batch {
        self.frames
    }

    /// Copies the first bytes of frame `i`: `want` of them if it is longer than [`HEAD`], otherwise all. Frames come in
    /// order, and none is left out.
    #[inline]
    pub fn head(&mut self, i: usize, want: usize) -> &[u8] {
        debug_assert_eq!(i, self.stage.base + self.stage.known.len());
        let (Some(frame), Some(area)) = (self.frames.get(i), self.stage.heads.get(i)) else { return &[] };
        let at = area.get().cast::<u8>();
        // SAFETY: an area of more bytes that nothing else refers to: variants are made of it only later, and `known` has it once.
        let len = unsafe { frame.copy_out_raw(0, at, if frame.len() <= HEAD { HEAD } else { want.min(HEAD) }) };
        self.stage.known.push(Head { at, len: len as u32 });
        // SAFETY: written just now, and not written again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Copies the whole of the frame whose head was copied last, which is its head from now on. `None` if there is no room:
    /// what was made before has to be delivered first. There is room for one frame in any case.
    pub fn whole(&mut self) -> Option<&[u8]> {
        let frame = self.frames.get(self.stage.base + self.stage.known.len().checked_sub(1)?)?;
        let room = self.stage.deep.get(self.stage.used_deep..)?;
        if room.len() < frame.len() {
            self.stage.known.pop();
            return None;
        }
        let at = room.first()?.get();
        let old = self.stage.known.last()?;
        // SAFETY: the bytes of the head that was decided on so far, then the rest of the frame, in room for all of it that
        // nothing refers to.
        let len = unsafe {
            netvale_mem::copy::copy_bytes(old.at, at, old.len as usize);
            let done = old.len as usize;
            done + frame.copy_out_raw(done, at.add(done), frame.len() - done)
        };
        self.stage.used_deep += len;
        *self.stage.known.last_mut()? = Head { at, len: len as u32 };
        // SAFETY: written just now, and not written again while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Makes a variant of frame `i`, whose head was copied. Returns its number among the variants.
    ///
    /// # Errors
    /// [`DropReason::BadVnetHeader`] if a checksum would begin in the tag that is taken away; [`DropReason::TooLong`] if
    /// there is no room for as many pieces.
    #[inline]
    pub fn variant(&mut self, i: usize, retag: Retag) -> Result<u16, DropReason> {
        let known = i.checked_sub(self.stage.base).and_then(|i| self.stage.known.get(i));
        let (Some(frame), Some(&head)) = (self.frames.get(i), known) else {
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
        let area = self.stage.others.get(self.stage.used_others)?;
        self.stage.used_others += 1;
        let to = area.get().cast::<u8>();
        // SAFETY: the parts are within the head's `len` bytes, and end within HEAD + TAG bytes of an area that nothing else
        // refers to yet.
        let written = unsafe { retag_into(head.at, len, retag, to) };
        Some((to, written as u32))
    }

    /// The same for a head that is longer than an area, if there is room. One too short for what it should lose has no variant.
    #[cold]
    fn retagged_deep(&mut self, head: Head, retag: Retag) -> Option<(*const u8, u32)> {
        let len = head.len as usize;
        if len < ADDRESSES + if retag.strip { TAG } else { 0 } {
            return None;
        }
        let room = self.stage.deep.get(self.stage.used_deep..).filter(|room| room.len() >= len + TAG)?;
        let to = room.first()?.get();
        self.stage.used_deep += len + TAG;
        // SAFETY: as in `retagged`; there is room for `len` + TAG bytes.
        let written = unsafe { retag_into(head.at, len, retag, to) };
        Some((to, written as u32))
    }
}

/// Writes the head with another tag. Returns its length.
///
/// # Safety
/// `from` has `len` readable bytes, at least as many as both addresses and the tag that goes; `to` is writable for `len` +
/// [`TAG`] bytes, and no part of `from`.
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
