//! What stays of a queue while peers come and go: the seat of a queue that the control thread puts in when the peer starts it, and takes out
//! when it stops it, resets or vanishes.

mod queues;

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::lent::{Borrower, InUse, LIMIT, Lent};
use netvale_mem::notify::KickCounts;
pub use queues::{SeatEgress, SeatIngress, ToPeer};

use crate::RingCounters;
use crate::wake::WakeSet;

/// A seat for a queue.
pub struct Seat<Q> {
    /// The queue, from when the peer starts it until it stops it.
    pub queue: Arc<Lent<Q>>,
    /// What wakes the worker that owns it; a queue that is delivered to, which nobody waits for, has none.
    pub wake: Option<WakeSet>,
    /// Frames, bytes, drops, over all peers.
    pub counters: Arc<RingCounters>,
    /// Kicks, over all peers.
    pub kicks: Arc<KickCounts>,
}

/// Looks at a ring that is being drained, and the time between two.
const DRAINING: u32 = 200;
const PAUSE: Duration = Duration::from_micros(100);

impl<Q> Default for Seat<Q> {
    /// An empty one, which nobody sleeps on.
    fn default() -> Self {
        let (queue, counters, kicks) = Default::default();
        Seat { queue, wake: None, counters, kicks }
    }
}

impl<Q> Seat<Q> {
    /// An empty one, which a worker sleeps on.
    ///
    /// # Errors
    /// As [`WakeSet::new`].
    pub fn woken() -> rustix::io::Result<Seat<Q>> {
        Ok(Seat { wake: Some(WakeSet::new()?), ..Seat::default() })
    }

    /// The worker's handle to the queue.
    pub fn borrower(&self) -> Borrower<Q> {
        Borrower::new(Arc::clone(&self.queue))
    }

    /// Puts a queue in.
    ///
    /// # Errors
    /// As [`Lent::put`].
    pub fn put(&self, queue: Q) -> Result<(), InUse> {
        self.queue.put(queue)?;
        self.poke();
        Ok(())
    }

    /// Takes the queue out, once what the peer had published is on its way: it was sent, also if the peer stops right after. Not for ever,
    /// as a destination may hold senders back.
    ///
    /// # Errors
    /// As [`Lent::take`].
    pub fn take(&self, has_news: impl Fn(&Q) -> bool) -> Result<Option<Q>, InUse> {
        let began = Instant::now();
        for _ in 0..DRAINING {
            match self.queue.control() {
                Ok(queue) if queue.as_ref().is_some_and(&has_news) && began.elapsed() < LIMIT => {}
                Ok(_) => break,
                // One wait is enough.
                Err(InUse) => return self.queue.take_within(Duration::ZERO),
            }
            self.poke();
            std::thread::sleep(PAUSE);
        }
        self.queue.take()
    }

    /// Lets the worker look.
    pub fn poke(&self) {
        self.wake.iter().for_each(WakeSet::poke);
    }

    /// A kick that came another way than by a doorbell.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.poke();
    }

    /// The worker's: takes back a wake-up.
    pub fn woken_up(&self) {
        if self.wake.as_ref().is_some_and(WakeSet::drain) {
            self.kicks.count_received();
        }
    }
}
