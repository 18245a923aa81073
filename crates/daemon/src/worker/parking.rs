//! All workers pause, so that another process can continue their ports where they stopped, or they themselves.
//!
//! A parked worker reads and writes no ring. Frames that waited for room lie in memory of its own by then, and what the
//! rings say of their positions is right.

use std::any::Any;
use std::sync::PoisonError;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

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

/// Workers that pause until this is dropped.
pub struct Parked {
    /// The frames that wait for room.
    pub waiting: Waiting,
    /// Nothing is ever sent: the workers see that it is gone.
    _resume: Vec<SyncSender<()>>,
}

/// Parks all workers. `None` if one of them is held up: then all go on.
pub fn park<'a>(workers: impl Iterator<Item = &'a Worker>) -> Option<Parked> {
    let (mut answers, mut resume) = (Vec::new(), Vec::new());
    for worker in workers {
        let ((settled, answer), (resumes, resumed)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        worker.shared.send(Command::Park(Pause { settled, resume: resumed }));
        answers.push(answer);
        resume.push(resumes);
    }
    let until = Instant::now() + LIMIT;
    let mut waiting = Waiting::new();
    for answer in answers {
        waiting.extend(answer.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?);
    }
    Some(Parked { waiting, _resume: resume })
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

    /// Lets go of tasks: what they have is needed elsewhere. Other commands wait.
    fn remove_some(&mut self) {
        let mut commands = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let (remove, others): (Vec<_>, Vec<_>) =
            commands.drain(..).partition(|command| matches!(command, Command::Remove(..)));
        *commands = others;
        drop(commands);
        for command in remove {
            if let Command::Remove(id, done) = command {
                self.remove(id, done);
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
