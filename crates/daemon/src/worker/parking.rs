//! All workers pause, so that another process can continue their ports where they stopped, or they themselves.
//!
//! A parked worker reads and writes no ring. Frames that waited for room lie in memory of its own by then, and what the
//! rings say of their positions is right.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::PoisonError;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use netvale_port::domain::TimeDomain;
use netvale_switch::{Forwarder, WaitingFrames};

use super::rounds::Loop;
use super::{Command, TaskId, Worker};

/// Upper bound on waiting until all workers have paused. One that takes longer is held up by a peer.
const LIMIT: Duration = Duration::from_millis(200);

/// Between two looks for tasks to let go of.
const LOOK: Duration = Duration::from_millis(1);

/// The frames that wait for room, by task.
pub type Waiting = Vec<(TaskId, Vec<WaitingFrames>)>;

/// Asks a worker to pause.
pub(super) struct Pause {
    settled: SyncSender<Waiting>,
    resume: Receiver<()>,
}

/// Where a worker says that it has paused, and what lets it go on once it is dropped: nothing is ever sent.
type PausedWorker = (Receiver<Waiting>, SyncSender<()>);

/// Workers that pause until this is dropped.
pub struct Parked {
    /// The frames that wait for room.
    pub waiting: Waiting,
    paused: Rc<RefCell<Vec<PausedWorker>>>,
}

/// Whether workers pause, so that those which are started meanwhile do, too.
#[derive(Default)]
pub struct Pausing(Weak<RefCell<Vec<PausedWorker>>>);

impl Pausing {
    /// That these pause.
    pub fn of(parked: &Parked) -> Pausing {
        Pausing(Rc::downgrade(&parked.paused))
    }

    /// Has a worker that was just started, and has no tasks yet, pause for as long as the others do.
    pub fn include(&self, worker: &Worker) {
        if let Some(others) = self.0.upgrade() {
            others.borrow_mut().push(pause(worker));
        }
    }
}

/// Has a worker pause before it does anything that it is told later.
fn pause(worker: &Worker) -> PausedWorker {
    let (settled, answer) = mpsc::sync_channel(1);
    let (resumes, resume) = mpsc::sync_channel(1);
    worker.shared.send(Command::Park(Pause { settled, resume }));
    (answer, resumes)
}

/// Parks all workers.
///
/// # Errors
/// Whose workers are held up, if some are: then all go on.
pub fn park<'a>(workers: impl Iterator<Item = &'a Worker>) -> Result<Parked, Vec<TimeDomain>> {
    let asked: Vec<_> = workers.map(|worker| (worker.domain(), pause(worker))).collect();
    let until = Instant::now() + LIMIT;
    let mut waiting = Waiting::new();
    let mut paused = Vec::new();
    let mut late = Vec::new();
    for (domain, worker) in asked {
        match worker.0.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(frames) => waiting.extend(frames),
            Err(_) => late.push(domain),
        }
        paused.push(worker);
    }
    if late.is_empty() { Ok(Parked { waiting, paused: Rc::new(RefCell::new(paused)) }) } else { Err(late) }
}

impl Loop {
    pub(super) fn park(&mut self, pause: &Pause) {
        let mut waiting = Waiting::new();
        let mut at = 0;
        while at < self.entries.len() {
            // A task that panics is lost, and another one takes its place in the list.
            let is_there = self.guarded(at, |e, work, _| {
                e.task.hurry(work);
                e.task.settle();
                let forwarder = (&mut *e.task as &mut dyn Any).downcast_mut::<Forwarder>();
                waiting.extend(forwarder.filter(|f| f.is_held()).map(|f| (e.id, f.waiting())));
            });
            at += usize::from(is_there);
        }
        self.shared.watched.rest();
        if pause.settled.try_send(waiting).is_ok() {
            while pause.resume.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                self.remove_some();
            }
        }
        self.entries.iter_mut().for_each(|e| e.ready = true);
    }

    /// Lets go of tasks, also of those that were to come: what they have is needed elsewhere. Other commands wait.
    fn remove_some(&mut self) {
        let mut commands = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = |command: &Command| if let Command::Remove(id, _) = command { Some(*id) } else { None };
        let gone: Vec<TaskId> = commands.iter().filter_map(removed).collect();
        let now = |command: &mut Command| match command {
            Command::Add(entry) => gone.contains(&entry.id),
            command => removed(command).is_some(),
        };
        let now: Vec<_> = commands.extract_if(.., now).collect();
        drop(commands);
        for command in now {
            match command {
                Command::Add(entry) => self.add(entry),
                Command::Remove(id, done) => self.remove(id, done),
                _ => {}
            }
        }
    }

    pub(super) fn wait_with(&mut self, id: TaskId, waiting: Vec<WaitingFrames>) {
        let Some(at) = self.position(id) else { return };
        self.guarded(at, |e, _, _| {
            if let Some(forwarder) = (&mut *e.task as &mut dyn Any).downcast_mut::<Forwarder>() {
                forwarder.wait_with(waiting);
                e.held = forwarder.is_held();
            }
        });
    }
}
