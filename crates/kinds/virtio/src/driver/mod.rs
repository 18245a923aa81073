//! virtio-net: the driver's side.
//!
//! Rings and buffers are in netvale's own memory ([`ram`]), which the device can access. Descriptor `i` always has
//! buffer `i`, so posting a buffer is one store. The driver checks everything that the device writes (used entries), as
//! a device checks what a driver writes.
//!
//! | module | what it is |
//! |---|---|
//! | [`ram`] | the memory of rings and buffers |
//! | [`ids`] | the owner of each buffer |
//! | [`split`], [`packed`] | the rings |
//! | [`simd`] | reads several entries of a ring at a time |
//! | [`path`] | the fast path chosen from the features |
//! | [`options`] | the requested features |
//! | [`started`] | the running queues of a device |
//! | [`killed`] | restores a killed process's rings |
//! | [`port`] | a driver port on any transport, the thread that runs it, and its saved state |
//! | `egress` | the transmit queue as an egress |
//! | `ingress` | the receive queue as an ingress |
#![allow(unsafe_code)]

mod egress;
pub mod ids;
mod ingress;
pub mod killed;
pub mod options;
pub mod packed;
pub mod path;
pub mod port;
pub mod ram;
pub mod simd;
pub mod split;
pub mod started;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::queue::{QueueAddresses, QueueFeatures};
use ids::{BuffersState, DriverBuffers, Ids, OrderedBuffers};
use options::DriverOptions;
use path::Path;
use ram::QueueRam;

/// A protocol violation by the device, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceViolation {
    /// `used.idx` moved by more than the queue's size.
    #[error("used.idx moved by more than the queue's size")]
    UsedIndex,
    /// A used entry has the ID of a buffer that the device does not have.
    #[error("the device returned a buffer that it does not have")]
    UsedId,
    /// The device reports more bytes than the buffer has, or fewer bytes than a header has.
    #[error("the device reports {0} bytes written to a buffer: expected at least a header, at most the buffer's size")]
    Length(u32),
    /// A frame spans more buffers than the device returned.
    #[error("a frame spans {0} buffers, more than the device returned")]
    Buffers(u16),
}

/// A buffer that the device returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedBuffer {
    /// Number of the first buffer of the chain that was returned.
    pub id: u16,
    /// Number of bytes that the device wrote.
    pub len: u32,
}

/// Maximum number of entries that [`DriverQueue::used_run`] takes in one call.
pub const RUN: usize = 32;

/// The negotiated features and requested options of a driver's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverFeatures {
    /// The negotiated features of the ring itself.
    pub queue: QueueFeatures,
    /// `VIRTIO_F_IN_ORDER`.
    pub in_order: bool,
    /// Whether to read several entries at a time, which requires buffers that come back in order.
    pub vector: bool,
}

impl DriverFeatures {
    /// Returns the features and options of a driver's queues. `features` are the negotiated feature bits.
    pub fn of(features: u64, options: DriverOptions) -> DriverFeatures {
        let path = Path::of(features, options.vector);
        DriverFeatures { queue: QueueFeatures::of(features), in_order: path.in_order, vector: path.vector.is_some() }
    }
}

/// The driver's side of a queue, split or packed, with buffers that come back in any order or in order.
pub enum DriverQueue {
    /// Split.
    Split(split::SplitDriver<Ids>),
    /// Split, in order.
    SplitOrdered(split::SplitDriver<OrderedBuffers>),
    /// Packed.
    Packed(packed::PackedDriver<Ids>),
    /// Packed, in order.
    PackedOrdered(packed::PackedDriver<OrderedBuffers>),
}

/// State of a driver's queue, for a successor: its positions, and the owner of each buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverQueueState {
    /// Number of descriptors.
    pub size: u16,
    /// In a split queue, the index of the next entry of the available ring; in a packed queue, the index of the next
    /// descriptor to post, with its wrap counter in bit 15.
    next: u16,
    /// Index of the next entry to take back, in the form of `next`.
    done: u16,
    buffers: BuffersState,
}

macro_rules! each {
    ($self:ident, $q:ident => $e:expr) => {
        match $self {
            DriverQueue::Split($q) => $e,
            DriverQueue::SplitOrdered($q) => $e,
            DriverQueue::Packed($q) => $e,
            DriverQueue::PackedOrdered($q) => $e,
        }
    };
}

impl DriverQueue {
    /// Creates an empty queue in `ram`.
    pub fn new(ram: &QueueRam, features: DriverFeatures) -> DriverQueue {
        ram.clear_rings();
        let queue = match (features.queue.packed, features.in_order) {
            (false, false) => DriverQueue::Split(split::SplitDriver::new(ram, features)),
            (false, true) => DriverQueue::SplitOrdered(split::SplitDriver::new(ram, features)),
            (true, false) => DriverQueue::Packed(packed::PackedDriver::new(ram, features)),
            (true, true) => DriverQueue::PackedOrdered(packed::PackedDriver::new(ram, features)),
        };
        let (done, turn) = queue.done();
        ram.note(done, turn);
        queue
    }

