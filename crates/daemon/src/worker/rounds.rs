//! The loop of a worker's thread: rounds in which each task runs once, and the daemon's commands between rounds.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::spin::Spin;
use netvale_port::PassResult;
use netvale_switch::{ForwardMemory, Forwarder};
use rustix::event::epoll;

use super::clock::{self, WorkerClock};
use super::{DrainMode, Polling, TaskId, WorkerCommand, WorkerState, WorkerTask};

/// A task, and the worker's state for that task.
pub(super) struct TaskEntry {
    pub(super) id: TaskId,
    pub(super) task: WorkerTask,
    pub(super) cheap: bool,
    /// Whether the task keeps the worker awake.
    pub(super) awake: bool,
    /// For an ingress that is expensive to poll: whether epoll has reported that its descriptor is readable.
    pub(super) ready: bool,
    /// Whether frames of the task wait for room at a receiver; if so, the ingress is not polled for further frames.
    pub(super) held: bool,
    /// Time that the task has taken, in nanoseconds, extrapolated from timed rounds.
    pub(super) taken: Arc<AtomicU64>,
    /// Whether the task had frames since the worker last searched for tasks that may rest.
    pub(super) worked: bool,
    /// Time at which the task's descriptor was removed from the epoll set because of an error; `None` if it was not
    /// removed.
    pub(super) broken: Option<Instant>,
}

impl TaskEntry {
    pub(super) fn new(id: TaskId, task: WorkerTask) -> TaskEntry {
        let cheap = task.is_cheap();
        TaskEntry {
            id,
            task,
            cheap,
            awake: false,
            ready: true,
            held: false,
            taken: Arc::default(),
            worked: true,
            broken: None,
        }
    }
}

/// The state of a worker's thread.
pub(super) struct WorkerLoop {
    pub(super) shared: Arc<WorkerState>,
    /// Whether the worker never sleeps.
    pub(super) always: bool,
    pub(super) epoll: OwnedFd,
    /// The tasks: first the tasks that take part in rounds, after them the tasks that rest (module `resting`).
    pub(super) entries: Vec<TaskEntry>,
    /// Number of tasks that take part in rounds.
    pub(super) live: usize,
    pub(super) work: ForwardMemory,
    /// Whether any ingress is expensive to poll, so that epoll must be checked.
    pub(super) needs_epoll: bool,
    /// Whether any task keeps the worker awake.
    pub(super) awake: bool,
    /// Number of consecutive timed sleeps that ended without work.
    pub(super) naps: u32,
    pub(super) clock: WorkerClock,
    /// Determines how long the worker polls before it sleeps.
    pub(super) spin: Spin,
    /// Index of the entry whose task panicked.
    pub(super) panicked: Option<usize>,
    /// Channel to the thread that drops removed tasks.
    dropping: Sender<(WorkerTask, SyncSender<()>)>,
}

/// Guard of the running task. If the task panics, the guard is dropped, and records the task's index.
struct RunningTask<'a>(&'a mut Option<usize>, usize);

impl Drop for RunningTask<'_> {
    #[cold]
    fn drop(&mut self) {
        *self.0 = Some(self.1);
    }
}

/// Runs a part of the task of entry `at`. If the task panics, `panicked` remains set to that index.
#[inline(always)]
pub(super) fn noting<T>(panicked: &mut Option<usize>, at: usize, part: impl FnOnce() -> T) -> T {
    let running = RunningTask(panicked, at);
    let done = part();
    std::mem::forget(running);
    done
}

