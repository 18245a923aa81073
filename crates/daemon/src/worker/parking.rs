//! Parks all workers, to hand their ports over to another process, or to resume them.
//!
//! A parked worker accesses no ring. Frames waiting for room then lie in memory of its own, and the positions in the
//! rings are exact.

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

/// Longest wait for all workers to pause. A slower one is held up by a peer.
const LIMIT: Duration = Duration::from_millis(200);

/// Interval between checks for tasks to remove.
const LOOK: Duration = Duration::from_millis(1);

/// Frames waiting for room, by task.
pub type Waiting = Vec<(TaskId, Vec<WaitingFrames>)>;

/// Asks a worker to pause.
pub(super) struct Pause {
    settled: SyncSender<Waiting>,
    resume: Receiver<()>,
}

/// The channel on which a worker reports its pause, and the one whose drop resumes it: nothing is ever sent there.
type PausedWorker = (Receiver<Waiting>, SyncSender<()>);

/// Workers that pause until this is dropped.
pub struct Parked {
    /// The frames waiting for room.
    pub waiting: Waiting,
    paused: Rc<RefCell<Vec<PausedWorker>>>,
}

/// The current pause, for workers started meanwhile.
#[derive(Default)]
pub struct Pausing(Weak<RefCell<Vec<PausedWorker>>>);

impl Pausing {
    /// The pause of these workers.
    pub fn of(parked: &Parked) -> Pausing {
        Pausing(Rc::downgrade(&parked.paused))
    }

    /// Adds a new worker without tasks to the pause.
    pub fn include(&self, worker: &Worker) {
        if let Some(others) = self.0.upgrade() {
            others.borrow_mut().push(pause(worker));
        }
    }
}

/// Pauses a worker before its later commands.
fn pause(worker: &Worker) -> PausedWorker {
    let (settled, answer) = mpsc::sync_channel(1);
    let (resumes, resume) = mpsc::sync_channel(1);
    worker.shared.send(Command::Park(Pause { settled, resume }));
    (answer, resumes)
}

/// Parks all workers.
///
/// # Errors
/// The domains of held-up workers; then all resume.
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
            // A panicking task is lost, and another one takes its place in the list.
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

    /// Removes tasks, including those still to come: their resources are needed elsewhere. Other commands wait.
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
