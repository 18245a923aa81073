//! A worker: a thread that does the tasks it owns, most of them ingresses whose frames it forwards.
//!
//! It polls while there is work and for a short time after, then arms all kicks, checks once more, and sleeps in epoll.
//! Polling costs nothing but time; the first frame after a sleep costs one wake-up. Where no wake-up comes (frames wait
//! for a lossless receiver, which does not kick), it sleeps for a moment, and longer each time: about as long as it has
//! waited already.

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

/// How many nanoseconds later than asked for the kernel may end a worker's sleep: frames on links and for rates have
/// their time.
const TIMER_SLACK: u64 = 1000;

/// How long the worker of a user who is not trusted is waited for when it is to end.
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

/// What becomes of drained frames that find no room.
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
    /// Time spent asleep, until the last sleep that is over; [`WorkerStats::slept`] has that which lasts, too.
    pub slept_ns: AtomicU64,
    /// Since when it sleeps, in nanoseconds since some time before; 0: it is awake.
    asleep_since: AtomicU64,
    /// What [`WorkerStats::slept`] returned last.
    told: AtomicU64,
    /// The part of it during which frames waited for a receiver that had not run yet.
    pub waited_ns: AtomicU64,
    /// The part of the time spent forwarding and polling during which another thread had its CPU.
    pub preempted_ns: AtomicU64,
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
    /// Starts worker `index` of that domain, pinned to `cpu` if given. `fault` is reported when one of its tasks
    /// panics.
    ///
    /// # Errors
    /// Whatever the system calls for thread, eventfd and epoll return.
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
        // A new thread has the slack of the one that starts it.
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

    /// The tasks that panicked since the last call: they are gone.
    pub fn take_broken(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often it was held up.
    pub fn stalls(&self) -> u64 {
        self.shared.watched.stalls()
    }

    /// Whether it has a thread, which does not hang for longer than that.
    pub fn goes_on(&self, now: Instant, limit: Duration) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !self.shared.watched.hangs(now, limit)
    }

    /// Its times and load.
    pub fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }

    /// Number of its tasks.
    pub fn tasks(&self) -> u64 {
        self.shared.stats.ingresses.load(Ordering::Relaxed)
    }

    /// Whose ports it serves.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// Asks it to end, which it does when no peer holds it up.
    pub fn stop(&self) {
        self.shared.send(Command::Stop);
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The CPU it is pinned to.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Gives it a task. Returns the counter of the nanoseconds that the task will have taken of its workers' time,
    /// about: they look at the clock only now and then.
    pub fn add(&self, id: TaskId, task: Job) -> Arc<AtomicU64> {
        let entry = Entry::new(id, task);
        let taken = Arc::clone(&entry.taken);
        self.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        self.shared.send(Command::Add(entry));
        taken
    }

    /// Takes a task away; the answer says that it is dropped, with all it owns. That can take long (the kernel closes
    /// a TAP only when all processors have been told), so a thread of its own does it.
    pub fn remove(&self, id: TaskId) -> Receiver<()> {
        self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
        self.answered(|done| Command::Remove(id, done))
    }

    /// Keeps the worker from sleeping while it has a task with which this was requested.
    pub fn keep_awake(&self, id: TaskId, on: bool) {
        self.shared.send(Command::KeepAwake(id, on));
    }

    /// Makes a task forward from port `from` of `switch`.
    pub fn rehome(&self, id: TaskId, switch: Arc<Switch>, from: PortId) {
        self.shared.send(Command::Rehome(id, switch, from));
    }

    /// Makes a task begin with frames that waited for room in another process.
    pub fn wait_with(&self, id: TaskId, waiting: Vec<WaitingFrames>) {
        self.shared.send(Command::WaitWith(id, waiting));
    }

    /// Forwards the frames that the ingress still has; the answer says that this is done.
    pub fn drain(&self, id: TaskId) -> Receiver<()> {
        self.answered(|done| Command::Drain(id, WithoutRoom::Waits, done))
    }

    /// The same for the last time: frames that find no room are dropped and counted, so that none is left.
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
        // Memory of a user can hold that user's worker up for as long as the user likes. What it has is its own.
        let until = Instant::now() + LEAVING;
        while self.domain != TimeDomain::TRUSTED && !self.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_awaited = self.domain == TimeDomain::TRUSTED || self.has_ended();
        if let Some(thread) = self.thread.take().filter(|_| is_awaited) {
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
