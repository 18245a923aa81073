//! Seats: a seat is a place for a queue, and stays while peers come and go. The control thread installs a queue when a
//! peer starts it, and removes the queue when the peer stops it, resets or disconnects.

mod queues;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::lent::{Borrower, InUse, LIMIT, Lent};
use netvale_mem::notify::KickCounts;
pub use queues::{SeatEgress, SeatIngress, ToPeer};

use crate::RingCounters;
use crate::wake::WakeSet;

/// A place for the queue of the current peer, with the counters and the wake set that stay when the peer changes.
pub struct Seat<Q> {
    /// The queue; empty while no peer runs it.
    pub queue: Arc<Lent<Q>>,
    /// Wakes the worker that owns the queue; `None` for an egress queue, on which no worker sleeps.
    pub wake: Option<WakeSet>,
    /// Counters of frames, bytes and drops, cumulative over all peers.
    pub counters: Arc<RingCounters>,
    /// Counters of kicks, cumulative over all peers.
    pub kicks: Arc<KickCounts>,
    /// Whether a queue is present and enabled. Only a hint for choosing among seats: a delivery checks the queue
    /// itself.
    is_open: AtomicBool,
}

/// Maximum number of checks whether a queue's published frames have been forwarded, before the queue is removed anyway.
const DRAINING: u32 = 200;
/// Pause between two checks ([`DRAINING`]).
const PAUSE: Duration = Duration::from_micros(100);

impl<Q> Default for Seat<Q> {
    /// Creates an empty seat without a wake set.
    fn default() -> Self {
        let (queue, counters, kicks) = Default::default();
        Seat { queue, wake: None, counters, kicks, is_open: AtomicBool::new(false) }
    }
}

impl<Q> Seat<Q> {
    /// Creates an empty seat with a wake set for a worker.
    ///
    /// # Errors
    /// As for [`WakeSet::new`].
    pub fn woken() -> rustix::io::Result<Seat<Q>> {
        Ok(Seat { wake: Some(WakeSet::new()?), ..Seat::default() })
    }

    /// Creates the worker's handle to the queue.
    pub fn borrower(&self) -> Borrower<Q> {
        Borrower::new(Arc::clone(&self.queue))
    }

    /// Installs and enables a queue, and wakes the worker.
    ///
    /// # Errors
    /// As for [`Lent::put`].
    pub fn put(&self, queue: Q) -> Result<(), InUse> {
        self.queue.put(queue)?;
        self.set_open(true);
        self.poke();
        Ok(())
    }

    /// Whether a queue is present and enabled.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Enables or disables the present queue.
    pub fn set_open(&self, open: bool) {
        self.is_open.store(open, Ordering::Relaxed);
    }

    /// Removes the queue immediately, and returns it; `None` if the seat was empty.
    ///
    /// # Errors
    /// As for [`Lent::take`].
    pub fn take_now(&self) -> Result<Option<Q>, InUse> {
        self.set_open(false);
        self.queue.take()
    }

    /// Removes the queue after its published frames have been forwarded, so that a peer that sends and stops loses no
    /// frames. The wait is limited, because a destination may hold senders back. Returns the queue; `None` if the seat
    /// was empty.
    ///
    /// # Errors
    /// As for [`Lent::take`].
    pub fn take(&self, has_news: impl Fn(&Q) -> bool) -> Result<Option<Q>, InUse> {
        self.set_open(false);
        let began = Instant::now();
        for _ in 0..DRAINING {
            match self.queue.control() {
                Ok(queue) if queue.as_ref().is_some_and(&has_news) && began.elapsed() < LIMIT => {}
                Ok(_) => break,
                // `control` has already waited for as long as the time limit allows.
                Err(InUse) => return self.queue.take_within(Duration::ZERO),
            }
            self.poke();
            std::thread::sleep(PAUSE);
        }
        self.queue.take()
    }

    /// Wakes the worker, which then checks the queue.
    pub fn poke(&self) {
        self.wake.iter().for_each(WakeSet::poke);
    }

    /// Wakes the worker for a kick that did not come through a doorbell, and counts the kick.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.poke();
    }

    /// Clears a wake-up, and counts a kick if the wake-up came from the peer. Called by the worker.
    pub fn woken_up(&self) {
        if self.wake.as_ref().is_some_and(WakeSet::drain) {
            self.kicks.count_received();
        }
    }
}
