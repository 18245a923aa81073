//! A batch: checked descriptors of an ingress's frames, whose bytes stay in the ingress's memory.
#![allow(unsafe_code)]

use netvale_mem::copy::{copy_bytes, peek};
use netvale_policy::bucket::Weight;
use netvale_wire::offload::Offload;

use crate::lists::{List, ListMemory};

/// Maximum number of frames in a batch.
pub const BATCH: usize = 256;
/// Maximum number of entries that one batch may add or refresh in the forwarding table: addresses that are new, have
/// moved, or have not been seen for a while. Each such entry costs several times as much as a known address, so a flood
/// of new addresses would delay the worker's other ports. Later batches learn the rest.
pub const MOST_NEWS: u32 = 32;
/// Maximum total number of pieces of all multi-piece frames in a batch.
pub const BATCH_FRAGS: usize = 1024;
/// Maximum number of pieces of one frame (netmap.h: `NETMAP_MAX_FRAGS`).
pub const MAX_FRAGS: usize = netvale_abi::slot::NETMAP_MAX_FRAGS;
/// Maximum length of a frame in bytes, without a virtio-net header.
pub const MAX_FRAME: usize = 65_550;

/// One contiguous piece of a frame, in memory of the frame's ingress.
#[derive(Clone, Copy, Debug)]
pub struct Frag {
    ptr: *const u8,
    len: u32,
}

impl Frag {
    /// Address of the first byte, and length in bytes. [`Batch::push`] defines how long the bytes stay readable.
    #[inline]
    pub fn raw(&self) -> (*const u8, usize) {
        (self.ptr, self.len as usize)
    }
}

/// The descriptor of one frame.
#[derive(Clone, Copy, Debug)]
struct BatchFrame {
    /// Address of the frame's first or only piece.
    ptr: *const u8,
    /// Length of the whole frame in bytes.
    len: u32,
    /// Index of the first piece in [`Batch::frags`] if the frame has several pieces; otherwise unused.
    frags: u16,
    pieces: u16,
    /// 0 if no offload is pending, otherwise 1 + the index in [`Batch::offloads`].
    offload: u16,
    no_learn: bool,
}

/// Frames on their way from an ingress to any number of egresses.
///
/// The frames' bytes stay in the ingress's memory until the ingress releases the batch after delivery. Code that has a
/// reference to a batch may read the bytes, because only a [`Source`](crate::Source) lends an ingress's batch.
#[derive(Debug)]
pub struct Batch {
    frames: List<BatchFrame>,
    frags: List<Frag>,
    /// At most one for each frame.
    offloads: List<Offload>,
    longest: u32,
    bytes: u64,
    /// The memory of the lists.
    _memory: ListMemory,
}

