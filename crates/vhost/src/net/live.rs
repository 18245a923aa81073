//! A queue in motion, with all that serving it needs.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::RingCounters;

use crate::memory::GuestMemory;
use crate::memory::log::DirtyLog;
use crate::net::features::Framing;
use crate::net::inflight::Record;
use crate::queue::{Broken, Chain, Pieces, Queue};

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
    /// The driver will not kick (SET_VRING_KICK without a descriptor): the queue has to be looked at.
    pub polled: bool,
    /// The driver lets frames through (SET_VRING_ENABLE).
    pub enabled: bool,
    /// Room for a chain.
    pub pieces: Pieces,
    /// Stopped for good: the front end is about to be disconnected.
    pub is_broken: bool,
    /// Number of the queue, and where it is reported what its driver did.
    pub fault: (usize, Fault),
    /// Where what is written has to be marked, while the guest moves.
    pub log: Option<Arc<DirtyLog>>,
    /// The ring, too (`VHOST_VRING_F_LOG`).
    pub log_ring: bool,
    /// What survives us.
    pub inflight: Option<Record>,
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
        let record = || self.inflight.as_ref().is_some_and(Record::is_damaged);
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

    /// Stops the queue for good, and has the front end disconnected.
    #[cold]
    pub fn report(&mut self, why: Broken) {
        self.is_broken = true;
        self.fault.1.report(format_args!("queue {}: {why}", self.fault.0));
    }
}
