//! The loop of a worker's thread: rounds of its tasks, and the daemon's commands between them.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::spin::Spin;
use netvale_port::Passed;
use netvale_switch::{Forwarder, Work};
use rustix::event::epoll;

use super::clock::{self, Clock};
use super::{Command, Job, Polling, Shared, TaskId, WithoutRoom};

/// A task, with the worker's state of it.
pub(super) struct Entry {
    pub(super) id: TaskId,
    pub(super) task: Job,
    pub(super) cheap: bool,
    /// Whether the task keeps the worker awake.
    pub(super) awake: bool,
    /// Whether the descriptor of an ingress that is expensive to poll was readable.
    pub(super) ready: bool,
    /// Whether its frames wait for room: later frames need not be looked at.
    pub(super) held: bool,
    /// Nanoseconds of its worker's time, extrapolated from timed rounds.
    pub(super) taken: Arc<AtomicU64>,
    /// Since when its descriptor is out of the epoll set because of an error.
    pub(super) broken: Option<Instant>,
}

impl Entry {
    pub(super) fn new(id: TaskId, task: Job) -> Entry {
        let cheap = task.is_cheap();
        Entry { id, task, cheap, awake: false, ready: true, held: false, taken: Arc::default(), broken: None }
    }
}

/// The state of a worker's thread.
pub(super) struct Loop {
    pub(super) shared: Arc<Shared>,
    /// Whether the worker never sleeps.
    pub(super) always: bool,
    pub(super) epoll: OwnedFd,
    pub(super) entries: Vec<Entry>,
    pub(super) work: Work,
    /// Whether any ingress needs epoll.
    pub(super) needs_epoll: bool,
    /// Whether any task keeps the worker awake.
    pub(super) awake: bool,
    /// Number of consecutive naps without work.
    pub(super) naps: u32,
    pub(super) clock: Clock,
    /// Yield of polling.
    pub(super) spin: Spin,
    /// The entry whose task panicked.
    pub(super) panicked: Option<usize>,
    /// The thread that drops removed tasks.
    dropping: Sender<(Job, SyncSender<()>)>,
}

/// Notes the running task, in case it panics.
struct Running<'a>(&'a mut Option<usize>, usize);

impl Drop for Running<'_> {
    #[cold]
    fn drop(&mut self) {
        *self.0 = Some(self.1);
    }
}

/// Runs a part of the task of entry `at`; notes the entry if it panics.
#[inline(always)]
pub(super) fn noting<T>(panicked: &mut Option<usize>, at: usize, part: impl FnOnce() -> T) -> T {
    let running = Running(panicked, at);
    let done = part();
    std::mem::forget(running);
    done
}

/// epoll data of the worker's own bell.
pub(super) const BELL: u64 = u64::MAX;
/// Number of rounds between two descriptor checks while there is work.
const LOOK_EVERY: u32 = 16;
/// One of this many rounds is timed: a prime number, so periodic patterns are sampled as a whole.
const TIMED: u32 = 61;
/// Maximum number of frames left in a ring: its largest number of slots.
const MOST_LEFT: usize = 16_384;
/// Starts the thread that drops tasks, which can take long.
fn retire() -> std::io::Result<Sender<(Job, SyncSender<()>)>> {
    let (dropping, done) = mpsc::channel::<(Job, SyncSender<()>)>();
    std::thread::Builder::new().name("netvale-retire".into()).spawn(move || {
        // A panic was reported by the runtime; later tasks are dropped all the same.
        done.into_iter().for_each(|one| drop(catch_unwind(AssertUnwindSafe(|| drop(one)))));
    })?;
    Ok(dropping)
}

