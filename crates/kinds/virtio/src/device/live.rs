//! A started virtqueue, with all that serving it needs.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::RingCounters;

use crate::features::Framing;
use crate::memory::GuestMemory;
use crate::queue::{Chain, DriverViolation, Pieces, Queue};

/// The dirty log of a guest under migration: marks a device's writes to its memory.
pub trait WriteLog: Send + Sync {
    /// Marks `len` bytes at a guest address as written.
    fn mark(&self, guest: u64, len: u64);
    /// Whether the log's memory is lost.
    fn is_damaged(&self) -> bool;
}

/// An in-flight record of a queue, kept outside this process in case it ends without closing the queue.
pub trait Record: Send {
    /// Called before the driver is shown returned chains.
    fn showing(&mut self, queue: &Queue);
    /// Called after that.
    fn shown(&mut self, queue: &Queue);
    /// Closes the record: the queue's position is known elsewhere.
    fn close(&self);
    /// Whether the record's memory is lost.
    fn is_damaged(&self) -> bool;
}

/// A started queue.
pub struct Live {
    /// The ring.
    pub queue: Queue,
    /// The memory of the ring and its buffers.
    pub memory: Arc<GuestMemory>,
    /// Header format and offloads of its frames.
    pub framing: Framing,
    /// The doorbell for used buffers; without one the driver polls.
    pub call: Option<Arc<Doorbell>>,
    /// The driver does not kick: the queue must be polled.
    pub polled: bool,
    /// The driver has enabled the queue.
    pub enabled: bool,
    /// Buffers of the current chain.
    pub pieces: Pieces,
    /// Stopped for good: its driver is about to be disconnected.
    pub is_broken: bool,
    /// Number of the queue, and the fault to report its driver's violations to.
    pub fault: (usize, Fault),
    /// Dirty log, while the guest migrates.
    pub log: Option<Arc<dyn WriteLog>>,
    /// The ring is logged, too.
    pub log_ring: bool,
    /// Record that survives this process.
    pub inflight: Option<Box<dyn Record>>,
    /// A frame to send once on the driver's behalf.
    pub announce: Option<Vec<u8>>,
    /// The announced frame in the batch: no reference to its bytes may exist.
    pub announced: Vec<u8>,
    /// Chains of the batch taken last.
    pub taken: Vec<Chain>,
    /// Frames, bytes, drops.
    pub counters: Arc<RingCounters>,
    /// Calls to the driver, and kicks from it.
    pub kicks: Arc<KickCounts>,
}

impl Live {
    /// Whether frames pass.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.enabled && !self.is_broken
    }

    /// Shows the driver the returned chains, and notifies it if it asked for that.
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

    /// Asks the driver to kick. Returns whether chains are available already.
    pub fn arm(&mut self) -> bool {
        let more = self.queue.arm();
        self.wrote_ring();
        more
    }

    /// Stops the driver's kicks.
    pub fn disarm(&mut self) {
        self.queue.disarm();
        self.wrote_ring();
    }

    /// Marks bytes written to a buffer in the log.
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

    /// Whether a file of the memory was cut short.
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

    /// Stops the queue for good, and has its driver disconnected.
    #[cold]
    pub fn report(&mut self, why: DriverViolation) {
        self.is_broken = true;
        self.fault.1.report(format_args!("queue {}: {why}", self.fault.0));
    }
}