/// epoll data of the worker's own doorbell.
pub(super) const BELL: u64 = u64::MAX;
/// Number of rounds between two checks of descriptors while there is work. Rounds of slow batches take milliseconds, so
/// the worker also checks at each tick of the kernel's clock.
const LOOK_EVERY: u32 = 16;
/// Maximum number of tasks with which no task rests (module `resting`): polling that few tasks costs less than checking
/// descriptors.
pub(super) const MANY: usize = 64;
/// Number of rounds between two searches for tasks that may rest. A task rests if it had no frames between two
/// searches.
pub(super) const REST_EVERY: u32 = 256 * LOOK_EVERY;
/// One of this many rounds is timed. As the number is prime, periodic patterns are sampled evenly.
const TIMED: u32 = 61;
/// Maximum number of frames that are forwarded when a task is drained: the largest number of slots of a ring.
const MOST_LEFT: usize = 16_384;
/// Starts the thread that drops tasks, because dropping a task can take long.
fn retire() -> std::io::Result<Sender<(WorkerTask, SyncSender<()>)>> {
    let (dropping, done) = mpsc::channel::<(WorkerTask, SyncSender<()>)>();
    std::thread::Builder::new().name("netvale-retire".into()).spawn(move || {
        // The runtime has already printed the panic. A panic in the drop of one task must not prevent the drop of later
        // tasks.
        done.into_iter().for_each(|one| drop(catch_unwind(AssertUnwindSafe(|| drop(one)))));
    })?;
    Ok(dropping)
}

