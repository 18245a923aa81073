//! A worker: a thread that repeats its tasks, most of which forward frames from an ingress.
//!
//! A worker polls while there is work and for a short time afterwards. After that time, it arms all kicks, checks for
//! work once more, and sleeps in epoll. The first frame after a sleep costs one wake-up. If no wake-up can come (frames
//! wait for a lossless receiver, which does not kick), the worker takes short sleeps of growing length, each about as
//! long as the whole wait before it. If it has many tasks, tasks without frames are armed and rest, while the others
//! are polled.

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
use netvale_switch::{ForwardMemory, PortId, Switch, WaitingFrames};

use crate::stalls::WatchedThread;

mod clock;
mod moving;
pub mod parking;
mod resting;
mod rounds;
mod sleep;

use rounds::{TaskEntry, WorkerLoop};

/// Timer slack of a worker's sleep, in nanoseconds. It is small because frames on emulated links and under rate limits
/// are due at exact times.
const TIMER_SLACK: u64 = 1000;

/// How long to wait for an untrusted user's worker to end.
const LEAVING: Duration = Duration::from_millis(200);

/// Number of a task, unique in the daemon.
pub type TaskId = u64;

/// A task that a worker repeats.
pub type WorkerTask = Box<dyn Task<ForwardMemory>>;

/// How long an idle worker polls before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// The worker sleeps if it has polled for this long without a frame.
    Spin(Duration),
    /// The worker never sleeps.
    Always,
}

/// What happens, while an ingress is drained, to frames for which the receiver has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainMode {
    Waits,
    Drops,
}

enum WorkerCommand {
    Add(TaskEntry),
    Move(moving::MoveOrder),
    Remove(TaskId, SyncSender<()>),
    Drain(TaskId, DrainMode, SyncSender<()>),
    KeepAwake(TaskId, bool),
    Rehome(TaskId, Arc<Switch>, PortId),
    Park(parking::PauseOrder),
    WaitWith(TaskId, Vec<WaitingFrames>),
    Stop,
}

/// How a worker spent its time, and the number of its tasks.
#[derive(Debug, Default)]
pub struct WorkerTimeStats {
    /// Time spent forwarding, in nanoseconds.
    pub busy_ns: AtomicU64,
    /// Time spent in polling that found no work, in nanoseconds.
    pub polled_ns: AtomicU64,
    /// Time spent in sleeps that have ended, in nanoseconds. [`WorkerTimeStats::slept`] includes the current sleep as
    /// well.
    pub slept_ns: AtomicU64,
    /// Start of the current sleep, in nanoseconds of an arbitrary clock; 0 while the worker is awake.
    asleep_since: AtomicU64,
    /// Largest value that [`WorkerTimeStats::slept`] has returned so far. Later values must not be smaller.
    told: AtomicU64,
    /// Part of the time asleep, in nanoseconds, in which frames waited for room at a receiver.
    pub waited_ns: AtomicU64,
    /// Part of the time awake, in nanoseconds, in which the worker did not have a CPU.
    pub preempted_ns: AtomicU64,
    /// Number of sleeps.
    pub sleeps: AtomicU64,
    /// Number of the worker's tasks, most of which forward the frames of an ingress.
    pub ingresses: AtomicU64,
}

struct WorkerState {
    commands: Mutex<Vec<WorkerCommand>>,
    pending: AtomicBool,
    bell: Doorbell,
    stats: WorkerTimeStats,
    watched: Arc<WatchedThread>,
    /// Tasks that panicked and were dropped.
    broken: Mutex<Vec<TaskId>>,
    /// Reports a task's panic to the main thread.
    fault: Fault,
}

