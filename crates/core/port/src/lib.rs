//! A switch's view of its ports: batches of frames taken from an [`Ingress`] and delivered to an [`Egress`].
//!
//! Both traits are small and work on batches: one dynamic call moves up to [`BATCH`] frames. A kind of port (local
//! application, TAP, capture file, virtqueue, …) implements them; the switch depends on nothing else. The switch reads
//! frames through a [`Source`], which lends them while the ingress keeps them.
//!
//! ```text
//!  Ingress::take ──► Batch (descriptors, checked) ──► switch ──► Egress::deliver (copies once) ──► Ingress::release
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`access`] | access rights of files that the daemon creates for a caller |
//! | `ahead` | prefetches the buffers of receive slots |
//! | [`batch`] | a batch of frames between ingress and egress |
//! | [`changes`] | a counter of changes that wakes a waiter on the next change |
//! | [`domain`] | the users whose memory a thread may touch |
//! | [`echo`] | an egress that returns its frames to their senders |
//! | [`egress`] | destinations of frames |
//! | [`far_end`] | the frames that an egress delivered to a ring, as the input of another switch |
//! | [`folder`] | files and sockets at paths of callers, looked up once |
//! | `gather` | merges adjacent frames without copying their payloads |
//! | [`gro`] | merging for receivers that take large segments |
//! | [`handed_over`] | the queue of an untrusted user, filled only by that user's own worker |
//! | [`hdr`] | the length of a port's virtio-net header |
//! | [`ingress`] | sources of frames, and safe access to them |
//! | [`kept`] | copies of frames that wait after their ingress was removed |
//! | [`link`] | an impaired link: it delays, loses, damages or rate-limits frames |
//! | [`listener`] | UNIX sockets with a file: stream listeners and datagram sockets |
//! | `lists` | lists of fixed capacity that share one allocation |
//! | [`mod@loopback`] | returns delivered frames from private memory, for tests and examples |
//! | [`null`] | an egress that discards every frame |
//! | [`origin`] | the port that sent a delivery's frames, and its owner |
//! | [`pace`] | limits a worker's time in calls to a kernel device |
//! | [`passage`] | moves frames between a peer's rings and the pipe or interface that is passed through to it |
//! | [`ring_in`] | ingress from a local application's tx ring |
//! | [`ring_out`] | egress to a local application's rx ring |
//! | [`seat`] | a place for a peer's queue, with the counters and the wake set that stay when the peer changes |
//! | [`service`] | a thread that serves a port's peers, one after another |
//! | [`soft`] | checksum and segmentation in software |
//! | [`stage`] | variants of frames: a private copy of the first bytes, with another VLAN tag or none |
//! | [`task`] | a unit of work that a worker repeats |
//! | [`wake`] | the epoll set that a worker sleeps on for a peer's ring |
//!
//! # A kind of port
//!
//! This example is a queue in memory. Real ports avoid the lock and the allocations, and do everything else that this
//! example does.
//!
//! ```
//! use std::collections::VecDeque;
//! use std::os::fd::{AsFd, BorrowedFd};
//! use std::sync::atomic::AtomicU32;
//! use std::sync::{Arc, Mutex};
//!
//! use netvale_mem::notify::{self, Doorbell};
//! use netvale_port::soft::{PutResult, SegmentRoom};
//! use netvale_port::{Batch, Egress, Ingress, MAX_FRAME, RingCounters, Scratch, Source};
//!
//! struct Sender {
//!     queue: Mutex<VecDeque<Vec<u8>>>,
//!     need_kick: AtomicU32,
//!     doorbell: Doorbell,
//!     counters: Arc<RingCounters>,
//! }
//!
//! impl Egress for Sender {
//!     fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
//!         let (mut queue, mut done) = (self.queue.lock().unwrap(), 0);
//!         for frame in picks.iter().filter_map(|&pick| batch.get(pick.into())) {
//!             // A checksum or a segmentation may be pending.
//!             let room = SegmentRoom { free: 64 - queue.len(), all: 64, bytes: MAX_FRAME, lead: 0 };
//!             let put = scratch.soften_into(&frame, &self.counters, &room, |bytes| {
//!                 if queue.len() == 64 {
//!                     return PutResult::Full;
//!                 }
//!                 queue.push_back(bytes.to_vec());
//!                 self.counters.passed(1, bytes.len() as u64);
//!                 PutResult::Done
//!             });
//!             if put == PutResult::Full {
//!                 break;
//!             }
//!             done += 1;
//!         }
//!         if done > 0 && notify::wanted(&self.need_kick) {
//!             self.doorbell.ring();
//!         }
//!         done
//!     }
//!
//!     fn counters(&self) -> &Arc<RingCounters> {
//!         &self.counters
//!     }
//! }
//!
//! struct Receiver {
//!     from: Arc<Sender>,
//!     taken: Vec<Vec<u8>>,
//!     counters: Arc<RingCounters>,
//! }
//!
//! impl Ingress for Receiver {
//!     // SAFETY: frames stay in `taken` until `release`.
//!     unsafe fn take(&mut self, batch: &mut Batch) {
//!         while batch.room() > 0 && let Some(frame) = self.from.queue.lock().unwrap().pop_front() {
//!             // SAFETY: all bytes of a Vec, which stay in place when it is moved, and are neither written nor freed
//!             // before `release`.
//!             unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
//!             self.taken.push(frame);
//!         }
//!         self.counters.passed(batch.len() as u64, batch.bytes());
//!     }
//!
//!     fn release(&mut self) {
//!         self.taken.clear();
//!     }
//!
//!     fn arm(&mut self) -> bool {
//!         notify::arm(&self.from.need_kick);
//!         !self.from.queue.lock().unwrap().is_empty()
//!     }
//!
//!     fn disarm(&mut self) {
//!         notify::disarm(&self.from.need_kick);
//!     }
//!
//!     fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
//!         Some(self.from.doorbell.as_fd())
//!     }
//!
//!     fn woken(&mut self) {
//!         self.from.doorbell.drain();
//!     }
//!
//!     fn counters(&self) -> &Arc<RingCounters> {
//!         &self.counters
//!     }
//! }
//!
//! let (queue, need_kick) = Default::default();
//! let to = Arc::new(Sender { queue, need_kick, doorbell: Doorbell::new()?, counters: Arc::default() });
//! let from = Receiver { from: Arc::clone(&to), taken: Vec::new(), counters: Arc::default() };
//! # let (mut batch, bytes) = (Batch::new(), [7; 60]);
//! # // SAFETY: the frame outlives the batch.
//! # unsafe { batch.push(bytes.as_ptr(), 60) };
//! # assert_eq!(to.deliver(&batch, &[0], &mut Scratch::new()), 1);
//! // Acts as a switch that returns every frame to its sender.
//! let (mut source, mut spare, mut scratch) = (Source::new(Box::new(from)), Box::default(), Scratch::new());
//! let frames = source.take(&mut spare);
//! assert_eq!(to.deliver(frames, &[0], &mut scratch), 1);
//! source.release(&mut spare);
//! # assert!(source.arm(), "it came back");
//! # source.disarm();
//! # assert_eq!((to.counters.frames(), source.ingress().counters.frames()), (2, 1));
//! # let mut got = [0; 60];
//! # assert_eq!(source.take(&mut spare).get(0).map(|frame| frame.copy_out(0, &mut got)), Some(60));
//! # assert_eq!(got, bytes);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod access;
mod ahead;
pub mod batch;
pub mod changes;
pub mod domain;
pub mod echo;
pub mod egress;
pub mod far_end;
pub mod folder;
mod gather;
pub mod gro;
pub mod handed_over;
pub mod hdr;
pub mod ingress;
pub mod kept;
pub mod link;
pub mod listener;
mod lists;
pub mod loopback;
pub mod null;
pub mod origin;
pub mod pace;
pub mod passage;
pub mod ring_in;
pub mod ring_out;
pub mod seat;
pub mod service;
pub mod soft;
pub mod stage;
pub mod task;
#[cfg(test)]
pub(crate) mod tests;
pub mod wake;

pub use batch::{BATCH, Batch, FrameRef, MAX_FRAME, MOST_NEWS};
pub use egress::{Egress, Room};
pub use hdr::HdrLen;
pub use ingress::{Ingress, Source};
pub use netvale_mem::drops::{DropReason, RingCounters};
pub use ring_out::Reservation;
pub use soft::Scratch;
pub use task::{PassResult, Task};
