//! A worker: a thread that runs its tasks, most of which forward frames from an ingress.
//!
//! It polls while there is work and for a short time after, then arms all kicks, checks once more, and sleeps in epoll.
//! Polling costs nothing but time; the first frame after a sleep costs one wake-up. Where no wake-up comes (frames wait
//! for a lossless receiver, which does not kick), it takes short sleeps of growing length, each about as long as the
//! wait so far.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::Task;
use netvale_port::domain::TimeDomain;
use netvale_switch::{PortId, Switch, WaitingFrames, Work};

use crate::stalls::Watched;

mod clock;
mod moving;
pub mod parking;
mod rounds;
mod sleep;

use rounds::{Entry, Loop};

/// Timer slack of a worker's sleep, in nanoseconds: frames on links and under rate limits have due times.
const TIMER_SLACK: u64 = 1000;

/// Longest wait for the end of an untrusted user's worker.
const LEAVING: Duration = Duration::from_millis(200);

/// Number of a task, unique in the daemon.
pub type TaskId = u64;

/// A task that a worker repeats.
pub type Job = Box<dyn Task<Work>>;

/// When an idle worker goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// After this long without a frame.
    Spin(Duration),
    /// Never.
    Always,
}

/// Handling of drained frames without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutRoom {
    Waits,
    Drops,
}

enum Command {
    Add(Entry),
    Move(moving::Order),
    Remove(TaskId, SyncSender<()>),
    Drain(TaskId, WithoutRoom, SyncSender<()>),
    KeepAwake(TaskId, bool),
    Rehome(TaskId, Arc<Switch>, PortId),
    Park(parking::Pause),
    WaitWith(TaskId, Vec<WaitingFrames>),
    Stop,
}

/// How a worker spent its time, in nanoseconds, and its load.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Time spent forwarding.
    pub busy_ns: AtomicU64,
    /// Time spent polling without finding work.
    pub polled_ns: AtomicU64,
    /// Time spent asleep in finished sleeps; [`WorkerStats::slept`] includes the current one.
    pub slept_ns: AtomicU64,
    /// Start of the current sleep, in nanoseconds of an arbitrary clock; 0: awake.
    asleep_since: AtomicU64,
    /// Last result of [`WorkerStats::slept`].
    told: AtomicU64,
    /// The part of the sleeping time during which frames waited for a receiver that had not run yet.
    pub waited_ns: AtomicU64,
    /// The part of the forwarding and polling time during which another thread had its CPU.
    pub preempted_ns: AtomicU64,
    /// Number of sleeps.
    pub sleeps: AtomicU64,
    /// Number of its ingresses.
    pub ingresses: AtomicU64,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    pending: AtomicBool,
    bell: Doorbell,
    stats: WorkerStats,
    watched: Arc<Watched>,
    /// Tasks dropped after a panic.
    broken: Mutex<Vec<TaskId>>,
    /// Wakes the main thread after a panic.
    fault: Fault,
}

impl Shared {
    fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.pending.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// The daemon's handle to a worker.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    cpu: Option<usize>,
    domain: TimeDomain,
}

impl Worker {
    /// Starts worker `index` of that domain, pinned to `cpu` if given. A panic of one of its tasks is reported at
    /// `fault`.
    ///
    /// # Errors
    /// Fails if the system calls for threads, eventfd or epoll do.
    pub fn start(
        index: usize,
        cpu: Option<usize>,
        polling: Polling,
        fault: Fault,
        domain: TimeDomain,
    ) -> std::io::Result<Worker> {
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
        // A new thread inherits its creator's timer slack.
        let usual = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK));
        let thread = std::thread::Builder::new().name(format!("netvale-w{index}")).spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            domain.enter();
            run.run();
        });
        let _ = rustix::thread::set_current_timer_slack(usual);
        Ok(Worker { shared, thread: Some(thread?), cpu, domain })
    }

    /// Returns the tasks that panicked since the last call; they are gone.
    pub fn take_broken(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often the worker was held up.
    pub fn stalls(&self) -> u64 {
        self.shared.watched.stalls()
    }

    /// Whether its thread runs and has not hung for longer than `limit`.
    pub fn goes_on(&self, now: Instant, limit: Duration) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !self.shared.watched.hangs(now, limit)
    }

    /// Its times and its load.
    pub fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }

    /// Number of its tasks.
    pub fn tasks(&self) -> u64 {
        self.shared.stats.ingresses.load(Ordering::Relaxed)
    }

    /// The domain whose ports it serves.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// Asks it to end, which it does unless a peer holds it up.
    pub fn stop(&self) {
        self.shared.send(Command::Stop);
    }

    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The CPU it is pinned to.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Adds a task. Returns the counter of the task's time in nanoseconds, an estimate: workers read the clock only now
    /// and then.
    pub fn add(&self, id: TaskId, task: Job) -> Arc<AtomicU64> {
        let entry = Entry::new(id, task);
        let taken = Arc::clone(&entry.taken);
        self.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        self.shared.send(Command::Add(entry));
        taken
    }

    /// Removes a task; the answer confirms that it is dropped with all it owns. That can take long (the kernel closes a
    /// TAP only after all CPUs have synchronised), so a separate thread drops it.
    pub fn remove(&self, id: TaskId) -> Receiver<()> {
        self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
        self.answered(|done| Command::Remove(id, done))
    }

    /// Keeps the worker awake, or not, as long as it has the task.
    pub fn keep_awake(&self, id: TaskId, on: bool) {
        self.shared.send(Command::KeepAwake(id, on));
    }

    /// Makes a task forward from port `from` of `switch`.
    pub fn rehome(&self, id: TaskId, switch: Arc<Switch>, from: PortId) {
        self.shared.send(Command::Rehome(id, switch, from));
    }

    /// Starts a task with frames that waited for room in another process.
    pub fn wait_with(&self, id: TaskId, waiting: Vec<WaitingFrames>) {
        self.shared.send(Command::WaitWith(id, waiting));
    }

    /// Forwards the frames left in the ingress; the answer confirms it.
    pub fn drain(&self, id: TaskId) -> Receiver<()> {
        self.answered(|done| Command::Drain(id, WithoutRoom::Waits, done))
    }

    /// Like [`Worker::drain`], for the last time: frames without room are dropped and counted.
    pub fn finish(&self, id: TaskId) -> Receiver<()> {
        self.answered(|done| Command::Drain(id, WithoutRoom::Drops, done))
    }

    fn answered(&self, command: impl FnOnce(SyncSender<()>) -> Command) -> Receiver<()> {
        let (done, answer) = mpsc::sync_channel(1);
        self.shared.send(command(done));
        answer
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // A user's memory can hold up that user's worker indefinitely. Its tasks are the user's alone.
        let until = Instant::now() + LEAVING;
        while self.domain != TimeDomain::TRUSTED && !self.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_awaited = self.domain == TimeDomain::TRUSTED || self.has_ended();
        if let Some(thread) = self.thread.take().filter(|_| is_awaited) {
            // Cannot panic: task panics are caught, any other ends the process.
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
