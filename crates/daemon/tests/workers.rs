//! Workers and what they are asked for.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use netvale_daemon::worker::{Polling, Worker};
use netvale_mem::notify::Doorbell;
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};
use netvale_switch::{Forwarder, Port, Switch};

const LIMIT: Duration = Duration::from_secs(20);
static FRAME: [u8; 60] = [255; 60];

/// An ingress that brings a number of frames, one per batch.
struct Bringer {
    left: Arc<AtomicU64>,
    /// If not, its descriptor stays readable once it is.
    cheap: bool,
    bell: Doorbell,
    counters: Arc<RingCounters>,
}

impl Bringer {
    fn new(left: u64, cheap: bool) -> Bringer {
        Bringer { left: Arc::new(left.into()), cheap, bell: Doorbell::new().unwrap(), counters: Arc::default() }
    }
}

impl Ingress for Bringer {
    // SAFETY: there is just one frame, a constant.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            // SAFETY: a constant of 60 bytes.
            unsafe { batch.push(FRAME.as_ptr(), 60) };
        }
    }

    fn release(&mut self) {}

    fn arm(&mut self) -> bool {
        self.cheap && self.left.load(Ordering::Relaxed) > 0
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn woken(&mut self) {
        if self.cheap {
            self.bell.drain();
        }
    }

    fn is_cheap(&self) -> bool {
        self.cheap
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// An egress that has room, or has none.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    counters: Arc<RingCounters>,
}

impl Egress for Gate {
    fn deliver(&self, _batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let done = if self.open.load(Ordering::Relaxed) { picks.len() } else { 0 };
        self.counters.passed(done as u64, 0);
        done
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// What forwards from `ingress` to a lossless receiver.
fn to(gate: &Arc<Gate>, ingress: Bringer) -> Box<Forwarder> {
    let switch = Switch::with_table_size("vale0", 16);
    let attach = |name: &str, egresses| switch.attach(Port { name: name.into(), egresses, lossless: true }).unwrap();
    attach("receiver", vec![Arc::clone(gate) as Arc<dyn Egress>]);
    let from = attach("sender", Vec::new());
    Box::new(Forwarder::new(Arc::clone(&switch), from, 0, Box::new(ingress)))
}

fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(1), done), "time is up: {what}");
}

/// Objective: a request is carried out at whatever moment of a worker's falling asleep it comes.
#[test]
fn no_request_is_lost() {
    for spin in [0, 5, 20] {
        let worker = Worker::start(0, None, Polling::Spin(Duration::from_micros(spin))).unwrap();
        worker.add(1, to(&Arc::default(), Bringer::new(0, false)));
        for request in 0..20_000u32 {
            // Not always at the same moment.
            (0..request % 64).for_each(|_| std::hint::spin_loop());
            let done = worker.drain(1).recv_timeout(Duration::from_secs(20));
            assert_eq!(done, Ok(()), "request {request} with a spin budget of {spin} us");
        }
        worker.remove(1);
    }
}

/// Objective: while frames wait for a lossless receiver that does not read, their worker sleeps nearly all of the time, whether more frames are
/// behind them or a descriptor stays readable; what else it has is done as soon as it is asked for; and once there is room, the frames arrive.
#[test]
fn frames_that_wait_let_their_worker_sleep() {
    for cheap in [true, false] {
        let worker = Worker::start(0, None, Polling::Spin(Duration::from_micros(50))).unwrap();
        let (gate, other) = (Arc::<Gate>::default(), Arc::<Gate>::default());
        other.open.store(true, Ordering::Relaxed);
        let (waiting, late) = (Bringer::new(1000, cheap), Bringer::new(0, true));
        waiting.bell.ring();
        let (more, bell) = (Arc::clone(&late.left), late.bell.try_clone().unwrap());
        worker.add(1, to(&gate, waiting));
        worker.add(2, to(&other, late));
        let (stats, mut before) = (worker.stats(), [0; 3]);
        until("it sleeps for 20 ms, not in too many pieces, and looks for no more than a tenth of that", || {
            let now = [&stats.slept_ns, &stats.polled_ns, &stats.sleeps].map(|count| count.load(Ordering::Relaxed));
            let [slept, polled, sleeps] = [0, 1, 2].map(|i| now[i] - before[i]);
            let long = slept > 20_000_000;
            if long {
                before = now;
            }
            long && polled < slept / 10 && sleeps < 100
        });
        more.store(1, Ordering::Relaxed);
        bell.ring();
        until("the other one's frame arrives", || other.counters.frames() == 1);
        gate.open.store(true, Ordering::Relaxed);
        until("all that waited arrives", || gate.counters.frames() == 1000);
        assert_eq!(gate.counters.drops(DropReason::Stalled), 0);
    }
}