impl WorkerState {
    fn send(&self, command: WorkerCommand) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.pending.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// The daemon's handle to a worker.
pub struct Worker {
    shared: Arc<WorkerState>,
    thread: Option<JoinHandle<()>>,
    cpu: Option<usize>,
    domain: TimeDomain,
}

impl Worker {
    /// Starts worker `index` of a domain, pinned to `cpu` if that is set. A panic of one of its tasks is reported at
    /// `fault`.
    ///
    /// # Errors
    /// Fails if a system call for threads, eventfd or epoll fails.
    pub fn start(
        index: usize,
        cpu: Option<usize>,
        polling: Polling,
        fault: Fault,
        domain: TimeDomain,
    ) -> std::io::Result<Worker> {
        let shared = Arc::new(WorkerState {
            commands: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            bell: Doorbell::new()?,
            stats: WorkerTimeStats::default(),
            watched: WatchedThread::new(format!("worker {index}")),
            broken: Mutex::default(),
            fault,
        });
        let run = WorkerLoop::new(Arc::clone(&shared), polling)?;
        // A new thread inherits the timer slack of the thread that creates it.
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

    /// Returns the tasks that panicked since the last call. These tasks have been dropped.
    pub fn take_broken(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of the worker's stalls.
    pub fn stalls(&self) -> u64 {
        self.shared.watched.stalls()
    }

    /// Whether the thread runs, and its current operation has not lasted longer than `limit`.
    pub fn goes_on(&self, now: Instant, limit: Duration) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !self.shared.watched.hangs(now, limit)
    }

    /// Returns how the worker has spent its time, and the number of its tasks.
    pub fn stats(&self) -> &WorkerTimeStats {
        &self.shared.stats
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> u64 {
        self.shared.stats.ingresses.load(Ordering::Relaxed)
    }

    /// Returns the domain (all trusted users, or one untrusted user) whose ports the worker serves.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// Requests that the worker's thread end, without waiting for it. The thread does not end as long as a peer blocks
    /// it.
    pub fn stop(&self) {
        self.shared.send(WorkerCommand::Stop);
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the CPU to which the worker is pinned; `None` if it is not pinned.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Adds a task. Returns the counter of the time that the task has taken, in nanoseconds. The time is an estimate,
    /// because workers rarely read the clock.
    pub fn add(&self, id: TaskId, task: WorkerTask) -> Arc<AtomicU64> {
        let entry = TaskEntry::new(id, task);
        let taken = Arc::clone(&entry.taken);
        self.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        self.shared.send(WorkerCommand::Add(entry));
        taken
    }

    /// Removes a task. The returned channel gets a message when the task and the resources that it owns have been
    /// dropped. A separate thread drops the task, because that can take long: the kernel closes a TAP only after all
    /// CPUs have synchronised.
    pub fn remove(&self, id: TaskId) -> Receiver<()> {
        self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
        self.answered(|done| WorkerCommand::Remove(id, done))
    }

    /// Sets whether a task keeps the worker awake. The setting ends when the task is removed.
    pub fn keep_awake(&self, id: TaskId, on: bool) {
        self.shared.send(WorkerCommand::KeepAwake(id, on));
    }

    /// Makes a forwarding task send from port `from` of `switch`.
    pub fn rehome(&self, id: TaskId, switch: Arc<Switch>, from: PortId) {
        self.shared.send(WorkerCommand::Rehome(id, switch, from));
    }

    /// Gives a restored task the frames that waited for room at a receiver in the predecessor.
    pub fn wait_with(&self, id: TaskId, waiting: Vec<WaitingFrames>) {
        self.shared.send(WorkerCommand::WaitWith(id, waiting));
    }

    /// Forwards the frames that are left in a task's ingress. The returned channel gets a message when that is done.
    pub fn drain(&self, id: TaskId) -> Receiver<()> {
        self.answered(|done| WorkerCommand::Drain(id, DrainMode::Waits, done))
    }

    /// Like [`Worker::drain`], but drops and counts frames for which the receiver has no room. Must be called before
    /// the task is removed.
    pub fn finish(&self, id: TaskId) -> Receiver<()> {
        self.answered(|done| WorkerCommand::Drain(id, DrainMode::Drops, done))
    }

    fn answered(&self, command: impl FnOnce(SyncSender<()>) -> WorkerCommand) -> Receiver<()> {
        let (done, answer) = mpsc::sync_channel(1);
        self.shared.send(command(done));
        answer
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // An untrusted user's memory can block that user's worker indefinitely, so the thread is abandoned after a
        // limit. All tasks of that worker belong to the same user.
        let until = Instant::now() + LEAVING;
        while self.domain != TimeDomain::TRUSTED && !self.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_awaited = self.domain == TimeDomain::TRUSTED || self.has_ended();
        if let Some(thread) = self.thread.take().filter(|_| is_awaited) {
            // The thread has not panicked: task panics are caught, and any other panic ends the process.
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
