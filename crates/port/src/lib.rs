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
//! | [`door`] | a socket at which virtual machines knock |
//! | [`drops`] | counters and the names of drops |
//! | [`ear`] | what a worker sleeps on for the sake of a guest's ring |
//! | [`far_end`] | what an egress delivered to a ring, taken for another switch |
//! | [`gro`] | merging for destinations that have it |
//! | [`hdr`] | the length of a port's virtio-net header |
//! | [`ingress`] | where frames come from, and how safe code reads them |
//! | [`ring_in`] | ingress from a local application's tx ring |
//! | [`ring_out`] | egress to a local application's rx ring |
//! | [`slot`] | a cell that one thread is in at a time |
//! | [`soft`] | checksum and segmentation for destinations that lack the offload |
//! | [`task`] | what a worker does again and again |
//! | [`trouble`] | how workers report a peer that breaks the rules |
//! | [`wrap`] | loopback, fault injector, mirror: around any of them |

mod ahead;
pub mod batch;
pub mod door;
pub mod drops;
pub mod ear;
pub mod far_end;
pub mod gro;
pub mod hdr;
pub mod ingress;
pub mod ring_in;
pub mod ring_out;
pub mod slot;
pub mod soft;
pub mod task;
pub mod trouble;
pub mod wrap;

use std::sync::Arc;

pub use batch::{BATCH, Batch, FrameRef, MAX_FRAME};
pub use drops::{DropReason, RingCounters};
pub use hdr::HdrLen;
pub use ingress::{Ingress, Source};
pub use ring_out::Reservation;
pub use soft::Scratch;
pub use task::{Passed, Task};

/// A queue the switch delivers to, from any worker at any time.
pub trait Egress: Send + Sync {
    /// Copies the frames of `batch` named by `picks`, in that order, to where their receiver finds them, and tells it if it
    /// wants to know. Returns how many picks are dealt with (delivered, or dropped and counted here
    /// for a reason of their own); the rest found no room and are the caller's to drop or to hold.
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize;

    /// Makes room for a delivery in steps, of a batch that goes to many. None: this batch is for [`Egress::deliver`].
    #[inline]
    fn reserve<'b>(&'b self, _batch: &'b Batch, _picks: &'b [u16]) -> Option<Reservation<'b>> {
        None
    }

    /// Its counters: frames delivered, drops.
    fn counters(&self) -> &Arc<RingCounters>;
}
