//! The switch's queues for a port's guests. Each queue is a *seat*, which remains while guests' rings come and go: the
//! seat contains a ring of the connected guest, and is empty while no guest is connected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::lent::{EntryError, InUse, Lent, ManyWorkers};
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::region::RingSide;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::seat::{Seat, SeatIngress};
use netvale_port::wake::WakeSet;
use netvale_port::{Batch, DropReason, Egress, Ingress, Reservation, RingCounters, Scratch};
use rustix::io::Errno;

use crate::backend::{Backend, GuestRings};

/// The seat of an rx ring, on which the guest receives. The seat holds the ring while a guest is connected. To the
/// switch, the seat is an egress; several workers may deliver to the ring.
#[derive(Default)]
pub struct RxSeat {
    ring: Lent<RingEgress, ManyWorkers>,
    counters: Arc<RingCounters>,
    /// Kick counts, summed over all guests.
    kicks: Arc<KickCounts>,
    /// Whether the seat has a ring.
    is_open: AtomicBool,
}

impl RxSeat {
    fn put(&self, ring: RingEgress) -> Result<(), InUse> {
        self.ring.put(ring)?;
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn take(&self) -> Result<Option<RingEgress>, InUse> {
        self.is_open.store(false, Ordering::Relaxed);
        self.ring.take()
    }
}

impl Egress for RxSeat {
    #[inline]
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        match self.ring.enter() {
            Ok(ring) => return ring.deliver(batch, picks, scratch),
            // The control thread is replacing the ring, which takes long only on a busy machine. Frames for a lossless
            // port wait until the ring is replaced.
            Err(EntryError::Busy) => return 0,
            Err(EntryError::Empty) => {}
        }
        self.counters.dropped(DropReason::Idle, picks.len() as u64);
        picks.len()
    }

    #[inline]
    fn reserve<'b>(&'b self, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        // `deliver` handles batches with offloads or frames in several pieces, and rings that another worker is using:
        // a worker must not enter a ring twice, nor wait for a ring while it holds another ring.
        let ring = batch.is_plain(u32::MAX).then(|| self.ring.enter_now().ok())??;
        RingEgress::reserve_at(ring.into(), batch, picks)
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn takes_uso(&self) -> bool {
        self.ring.enter().is_ok_and(|ring| ring.takes_uso())
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// The queues of a port, for a switch.
pub type PtnetQueues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// The seats of a port.
pub struct Seats {
    /// Seats of the rings on which the guest sends.
    tx: Vec<Arc<Seat<RingIngress>>>,
    /// Seats of the rings on which the guest receives.
    rx: Vec<Arc<RxSeat>>,
    /// The rings, tx rings first, while a guest has them.
    sides: Mutex<Vec<RingSide>>,
}

impl Seats {
    /// Creates `tx` and `rx` seats, and the switch's queues on them.
    ///
    /// # Errors
    /// The error of [`Seat::woken`].
    pub fn new(tx: u32, rx: u32) -> rustix::io::Result<(Seats, PtnetQueues)> {
        let tx = (0..tx).map(|_| Seat::woken().map(Arc::new)).collect::<Result<Vec<_>, Errno>>()?;
        let rx: Vec<_> = (0..rx).map(|_| Arc::new(RxSeat::default())).collect();
        let egress = rx.iter().map(|seat| Arc::clone(seat) as Arc<dyn Egress>).collect();
        let ingress = tx.iter().map(|seat| Box::new(SeatIngress::new(Arc::clone(seat))) as Box<dyn Ingress>).collect();
        Ok((Seats { tx, rx, sides: Mutex::default() }, (egress, ingress)))
    }

    fn counts(&self, tx: bool, ring: usize) -> Option<&Arc<KickCounts>> {
        if tx { self.tx.get(ring).map(|seat| &seat.kicks) } else { self.rx.get(ring).map(|seat| &seat.kicks) }
    }

    fn sides(&self) -> MutexGuard<'_, Vec<RingSide>> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Seats {
    fn wake(&self, ring: usize) -> Option<&WakeSet> {
        // Only a tx ring has a worker to wake: a worker that delivers to an rx ring polls that ring for room.
        self.tx.get(ring)?.wake.as_ref()
    }

    fn kick(&self, ring: usize) {
        if let Some(seat) = self.tx.get(ring) {
            seat.kick();
        }
    }

    fn fill(&self, rings: &GuestRings<'_>) -> Result<(), Errno> {
        let mem = rings.mem;
        let hdr_len = &rings.hdr_len;
        for (i, seat) in self.tx.iter().enumerate() {
            let (side, wake) = rings.tx(i)?;
            let host = HostTx::counted(side, wake, Arc::clone(&seat.kicks));
            let host = if rings.goes_on { host.going_on() } else { host };
            // The guest rings the seat's doorbell; the ring's own doorbell is unused.
            let mute = Doorbell::new()?;
            let counters = Arc::clone(&seat.counters);
            let ring = RingIngress::new(Arc::clone(mem), host, mute, hdr_len.clone(), counters);
            seat.put(ring).map_err(|InUse| Errno::BUSY)?;
        }
        for (i, seat) in self.rx.iter().enumerate() {
            let (side, wake) = rings.rx(i)?;
            let host = HostRx::counted(side, wake, Arc::clone(&seat.kicks));
            let host = if rings.goes_on { host.going_on() } else { host };
            let ring = RingEgress::new(Arc::clone(mem), host, hdr_len.clone(), Arc::clone(&seat.counters));
            seat.put(if rings.uso { ring } else { ring.without_uso() }).map_err(|InUse| Errno::BUSY)?;
        }
        *self.sides() = mem.tx.iter().chain(&mem.rx).cloned().collect();
        Ok(())
    }

    fn empty(&self) -> Result<(), InUse> {
        self.sides().clear();
        let tx = self.tx.iter().map(|seat| seat.take(RingIngress::has_news).map(drop));
        tx.chain(self.rx.iter().map(|seat| seat.take().map(drop))).fold(Ok(()), Result::and)
    }

    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64) {
        self.counts(tx, ring).map_or((0, 0, 0), |kicks| (kicks.sent(), kicks.suppressed(), kicks.received()))
    }

    fn side(&self, tx: bool, ring: usize) -> Option<RingSide> {
        let count = if tx { self.tx.len() } else { self.rx.len() };
        let first = if tx { 0 } else { self.tx.len() };
        self.sides().get(first + ring).filter(|_| ring < count).cloned()
    }

    fn add_kicks(&self, tx: bool, ring: usize, sent: u64, suppressed: u64, received: u64) {
        self.counts(tx, ring).into_iter().for_each(|kicks| kicks.add(sent, suppressed, received));
    }
}

#[cfg(test)]
mod tests;
