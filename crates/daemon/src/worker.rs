//! A worker: a thread that does the tasks it owns, most of them ingresses whose frames it forwards.
//!
//! It polls while there is work and for a short time after, then arms all kicks, checks once more, and sleeps in epoll.
//! Polling costs nothing but time; the first frame after a sleep costs one wake-up. Where no wake-up comes (frames wait
//! for a lossless receiver, which does not kick), it sleeps for a moment, and longer each time: about as long as it has
//! waited already.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::{Passed, Task};
use netvale_switch::{Forwarder, PortId, Switch, Work};
use rustix::event::{Timespec, epoll};

use crate::stalls::Watched;

/// Number of a task, unique in the daemon.
pub type TaskId = u64;

/// A task that a worker repeats.
pub type Job = Box<dyn Task<Work>>;

/// Where a port's task runs.
pub struct Placed {
    /// The task.
    pub id: TaskId,
    /// Number of its worker.
    pub worker: usize,
}

/// When an idle worker goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// After this long without a frame.
    Spin(Duration),
    /// Never.
    Always,
}

enum Command {
    Add(TaskId, Job),
    Remove(TaskId, SyncSender<()>),
    Drain(TaskId, SyncSender<()>),
    KeepAwake(TaskId, bool),
    Rehome(TaskId, Arc<Switch>, PortId),
    Stop,
}

/// How a worker spent its time, in nanoseconds, and its load.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Time spent forwarding.
    pub busy_ns: AtomicU64,
    /// Time spent polling without finding work.
    pub polled_ns: AtomicU64,
    /// Time spent asleep.
    pub slept_ns: AtomicU64,
    /// Number of sleeps.
    pub sleeps: AtomicU64,
    /// Number of ingresses it owns.
    pub ingresses: AtomicU64,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    pending: AtomicBool,
    bell: Doorbell,
    stats: WorkerStats,
    watched: Arc<Watched>,
    /// Tasks that were dropped because they panicked.
    broken: Mutex<Vec<TaskId>>,
    /// Wakes the daemon when there are such.
    fault: Fault,
}

/// The daemon's handle to a worker.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    cpu: Option<usize>,
}

impl Worker {
    /// Starts worker `index`, pinned to `cpu` if given. `fault` is reported when one of its tasks panics.
    ///
    /// # Errors
    /// Whatever the system calls for thread, eventfd and epoll return.
    pub fn start(index: usize, cpu: Option<usize>, polling: Polling, fault: Fault) -> std::io::Result<Worker> {
        let shared = Arc::new(Shared {
            commands: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            bell: Doorbell::new()?,
            stats: WorkerStats::default(),
            watched: Watched::new(format!("worker {index}")),
            broken: Mutex::default(),
            fault,
        });
        let run = Loop::new(Arc::clone(&shared), polling)?;
        let thread = std::thread::Builder::new().name(format!("netvale-w{index}")).spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            run.run();
        })?;
        Ok(Worker { shared, thread: Some(thread), cpu })
    }

    /// The tasks that panicked since the last call: they are gone.
    pub fn take_broken(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often it was held up.
    pub fn stalls(&self) -> u64 {
        self.shared.watched.stalls()
    }

    /// Its times and load.
    pub fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }

    /// The CPU it is pinned to.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Gives it a task.
    pub fn add(&self, id: TaskId, task: Job) {
        self.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Add(id, task));
    }

    /// Takes a task away; the answer says that it is dropped, with all it owns. That can take long (the kernel closes
    /// a TAP only when all processors have been told), so a thread of its own does it.
    pub fn remove(&self, id: TaskId) -> Receiver<()> {
        self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
        let (done, answer) = mpsc::sync_channel(1);
        self.send(Command::Remove(id, done));
        answer
    }

    /// Keeps the worker from sleeping while it has a task with which this was requested.
    pub fn keep_awake(&self, id: TaskId, on: bool) {
        self.send(Command::KeepAwake(id, on));
    }

    /// Makes a task forward from port `from` of `switch`.
    pub fn rehome(&self, id: TaskId, switch: Arc<Switch>, from: PortId) {
        self.send(Command::Rehome(id, switch, from));
    }

    /// Forwards the frames that the ingress still has; the answer says that this is done.
    pub fn drain(&self, id: TaskId) -> Receiver<()> {
        let (done, answer) = mpsc::sync_channel(1);
        self.send(Command::Drain(id, done));
        answer
    }

    fn send(&self, command: Command) {
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.shared.pending.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // It does not panic: a panic of a task is caught, any other ends the process.
            let _ = thread.join();
        }
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("cannot pin a worker to CPU {cpu}: {e}");
    }
}

