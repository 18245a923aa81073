//! virtio-net, the driver's side.
//!
//! Rings and buffers lie in our own memory ([`ram`]), which the device reaches. Descriptor `i` always has buffer `i`:
//! posting a buffer is one store. The device's writes (used entries) are trusted as little as a device trusts a
//! driver's.
//!
//! | module | what it is |
//! |---|---|
//! | [`ram`] | the memory |
//! | [`ids`] | the owner of each buffer |
//! | [`split`], [`packed`] | the rings |
//! | [`simd`] | several entries of a ring together |
//! | [`path`] | the path of frames |
//! | [`options`] | the requested features |
//! | [`started`] | a running queue |
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

use crate::queue::{Addresses, QueueFeatures};
use ids::{Buffers, BuffersState, Ids, Ordered};
use ram::QueueRam;

/// A protocol violation by the device; it ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceViolation {
    /// `used.idx` moved by more than the queue's size.
    #[error("the used index jumped")]
    UsedIndex,
    /// A used entry names a buffer that the device does not have.
    #[error("the device gives back a buffer that it does not have")]
    UsedId,
    /// More bytes than the buffer has, or fewer than a header.
    #[error("the device says it wrote {0} bytes to a buffer")]
    Length(u32),
    /// A frame of more buffers than the device returned.
    #[error("a frame in {0} buffers")]
    Buffers(u16),
}

/// A buffer returned by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Its first id.
    pub id: u16,
    /// Bytes that the device wrote.
    pub len: u32,
}

/// Most entries that [`DriverQueue::used_run`] takes together.
pub const RUN: usize = 32;

/// The negotiated features and requested options of a driver's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverFeatures {
    /// The device's view of them.
    pub queue: QueueFeatures,
    /// `VIRTIO_F_IN_ORDER`.
    pub in_order: bool,
    /// Reads several entries together if they come in order.
    pub vector: bool,
}

/// The driver's side of a queue, split or packed, with buffers that come back in any order or in order.
pub enum DriverQueue {
    /// Split.
    Split(split::SplitDriver<Ids>),
    /// Split, in order.
    SplitOrdered(split::SplitDriver<Ordered>),
    /// Packed.
    Packed(packed::PackedDriver<Ids>),
    /// Packed, in order.
    PackedOrdered(packed::PackedDriver<Ordered>),
}

/// Position of a driver's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// Number of descriptors.
    pub size: u16,
    /// Split: the next entry of the available ring. Packed: the next descriptor to post, with its wrap counter in
    /// bit 15.
    next: u16,
    /// The same of the next entry to take back.
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
    /// An empty queue in `ram`.
    pub fn new(ram: &QueueRam, features: DriverFeatures) -> DriverQueue {
        ram.clear_rings();
        let queue = match (features.queue.packed, features.in_order) {
            (false, false) => DriverQueue::Split(split::SplitDriver::new(ram, features)),
            (false, true) => DriverQueue::SplitOrdered(split::SplitDriver::new(ram, features)),
            (true, false) => DriverQueue::Packed(packed::PackedDriver::new(ram, features)),
            (true, true) => DriverQueue::PackedOrdered(packed::PackedDriver::new(ram, features)),
        };
        ram.note(queue.done());
        queue
    }

    /// Restores another process's queue without writing anything. `None` if its state is inconsistent.
    pub fn continued(ram: &QueueRam, features: DriverFeatures, state: &QueueState) -> Option<DriverQueue> {
        match (features.queue.packed, features.in_order) {
            (false, false) => split::SplitDriver::continued(ram, features, state).map(DriverQueue::Split),
            (false, true) => split::SplitDriver::continued(ram, features, state).map(DriverQueue::SplitOrdered),
            (true, false) => packed::PackedDriver::continued(ram, features, state).map(DriverQueue::Packed),
            (true, true) => packed::PackedDriver::continued(ram, features, state).map(DriverQueue::PackedOrdered),
        }
    }

    /// The queue's position, once all posted buffers are shown.
    pub fn state(&self) -> QueueState {
        each!(self, q => q.state())
    }

    /// The position of the next entry to take back, in the numbers of [`QueueState`], and the buffer whose turn it is
    /// there, if buffers are ordered.
    #[inline]
    pub fn done(&self) -> (u16, u16) {
        each!(self, q => (q.done(), q.ids().turn()))
    }

    /// Number of free buffers.
    #[inline]
    pub fn free(&self) -> usize {
        each!(self, q => q.ids().free())
    }

    /// Takes `count` buffers as one chain. Returns the first; `None` if fewer are free.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<u16> {
        each!(self, q => q.ids_mut().take(count))
    }

    /// The buffer after `id` in the chain that was taken last.
    #[inline]
    pub fn link(&self, id: u16) -> Option<u16> {
        each!(self, q => q.ids().next(id))
    }

    /// Frees chains that the device gave back.
    #[inline]
    pub fn recycle(&mut self, firsts: impl IntoIterator<Item = u16>) {
        each!(self, q => firsts.into_iter().for_each(|first| q.ids_mut().recycle(first)));
    }

    /// Posts the chain taken last, which begins at `first`; `len` gives the bytes of each buffer, `write` whether it is
    /// writable. The device sees it with the next [`DriverQueue::publish`].
    #[inline]
    pub fn post(&mut self, ram: &QueueRam, first: u16, write: impl Fn(u16) -> bool, len: impl Fn(u16) -> u32) {
        each!(self, q => q.post(ram, first, write, len))
    }

    /// Posts all free buffers, each as a chain of its own, with room for `len` bytes.
    #[inline]
    pub fn post_free(&mut self, ram: &QueueRam, len: u32) {
        each!(self, q => while let Some(id) = q.ids_mut().take(1) {
            q.post(ram, id, |_| true, |_| len);
        });
    }

    /// Shows the device the posted buffers. Returns whether it wants a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        each!(self, q => q.publish())
    }

    /// The next buffer returned by the device.
    ///
    /// # Errors
    /// [`DeviceViolation`] if the used ring names a buffer that the device does not have, or its index jumped.
    #[inline]
    pub fn next_used(&mut self) -> Result<Option<Used>, DeviceViolation> {
        each!(self, q => q.next_used())
    }

    /// Takes as many returned buffers as fit. Returns their number.
    ///
    /// # Errors
    /// Like [`DriverQueue::next_used`].
    #[inline]
    pub fn used_run(&mut self, into: &mut [Used]) -> Result<usize, DeviceViolation> {
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

    /// Takes back all buffers that the device has sent.
    ///
    /// # Errors
    /// Like [`DriverQueue::next_used`].
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        each!(self, q => q.reclaim())
    }

    /// Asks the device to notify. Returns whether it has returned buffers meanwhile.
    pub fn arm(&mut self) -> bool {
        each!(self, q => q.arm())
    }

    /// Stops notifications while the queue is polled.
    pub fn disarm(&mut self) {
        each!(self, q => q.disarm())
    }
}

/// Addresses of a queue's parts, for a back end in another process.
pub fn addresses(ram: &QueueRam) -> Addresses {
    let at = |p| ram.device_address(p);
    Addresses { desc: at(ram.desc()), avail: at(ram.avail()), used: at(ram.used()) }
}
