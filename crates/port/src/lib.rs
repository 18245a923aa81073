//! What a switch sees of the world: batches of frames taken from an [`Ingress`] and delivered to an [`Egress`].
//!
//! Both traits are narrow and batched: one dynamic call moves up to [`BATCH`] frames. A kind of
//! port (local application, TAP, capture file, virtqueue, …) is an adapter that implements them; the switch knows nothing else.
//!
//! ```text
//!  Ingress::take ──► Batch (descriptors, checked) ──► switch ──► Egress::deliver (copies once) ──► Ingress::release
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`batch`] | the frames on their way |
//! | [`drops`] | counters and the names of drops |
//! | [`ear`] | what a worker sleeps on for the sake of a guest's ring |
//! | [`far_end`] | what an egress delivered to a ring, taken for another switch |
//! | [`gro`] | merging for destinations that have it |
//! | [`hdr`] | the length of a port's virtio-net header |
//! | [`listener`] | a listening socket that serves one peer at a time |
//! | [`ring_in`] | ingress from a local application's tx ring |
//! | [`ring_out`] | egress to a local application's rx ring |
//! | [`service`] | a thread that serves a port's peers, one after another |
//! | [`slot`] | a cell that one thread is in at a time |
//! | [`soft`] | checksum and segmentation for destinations that lack the offload |
//! | [`wrap`] | loopback, fault injector, mirror: around any of them |

mod ahead;
pub mod batch;
pub mod drops;
pub mod ear;
pub mod far_end;
pub mod gro;
pub mod hdr;
pub mod listener;
pub mod ring_in;
pub mod ring_out;
pub mod service;
pub mod slot;
pub mod soft;
pub mod wrap;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use batch::{BATCH, Batch, FrameRef, MAX_FRAME};
pub use drops::{DropReason, RingCounters};
pub use hdr::HdrLen;
pub use netvale_mem::lease::Lease;
pub use soft::Scratch;

/// A queue the switch takes frames from. One worker owns it at a time.
pub trait Ingress: Send {
    /// Adds the frames that are there to `batch`, as many as fit, each descriptor read once and checked. What cannot be used is
    /// dropped and counted here. Called only when the batch taken before has been released.
    fn take(&mut self, batch: &mut Batch);

    /// Everything taken has been delivered: its memory may be reused.
    fn release(&mut self);

    /// Asks to be woken when frames arrive. Returns whether there are some already: then do not sleep.
    fn arm(&mut self) -> bool;

    /// No wake-ups while the worker polls.
    fn disarm(&mut self);

    /// The descriptor that becomes readable on a wake-up.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes back a pending wake-up after `wake_fd` became readable.
    fn woken(&mut self) {}

    /// Whether looking for frames is a mere memory access. If not (it is a system call), the worker looks only after
    /// `wake_fd` became readable.
    fn is_cheap(&self) -> bool {
        true
    }

    /// Its counters: frames taken, drops.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// A queue the switch delivers to, from any worker at any time.
pub trait Egress: Send + Sync {
    /// Copies the frames of `batch` named by `picks`, in that order, to where their receiver finds them, and tells it if it
    /// wants to know. Returns how many picks are dealt with (delivered, or dropped and counted here
    /// for a reason of their own); the rest found no room and are the caller's to drop or to hold.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize;

    /// The same in steps, if this egress has them: for a batch that goes to many.
    #[inline]
    fn staged(&self) -> Option<&dyn Staged> {
        None
    }

    /// Its counters: frames delivered, drops.
    fn counters(&self) -> &Arc<RingCounters>;
}

/// A delivery in steps. A pass takes each step for all destinations of a batch before the next, so that the full fences
/// ([`netvale_mem::notify::full_fence`]) between them are paid for once a batch, and cache lines that other cores hold are on
/// their way at the same time.
pub trait Staged {
    /// Makes room. Returns how many of `picks` found some, and remembers it in the lease; none: this batch is for
    /// [`Egress::deliver`].
    fn reserve(&self, batch: &Batch, picks: &[u16]) -> Option<Reserved>;

    /// Copies the frames that found room. A full fence follows.
    fn fill(&self, batch: &Batch, picks: &[u16], lease: Lease);

    /// Shows the receiver all that is filled, unless somebody else does. Returns whether to take the next steps. A full fence
    /// follows.
    fn publish(&self) -> bool;

    /// Kicks the receiver if it wants it, and lets others publish. A full fence follows.
    fn kick_and_stop(&self);

    /// Sees to what others filled in between.
    fn look_after(&self);
}

/// What a first step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Room for `count` frames.
    Room(Lease),
    /// None at all.
    Full,
}
