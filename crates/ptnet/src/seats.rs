//! Queues of the switch whose rings come and go with the guest.
//!
//! A seat is there as long as the port. The control thread puts rings in when the guest starts them and takes them out when it stops
//! them, resets or vanishes; workers that come in between find an empty seat.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

use arc_swap::ArcSwapOption;
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::slot::Slot;
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};
use rustix::event::{Timespec, epoll};

/// Looks at a ring that is being drained.
const DRAINING: u32 = 200;

/// A place for a tx ring: what the guest sends.
pub struct TxSeat {
    slot: Slot<RingIngress>,
    /// What the worker sleeps on: the guest's doorbell, edge-triggered, while there is a guest; and `poke`.
    epoll: OwnedFd,
    poke: Doorbell,
    /// Frames, bytes, drops, over all guests.
    pub counters: Arc<RingCounters>,
    /// Kicks, over all guests.
    pub kicks: Arc<KickCounts>,
}

impl TxSeat {
    /// An empty one.
    ///
    /// # Errors
    /// What epoll_create(2), eventfd(2) or epoll_ctl(2) says.
    pub fn new() -> rustix::io::Result<TxSeat> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let poke = Doorbell::new()?;
        epoll::add(&epoll, poke.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(TxSeat { slot: Slot::default(), epoll, poke, counters: Arc::default(), kicks: Arc::default() })
    }

    /// The worker wakes up when this is rung. It is never read, so a guest that fills its counter changes nothing.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn listen_to(&self, doorbell: &Doorbell) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, doorbell.as_fd(), epoll::EventData::new_u64(1), flags)
    }

    /// Not any more.
    pub fn forget(&self, doorbell: &Doorbell) {
        // Fails only if it was never added.
        let _ = epoll::delete(&self.epoll, doorbell.as_fd());
    }

    /// Waits until what the guest has published is on its way: it was sent, also if the guest stops at once. Not for ever: a destination
    /// may hold senders back.
    pub fn drain(&self) {
        for _ in 0..DRAINING {
            if !self.slot.enter().as_ref().is_some_and(RingIngress::has_news) {
                return;
            }
            self.poke.ring();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// A kick that came another way than by a doorbell.
    pub fn kick(&self) {
        self.kicks.count_received();
        self.poke.ring();
    }

    /// Puts a ring in, or takes it out. Returns when no worker is at the old one.
    pub fn put(&self, ring: Option<RingIngress>) {
        *self.slot.enter() = ring;
        self.poke.ring();
    }
}

/// A seat as the switch's ingress.
pub struct SeatIngress {
    seat: Arc<TxSeat>,
    /// Frames of the ring are in a batch: this thread is inside the seat.
    inside: bool,
}

impl SeatIngress {
    /// The worker's end of a seat.
    pub fn new(seat: Arc<TxSeat>) -> Self {
        SeatIngress { seat, inside: false }
    }
}

impl Ingress for SeatIngress {
    #[inline]
    fn take(&mut self, batch: &mut Batch) {
        if !self.seat.slot.try_enter() {
            return;
        }
        // SAFETY: inside since `try_enter`; the reference ends before `leave`.
        if let Some(ring) = unsafe { self.seat.slot.get() } {
            ring.take(batch);
            if !batch.is_empty() {
                self.inside = true;
                return;
            }
            // Nobody releases an empty batch, and what was dropped goes back, too.
            ring.release();
        }
        // SAFETY: inside since above; the reference is gone.
        unsafe { self.seat.slot.leave() };
    }

    #[inline]
    fn release(&mut self) {
        if !self.inside {
            return;
        }
        // SAFETY: inside since `take`; the reference ends before `leave`.
        if let Some(ring) = unsafe { self.seat.slot.get() } {
            ring.release();
        }
        self.inside = false;
        // SAFETY: inside since `take`.
        unsafe { self.seat.slot.leave() };
    }

    fn arm(&mut self) -> bool {
        self.inside || self.seat.slot.enter().as_mut().is_some_and(Ingress::arm)
    }

    fn disarm(&mut self) {
        if !self.inside
            && let Some(ring) = self.seat.slot.enter().as_mut()
        {
            ring.disarm();
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.seat.epoll.as_fd())
    }

    fn woken(&mut self) {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 4];
        // Takes the edges.
        let Ok((events, _)) = epoll::wait(&self.seat.epoll, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
        else {
            return;
        };
        if events.iter().any(|e| e.data.u64() == 1) {
            self.seat.kicks.count_received();
        }
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.seat.counters
    }
}

impl Drop for SeatIngress {
    fn drop(&mut self) {
        self.release();
    }
}

/// A place for an rx ring: what the guest receives. It is the switch's egress itself.
pub struct RxSeat {
    ring: ArcSwapOption<RingEgress>,
    counters: Arc<RingCounters>,
    /// Kicks sent and suppressed by rings that are gone.
    past: [AtomicU64; 2],
}

impl Default for RxSeat {
    fn default() -> Self {
        RxSeat { ring: ArcSwapOption::empty(), counters: Arc::default(), past: Default::default() }
    }
}

/// How often to look whether workers have left a ring before going on without them: their memory stays.
const LOOKS: u32 = 1 << 16;

impl RxSeat {
    /// Frames, bytes, drops, over all guests.
    pub fn counts(&self) -> &Arc<RingCounters> {
        &self.counters
    }

    /// Puts a ring in, or takes it out. Returns when no worker is at the old one, or after a while.
    pub fn put(&self, ring: Option<RingEgress>) {
        let Some(old) = self.ring.swap(ring.map(Arc::new)) else { return };
        let (sent, suppressed) = old.host().kicks();
        self.past[0].fetch_add(sent, Ordering::Relaxed);
        self.past[1].fetch_add(suppressed, Ordering::Relaxed);
        for _ in 0..LOOKS {
            if Arc::strong_count(&old) == 1 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Kicks sent and suppressed, over all guests.
    pub fn kicks(&self) -> (u64, u64) {
        let now = self.ring.load().as_ref().map_or((0, 0), |ring| ring.host().kicks());
        (self.past[0].load(Ordering::Relaxed) + now.0, self.past[1].load(Ordering::Relaxed) + now.1)
    }
}

impl Egress for RxSeat {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        if let Some(ring) = self.ring.load().as_ref() {
            return ring.deliver(batch, picks, scratch);
        }
        self.counters.dropped(DropReason::NotReady, picks.len() as u64);
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