    /// Restores a predecessor's queue without writing anything. Returns `None` if the state is inconsistent.
    pub fn continued(ram: &QueueRam, features: DriverFeatures, state: &DriverQueueState) -> Option<DriverQueue> {
        match (features.queue.packed, features.in_order) {
            (false, false) => split::SplitDriver::continued(ram, features, state).map(DriverQueue::Split),
            (false, true) => split::SplitDriver::continued(ram, features, state).map(DriverQueue::SplitOrdered),
            (true, false) => packed::PackedDriver::continued(ram, features, state).map(DriverQueue::Packed),
            (true, true) => packed::PackedDriver::continued(ram, features, state).map(DriverQueue::PackedOrdered),
        }
    }

    /// Returns the queue's state. All posted buffers must have been shown to the device.
    pub fn state(&self) -> DriverQueueState {
        each!(self, q => q.state())
    }

    /// Returns the position of the next entry to take back, in the form of [`DriverQueueState`], and the buffer that is
    /// due to come back there; the latter is 0 if buffers come back in any order.
    #[inline]
    pub fn done(&self) -> (u16, u16) {
        each!(self, q => (q.done(), q.ids().turn()))
    }

    /// Returns the number of free buffers.
    #[inline]
    pub fn free(&self) -> usize {
        each!(self, q => q.ids().free())
    }

    /// Takes `count` free buffers as one chain. Returns the first buffer; `None` if fewer buffers are free.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<u16> {
        each!(self, q => q.ids_mut().take(count))
    }

    /// Returns the buffer after `id` in the chain that was taken last; `None` if `id` is the last buffer of the chain.
    #[inline]
    pub fn link(&self, id: u16) -> Option<u16> {
        each!(self, q => q.ids().next(id))
    }

    /// Frees chains that the device returned.
    #[inline]
    pub fn recycle(&mut self, firsts: impl IntoIterator<Item = u16>) {
        each!(self, q => firsts.into_iter().for_each(|first| q.ids_mut().recycle(first)));
    }

    /// Posts the chain that was taken last, which begins at `first`. For each buffer, `len` returns the size in bytes,
    /// and `write` returns whether the device may write to the buffer. The device sees the chain with the next
    /// [`DriverQueue::publish`].
    #[inline]
    pub fn post(&mut self, ram: &QueueRam, first: u16, write: impl Fn(u16) -> bool, len: impl Fn(u16) -> u32) {
        each!(self, q => q.post(ram, first, write, len))
    }

    /// Posts all free buffers, each as a separate chain, with room for `len` bytes.
    #[inline]
    pub fn post_free(&mut self, ram: &QueueRam, len: u32) {
        each!(self, q => while let Some(id) = q.ids_mut().take(1) {
            q.post(ram, id, |_| true, |_| len);
        });
    }

    /// Shows the device the posted buffers. Returns whether the device requests a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        each!(self, q => q.publish())
    }

    /// Takes back the next chain that the device returned; `None` if the device has returned no further chain.
    ///
    /// # Errors
    /// [`DeviceViolation`] if the device returned a buffer that it does not have, or `used.idx` moved by more than the
    /// queue's size.
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<UsedBuffer>, DeviceViolation> {
        each!(self, q => q.next_used())
    }

    /// Takes back the chains that the device returned, as far as they fit into `into`. Returns the number of chains.
    ///
    /// # Errors
    /// The errors of [`DriverQueue::next_used`].
    #[inline]
    pub fn used_run(&mut self, into: &mut [UsedBuffer]) -> Result<usize, DeviceViolation> {
        each!(self, q => {
            let mut got = q.wide_run(into)?;
            while let Some(place) = into.get_mut(got) {
                let Some(used) = q.next_used()? else { break };
                *place = used;
                got += 1;
            }
            Ok(got)
        })
    }

    /// Reclaims all buffers that the device has sent.
    ///
    /// # Errors
    /// The errors of [`DriverQueue::next_used`].
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        each!(self, q => q.reclaim())
    }

    /// Requests notifications from the device. Returns whether the device has already returned buffers, for which no
    /// notification may come.
    pub fn arm(&mut self) -> bool {
        each!(self, q => q.arm())
    }

    /// Stops notifications while the queue is polled.
    pub fn disarm(&mut self) {
        each!(self, q => q.disarm())
    }
}

/// Returns the addresses of a queue's parts, as a device uses them.
pub fn addresses(ram: &QueueRam) -> QueueAddresses {
    let at = |p| ram.device_address(p);
    QueueAddresses { desc: at(ram.desc()), avail: at(ram.avail()), used: at(ram.used()) }
}