struct Entry {
    id: TaskId,
    task: Job,
    cheap: bool,
    /// Whether the worker must not sleep while it has this task.
    awake: bool,
    /// For an ingress that is not cheap to look at: whether its descriptor was readable.
    ready: bool,
    /// Whether frames of it wait for room: the frames behind them need not be looked at.
    held: bool,
}

struct Loop {
    shared: Arc<Shared>,
    polling: Polling,
    epoll: OwnedFd,
    entries: Vec<Entry>,
    work: Work,
    /// Whether any ingress must be waited for through epoll.
    needs_epoll: bool,
    /// Whether any task keeps the worker awake.
    awake: bool,
    /// Number of consecutive limited sleeps that brought no work.
    naps: u32,
    clock: Clock,
    /// The entry whose task panicked.
    panicked: Option<usize>,
    /// Where tasks go that are done.
    dropping: Sender<(Job, SyncSender<()>)>,
}

/// Notes which task panicked. Forgotten if it did not.
struct Running<'a>(&'a mut Option<usize>, usize);

impl Drop for Running<'_> {
    #[cold]
    fn drop(&mut self) {
        *self.0 = Some(self.1);
    }
}

/// Runs a part of the task of entry `at`, which is noted if it panics.
#[inline(always)]
fn noting<T>(panicked: &mut Option<usize>, at: usize, part: impl FnOnce() -> T) -> T {
    let running = Running(panicked, at);
    let done = part();
    std::mem::forget(running);
    done
}

/// How long an idle worker keeps the CPU to itself before it yields between polls.
const ALONE: Duration = Duration::from_micros(5);
/// epoll data of the worker's own bell.
const BELL: u64 = u64::MAX;
/// Number of rounds between two checks of descriptors while there is other work.
const LOOK_EVERY: u32 = 16;
/// Maximum number of frames that can be left in a ring: its largest number of slots.
const MOST_LEFT: usize = 16_384;
/// First sleep while frames wait for a lossless receiver, which does not kick: it doubles with each sleep that brought
/// nothing.
const HELD_NAP: Duration = Duration::from_micros(50);
const MOST_HELD_NAP: Duration = Duration::from_millis(1);

