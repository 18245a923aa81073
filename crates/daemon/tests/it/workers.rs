//! Workers and their commands.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use netvale_daemon::worker::{Polling, Worker};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::domain::TimeDomain;
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Room, Scratch};
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, Switch, SwitchSettings, Task};

const LIMIT: Duration = Duration::from_secs(20);
static FRAME: [u8; 60] = [255; 60];

/// An ingress that yields a given number of frames, one in each batch.
struct Bringer {
    left: Arc<AtomicU64>,
    /// Whether the ingress is cheap to poll. If it is not, its descriptor becomes readable at the first event, and
    /// stays readable.
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
    // SAFETY: the only frame is a constant.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            // SAFETY: the pointer refers to a constant of 60 bytes.
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

/// An egress that accepts frames while it is open.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    counters: Arc<RingCounters>,
    /// Doorbell that signals room; `None` if the egress cannot signal.
    bell: Option<Doorbell>,
    /// Number of requests for a signal.
    asked: AtomicU64,
    done: AtomicU64,
}

impl Room for Gate {
    fn is_waking(&self) -> bool {
        false
    }

    fn progress(&self) -> u32 {
        0
    }

    fn ask(&self) -> Option<BorrowedFd<'_>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.bell.as_ref().map(AsFd::as_fd)
    }

    fn stop_asking(&self) -> Option<BorrowedFd<'_>> {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.bell.as_ref().map(AsFd::as_fd)
    }
}

impl Egress for Gate {
    fn deliver(&self, _batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let done = if self.open.load(Ordering::Relaxed) { picks.len() } else { 0 };
        self.counters.passed(done as u64, 0);
        done
    }

    fn room(&self) -> Option<&dyn Room> {
        Some(self)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// Creates the forwarder from `ingress` to the lossless receiver `gate`.
fn to<E: Egress + 'static>(gate: &Arc<E>, ingress: Bringer) -> Box<Forwarder> {
    let switch = Switch::with("vale0", SwitchSettings { table_entries: 16, ..SwitchSettings::default() });
    let attach = |name: &str, egresses| {
        switch.attach(AttachedPort { name: name.into(), egresses, lossless: true, ..AttachedPort::default() }).unwrap()
    };
    attach("receiver", vec![Arc::clone(gate) as Arc<dyn Egress>]);
    let from = attach("sender", Vec::new());
    Box::new(Forwarder::new(Arc::clone(&switch), from, 0, Box::new(ingress)))
}

fn start(spin_us: u64) -> Worker {
    Worker::start(0, None, Polling::Spin(Duration::from_micros(spin_us)), Fault::new().unwrap(), TimeDomain::TRUSTED)
        .unwrap()
}

fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(1), done), "time is up: {what}");
}

/// Objective: a command is executed even if it arrives while the worker is falling asleep.
#[test]
fn no_request_is_lost() {
    for spin in [0, 5, 20] {
        let worker = start(spin);
        worker.add(1, to(&Arc::<Gate>::default(), Bringer::new(0, false)));
        for request in 0..20_000u32 {
            // Vary the moment at which the command arrives.
            (0..request % 64).for_each(|_| std::hint::spin_loop());
            let done = worker.drain(1).recv_timeout(Duration::from_secs(20));
            assert_eq!(done, Ok(()), "request {request} with a spin budget of {spin} us");
        }
        worker.remove(1);
    }
}

