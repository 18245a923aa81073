//! A queue in motion, with all that serving it needs.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::RingCounters;

use crate::features::Framing;
use crate::memory::GuestMemory;
use crate::queue::{Chain, DriverViolation, Pieces, Queue};

/// Where it is marked what a device writes to a guest's memory, while the guest moves.
pub trait WriteLog: Send + Sync {
    /// `len` bytes at a guest address have been written.
    fn mark(&self, guest: u64, len: u64);
    /// Whether the log's memory is gone.
    fn is_damaged(&self) -> bool;
}

/// What is kept of a queue outside of this process, in case it ends without closing the queue.
pub trait Record: Send {
    /// Before the driver is shown what was given back.
    fn showing(&mut self, queue: &Queue);
    /// After that.
    fn shown(&mut self, queue: &Queue);
    /// It is known elsewhere where the queue stopped: the record is of no use any more.
    fn close(&self);
    /// Whether the record's memory is gone.
    fn is_damaged(&self) -> bool;
}

/// A started queue.
pub struct Live {
    /// The ring.
    pub queue: Queue,
    /// Where it and its buffers lie.
    pub memory: Arc<GuestMemory>,
    /// What its frames look like.
    pub framing: Framing,
    /// The doorbell for used buffers; without one the driver polls.
    pub call: Option<Arc<Doorbell>>,
    /// The driver will not kick: the queue has to be looked at.
    pub polled: bool,
    /// The driver lets frames through.
    pub enabled: bool,
    /// Room for a chain.
    pub pieces: Pieces,
    /// Stopped for good: the driver's side is about to be disconnected.
    pub is_broken: bool,
    /// Number of the queue, and where it is reported what its driver did.
    pub fault: (usize, Fault),
    /// Where what is written has to be marked, while the guest moves.
    pub log: Option<Arc<dyn WriteLog>>,
    /// The ring is logged, too.
    pub log_ring: bool,
    /// What survives us.
    pub inflight: Option<Box<dyn Record>>,
    /// A frame to be sent as if the driver had, once.
    pub announce: Option<Vec<u8>>,
    /// The one that is in a batch: nobody makes a reference to its bytes.
    pub announced: Vec<u8>,
    /// Chains of the batch taken last.
    pub taken: Vec<Chain>,
    /// Frames, bytes, drops.
    pub counters: Arc<RingCounters>,
    /// Calls to the driver, and kicks from it.
    pub kicks: Arc<KickCounts>,
}

impl Live {
    /// Frames pass.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.enabled && !self.is_broken
    }

    /// Shows the driver what was given back, and tells it if it wants to know.
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

    /// Asks the driver to kick. Returns whether there is something already.
    pub fn arm(&mut self) -> bool {
        let more = self.queue.arm();
        self.wrote_ring();
        more
    }

    /// Kicks are not needed any more.
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

    /// Whether a file behind the memory was cut short.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        let log = || self.log.as_ref().is_some_and(|l| l.is_damaged());
        let record = || self.inflight.as_ref().is_some_and(|r| r.is_damaged());
        self.memory.is_damaged() || log() || record()
    }

    /// Tells the driver that something was used.
    #[inline]
    pub fn notify(&self) {
        if let Some(call) = &self.call {
            self.kicks.count(true);
            call.ring();
        }
    }

    /// Stops the queue for good, and has the driver's side disconnected.
    #[cold]
    pub fn report(&mut self, why: DriverViolation) {
        self.is_broken = true;
        self.fault.1.report(format_args!("queue {}: {why}", self.fault.0));
    }
}