impl Loop {
    pub(super) fn new(shared: Arc<Shared>, polling: Polling) -> std::io::Result<Loop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, shared.bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (spin, always) = match polling {
            Polling::Spin(most) => (Spin::new(most).restless(), false),
            Polling::Always => (Spin::default(), true),
        };
        let clock = Clock::new(Arc::clone(&shared.watched));
        Ok(Loop {
            shared,
            always,
            epoll,
            entries: Vec::new(),
            work: Work::default(),
            needs_epoll: false,
            awake: false,
            naps: 0,
            clock,
            spin,
            panicked: None,
            dropping: retire()?,
        })
    }

    /// Works until stopped. A panicking task is lost with its port; the others continue.
    pub(super) fn run(mut self) {
        while catch_unwind(AssertUnwindSafe(|| self.rounds())).is_err() {
            self.lose();
        }
    }

    /// Drops the task that panicked. If no task did, the worker's state cannot be trusted: the daemon ends, and the
    /// service manager restarts it.
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
        let mut untimed = TIMED;
        loop {
            if self.shared.pending.load(Ordering::Acquire) && self.commands() {
                return;
            }
            round_no = round_no.wrapping_add(1);
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
                if self.needs_epoll && round_no.is_multiple_of(LOOK_EVERY) {
                    self.look(Some(Duration::ZERO));
                }
                continue;
            }
            self.idle();
        }
    }

    /// A separate round, so clock reads cost the others nothing.
    #[cold]
    #[inline(never)]
    fn timed_round(&mut self) -> usize {
        self.round::<true>()
    }

    /// Runs each task once. Returns the number of frames.
    #[inline(always)]
    fn round<const IS_TIMED: bool>(&mut self) -> usize {
        let mut frames = 0;
        let mut since = IS_TIMED.then(Instant::now);
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
            if let Some(since) = &mut since {
                let begun = std::mem::replace(since, Instant::now());
                // A poll without work tells nothing about the load.
                if matches!(passed, Passed::Frames(_)) {
                    clock::add(&e.taken, since.duration_since(begun) * TIMED);
                }
            }
        }
        frames
    }

    /// Executes the daemon's commands. Returns whether to end.
    fn commands(&mut self) -> bool {
        self.shared.pending.store(false, Ordering::Relaxed);
        let commands = std::mem::take(&mut *self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stop = false;
        let mut parked = None;
        let mut commands = commands.into_iter();
        while let Some(command) = commands.next() {
            match command {
                Command::Add(entry) => self.add(entry),
                Command::Move(order) => self.carry_out(&order),
                Command::Remove(id, done) => self.remove(id, done),
                Command::Drain(id, left, done) => {
                    self.drain(id, left);
                    // The sender may have given up.
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
                Command::Park(pause) => {
                    parked = Some(pause);
                    // Later commands stay for afterwards.
                    self.put_back(std::mem::take(&mut commands));
                }
                Command::WaitWith(id, waiting) => self.wait_with(id, waiting),
                Command::Stop => stop = true,
            }
        }
        self.awake = self.entries.iter().any(|e| e.awake);
        self.needs_epoll = self.entries.iter().any(|e| !e.cheap);
        if let Some(pause) = parked {
            self.park(&pause);
        }
        stop
    }

    fn put_back(&self, commands: std::vec::IntoIter<Command>) {
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).splice(..0, commands);
        self.shared.pending.store(true, Ordering::Release);
    }

    pub(super) fn add(&mut self, entry: Entry) {
        if let Some(fd) = entry.task.wake_fd() {
            let added = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(entry.id), epoll::EventFlags::IN);
            if let Err(e) = added {
                tracing::error!("an ingress cannot be waited for: {e}");
            }
        }
        self.entries.push(entry);
        self.guarded(self.entries.len() - 1, |e, _, _| e.task.disarm());
    }

    /// Runs a part of a task between two rounds. Returns false if it panics; then the task is lost.
    pub(super) fn guarded(&mut self, at: usize, part: impl FnOnce(&mut Entry, &mut Work, &OwnedFd)) -> bool {
        let Loop { entries, work, epoll, .. } = self;
        let is_done = catch_unwind(AssertUnwindSafe(|| part(&mut entries[at], work, epoll))).is_ok();
        if !is_done {
            self.panicked = Some(at);
            self.lose();
        }
        is_done
    }

    /// Forwards the frames that a closing program may have left in its rings: they count as sent. Stops after the
    /// capacity of the rings, as the program may continue writing.
    fn drain(&mut self, id: TaskId, left: WithoutRoom) {
        let Some(at) = self.position(id) else { return };
        self.guarded(at, |entry, work, _| {
            let mut frames = 0;
            if left == WithoutRoom::Drops {
                entry.task.stop_waiting();
            }
            while frames < MOST_LEFT {
                match entry.task.pass(work) {
                    Passed::Frames(n) => frames += n,
                    // The next pass drops frames without room; a rate may hold others back for longer.
                    Passed::Held if left == WithoutRoom::Drops => frames += 1,
                    Passed::Held | Passed::Idle => break,
                }
            }
            // The ring may hold frames by now.
            entry.ready = true;
        });
    }

    /// Passes the task, then `done`, to the thread that drops it.
    pub(super) fn remove(&mut self, id: TaskId, done: SyncSender<()>) {
        let Some(at) = self.position(id) else { return };
        let entry = self.take_out(at);
        // Dropped here if that thread is gone.
        let _ = self.dropping.send((entry.task, done));
    }

    pub(super) fn position(&self, id: TaskId) -> Option<usize> {
        self.entries.iter().position(|e| e.id == id)
    }

    /// Removes a task from the list, and its descriptor from the set.
    pub(super) fn take_out(&mut self, at: usize) -> Entry {
        let entry = self.entries.swap_remove(at);
        if let Some(fd) = entry.task.wake_fd() {
            // Fails only for a descriptor already closed.
            let _ = epoll::delete(&self.epoll, fd);
        }
        entry
    }
}