impl Loop {
    fn new(shared: Arc<Shared>, polling: Polling) -> std::io::Result<Loop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, shared.bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (entries, work, clock) = (Vec::new(), Work::default(), Clock::new(Arc::clone(&shared.watched)));
        let (needs_epoll, awake, naps, panicked) = (false, false, 0, None);
        let (dropping, done) = mpsc::channel::<(Job, SyncSender<()>)>();
        std::thread::Builder::new().name("netvale-retire".into()).spawn(move || {
            // One that panics was reported by the runtime; the next ones are dropped all the same.
            done.into_iter().for_each(|one| drop(catch_unwind(AssertUnwindSafe(|| drop(one)))));
        })?;
        Ok(Loop { shared, polling, epoll, entries, work, needs_epoll, awake, naps, clock, panicked, dropping })
    }

    /// Works until it is stopped. A task that panics is lost with its port; the others go on.
    fn run(mut self) {
        while catch_unwind(AssertUnwindSafe(|| self.rounds())).is_err() {
            self.lose();
        }
    }

    /// Drops the task that panicked. If no task did, what the worker knows of its tasks cannot be trusted any more: the
    /// daemon ends, for the service manager to start it again.
    fn lose(&mut self) {
        let Some(at) = self.panicked.take() else { std::process::abort() };
        let id = self.entries[at].id;
        self.remove(id, mpsc::sync_channel(1).0);
        self.work = Work::default();
        self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.shared.fault.report("a task of a worker panicked");
    }

    fn rounds(&mut self) {
        let mut round_no = 0u32;
        loop {
            if self.shared.pending.load(Ordering::Acquire) && self.commands() {
                return;
            }
            round_no = round_no.wrapping_add(1);
            if self.round() > 0 {
                self.clock.busy(&self.shared.stats);
                self.naps = 0;
                if self.needs_epoll && round_no.is_multiple_of(LOOK_EVERY) {
                    self.look(Some(Duration::ZERO));
                }
                continue;
            }
            self.idle();
        }
    }

    /// Does each task once. Returns the number of frames.
    fn round(&mut self) -> usize {
        let mut frames = 0;
        for (at, e) in self.entries.iter_mut().enumerate() {
            if !(e.cheap || e.ready) {
                continue;
            }
            let passed = noting(&mut self.panicked, at, || e.task.pass(&mut self.work));
            e.held = passed == Passed::Held;
            match passed {
                Passed::Frames(n) => frames += n,
                Passed::Held => {}
                Passed::Idle => e.ready = false,
            }
        }
        frames
    }

    /// After a round without work: checks descriptors, goes on polling, or sleeps.
    fn idle(&mut self) {
        if self.needs_epoll && self.look(Some(Duration::ZERO)) {
            return;
        }
        let idle_for = self.clock.idle(&self.shared.stats);
        match self.polling {
            Polling::Spin(budget) if (idle_for >= budget || self.naps > 0) && !self.awake => self.sleep(),
            // The thread that brings work may be waiting for this very CPU.
            _ if idle_for > ALONE => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }

    fn sleep(&mut self) {
        let Loop { entries, panicked, .. } = self;
        let free = entries.iter_mut().enumerate().filter(|(_, e)| !e.held);
        let news = free.fold(false, |news, (at, e)| noting(panicked, at, || e.task.arm()) | news);
        // A command sent before this point rang the bell, which epoll then reports immediately.
        if !news {
            let nap = self.nap();
            self.clock.before_sleep(&self.shared.stats);
            self.listen_to_held(epoll::EventFlags::empty());
            let woken = self.look(nap);
            self.listen_to_held(epoll::EventFlags::IN);
            self.clock.after_sleep(&self.shared.stats);
            // After a nap that brought nothing, polling again is pointless.
            self.naps = if woken || nap.is_none() { 0 } else { self.naps.saturating_add(1) };
        }
        for (at, e) in self.entries.iter_mut().enumerate() {
            noting(&mut self.panicked, at, || e.task.disarm());
        }
    }

    /// The longest time to sleep.
    fn nap(&self) -> Option<Duration> {
        let held = self.entries.iter().any(|e| e.held);
        let held = held.then(|| (HELD_NAP * (1 << self.naps.min(8))).min(MOST_HELD_NAP));
        held.into_iter().chain(self.entries.iter().filter_map(|e| e.task.nap())).min()
    }

    /// Stops waiting for descriptors of held ingresses: they stay readable while frames wait behind the held ones, so
    /// that the worker could not sleep.
    fn listen_to_held(&self, events: epoll::EventFlags) {
        for e in self.entries.iter().filter(|e| e.held && !e.cheap) {
            if let Some(fd) = e.task.wake_fd() {
                // Fails only for a descriptor that is not in the set.
                let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(e.id), events);
            }
        }
    }

    /// Waits for descriptors (`None`: without a limit). Returns whether any is ready: an ingress's, or the bell, behind
    /// which commands wait, so that a caller about to sleep must not.
    fn look(&mut self, limit: Option<Duration>) -> bool {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        let limit = limit.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) else { return false };
        let mut any = false;
        for event in events.iter() {
            let id = event.data.u64();
            if id == BELL {
                self.shared.bell.drain();
                any = true;
            } else if let Some((at, e)) = self.entries.iter_mut().enumerate().find(|(_, e)| e.id == id) {
                noting(&mut self.panicked, at, || e.task.woken());
                e.ready = true;
                any |= !e.held;
            }
        }
        any
    }

    /// Executes the daemon's commands. Returns whether to end.
    fn commands(&mut self) -> bool {
        self.shared.pending.store(false, Ordering::Relaxed);
        let commands = std::mem::take(&mut *self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stop = false;
        for command in commands {
            match command {
                Command::Add(id, task) => self.add(id, task),
                Command::Remove(id, done) => self.remove(id, done),
                Command::Drain(id, done) => {
                    self.drain(id);
                    // The sender may have stopped waiting.
                    let _ = done.try_send(());
                }
                Command::KeepAwake(id, on) => {
                    self.entries.iter_mut().filter(|e| e.id == id).for_each(|e| e.awake = on);
                }
                Command::Rehome(id, switch, from) => {
                    let task = self.entries.iter_mut().find(|e| e.id == id).map(|e| &mut *e.task as &mut dyn Any);
                    if let Some(forwarder) = task.and_then(|task| task.downcast_mut::<Forwarder>()) {
                        forwarder.rehome(switch, from);
                    }
                }
                Command::Stop => stop = true,
            }
        }
        self.awake = self.entries.iter().any(|e| e.awake);
        self.needs_epoll = self.entries.iter().any(|e| !e.cheap);
        stop
    }

    fn add(&mut self, id: TaskId, mut task: Job) {
        task.disarm();
        let cheap = task.is_cheap();
        if let Some(fd) = task.wake_fd() {
            let added = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(id), epoll::EventFlags::IN);
            if let Err(e) = added {
                tracing::error!("an ingress cannot be waited for: {e}");
            }
        }
        self.entries.push(Entry { id, task, cheap, awake: false, ready: true, held: false });
    }

    /// Forwards the frames that a program that ends may have left in its rings: they were sent. It stops after as many
    /// as rings can hold, as the program could go on writing.
    fn drain(&mut self, id: TaskId) {
        let Some(entry) = self.entries.iter_mut().find(|e| e.id == id) else { return };
        let mut frames = 0;
        while frames < MOST_LEFT
            && let Passed::Frames(n) = entry.task.pass(&mut self.work)
        {
            frames += n;
        }
        // The ring may hold frames now.
        entry.ready = true;
    }

    /// Hands the task to the thread that drops it, and then `done`.
    fn remove(&mut self, id: TaskId, done: SyncSender<()>) {
        let Some(at) = self.entries.iter().position(|e| e.id == id) else { return };
        let entry = self.entries.swap_remove(at);
        if let Some(fd) = entry.task.wake_fd() {
            // Fails only for a descriptor that is closed already.
            let _ = epoll::delete(&self.epoll, fd);
        }
        // If the thread is gone, it is dropped here.
        let _ = self.dropping.send((entry.task, done));
    }
}

