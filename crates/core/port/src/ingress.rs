//! Ingresses, the sources of frames, and safe access to their frames.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::drops::RingCounters;

use crate::batch::Batch;
use crate::kept::KeptFrames;
use crate::stage::{Stage, Staging};

/// A queue from which the switch takes frames. One worker at a time owns it, and reads its frames through a [`Source`].
pub trait Ingress: Send {
    /// Adds the available frames to the empty `batch`, up to its capacity. Each descriptor is read once and checked;
    /// unusable frames are dropped and counted here. Called only after the previous batch was released.
    ///
    /// # Safety
    /// The frames are valid until the next [`release`](Ingress::release) or `take`, or until the ingress is dropped.
    /// The caller must not read the frames after that.
    unsafe fn take(&mut self, batch: &mut Batch);

    /// Ends the delivery of all taken frames: the ingress may reuse their memory.
    fn release(&mut self);

    /// Whether a control thread waits to remove the queue. The worker should then release the queue's frames soon.
    fn is_wanted(&self) -> bool {
        false
    }

    /// Requests a wake-up on the arrival of frames. Returns true if frames are already available; the caller must then
    /// not sleep.
    fn arm(&mut self) -> bool;

    /// Turns wake-ups off while the worker polls.
    fn disarm(&mut self);

    /// The descriptor that becomes readable on a wake-up; `None` if the ingress cannot wake the worker.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Clears a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// Maximum time for which the worker may sleep without a wake-up from this ingress; `None`: no limit.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Prepares for a pause of the worker: until [`Ingress::settle`], `take` also returns frames that are not due yet.
    fn hurry(&mut self) {}

    /// Enters the pause: writes to shared memory, for a successor process, the state that only this value contains.
    /// Called after all taken frames have been released.
    fn settle(&mut self) {}

    /// Whether frames that exceed a rate limit can wait in the ingress. If not, they are dropped.
    fn can_wait(&self) -> bool {
        true
    }

    /// Whether checking for frames needs no system call. If it needs a system call, the worker checks only after
    /// `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// The counters of frames taken and dropped.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// An ingress together with the batch taken from it. The borrow checker ensures that frames are read only while the
/// ingress keeps them:
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
/// not after their release,
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
/// nor after more frames have been taken,
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
/// nor after the ingress was dropped,
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
/// and safe code cannot fill another batch.
///
/// ```compile_fail,E0133
/// # use netvale_port::{Batch, Ingress};
/// # fn example(mut ingress: Box<dyn Ingress>, mut batch: Batch) {
/// ingress.take(&mut batch);
/// # }
/// ```
pub struct Source<I: Ingress + ?Sized = dyn Ingress> {
    ingress: Box<I>,
    /// The taken frames; an empty batch between deliveries. All sources of a worker use the worker's one spare batch in
    /// turn, which thus stays in the cache.
    batch: Box<Batch>,
    is_taken: bool,
    /// Copies of the taken frames after [`Source::keep`]; `None` otherwise.
    kept: Option<KeptFrames>,
    /// Variants of the taken frames (private copies of their first bytes, some with another VLAN tag); `None` if no
    /// variant was created.
    stage: Option<Box<Stage>>,
}

impl<I: Ingress + ?Sized> Source<I> {
    /// Creates a source that takes from `ingress`.
    pub fn new(ingress: Box<I>) -> Self {
        Source { ingress, batch: Box::default(), is_taken: false, kept: None, stage: None }
    }

    /// Takes the available frames, which stay until `release`. Swaps the source's own batch with `spare`, whose memory
    /// then holds the frames' descriptors.
    #[inline]
    pub fn take(&mut self, spare: &mut Box<Batch>) -> &Batch {
        if self.is_taken {
            self.release_any(spare);
        }
        debug_assert!(spare.is_empty());
        std::mem::swap(&mut self.batch, spare);
        self.is_taken = true;
        // SAFETY: only this value reads `batch` (`frames`): it lends the batch only while `self` is borrowed, and
        // clears it before it releases, takes more, or gives it away; no other code can release or take from the
        // ingress.
        unsafe { self.ingress.take(&mut self.batch) };
        &self.batch
    }

    /// The taken frames.
    #[inline]
    pub fn frames(&self) -> &Batch {
        &self.batch
    }

    /// Releases all frames after their delivery, and returns the batch to `spare`.
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

    /// Starts to create variants of the taken frames (copies with another VLAN tag), in the memory of `spare`;
    /// [`unstage`](Source::unstage) returns that memory. Existing variants are discarded.
    #[inline]
    pub fn stage(&mut self, spare: &mut Option<Box<Stage>>) -> Staging<'_> {
        let stage = self.stage.get_or_insert_with(|| spare.take().unwrap_or_default());
        // SAFETY: `end`, `have`, `release_any` and `keep`, which alone clear the batch, clear the stage first.
        unsafe { Staging::new(&self.batch, stage) }
    }

    /// Discards all variants, and returns their memory unless [kept](Source::keep) frames use it.
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

    /// The private copy of a variant's first bytes; empty if there is no such variant.
    #[inline]
    pub fn head_of(&self, variant: u16) -> &[u8] {
        self.stage.as_ref().map_or(&[], |stage| stage.head_of(variant))
    }

    /// The variants of the taken frames; without a stage, the frames themselves.
    #[inline]
    pub fn variants(&self) -> &Batch {
        self.stage.as_ref().map_or(&self.batch, |stage| stage.variants())
    }

    /// Copies the taken frames into this value's own memory and releases them to the ingress. Allocates: not for the
    /// packet path.
    pub fn keep(&mut self) {
        if !self.is_taken || self.kept.is_some() {
            return;
        }
        if let Some(mut stage) = self.stage.take() {
            stage.keep();
            self.end();
            self.kept = Some(KeptFrames::default());
            self.is_taken = true;
            self.stage = Some(stage);
            return;
        }
        let kept = KeptFrames::of(self.batch.iter());
        self.end();
        self.have(kept);
    }

    /// Replaces the taken frames with frames that another source kept, each after a virtio-net header
    /// ([`KeptFrames::frame`]). Returns the number of valid frames; invalid frames are omitted.
    pub fn begin_with(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> usize {
        if self.is_taken && self.kept.is_none() {
            self.end();
        }
        self.have(frames.into_iter().collect())
    }

    fn have(&mut self, kept: KeptFrames) -> usize {
        self.stage = None;
        self.batch.clear();
        // SAFETY: `kept` is stored beside the batch, and replaced or dropped only after the batch was cleared.
        unsafe { kept.describe(&mut self.batch) };
        self.kept = Some(kept);
        self.is_taken = true;
        self.batch.len()
    }

    /// The ingress, for reading its state: frames can be taken only through this source.
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
