//! A queue in motion, with all that serving it needs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::notify::Doorbell;

use crate::memory::GuestMemory;
use crate::net::features::Framing;
use crate::net::slot::Slot;
use crate::queue::{Broken, Pieces, Queue};

/// A started queue.
pub struct Live {
    /// The ring.
    pub queue: Queue,
    /// Where it and its buffers lie.
    pub memory: Arc<GuestMemory>,
    /// What its frames look like.
    pub framing: Framing,
    /// How the driver is told of used buffers; none: it polls.
    pub call: Option<Arc<OwnedFd>>,
    /// The driver will not kick (SET_VRING_KICK without a descriptor): the queue has to be looked at.
    pub polled: bool,
    /// The driver lets frames through (SET_VRING_ENABLE).
    pub enabled: bool,
    /// Room for a chain.
    pub pieces: Pieces,
    /// Stopped for good, until the driver sets it up anew.
    pub broken: Option<Broken>,
}

impl Live {
    /// Tells the driver that something was used.
    #[inline]
    pub fn notify(&self, counts: &Notifications) {
        if let Some(call) = &self.call {
            counts.calls.fetch_add(1, Ordering::Relaxed);
            // A full counter has woken the driver already.
            let _ = rustix::io::write(call.as_fd(), &1u64.to_ne_bytes());
        }
    }
}

/// What notifications were sent.
#[derive(Debug, Default)]
pub struct Notifications {
    /// Calls to the driver.
    pub calls: AtomicU64,
    /// Kicks from the driver.
    pub kicks: AtomicU64,
}

/// A queue's place, filled by the control thread when the driver starts the queue.
#[derive(Default)]
pub struct Place {
    /// The queue.
    pub slot: Slot<Live>,
    /// Its notifications.
    pub counts: Notifications,
}

/// How workers tell the control thread that a queue broke.
#[derive(Clone)]
pub struct Trouble(pub Arc<Doorbell>);

impl Trouble {
    /// Stops a queue and says so.
    #[cold]
    pub fn report(&self, live: &mut Live, why: Broken) {
        live.broken = Some(why);
        self.0.ring();
    }
}