/// Objective: while frames wait for a lossless receiver that does not read, their worker sleeps almost all the time,
/// whether more frames follow or a descriptor stays readable; other commands are executed promptly; when there is room,
/// the frames arrive.
#[test]
fn frames_that_wait_let_their_worker_sleep() {
    for cheap in [true, false] {
        let worker = start(50);
        let gate = Arc::<Gate>::default();
        let other = Arc::<Gate>::default();
        other.open.store(true, Ordering::Relaxed);
        let waiting = Bringer::new(1000, cheap);
        let late = Bringer::new(0, true);
        waiting.bell.ring();
        let more = Arc::clone(&late.left);
        let bell = late.bell.try_clone().unwrap();
        worker.add(1, to(&gate, waiting));
        worker.add(2, to(&other, late));
        let stats = worker.stats();
        let mut before = [0; 3];
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

/// Objective: a task whose descriptor has a permanent error, like a TAP without its interface, still delivers its
/// frames, and after that lets its worker sleep; other tasks are served.
#[test]
fn an_error_that_lasts_lets_the_worker_sleep() {
    let worker = start(50);
    let gate = Arc::<Gate>::default();
    let other = Arc::<Gate>::default();
    [&gate, &other].iter().for_each(|gate| gate.open.store(true, Ordering::Relaxed));
    let (from, writer) = std::io::pipe().unwrap();
    let broken = Bringer { bell: Doorbell::from_fd(from.into()), ..Bringer::new(10, false) };
    let late = Bringer::new(0, true);
    let more = Arc::clone(&late.left);
    let bell = late.bell.try_clone().unwrap();
    worker.add(1, to(&gate, broken));
    worker.add(2, to(&other, late));
    drop(writer);
    until("all that there was arrives", || gate.counters.frames() == 10);
    // A sleep is counted when it ends.
    let slept = || worker.stats().slept_ns.load(Ordering::Relaxed);
    let began = Instant::now();
    let before = slept();
    until("it has slept for two seconds", || slept() - before > 2_000_000_000);
    assert!(began.elapsed() < LIMIT / 2);
    let sleeps = worker.stats().sleeps.load(Ordering::Relaxed);
    assert!(sleeps < 200, "{sleeps} sleeps");
    more.store(1, Ordering::Relaxed);
    bell.ring();
    until("the other one's frame arrives", || other.counters.frames() == 1);
}

/// Objective: a receiver that makes room wakes the worker whose frames wait for it; that time counts as waiting for a
/// receiver; if the receiver's doorbell, which nobody reads in this test, is rung later, it no longer wakes the worker.
#[test]
fn a_receiver_that_makes_room_wakes_the_worker() {
    let worker = start(0);
    let gate = Arc::new(Gate { bell: Some(Doorbell::new().unwrap()), ..Gate::default() });
    worker.add(1, to(&gate, Bringer::new(10, true)));
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let stats = worker.stats();
    // After arming the doorbell, the worker checks for room again, and does not sleep if there is room.
    let is_asleep = || stats.slept() > count(&stats.slept_ns);
    until("it asks, and sleeps", || count(&gate.asked) > count(&gate.done) && is_asleep());
    gate.open.store(true, Ordering::Relaxed);
    gate.bell.as_ref().unwrap().ring();
    until("all that waited arrives", || gate.counters.frames() == 10);
    until("it asks no longer", || count(&gate.asked) == count(&gate.done));
    assert!(count(&stats.waited_ns) > 0 && count(&stats.waited_ns) <= count(&stats.slept_ns));
    let mut sleeps = count(&stats.sleeps);
    until("it sleeps on", || {
        std::thread::sleep(Duration::from_millis(20));
        let before = std::mem::replace(&mut sleeps, count(&stats.sleeps));
        sleeps == before
    });
}

/// Objective: a receiver that rings its doorbell without pause, but makes no room, delays no other frames.
#[test]
fn a_receiver_that_rings_without_end() {
    let worker = start(0);
    let gate = Arc::new(Gate { bell: Some(Doorbell::new().unwrap()), ..Gate::default() });
    let other = Arc::<Gate>::default();
    other.open.store(true, Ordering::Relaxed);
    let late = Bringer::new(0, true);
    let more = Arc::clone(&late.left);
    let bell = late.bell.try_clone().unwrap();
    worker.add(1, to(&gate, Bringer::new(10, true)));
    worker.add(2, to(&other, late));
    until("it asks", || gate.asked.load(Ordering::Relaxed) > 0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                gate.bell.as_ref().unwrap().ring();
            }
        });
        for frame in 1..=100 {
            more.store(1, Ordering::Relaxed);
            bell.ring();
            until("the other one's frame arrives", || other.counters.frames() == frame);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(gate.counters.frames(), 0);
}

/// Objective: of two workers that never sleep and share a CPU, each counts as time without a CPU exactly the time
/// during which the other worker runs.
#[test]
fn time_without_a_cpu() {
    let start = || Worker::start(0, Some(0), Polling::Always, Fault::new().unwrap(), TimeDomain::TRUSTED).unwrap();
    let workers = [start(), start()];
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    until("each has polled for 100 ms, and lost a fifth of it", || {
        workers.iter().map(Worker::stats).all(|stats| {
            let polled = count(&stats.polled_ns);
            let lost = count(&stats.preempted_ns);
            polled > 100_000_000 && lost > polled / 5
        })
    });
    for stats in workers.iter().map(Worker::stats) {
        let lost = count(&stats.preempted_ns);
        assert!(lost <= count(&stats.polled_ns) + count(&stats.busy_ns));
    }
}

/// An egress that panics on delivery.
#[derive(Default)]
struct Mistake(Arc<RingCounters>);

impl Egress for Mistake {
    fn deliver(&self, _batch: &Batch, _picks: &[u16], _scratch: &mut Scratch) -> usize {
        panic!("a mistake, made for this test")
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.0
    }
}

/// Objective: a panicking task is lost and reported; its worker continues with the other tasks, and accepts new tasks.
#[test]
fn a_panic_costs_one_task() {
    let fault = Fault::new().unwrap();
    let worker = Worker::start(0, None, Polling::Spin(Duration::ZERO), fault.clone(), TimeDomain::TRUSTED).unwrap();
    let open = || {
        let gate = Arc::<Gate>::default();
        gate.open.store(true, Ordering::Relaxed);
        gate
    };
    let before = open();
    let after = open();
    let bringer = Bringer::new(0, true);
    let more = Arc::clone(&bringer.left);
    let bell = bringer.bell.try_clone().unwrap();
    worker.add(1, to(&before, bringer));
    worker.add(2, to(&Arc::new(Mistake::default()), Bringer::new(3, true)));
    until("the panic is reported", || fault.reason().is_some());
    assert_eq!(worker.take_broken(), [2]);
    more.store(5, Ordering::Relaxed);
    bell.ring();
    worker.add(3, to(&after, Bringer::new(7, true)));
    until("the others have their frames", || (before.counters.frames(), after.counters.frames()) == (5, 7));
    assert!(worker.take_broken().is_empty());
}

/// A task that panics in the method whose name is `part`.
struct Broken {
    part: &'static str,
    bell: Doorbell,
    disarmed: u32,
}

impl Broken {
    fn reach(&self, part: &str) {
        assert_ne!(self.part, part, "a mistake, made for this test");
    }
}

impl Task<ForwardMemory> for Broken {
    fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
        self.reach("pass");
        PassResult::Idle
    }

    fn arm(&mut self) -> bool {
        self.reach("arm");
        false
    }

    fn disarm(&mut self) {
        self.disarmed += 1;
        // The first call happens before the task is placed on the worker.
        if self.disarmed > 1 {
            self.reach("disarm");
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn woken(&mut self) {
        self.reach("woken");
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.reach("drop");
    }
}

/// Objective: a panic in any method of a task affects only that task; a panic when a task is dropped does not prevent
/// the drop of other tasks.
#[test]
fn a_panic_in_any_part() {
    for part in ["pass", "arm", "disarm", "woken", "drop"] {
        let fault = Fault::new().unwrap();
        let worker = Worker::start(0, None, Polling::Spin(Duration::ZERO), fault.clone(), TimeDomain::TRUSTED).unwrap();
        let gate = Arc::<Gate>::default();
        gate.open.store(true, Ordering::Relaxed);
        worker.add(1, to(&gate, Bringer::new(0, true)));
        let bell = Doorbell::new().unwrap();
        bell.ring();
        worker.add(2, Box::new(Broken { part, bell, disarmed: 0 }));
        if part == "drop" {
            assert!(worker.remove(2).recv_timeout(LIMIT).is_err(), "nothing is said but that it is over");
        } else {
            until(part, || fault.reason().is_some());
            assert_eq!(worker.take_broken(), [2], "{part}");
        }
        assert!(worker.remove(1).recv_timeout(LIMIT).is_err_and(|e| e == RecvTimeoutError::Disconnected));
    }
}
