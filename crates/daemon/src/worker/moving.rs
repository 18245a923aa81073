//! Moves tasks between workers: one gives a task with all that it holds, the other takes it.
//!
//! Frames keep their order because a task is in one place at a time: in one worker's list, or among the other's
//! commands. So do the daemon's commands: it sends none for the task before the worker has answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use rustix::event::epoll;

use super::rounds::{Entry, Loop};
use super::{Command, Shared, TaskId, Worker};

/// Longest wait for a worker to give a task away. A slower one is held up.
const LIMIT: Duration = Duration::from_millis(50);

/// An order to give a task away.
pub(super) struct Order {
    id: TaskId,
    to: Arc<Shared>,
    /// Cleared when the worker starts on it, or the daemon takes it back.
    is_open: Arc<AtomicBool>,
    done: SyncSender<bool>,
}

impl Worker {
    /// Moves a task to another worker. Returns whether it moved; not if this worker has lost it or is held up. Later
    /// commands for the task go to the worker that has it then.
    pub fn move_to(&self, id: TaskId, to: &Worker) -> bool {
        let (done, answer) = mpsc::sync_channel(1);
        let is_open = Arc::new(AtomicBool::new(true));
        let order = Order { id, to: Arc::clone(&to.shared), is_open: Arc::clone(&is_open), done };
        self.shared.send(Command::Move(order));
        // Either the order is taken back, or the worker has started, which takes a moment without waits.
        let late = || if is_open.swap(false, Ordering::AcqRel) { Ok(false) } else { answer.recv() };
        let is_there = answer.recv_timeout(LIMIT).or_else(|_| late()).unwrap_or(false);
        if is_there {
            self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
            to.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        }
        is_there
    }
}

impl Loop {
    pub(super) fn carry_out(&mut self, order: &Order) {
        let is_there = order.is_open.swap(false, Ordering::AcqRel) && self.give(order.id, &order.to);
        // The daemon waits for the answer.
        let _ = order.done.try_send(is_there);
    }

    /// Gives a task to another worker. Returns whether this worker had it.
    fn give(&mut self, id: TaskId, to: &Shared) -> bool {
        let Some(at) = self.position(id) else { return false };
        let left = self.guarded(at, |e, _, epoll| {
            // The task may still be armed if another task's panic ended a sleep.
            e.task.disarm();
            e.task.stop_asking(&mut |bell| {
                let _ = epoll::delete(epoll, bell);
            });
        });
        if !left {
            return false;
        }
        let entry = self.take_out(at);
        // The other worker looks for pending work.
        to.send(Command::Add(Entry { ready: true, held: false, broken: None, ..entry }));
        true
    }
}
