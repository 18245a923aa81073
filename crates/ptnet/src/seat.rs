//! What stays of a ring while guests come and go: the seat on a worker of a queue that the control thread puts in when the guest starts its
//! rings, and takes out when it stops them, resets or vanishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::lent::{Borrower, InUse, LIMIT, Lent};
use netvale_mem::notify::KickCounts;
use netvale_port::RingCounters;
use netvale_port::wake::WakeSet;

/// A seat for a queue of one worker.
pub struct Seat<Q> {
    pub(crate) queue: Arc<Lent<Q>>,
    /// What wakes the worker.
    pub wake: WakeSet,
    /// Frames, bytes, drops, over all guests.
    pub counters: Arc<RingCounters>,
    /// Kicks, over all guests.
    pub kicks: Arc<KickCounts>,
}

/// Looks at a ring that is being drained, and the time between two.
const DRAINING: u32 = 200;
const PAUSE: Duration = Duration::from_micros(100);

impl<Q> Seat<Q> {
    /// An empty one.
    ///
    /// # Errors
    /// As [`WakeSet::new`].
    pub fn new() -> rustix::io::Result<Seat<Q>> {
        let (counters, kicks) = Default::default();
        Ok(Seat { queue: Arc::default(), wake: WakeSet::new()?, counters, kicks })
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
        self.wake.poke();
        Ok(())
    }

    /// Takes the queue out, once what the guest had published is on its way: it was sent, also if the guest stops right after. Not for ever,
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
            self.wake.poke();
            std::thread::sleep(PAUSE);
        }
        self.queue.take()
    }

    /// A kick that came another way than by a doorbell.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.wake.poke();
    }

    /// The worker's: takes back a wake-up.
    pub fn woken(&self) {
        if self.wake.drain() {
            self.kicks.count_received();
        }
    }
}