/// Accounts for the worker's time only at the changes between busy, idle and asleep, so that a busy worker need not
/// read the clock.
struct Clock {
    watched: Arc<Watched>,
    since: Instant,
    is_busy: bool,
    looks: u32,
    idle_for: Duration,
}

impl Clock {
    fn new(watched: Arc<Watched>) -> Clock {
        Clock { watched, since: Instant::now(), is_busy: false, looks: 0, idle_for: Duration::ZERO }
    }

    fn turn(&mut self, into: &AtomicU64) {
        let now = Instant::now();
        let spent = now.duration_since(self.since).as_nanos() as u64;
        into.store(into.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
        self.since = now;
        self.watched.progress(now);
    }

    #[inline]
    fn busy(&mut self, stats: &WorkerStats) {
        self.looks = self.looks.wrapping_add(1);
        // Nearly all the time since the clock was last read belongs to this first batch. Later it is read once in a
        // while, so that `netvale top` sees a worker that is never idle.
        if !self.is_busy || self.looks.is_multiple_of(128) {
            self.turn(&stats.busy_ns);
            self.is_busy = true;
        }
    }

    /// Returns how long nothing has been found. The clock is read only every few polls while polls cost next to
    /// nothing.
    fn idle(&mut self, stats: &WorkerStats) -> Duration {
        if self.is_busy {
            self.turn(&stats.busy_ns);
            (self.is_busy, self.looks, self.idle_for) = (false, 0, Duration::ZERO);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(8) || self.idle_for > ALONE {
            self.idle_for += self.since.elapsed();
            self.turn(&stats.polled_ns);
        }
        self.idle_for
    }

    fn before_sleep(&mut self, stats: &WorkerStats) {
        self.turn(&stats.polled_ns);
        self.watched.rest();
        stats.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    fn after_sleep(&mut self, stats: &WorkerStats) {
        self.turn(&stats.slept_ns);
        (self.looks, self.idle_for) = (0, Duration::ZERO);
    }
}