// SAFETY: the frames' pointers are only dereferenced under the contract of `push`, which does not depend on the thread;
// the lists and their memory belong to this batch alone.
unsafe impl Send for Batch {}
// SAFETY: a shared Batch only reads its lists, and reads through its frames' pointers, which stay readable by the
// contract of `push`.
unsafe impl Sync for Batch {}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch. No other method allocates.
    pub fn new() -> Self {
        Batch::with_room(BATCH, BATCH_FRAGS)
    }

    /// Creates an empty batch with a capacity of `frames` frames and `frags` pieces. Only [`Batch::push_variant`] and
    /// [`Batch::push_bare`] fill more than [`BATCH`] frames and [`BATCH_FRAGS`] pieces.
    pub(crate) fn with_room(frames: usize, frags: usize) -> Self {
        let bytes = ListMemory::bytes::<BatchFrame>(frames)
            + ListMemory::bytes::<Frag>(frags)
            + ListMemory::bytes::<Offload>(frames);
        let mut memory = ListMemory::new(bytes.max(1));
        // SAFETY: the batch owns the lists and their memory, and gives away neither.
        let (frames, frags, offloads) = unsafe { (memory.list(frames), memory.list(frags), memory.list(frames)) };
        Batch { frames, frags, offloads, longest: 0, bytes: 0, _memory: memory }
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.frags.clear();
        self.offloads.clear();
        self.longest = 0;
        self.bytes = 0;
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Total length of all frames in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sum of all frames' weights: the frames and bytes for which they count in counters and rate limits.
    #[inline]
    pub fn weight(&self) -> Weight {
        if self.offloads.is_empty() {
            return Weight { frames: self.len() as u32, bytes: self.bytes as u32 };
        }
        self.iter().map(|frame| frame.weight()).fold(Weight::default(), Weight::plus)
    }

    /// Whether the batch is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of further frames that fit.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.frames.len()
    }

    /// Whether a frame of [`MAX_FRAGS`] pieces still fits.
    #[inline]
    pub fn has_room_for_frags(&self) -> bool {
        self.frames.len() < BATCH && self.frags.len() + MAX_FRAGS <= BATCH_FRAGS
    }

    /// Adds a frame of one piece. Returns false if the batch is full.
    ///
    /// # Safety
    /// `ptr..ptr+len` must stay readable until the batch is cleared or dropped; in an implementation of
    /// [`Ingress::take`](crate::Ingress::take), for as long as `take` promises its callers. Other processes may write
    /// to that memory meanwhile: the bytes are copied, never referenced.
    #[inline]
    pub unsafe fn push(&mut self, ptr: *const u8, len: u32) -> bool {
        let fits = self.frames.push(BatchFrame { ptr, len, frags: 0, pieces: 1, offload: 0, no_learn: false });
        if fits {
            prefetch(ptr);
            self.longest = self.longest.max(len);
            self.bytes += u64::from(len);
        }
        fits
    }

    /// Adds a frame of several pieces, in order. Returns false if the batch is full, or if there are no pieces or more
    /// than [`MAX_FRAGS`].
    ///
    /// # Safety
    /// As for [`Batch::push`], for each `(ptr, len)`.
    pub unsafe fn push_frags(&mut self, pieces: &[(*const u8, u32)]) -> bool {
        let fits = self.frames.len() < BATCH && self.frags.len() + pieces.len() <= BATCH_FRAGS;
        let Some(&(ptr, _)) = pieces.first().filter(|_| fits && pieces.len() <= MAX_FRAGS) else { return false };
        if let [(ptr, len)] = *pieces {
            // SAFETY: the caller's contract.
            return unsafe { self.push(ptr, len) };
        }
        let frags = self.frags.len() as u16;
        for &(ptr, len) in pieces {
            self.frags.push(Frag { ptr, len });
        }
        let len = pieces.iter().fold(0u32, |sum, p| sum.saturating_add(p.1));
        self.longest = self.longest.max(len);
        self.bytes += u64::from(len);
        self.frames.push(BatchFrame { ptr, len, frags, pieces: pieces.len() as u16, offload: 0, no_learn: false });
        true
    }

    /// Adds a frame that begins with the `len` bytes at `first` and continues with the bytes of `rest` from offset `at`
    /// on. Returns the frame's index, or `None` if there is no room.
    ///
    /// # Safety
    /// As for [`Batch::push`], for `first`; the batch must not be read after the batch of `rest` is cleared.
    #[inline]
    pub(crate) unsafe fn push_variant(
        &mut self,
        first: *const u8,
        len: u32,
        rest: &FrameRef<'_>,
        at: usize,
    ) -> Option<u16> {
        if self.frames.len() >= self.frames.capacity() {
            return None;
        }
        let mut frame = BatchFrame { ptr: first, len, frags: 0, pieces: 1, offload: 0, no_learn: false };
        if rest.len() > at {
            let begin = self.frags.len();
            if begin + 1 + rest.pieces() > self.frags.capacity() {
                return None;
            }
            self.frags.push(Frag { ptr: first, len });
            rest.pieces_from(at, |frag| {
                self.frags.push(frag);
            });
            frame.len += (rest.len() - at) as u32;
            frame.frags = begin as u16;
            frame.pieces = (self.frags.len() - begin) as u16;
        }
        self.longest = self.longest.max(frame.len);
        self.bytes += u64::from(frame.len);
        self.frames.push(frame);
        Some(self.frames.len() as u16 - 1)
    }

    /// Adds a frame of one piece, with no offload pending, to a batch that has room for it.
    ///
    /// # Safety
    /// As for [`Batch::push`].
    #[inline]
    pub(crate) unsafe fn push_bare(&mut self, ptr: *const u8, len: u32) {
        debug_assert!(self.frames.len() < self.frames.capacity());
        self.longest = self.longest.max(len);
        self.bytes += u64::from(len);
        self.frames.push(BatchFrame { ptr, len, frags: 0, pieces: 1, offload: 0, no_learn: false });
    }

    /// Calls `f` with this batch, whose only frame is then `bytes`; if `bytes` exceeds [`MAX_FRAME`], the batch is
    /// empty. Clears the batch before and afterwards.
    pub fn lend<T>(&mut self, bytes: &[u8], f: impl FnOnce(&Batch) -> T) -> T {
        struct LentBatch<'b>(&'b mut Batch);
        impl Drop for LentBatch<'_> {
            fn drop(&mut self) {
                self.0.clear();
            }
        }
        self.clear();
        let lent = LentBatch(self);
        if bytes.len() <= MAX_FRAME {
            // SAFETY: the bytes outlive this call, at whose end the batch is cleared, even if `f` panics.
            unsafe { lent.0.push_bare(bytes.as_ptr(), bytes.len() as u32) };
        }
        f(lent.0)
    }

    /// Sets the offload (checksum or segmentation) that is pending on the last frame.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        if offload == Offload::None {
            return;
        }
        let Some(f) = self.frames.last_mut() else { return };
        match usize::from(f.offload).checked_sub(1).and_then(|i| self.offloads.get_mut(i)) {
            Some(old) => *old = offload,
            None => {
                self.offloads.push(offload);
                f.offload = self.offloads.len() as u16;
            }
        }
    }

    /// Removes the last frame.
    pub fn pop(&mut self) {
        if let Some(f) = self.frames.pop() {
            if f.offload > 0 {
                // The offloads are in the order of their frames.
                self.offloads.pop();
            }
            self.bytes -= u64::from(f.len);
        }
    }

    /// Marks the last frame so that its source address is not learned (`NS_NO_LEARN`).
    #[inline]
    pub fn set_no_learn(&mut self) {
        if let Some(f) = self.frames.last_mut() {
            f.no_learn = true;
        }
    }

    /// Whether every frame is a single piece of at most `limit` bytes with no offload pending.
    #[inline]
    pub fn is_plain(&self, limit: u32) -> bool {
        self.is_whole() && self.is_short(limit)
    }

    /// Whether every frame is a single piece.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.frags.is_empty()
    }

    /// Whether every frame has at most `limit` bytes, with no offload pending.
    #[inline]
    pub(crate) fn is_short(&self, limit: u32) -> bool {
        self.offloads.is_empty() && self.longest <= limit
    }

    /// Returns frame `i`, or `None` if `i` is not below [`Batch::len`].
    #[inline]
    pub fn get(&self, i: usize) -> Option<FrameRef<'_>> {
        self.frames.get(i).map(|frame| FrameRef { batch: self, frame })
    }

    /// Iterates over the frames of a range; yields no frames if the range is not inside the batch.
    #[inline]
    pub(crate) fn range(&self, frames: std::ops::Range<usize>) -> impl Iterator<Item = FrameRef<'_>> {
        self.frames.get(frames).unwrap_or_default().iter().map(|frame| FrameRef { batch: self, frame })
    }

    /// Iterates over all frames.
    pub fn iter(&self) -> impl Iterator<Item = FrameRef<'_>> {
        self.frames.iter().map(|frame| FrameRef { batch: self, frame })
    }
}

