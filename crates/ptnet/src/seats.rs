//! Queues of the switch whose rings come and go with the guest.
//!
//! A seat is there as long as the port. The control thread puts rings in when the guest starts them and takes them out when it stops
//! them, resets or vanishes; workers that come in between find an empty seat.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

use arc_swap::ArcSwapOption;
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_port::ear::Ear;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::slot::Slot;
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};
use rustix::io::Errno;

use crate::backend::{Backend, Fresh};

/// Looks at a ring that is being drained.
const DRAINING: u32 = 200;

/// A place for a tx ring: what the guest sends.
pub struct TxSeat {
    slot: Slot<RingIngress>,
    ear: Ear,
    counters: Arc<RingCounters>,
    kicks: Arc<KickCounts>,
}

impl TxSeat {
    /// An empty one.
    ///
    /// # Errors
    /// As [`Ear::new`].
    pub fn new() -> rustix::io::Result<TxSeat> {
        Ok(TxSeat { slot: Slot::default(), ear: Ear::new()?, counters: Arc::default(), kicks: Arc::default() })
    }

    /// Waits until what the guest has published is on its way: it was sent, also if the guest stops at once. Not for ever: a destination
    /// may hold senders back.
    fn drain(&self) {
        for _ in 0..DRAINING {
            if !self.slot.enter().as_ref().is_some_and(RingIngress::has_news) {
                return;
            }
            self.ear.poke();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Puts a ring in, or takes it out. Returns when no worker is at the old one.
    fn put(&self, ring: Option<RingIngress>) {
        *self.slot.enter() = ring;
        self.ear.poke();
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
    // SAFETY: frames lie where the ring keeps them, which stays in the seat as long as this thread is inside: until `release`.
    #[inline]
    unsafe fn take(&mut self, batch: &mut Batch) {
        if !self.seat.slot.try_enter() {
            return;
        }
        // SAFETY: inside since `try_enter`; the reference ends before `leave`.
        if let Some(ring) = unsafe { self.seat.slot.get() } {
            // SAFETY: the caller's contract; the ring is neither released nor dropped before `release`.
            unsafe { ring.take(batch) };
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
        Some(self.seat.ear.fd())
    }

    fn woken(&mut self) {
        if self.seat.ear.heard() {
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
    /// Puts a ring in, or takes it out. Returns when no worker is at the old one, or after a while.
    fn put(&self, ring: Option<RingEgress>) {
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
    fn kicks(&self) -> (u64, u64) {
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

/// The queues of a port on a switch.
pub type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// A port's seats.
pub struct Seats {
    /// Of the rings the guest sends on.
    tx: Vec<Arc<TxSeat>>,
    /// Of the rings the guest receives on.
    rx: Vec<Arc<RxSeat>>,
}

impl Seats {
    /// So many seats each way, and the queues that a switch knows them by.
    ///
    /// # Errors
    /// As [`TxSeat::new`].
    pub fn new(tx: u32, rx: u32) -> rustix::io::Result<(Seats, Queues)> {
        let tx = (0..tx).map(|_| TxSeat::new().map(Arc::new)).collect::<Result<Vec<_>, Errno>>()?;
        let rx: Vec<_> = (0..rx).map(|_| Arc::new(RxSeat::default())).collect();
        let egress = rx.iter().map(|seat| Arc::clone(seat) as Arc<dyn Egress>).collect();
        let ingress = tx.iter().map(|seat| Box::new(SeatIngress::new(Arc::clone(seat))) as Box<dyn Ingress>).collect();
        Ok((Seats { tx, rx }, (egress, ingress)))
    }
}

impl Backend for Seats {
    fn ear(&self, ring: usize) -> Option<&Ear> {
        // Whoever delivers to a guest looks for room by itself: only tx rings have somebody to wake.
        self.tx.get(ring).map(|seat| &seat.ear)
    }

    fn kick(&self, ring: usize) {
        if let Some(seat) = self.tx.get(ring) {
            seat.kicks.count_received();
            seat.ear.poke();
        }
    }

    fn fill(&self, rings: &Fresh<'_>) -> Result<(), Errno> {
        let (mem, hdr_len) = (rings.mem, &rings.hdr_len);
        for (i, seat) in self.tx.iter().enumerate() {
            let (side, wake) = rings.tx(i)?;
            let host = HostTx::counted(side, wake, Arc::clone(&seat.kicks));
            // The seat knows what the guest rings: the ring's own bell stays mute.
            let (mute, counters) = (Doorbell::new()?, Arc::clone(&seat.counters));
            seat.put(Some(RingIngress::new(Arc::clone(mem), host, mute, hdr_len.clone(), counters)));
        }
        for (i, seat) in self.rx.iter().enumerate() {
            let (side, wake) = rings.rx(i)?;
            let host = HostRx::new(side, wake);
            let egress = RingEgress::new(Arc::clone(mem), host, hdr_len.clone(), Arc::clone(&seat.counters));
            seat.put(Some(if rings.uso { egress } else { egress.without_uso() }));
        }
        Ok(())
    }

    fn empty(&self) {
        self.tx.iter().for_each(|seat| {
            seat.drain();
            seat.put(None);
        });
        self.rx.iter().for_each(|seat| seat.put(None));
    }

    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64) {
        if tx {
            let of = |kicks: &KickCounts| (kicks.sent(), kicks.suppressed(), kicks.received());
            return self.tx.get(ring).map_or((0, 0, 0), |seat| of(&seat.kicks));
        }
        self.rx.get(ring).map_or((0, 0, 0), |seat| (seat.kicks().0, seat.kicks().1, 0))
    }
}
