//! The queue of an untrusted user, whose memory only the user's own worker may touch. Other workers copy frames into
//! the daemon's memory; the user's worker moves the frames from there to the queue.

use std::sync::Arc;

use netvale_mem::drops::RingCounters;

use crate::domain::TimeDomain;
use crate::link::{Link, LinkEnd, LinkError, LinkSettings};
use crate::ring_out::Reservation;
use crate::{Batch, Egress, Room, Scratch};

/// Maximum number of bytes that wait to be moved to a queue, including a record for each frame.
const BYTES: u64 = 1 << 20;
/// Maximum number of frames that wait to be moved to a queue.
const FRAMES: u32 = 4096;
/// Number of delivering threads for which the link is sized. The link has one buffer ("lane") more than this number;
/// all workers share these buffers, and one worker at a time writes to each buffer.
const THREADS: usize = 1;

/// An untrusted user's queue, to which all workers may deliver.
pub struct HandOverQueue {
    own: Arc<dyn Egress>,
    domain: TimeDomain,
    link: Arc<Link>,
}

impl HandOverQueue {
    /// Wraps `own`, the queue of an untrusted user. A task of that user's worker must move frames from the returned
    /// [`LinkEnd`] to the queue.
    ///
    /// # Errors
    /// [`LinkError`] if the memory or the doorbell cannot be created.
    pub fn new(own: &Arc<dyn Egress>, domain: TimeDomain) -> Result<(HandOverQueue, LinkEnd), LinkError> {
        let (link, end) = Link::new(Self::settings(), THREADS, None, Arc::clone(own.counters()))?;
        Ok((HandOverQueue { own: Arc::clone(own), domain, link }, end))
    }

    fn settings() -> LinkSettings {
        LinkSettings { bytes: BYTES, frames: Some(FRAMES), ..LinkSettings::default() }
    }

    /// Memory in bytes that one queue takes, including pages not yet allocated.
    #[must_use]
    pub fn memory() -> u64 {
        Self::settings().memory(THREADS)
    }
}

impl Egress for HandOverQueue {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        if self.domain.is_here() { self.own.deliver(batch, picks, scratch) } else { self.link.hand_over(batch, picks) }
    }

    #[inline]
    fn reserve<'b>(&'b self, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        if self.domain.is_here() { self.own.reserve(batch, picks) } else { None }
    }

    fn is_open(&self) -> bool {
        self.own.is_open()
    }

    fn takes_uso(&self) -> bool {
        self.own.takes_uso()
    }

    /// `None` for workers other than the user's own: the receiver's progress is in the user's memory, which other
    /// workers may not touch.
    fn room(&self) -> Option<&dyn Room> {
        if self.domain.is_here() { self.own.room() } else { None }
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.own.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullEgress;
    use crate::{Ingress, Source};

    /// Objective: only a thread of the user's domain delivers to the queue; another thread's frames are handed over
    /// unchanged, and frames that find no room are left to the caller.
    #[test]
    fn only_its_users_thread_reaches_a_queue() {
        let own: Arc<dyn Egress> = Arc::<NullEgress>::default();
        let user = TimeDomain::of_user(7);
        let (queue, end) = HandOverQueue::new(&own, user).unwrap();
        let (mut batch, mut scratch) = <(Box<Batch>, Scratch)>::default();
        let mut deliver = |bytes: &[u8]| batch.lend(bytes, |batch| queue.deliver(batch, &[0], &mut scratch));
        assert_eq!(deliver(&[1; 60]), 1);
        assert_eq!(own.counters().frames(), 0);
        let mut source = Source::new(Box::new(end) as Box<dyn Ingress>);
        let mut spare = Box::<Batch>::default();
        let frames = source.take(&mut spare);
        assert_eq!((frames.len(), frames.get(0).unwrap().len()), (1, 60));
        source.release(&mut spare);
        let room = (0..1000).take_while(|_| deliver(&[2; 60_000]) == 1).count();
        assert!((10..100).contains(&room), "{room}");
        user.enter();
        assert_eq!((deliver(&[3; 60]), own.counters().frames()), (1, 1));
    }
}