/// A frame of a batch.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    batch: &'a Batch,
    frame: &'a BatchFrame,
}

/// Returns a frame's weight: the number of frames and bytes for which it counts in counters and rate limits. A large
/// segment counts as all the frames into which it is cut, with their headers.
#[inline]
pub fn weight(len: u32, offload: Offload) -> Weight {
    let Offload::Gso(gso) = offload else { return Weight::frame(len as usize) };
    let headers = u32::from(gso.hdr_len);
    let payload = len.saturating_sub(headers);
    let frames = payload.div_ceil(u32::from(gso.gso_size).max(1)).max(1);
    Weight { frames, bytes: len.saturating_add((frames - 1).saturating_mul(headers)) }
}

impl FrameRef<'_> {
    /// Length of the whole frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.frame.len as usize
    }

    /// Whether the frame has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frame.len == 0
    }

    /// Whether the sender forbids learning the frame's source address (`NS_NO_LEARN`).
    #[inline]
    pub fn no_learn(&self) -> bool {
        self.frame.no_learn
    }

    /// Whether the frame is a single piece with no offload pending, whose source address may be learned.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        let BatchFrame { pieces, offload, no_learn, .. } = *self.frame;
        pieces == 1 && offload == 0 && !no_learn
    }

    /// The offload pending on the frame.
    #[inline]
    pub fn offload(&self) -> Offload {
        match self.frame.offload {
            0 => Offload::None,
            k => self.batch.offloads.get(k as usize - 1).copied().unwrap_or(Offload::None),
        }
    }

    /// The frame's weight: the number of frames and bytes for which it counts in counters and rate limits.
    #[inline]
    pub fn weight(&self) -> Weight {
        weight(self.frame.len, self.offload())
    }

    /// Number of pieces.
    #[inline]
    pub fn pieces(&self) -> usize {
        self.frame.pieces as usize
    }

    /// Returns piece `i`, or an empty piece if `i` is not below [`FrameRef::pieces`].
    #[inline]
    pub fn piece(&self, i: usize) -> Frag {
        if self.frame.pieces == 1 && i == 0 {
            return Frag { ptr: self.frame.ptr, len: self.frame.len };
        }
        let inside = i < self.pieces();
        let frag = self.batch.frags.get(self.frame.frags as usize + i).filter(|_| inside);
        frag.copied().unwrap_or(Frag { ptr: self.frame.ptr, len: 0 })
    }

    /// Calls `each` with every piece of the frame from offset `at` on.
    fn pieces_from(&self, mut at: usize, mut each: impl FnMut(Frag)) {
        for i in 0..self.pieces() {
            let piece = self.piece(i);
            let skipped = at.min(piece.len as usize);
            at -= skipped;
            let len = piece.len - skipped as u32;
            if len > 0 {
                // The pointer stays in the piece, because `skipped` is at most the piece's length.
                each(Frag { ptr: piece.ptr.wrapping_add(skipped), len });
            }
        }
    }

    /// The destination and source addresses as two words: the lowest byte is the first byte on the wire, the upper 16
    /// bits are 0. `None` if the frame is shorter than an Ethernet header.
    #[inline]
    pub fn addresses(&self) -> Option<(u64, u64)> {
        if self.frame.len < 14 {
            return None;
        }
        const MAC: u64 = (1 << 48) - 1;
        let (first, last) = if self.piece(0).len >= 12 {
            // SAFETY: the contract of `push`: at least 12 readable bytes. Each address comes from one read into a
            // register.
            unsafe {
                (self.frame.ptr.cast::<u64>().read_unaligned(), self.frame.ptr.add(4).cast::<u64>().read_unaligned())
            }
        } else {
            let mut h = [[0u8; 8]; 2];
            self.copy_out(0, &mut h[0]);
            self.copy_out(4, &mut h[1]);
            (u64::from_ne_bytes(h[0]), u64::from_ne_bytes(h[1]))
        };
        Some((u64::from_le(first) & MAC, u64::from_le(last) >> 16))
    }

    /// Reads the eight bytes at each offset in `at` once, as a little-endian word. `None` if the first piece is too
    /// short.
    #[inline]
    pub fn words<const N: usize>(&self, at: [usize; N]) -> Option<[u64; N]> {
        let (first, len) = self.piece(0).raw();
        let end = at.iter().fold(0, |end, at| end.max(at + size_of::<u64>()));
        // SAFETY: the contract of `push`: `len` readable bytes, and no word ends beyond `end`, which is at most `len`.
        (end <= len).then(|| at.map(|at| u64::from_le(unsafe { peek(first.add(at)) })))
    }

    /// Copies the bytes from offset `at` on into `to`, across pieces. Returns the number of bytes copied.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> usize {
        // SAFETY: `to` is writable for its length, and private.
        unsafe { self.copy_out_raw(at, to.as_mut_ptr(), to.len()) }
    }

    /// Like [`FrameRef::copy_out`], but copies at most `room` bytes to the pointer `to`.
    ///
    /// # Safety
    /// `to` must be writable for `room` bytes.
    pub unsafe fn copy_out_raw(&self, mut at: usize, to: *mut u8, room: usize) -> usize {
        let mut done = 0;
        for i in 0..self.pieces() {
            let (ptr, len) = self.piece(i).raw();
            if at >= len {
                at -= len;
                continue;
            }
            let n = (len - at).min(room - done);
            // SAFETY: at + n <= len bytes of a piece, readable by the contract of `push`; `to` has n bytes left.
            unsafe { copy_bytes(ptr.add(at), to.add(done), n) };
            done += n;
            at = 0;
            if done == room {
                break;
            }
        }
        done
    }

    /// Copies the first `len` bytes of a single-piece frame to `dst`.
    ///
    /// # Safety
    /// `dst` must be writable for `len` bytes, which are at most [`FrameRef::len`]; the frame must have one piece.
    #[inline]
    pub(crate) unsafe fn copy_start_to(&self, dst: *mut u8, len: usize) {
        debug_assert!(self.frame.pieces == 1 && len <= self.len());
        // SAFETY: the caller's contract and the contract of `push`.
        unsafe { copy_bytes(self.frame.ptr, dst, len) };
    }

    /// Copies a whole single-piece frame to `dst`.
    ///
    /// # Safety
    /// `dst` must be writable for [`FrameRef::len`] bytes; the frame must have one piece.
    #[inline]
    pub unsafe fn copy_single_to(&self, dst: *mut u8) {
        debug_assert!(self.frame.pieces == 1);
        // SAFETY: the caller's contract and the contract of `push`.
        unsafe { copy_bytes(self.frame.ptr, dst, self.frame.len as usize) };
    }
}

/// Prefetches a cache line that will be read soon.
#[inline]
pub fn prefetch(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(ptr.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
