//! A started virtqueue, with everything needed to serve it.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::RingCounters;

use crate::features::Framing;
use crate::memory::GuestMemory;
use crate::queue::{Chain, DeviceQueue, DriverViolation, Pieces};

/// The dirty log of a migrating guest, which marks the device's writes to guest memory.
pub trait WriteLog: Send + Sync {
    /// Marks `len` bytes at a guest address as written.
    fn mark(&self, guest: u64, len: u64);
    /// Returns whether the log's memory is lost.
    fn is_damaged(&self) -> bool;
}

/// A record of the chains that a queue has in flight. The record is in memory that outlives this process, so that
/// another process can resume the queue if this process is killed.
pub trait InflightRecord: Send {
    /// Records that the returned chains are about to become visible to the driver.
    fn showing(&mut self, queue: &DeviceQueue);
    /// Records that the returned chains have become visible to the driver.
    fn shown(&mut self, queue: &DeviceQueue);
    /// Clears the record when the queue is stopped in an orderly way: the hypervisor then gets the queue's position, or
    /// starts the queue anew.
    fn close(&self);
    /// Returns whether the record's memory is lost.
    fn is_damaged(&self) -> bool;
}

/// A started queue.
pub struct LiveQueue {
    /// The virtqueue.
    pub queue: DeviceQueue,
    /// The memory of the ring and its buffers.
    pub memory: Arc<GuestMemory>,
    /// Header format and offloads of the queue's frames.
    pub framing: Framing,
    /// Doorbell that notifies the driver of used buffers; `None` if the driver polls.
    pub call: Option<Arc<Doorbell>>,
    /// Whether the driver does not kick, so the queue must be polled.
    pub polled: bool,
    /// Whether the driver has enabled the queue.
    pub enabled: bool,
    /// Buffers of the current chain.
    pub pieces: Pieces,
    /// Whether the queue has stopped for good and its driver is about to be disconnected.
    pub is_broken: bool,
    /// Number of the queue, and the fault to which its driver's violations are reported.
    pub fault: (usize, Fault),
    /// The dirty log; `None` if the guest does not migrate.
    pub log: Option<Arc<dyn WriteLog>>,
    /// Whether writes to the ring itself are logged, not only writes to buffers.
    pub log_ring: bool,
    /// The record of in-flight chains; `None` if the hypervisor did not request a record.
    pub inflight: Option<Box<dyn InflightRecord>>,
    /// A frame that is sent once on the driver's behalf, to announce the guest's address after a migration.
    pub announce: Option<Vec<u8>>,
    /// The bytes of the announcement in the current batch. The batch points to these bytes, so no reference to them may
    /// exist.
    pub announced: Vec<u8>,
    /// Chains of the last batch taken.
    pub taken: Vec<Chain>,
    /// Counters of frames, bytes and drops.
    pub counters: Arc<RingCounters>,
    /// Counters of notifications (calls) to the driver, and of kicks from the driver.
    pub kicks: Arc<KickCounts>,
}

impl LiveQueue {
    /// Returns whether frames pass: the queue is enabled and not broken.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.enabled && !self.is_broken
    }

    /// Shows the driver the returned chains, and notifies the driver if it requested a notification.
    #[inline]
    pub fn publish(&mut self) {
        if let Some(record) = &mut self.inflight {
            record.showing(&self.queue);
        }
        let wanted = self.queue.publish();
        if let Some(record) = &mut self.inflight {
            record.shown(&self.queue);
        }
        self.wrote_ring();
        if wanted {
            self.notify();
        }
    }

    /// Requests kicks from the driver. Returns whether chains are already available, for which no kick may come.
    pub fn arm(&mut self) -> bool {
        let more = self.queue.arm();
        self.wrote_ring();
        more
    }

    /// Stops requesting kicks from the driver.
    pub fn disarm(&mut self) {
        self.queue.disarm();
        self.wrote_ring();
    }

    /// If the guest migrates, records in the dirty log that `len` bytes were written at address `at`.
    pub fn wrote(&self, at: *const u8, len: usize) {
        if let Some(log) = &self.log
            && let Some(guest) = self.memory.guest_of(at)
        {
            log.mark(guest, len as u64);
        }
    }

    #[inline]
    fn wrote_ring(&self) {
        if self.log.is_some() && self.log_ring {
            for (at, len) in self.queue.device_area() {
                self.wrote(at, len);
            }
        }
    }

    /// Returns whether bytes of the guest's memory, the dirty log or the in-flight record are lost, because a file was
    /// truncated.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        let log = || self.log.as_ref().is_some_and(|l| l.is_damaged());
        let record = || self.inflight.as_ref().is_some_and(|r| r.is_damaged());
        self.memory.is_damaged() || log() || record()
    }

    /// Notifies the driver of used buffers.
    #[inline]
    pub fn notify(&self) {
        if let Some(call) = &self.call {
            self.kicks.count(true);
            call.ring();
        }
    }

    /// Stops the queue for good and reports the driver's violation, which disconnects the driver.
    #[cold]
    pub fn report(&mut self, why: DriverViolation) {
        self.is_broken = true;
        self.fault.1.report(format_args!("queue {}: {why}", self.fault.0));
    }
}