impl WorkerLoop {
    pub(super) fn new(shared: Arc<WorkerState>, polling: Polling) -> std::io::Result<WorkerLoop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, shared.bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (spin, always) = match polling {
            Polling::Spin(most) => (Spin::new(most).restless(), false),
            Polling::Always => (Spin::default(), true),
        };
        let clock = WorkerClock::new(Arc::clone(&shared.watched));
        Ok(WorkerLoop {
            shared,
            always,
            epoll,
            entries: Vec::new(),
            live: 0,
            work: ForwardMemory::default(),
            needs_epoll: false,
            awake: false,
            naps: 0,
            clock,
            spin,
            panicked: None,
            dropping: retire()?,
        })
    }

    /// Works until the worker is told to stop. If a task panics, the task and its port are lost; other tasks continue.
    pub(super) fn run(mut self) {
        while catch_unwind(AssertUnwindSafe(|| self.rounds())).is_err() {
            self.lose();
        }
    }

    /// Drops the task that panicked. If the panic was not in a task, the worker's state cannot be trusted: the daemon
    /// exits, and the service manager restarts it.
    fn lose(&mut self) {
        let Some(at) = self.panicked.take() else { std::process::abort() };
        let id = self.entries[at].id;
        self.remove(id, mpsc::sync_channel(1).0);
        self.work = ForwardMemory::default();
        self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.shared.fault.report("a task of a worker panicked");
    }

    fn rounds(&mut self) {
        let mut round_no = 0u32;
        let mut untimed = TIMED;
        loop {
            if self.shared.pending.load(Ordering::Acquire) && self.commands() {
                return;
            }
            round_no = round_no.wrapping_add(1);
            if round_no.is_multiple_of(REST_EVERY) && self.live > MANY {
                self.let_rest();
            }
            untimed -= 1;
            let frames = if untimed > 0 {
                self.round::<false>()
            } else {
                untimed = TIMED;
                self.timed_round()
            };
            if frames > 0 {
                self.spin.paid();
                self.clock.busy(&self.shared.stats);
                self.naps = 0;
                if self.has_descriptors() && (round_no.is_multiple_of(LOOK_EVERY) || self.clock.has_ticked()) {
                    self.look(Some(Duration::ZERO));
                }
                continue;
            }
            // The descriptors of resting tasks are checked only in some rounds, because that takes a system call.
            if self.has_resting() && round_no.is_multiple_of(LOOK_EVERY) && self.look(Some(Duration::ZERO)) {
                continue;
            }
            self.idle();
        }
    }

    /// Runs a round that reads the clock before and after each task. This is a separate function, so that untimed
    /// rounds contain no reads of the clock.
    #[cold]
    #[inline(never)]
    fn timed_round(&mut self) -> usize {
        self.round::<true>()
    }

    /// Runs each task once. Returns the number of frames that the tasks forwarded.
    #[inline(always)]
    fn round<const IS_TIMED: bool>(&mut self) -> usize {
        let mut frames = 0;
        let mut since = IS_TIMED.then(Instant::now);
        for (at, e) in self.entries.iter_mut().take(self.live).enumerate() {
            if !(e.cheap || e.ready) {
                continue;
            }
            let passed = noting(&mut self.panicked, at, || e.task.pass(&mut self.work));
            e.held = passed == PassResult::Held;
            match passed {
                PassResult::Frames(n) => {
                    frames += n;
                    e.worked = true;
                }
                PassResult::Held => {}
                PassResult::Idle => e.ready = false,
            }
            if let Some(since) = &mut since {
                let begun = std::mem::replace(since, Instant::now());
                // Only rounds in which the task had frames are added to its time.
                if matches!(passed, PassResult::Frames(_)) {
                    clock::add(&e.taken, since.duration_since(begun) * TIMED);
                }
            }
        }
        frames
    }

    /// Executes the daemon's commands. Returns true if the worker must end.
    fn commands(&mut self) -> bool {
        self.shared.pending.store(false, Ordering::Relaxed);
        let commands = std::mem::take(&mut *self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stop = false;
        let mut parked = None;
        let mut commands = commands.into_iter();
        while let Some(command) = commands.next() {
            if !matches!(command, WorkerCommand::Add(_) | WorkerCommand::Remove(..)) {
                self.rouse_all();
            }
            match command {
                WorkerCommand::Add(entry) => self.add(entry),
                WorkerCommand::Move(order) => self.carry_out(&order),
                WorkerCommand::Remove(id, done) => self.remove(id, done),
                WorkerCommand::Drain(id, left, done) => {
                    self.drain(id, left);
                    // The daemon may no longer wait for this answer.
                    let _ = done.try_send(());
                }
                WorkerCommand::KeepAwake(id, on) => {
                    self.entries.iter_mut().filter(|e| e.id == id).for_each(|e| e.awake = on);
                }
                WorkerCommand::Rehome(id, switch, from) => {
                    let task = self.entries.iter_mut().find(|e| e.id == id).map(|e| &mut *e.task as &mut dyn Any);
                    if let Some(forwarder) = task.and_then(|task| task.downcast_mut::<Forwarder>()) {
                        forwarder.rehome(switch, from);
                    }
                }
                WorkerCommand::Park(pause) => {
                    parked = Some(pause);
                    // Later commands wait until the pause ends.
                    self.put_back(std::mem::take(&mut commands));
                }
                WorkerCommand::WaitWith(id, waiting) => self.wait_with(id, waiting),
                WorkerCommand::Stop => stop = true,
            }
        }
        self.awake = self.entries.iter().any(|e| e.awake);
        self.needs_epoll = self.entries.iter().any(|e| !e.cheap);
        if let Some(pause) = parked {
            self.park(&pause);
        }
        stop
    }

    fn put_back(&self, commands: std::vec::IntoIter<WorkerCommand>) {
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).splice(..0, commands);
        self.shared.pending.store(true, Ordering::Release);
    }

    pub(super) fn add(&mut self, entry: TaskEntry) {
        if let Some(fd) = entry.task.wake_fd() {
            let added = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(entry.id), epoll::EventFlags::IN);
            if let Err(e) = added {
                tracing::error!("cannot add an ingress to the epoll set: {e}");
            }
        }
        let at = self.entries.len();
        self.entries.push(entry);
        let at = self.include(at);
        self.guarded(at, |e, _, _| e.task.disarm());
    }

    /// Runs a part of a task between two rounds. Returns false if that part panics; the task is then dropped.
    pub(super) fn guarded(
        &mut self,
        at: usize,
        part: impl FnOnce(&mut TaskEntry, &mut ForwardMemory, &OwnedFd),
    ) -> bool {
        let WorkerLoop { entries, work, epoll, .. } = self;
        let is_done = catch_unwind(AssertUnwindSafe(|| part(&mut entries[at], work, epoll))).is_ok();
        if !is_done {
            self.panicked = Some(at);
            self.lose();
        }
        is_done
    }

    /// Forwards the frames that a closing program may have left in its rings; these frames count as sent. Stops after
    /// as many frames as the rings hold, because the program may continue to write.
    fn drain(&mut self, id: TaskId, left: DrainMode) {
        let Some(at) = self.position(id) else { return };
        self.guarded(at, |entry, work, _| {
            let mut frames = 0;
            if left == DrainMode::Drops {
                entry.task.stop_waiting();
            }
            while frames < MOST_LEFT {
                match entry.task.pass(work) {
                    PassResult::Frames(n) => frames += n,
                    // Each further pass drops the frames for which there is no room. The number of passes is limited,
                    // because a rate limit may hold frames for longer.
                    PassResult::Held if left == DrainMode::Drops => frames += 1,
                    PassResult::Held | PassResult::Idle => break,
                }
            }
            // Further frames may have arrived, so the next round polls the ingress.
            entry.ready = true;
        });
    }

    /// Passes the task and `done` to the thread that drops tasks.
    pub(super) fn remove(&mut self, id: TaskId, done: SyncSender<()>) {
        let Some(at) = self.position(id) else { return };
        let entry = self.take_out(at);
        // If the thread that drops tasks has ended, the task is dropped here.
        let _ = self.dropping.send((entry.task, done));
    }

    pub(super) fn position(&self, id: TaskId) -> Option<usize> {
        self.entries.iter().position(|e| e.id == id)
    }

    /// Removes a task from the list, and the task's descriptor from the epoll set.
    pub(super) fn take_out(&mut self, at: usize) -> TaskEntry {
        let at = self.exclude(at);
        let entry = self.entries.swap_remove(at);
        if let Some(fd) = entry.task.wake_fd() {
            // This fails only if the descriptor is already closed.
            let _ = epoll::delete(&self.epoll, fd);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::fault::Fault;
    use netvale_mem::notify::Doorbell;
    use netvale_port::domain::TimeDomain;
    use netvale_port::{PassResult, Task};

    use super::*;
    use crate::worker::Worker;

    /// A task that always has a frame, and needs a long time for it.
    struct SlowTask(Arc<AtomicU64>);

    impl Task<ForwardMemory> for SlowTask {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            std::thread::sleep(Duration::from_millis(8));
            self.0.fetch_add(1, Ordering::Relaxed);
            PassResult::Frames(1)
        }
    }

    /// A task that has a frame when its descriptor is readable, and that reports how many slow passes preceded its
    /// poll.
    struct DescriptorTask {
        bell: Arc<Doorbell>,
        slow_passes: Arc<AtomicU64>,
        served: mpsc::Sender<u64>,
    }

    impl Task<ForwardMemory> for DescriptorTask {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            if !self.bell.drain() {
                return PassResult::Idle;
            }
            self.served.send(self.slow_passes.load(Ordering::Relaxed)).unwrap();
            PassResult::Frames(1)
        }

        fn wake_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            Some(self.bell.as_fd())
        }

        fn is_cheap(&self) -> bool {
            false
        }
    }

    /// Objective: a descriptor that becomes readable is served after a few rounds, even if the batches of other tasks
    /// make these rounds slow.
    #[test]
    fn descriptors_do_not_wait_for_many_slow_rounds() {
        let passes = Arc::<AtomicU64>::default();
        let bell = Arc::new(Doorbell::new().unwrap());
        let polling = Polling::Spin(Duration::ZERO);
        let worker = Worker::start(0, None, polling, Fault::new().unwrap(), TimeDomain::TRUSTED).unwrap();
        let (served, serves) = mpsc::channel();
        let slow_passes = Arc::clone(&passes);
        worker.add(1, Box::new(SlowTask(Arc::clone(&passes))));
        worker.add(2, Box::new(DescriptorTask { bell: Arc::clone(&bell), slow_passes, served }));
        for number in 1..=5 {
            // Each time, the descriptor becomes readable at a different point between two checks.
            while passes.load(Ordering::Relaxed) < 7 * number {
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = passes.load(Ordering::Relaxed);
            bell.ring();
            let after = serves.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(after <= before + 4, "{} rounds", after - before);
        }
    }
}
