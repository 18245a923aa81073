#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::layout::RegionSizes;
use netvale_mem::lent::LIMIT;
use netvale_mem::{PortMem, PortShape, Region};

use super::*;

/// How often a ring is taken away and put back.
const TIMES: usize = 10_000;
const SLOTS: u32 = 64;

fn memory() -> Arc<PortMem> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    Arc::new(Region::private(RegionSizes::for_port(2, SLOTS, 256, 0, 0)).unwrap().port(shape).unwrap())
}

fn bell() -> Doorbell {
    Doorbell::new().unwrap()
}

/// Takes the ring away and puts it back, again and again. Returns the longest wait.
fn take_and_put<Q>(take: impl Fn() -> Result<Option<Q>, InUse>, put: impl Fn(Q) -> Result<(), InUse>) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..TIMES {
        let began = Instant::now();
        let ring = take().unwrap().unwrap();
        longest = longest.max(began.elapsed());
        // The workers come by and find nothing.
        std::thread::yield_now();
        put(ring).unwrap();
        std::thread::yield_now();
    }
    longest
}

/// Objective: a guest's tx ring is taken away and put back 10,000 times while it sends and a worker takes batches as fast as they can: every
/// frame comes out, once and in order, and the control thread never waits longer than a batch takes (with room for a busy machine).
///
/// Steps: the guest numbers its frames; the worker checks the numbers between taking a batch and releasing it.
#[test]
fn a_tx_ring_comes_and_goes_under_traffic() {
    let (seat, mem, stop) = (Arc::new(Seat::woken().unwrap()), memory(), AtomicBool::new(false));
    let host = HostTx::new(mem.tx[0].clone(), bell());
    let ring = RingIngress::new(Arc::clone(&mem), host, bell(), 0, Arc::clone(&seat.counters));
    seat.put(ring).unwrap();
    let mut ingress = SeatIngress::new(Arc::clone(&seat));
    let mut guest = AppRing::new(mem.tx[0].clone(), Dir::Tx, bell());
    let (longest, sent, seen) = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                guest.sync();
                for _ in 0..guest.space() {
                    let i = guest.at(0);
                    assert!(guest.mem().write(guest.slot(i).buf_idx, 0, &[&sent.to_ne_bytes()[..], &[0; 52]].concat()));
                    guest.mem().set_len_flags(i, 60, 0);
                    guest.advance(1);
                    sent += 1;
                }
                guest.sync();
                std::thread::yield_now();
            }
            sent
        });
        let worker = s.spawn(move || {
            let (mut batch, mut seen) = (Batch::new(), 0u64);
            let mut last = false;
            loop {
                batch.clear();
                // SAFETY: its frames are read before the ingress is released.
                unsafe { ingress.take(&mut batch) };
                for frame in batch.iter() {
                    let mut number = [0; 8];
                    assert_eq!(frame.copy_out(0, &mut number), 8);
                    assert_eq!(u64::from_ne_bytes(number), seen, "lost, twice or out of order");
                    seen += 1;
                }
                if batch.is_empty() {
                    if last {
                        return (sender.join().unwrap(), seen);
                    }
                    // Once more after the sender has ended: the ring may still have something.
                    last = sender.is_finished();
                    std::thread::yield_now();
                }
                ingress.release();
            }
        });
        let longest = take_and_put(|| seat.take(|_| false), |ring| seat.put(ring));
        stop.store(true, Ordering::Relaxed);
        let (sent, seen) = worker.join().unwrap();
        (longest, sent, seen)
    });
    assert_eq!(sent, seen);
    assert!(seen > 0 && longest < LIMIT / 2, "{seen} frames, {longest:?}");
}

/// Objective: the same for an rx ring that two workers deliver to: what they were told is delivered is what the guest finds.
#[test]
fn an_rx_ring_comes_and_goes_under_traffic() {
    let (seat, mem, stop) = (RxSeat::default(), memory(), AtomicBool::new(false));
    let ring = RingEgress::new(Arc::clone(&mem), HostRx::new(mem.rx[0].clone(), bell()), 0, Arc::clone(&seat.counters));
    seat.ring.put(ring).unwrap();
    let mut guest = AppRing::new(mem.rx[0].clone(), Dir::Rx, bell());
    let (longest, found) = std::thread::scope(|s| {
        let workers: [_; 2] = std::array::from_fn(|_| {
            s.spawn(|| {
                let (mem, mut batch, mut scratch) = (memory(), Batch::new(), Scratch::new());
                let mut sender = AppRing::new(mem.tx[0].clone(), Dir::Tx, bell());
                (0..8).for_each(|i| sender.mem().set_len_flags(i, 60, 0));
                sender.advance(8);
                sender.sync();
                let host = HostTx::new(mem.tx[0].clone(), bell());
                let mut ingress = RingIngress::new(Arc::clone(&mem), host, bell(), 0, Arc::default());
                // SAFETY: the ingress is neither released nor dropped as long as the batch is used.
                unsafe { ingress.take(&mut batch) };
                assert_eq!(batch.len(), 8);
                while !stop.load(Ordering::Relaxed) {
                    seat.deliver(&batch, &[0, 1, 2, 3, 4, 5, 6, 7], &mut scratch);
                    std::thread::yield_now();
                }
            })
        });
        let receiver = s.spawn(move || {
            let mut found = 0u64;
            loop {
                let is_last = workers.iter().all(|worker| worker.is_finished());
                guest.sync();
                for k in 0..guest.space() {
                    assert_eq!(guest.slot(guest.at(k)).len, 60);
                }
                found += u64::from(guest.space());
                guest.advance(guest.space());
                guest.sync();
                if is_last {
                    return found;
                }
                std::thread::yield_now();
            }
        });
        let longest = take_and_put(|| seat.ring.take(), |ring| seat.ring.put(ring));
        stop.store(true, Ordering::Relaxed);
        (longest, receiver.join().unwrap())
    });
    assert_eq!(seat.counters.frames(), found);
    assert!(found > 0 && longest < LIMIT / 2, "{found} frames, {longest:?}");
}
