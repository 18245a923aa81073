//! A seat: the part of a queue that outlives its peers. The control thread puts the queue in when the peer starts it,
//! and takes it out when the peer stops it, resets or vanishes.

mod queues;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::lent::{Borrower, InUse, LIMIT, Lent};
use netvale_mem::notify::KickCounts;
pub use queues::{SeatEgress, SeatIngress, ToPeer};

use crate::RingCounters;
use crate::wake::WakeSet;

/// A place for a queue, empty or occupied.
pub struct Seat<Q> {
    /// The queue, while the peer runs it.
    pub queue: Arc<Lent<Q>>,
    /// Wakes the worker that owns the queue; `None` for a delivery queue, which no worker waits for.
    pub wake: Option<WakeSet>,
    /// Counters of frames, bytes and drops, over all peers.
    pub counters: Arc<RingCounters>,
    /// Counters of kicks, over all peers.
    pub kicks: Arc<KickCounts>,
    /// Whether a queue is present and enabled. Only a hint for choosing among seats: the queue itself decides.
    is_open: AtomicBool,
}

/// Number of looks at a draining ring, and the pause between two looks.
const DRAINING: u32 = 200;
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
    /// Like [`WakeSet::new`].
    pub fn woken() -> rustix::io::Result<Seat<Q>> {
        Ok(Seat { wake: Some(WakeSet::new()?), ..Seat::default() })
    }

    /// Creates the worker's handle to the queue.
    pub fn borrower(&self) -> Borrower<Q> {
        Borrower::new(Arc::clone(&self.queue))
    }

    /// Puts a queue into the seat.
    ///
    /// # Errors
    /// Like [`Lent::put`].
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

    /// Takes the queue out immediately.
    ///
    /// # Errors
    /// Like [`Lent::take`].
    pub fn take_now(&self) -> Result<Option<Q>, InUse> {
        self.set_open(false);
        self.queue.take()
    }

    /// Takes the queue out after forwarding the frames already published: the peer sent them, even if it stops right
    /// after. The wait is limited, as a destination may hold senders back.
    ///
    /// # Errors
    /// Like [`Lent::take`].
    pub fn take(&self, has_news: impl Fn(&Q) -> bool) -> Result<Option<Q>, InUse> {
        self.set_open(false);
        let began = Instant::now();
        for _ in 0..DRAINING {
            match self.queue.control() {
                Ok(queue) if queue.as_ref().is_some_and(&has_news) && began.elapsed() < LIMIT => {}
                Ok(_) => break,
                // The time has already been spent waiting.
                Err(InUse) => return self.queue.take_within(Duration::ZERO),
            }
            self.poke();
            std::thread::sleep(PAUSE);
        }
        self.queue.take()
    }

    /// Wakes the worker to look at the queue.
    pub fn poke(&self) {
        self.wake.iter().for_each(WakeSet::poke);
    }

    /// Passes on a kick that did not come from a doorbell.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.poke();
    }

    /// Clears a wake-up. Called by the worker.
    pub fn woken_up(&self) {
        if self.wake.as_ref().is_some_and(WakeSet::drain) {
            self.kicks.count_received();
        }
    }
}
