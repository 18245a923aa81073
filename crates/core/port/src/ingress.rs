//! Ingresses, the sources of frames, and safe access to their frames.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::drops::RingCounters;

use crate::batch::Batch;
use crate::kept::Kept;
use crate::stage::{Stage, Staging};

/// A queue the switch takes frames from. One worker owns it at a time; it reads frames through a [`Source`].
pub trait Ingress: Send {
    /// Adds the available frames to the empty `batch`, up to its capacity. Each descriptor is read once and checked;
    /// unusable frames are dropped and counted here. Called only after the previous batch was released.
    ///
    /// # Safety
    /// Frames stay in the ingress's memory until the next [`release`](Ingress::release) or `take`, or until the ingress
    /// is dropped: the caller must not read any of them after that.
    unsafe fn take(&mut self, batch: &mut Batch);

    /// Ends the delivery of all taken frames: the ingress may reuse their memory.
    fn release(&mut self);

    /// Whether a control thread waits for the taken frames, because the queue is being removed: release them soon.
    fn is_wanted(&self) -> bool {
        false
    }

    /// Asks for a wake-up when frames arrive. Returns whether frames are available already: then do not sleep.
    fn arm(&mut self) -> bool;

    /// Turns wake-ups off while the worker polls.
    fn disarm(&mut self);

    /// The descriptor that becomes readable on a wake-up.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Clears a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// The longest time the worker may sleep without a wake-up from this ingress; `None`: no limit.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Prepares for a pause of the worker: hands out frames that wait only for time, until the ingress
    /// [settles](Ingress::settle).
    fn hurry(&mut self) {}

    /// Enters the pause: saves state that only this value holds to where a successor process finds it. All taken frames
    /// have been released.
    fn settle(&mut self) {}

    /// Whether frames can stay in place until their sender may proceed. If not, those beyond a limit are dropped.
    fn can_wait(&self) -> bool {
        true
    }

    /// Whether looking for frames is just a memory access. If not (it is a system call), the worker looks only after
    /// `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// The counters of frames taken and dropped.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// An ingress together with the batch taken from it. Safe code reads frames here, only while the ingress keeps them:
///
/// ```
/// # use netvale_port::{Batch, Scratch, Source, loopback::loopback};
/// # let (_, ingress) = loopback(1)?;
/// let (mut source, mut spare) = (Source::new(Box::new(ingress)), Box::new(Batch::new()));
/// let bytes: usize = source.take(&mut spare).iter().map(|frame| frame.len()).sum();
/// source.release(&mut spare);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// not once they have been released,
///
/// ```compile_fail,E0499
/// # use netvale_port::{Batch, Source};
/// # fn example(mut source: Source, mut spare: Box<Batch>) {
/// let frames = source.take(&mut spare);
/// source.release(&mut spare);
/// frames.len();
/// # }
/// ```
///
/// nor after more have been taken,
///
/// ```compile_fail,E0499
/// # use netvale_port::{Batch, Source};
/// # fn example(mut source: Source, mut spare: Box<Batch>) {
/// let first = source.take(&mut spare);
/// let second = source.take(&mut spare);
/// first.len();
/// # }
/// ```
///
/// nor when the ingress is gone,
///
/// ```compile_fail,E0505
/// # use netvale_port::{Batch, Source};
/// # fn example(mut source: Source, mut spare: Box<Batch>) {
/// let frames = source.take(&mut spare);
/// drop(source);
/// frames.len();
/// # }
/// ```
///
/// and no other batch can be filled.
///
/// ```compile_fail,E0133
/// # use netvale_port::{Batch, Ingress};
/// # fn example(mut ingress: Box<dyn Ingress>, mut batch: Batch) {
/// ingress.take(&mut batch);
/// # }
/// ```
pub struct Source<I: Ingress + ?Sized = dyn Ingress> {
    ingress: Box<I>,
    /// The taken frames; empty between deliveries: the worker's spare batch then stays warm in its cache.
    batch: Box<Batch>,
    is_taken: bool,
    /// Memory of the taken frames, once they no longer lie in the ingress's.
    kept: Option<Kept>,
    /// Variants of the taken frames.
    stage: Option<Box<Stage>>,
}

impl<I: Ingress + ?Sized> Source<I> {
    /// Creates a source that takes from `ingress`.
    pub fn new(ingress: Box<I>) -> Self {
        Source { ingress, batch: Box::default(), is_taken: false, kept: None, stage: None }
    }

