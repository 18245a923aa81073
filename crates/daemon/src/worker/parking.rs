//! Parking: a pause of all workers in which their ports are handed to another process.
//!
//! A parked worker accesses no ring. Frames that wait for room are then in private memory, and the positions in the
//! rings are exact.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::PoisonError;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use netvale_port::domain::TimeDomain;
use netvale_switch::{Forwarder, WaitingFrames};

use super::rounds::WorkerLoop;
use super::{TaskId, Worker, WorkerCommand};

/// How long to wait until all workers have paused. If a worker takes longer, a peer blocks it.
const LIMIT: Duration = Duration::from_millis(200);

/// Interval at which a paused worker checks for commands to remove tasks.
const LOOK: Duration = Duration::from_millis(1);

/// Frames waiting for room, by task.
pub type TaskFrames = Vec<(TaskId, Vec<WaitingFrames>)>;

/// A command to pause.
pub(super) struct PauseOrder {
    settled: SyncSender<TaskFrames>,
    resume: Receiver<()>,
}

/// Two channels. On the first, a worker reports that it has paused, with the frames that wait for room. The second
/// carries no messages; closing it resumes the worker.
type PausedWorker = (Receiver<TaskFrames>, SyncSender<()>);

/// Paused workers, which resume when this value is dropped.
pub struct ParkedWorkers {
    /// Frames that wait for room, by task.
    pub waiting: TaskFrames,
    paused: Rc<RefCell<Vec<PausedWorker>>>,
}

/// The current pause. Workers that are started during the pause must join it.
#[derive(Default)]
pub struct PauseState(Weak<RefCell<Vec<PausedWorker>>>);

impl PauseState {
    /// Returns the pause of these workers.
    pub fn of(parked: &ParkedWorkers) -> PauseState {
        PauseState(Rc::downgrade(&parked.paused))
    }

    /// Makes a new worker, which has no tasks yet, join the pause.
    pub fn include(&self, worker: &Worker) {
        if let Some(others) = self.0.upgrade() {
            others.borrow_mut().push(pause(worker));
        }
    }
}

/// Sends the command to pause. The worker executes later commands only after the pause.
fn pause(worker: &Worker) -> PausedWorker {
    let (settled, answer) = mpsc::sync_channel(1);
    let (resumes, resume) = mpsc::sync_channel(1);
    worker.shared.send(WorkerCommand::Park(PauseOrder { settled, resume }));
    (answer, resumes)
}

/// Parks all workers.
///
/// # Errors
/// The domains of workers that did not pause in time. In this case, all workers resume.
pub fn park<'a>(workers: impl Iterator<Item = &'a Worker>) -> Result<ParkedWorkers, Vec<TimeDomain>> {
    let asked: Vec<_> = workers.map(|worker| (worker.domain(), pause(worker))).collect();
    let until = Instant::now() + LIMIT;
    let mut waiting = TaskFrames::new();
    let mut paused = Vec::new();
    let mut late = Vec::new();
    for (domain, worker) in asked {
        match worker.0.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(frames) => waiting.extend(frames),
            Err(_) => late.push(domain),
        }
        paused.push(worker);
    }
    if late.is_empty() { Ok(ParkedWorkers { waiting, paused: Rc::new(RefCell::new(paused)) }) } else { Err(late) }
}

impl WorkerLoop {
    pub(super) fn park(&mut self, pause: &PauseOrder) {
        let mut waiting = TaskFrames::new();
        let mut at = 0;
        while at < self.entries.len() {
            // If a task panics, it is removed, and the last task moves to its index.
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

    /// Executes pending removals, including removals of tasks whose addition is still pending, because other processes
    /// need the resources of these tasks. Other commands wait until after the pause.
    fn remove_some(&mut self) {
        let mut commands = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let removed =
            |command: &WorkerCommand| if let WorkerCommand::Remove(id, _) = command { Some(*id) } else { None };
        let gone: Vec<TaskId> = commands.iter().filter_map(removed).collect();
        let now = |command: &mut WorkerCommand| match command {
            WorkerCommand::Add(entry) => gone.contains(&entry.id),
            command => removed(command).is_some(),
        };
        let now: Vec<_> = commands.extract_if(.., now).collect();
        drop(commands);
        for command in now {
            match command {
                WorkerCommand::Add(entry) => self.add(entry),
                WorkerCommand::Remove(id, done) => self.remove(id, done),
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