    /// Takes the available frames, until `release`. Their batch is `spare`, replaced by another.
    #[inline]
    pub fn take(&mut self, spare: &mut Box<Batch>) -> &Batch {
        if self.is_taken {
            self.release_any(spare);
        }
        debug_assert!(spare.is_empty());
        std::mem::swap(&mut self.batch, spare);
        self.is_taken = true;
        // SAFETY: only this value reads `batch` (`frames`): it lends the batch for no longer than it is itself left
        // alone, and clears it before it releases, takes more, or gives it away; no other code can release or take from
        // the ingress.
        unsafe { self.ingress.take(&mut self.batch) };
        &self.batch
    }

    /// The taken frames.
    #[inline]
    pub fn frames(&self) -> &Batch {
        &self.batch
    }

    /// Releases all frames after their delivery. `spare` gets the batch back.
    #[inline]
    pub fn release(&mut self, spare: &mut Box<Batch>) {
        self.end();
        std::mem::swap(&mut self.batch, spare);
    }

    #[inline]
    fn end(&mut self) {
        if let Some(stage) = &mut self.stage {
            stage.clear();
        }
        self.batch.clear();
        self.ingress.release();
        self.is_taken = false;
    }

    /// Like [`Source::release`], for frames that may have been [kept](Source::keep).
    #[cold]
    pub fn release_any(&mut self, spare: &mut Box<Batch>) {
        if self.kept.is_none() {
            return self.release(spare);
        }
        self.stage = None;
        self.batch.clear();
        self.kept = None;
        self.is_taken = false;
        std::mem::swap(&mut self.batch, spare);
    }

    /// Starts making variants of the taken frames, in the memory of `spare`, which [`unstage`](Source::unstage) gives
    /// back. Existing variants are discarded.
    #[inline]
    pub fn stage(&mut self, spare: &mut Option<Box<Stage>>) -> Staging<'_> {
        let stage = self.stage.get_or_insert_with(|| spare.take().unwrap_or_default());
        // SAFETY: `end`, `have`, `release_any` and `keep`, which alone clear the batch, clear the stage first.
        unsafe { Staging::new(&self.batch, stage) }
    }

    /// Discards all variants, and gives their memory back unless [kept](Source::keep) frames use it.
    #[inline]
    pub fn unstage(&mut self, spare: &mut Option<Box<Stage>>) {
        if self.kept.is_some() {
            self.stage = None;
        }
        if let Some(mut stage) = self.stage.take() {
            stage.clear();
            *spare = Some(stage);
        }
    }

    /// The first bytes of a variant, private to netvale.
    #[inline]
    pub fn head_of(&self, variant: u16) -> &[u8] {
        self.stage.as_ref().map_or(&[], |stage| stage.head_of(variant))
    }

    /// The variants of the taken frames; without any, the frames themselves.
    #[inline]
    pub fn variants(&self) -> &Batch {
        self.stage.as_ref().map_or(&self.batch, |stage| stage.variants())
    }

    /// Copies the taken frames into this value's own memory and releases the ingress's. Allocates: not for the packet
    /// path.
    pub fn keep(&mut self) {
        if !self.is_taken || self.kept.is_some() {
            return;
        }
        if let Some(mut stage) = self.stage.take() {
            stage.keep();
            self.end();
            self.kept = Some(Kept::default());
            self.is_taken = true;
            self.stage = Some(stage);
            return;
        }
        let kept = Kept::of(self.batch.iter());
        self.end();
        self.have(kept);
    }

    /// Begins with frames that another source kept, each behind a virtio-net header ([`Kept::frame`]). Returns the
    /// number of valid ones; the others are left out. Frames taken before are lost.
    pub fn begin_with(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> usize {
        if self.is_taken && self.kept.is_none() {
            self.end();
        }
        self.have(frames.into_iter().collect())
    }

    fn have(&mut self, kept: Kept) -> usize {
        self.stage = None;
        self.batch.clear();
        // SAFETY: `kept` is stored beside the batch, and replaced or dropped only after the batch was cleared.
        unsafe { kept.describe(&mut self.batch) };
        self.kept = Some(kept);
        self.is_taken = true;
        self.batch.len()
    }

    /// The ingress, for inspection.
    #[inline]
    pub fn ingress(&self) -> &I {
        &self.ingress
    }

    /// See [`Ingress::arm`].
    pub fn arm(&mut self) -> bool {
        self.ingress.arm()
    }

    /// See [`Ingress::disarm`].
    pub fn disarm(&mut self) {
        self.ingress.disarm();
    }

    /// See [`Ingress::woken`].
    pub fn woken(&mut self) {
        self.ingress.woken();
    }

    /// See [`Ingress::hurry`].
    pub fn hurry(&mut self) {
        self.ingress.hurry();
    }

    /// See [`Ingress::settle`].
    pub fn settle(&mut self) {
        self.ingress.settle();
    }
}
