//! Moves of tasks between workers: one worker gives a task to another worker, with all frames and resources that the
//! task holds.
//!
//! Frames keep their order because a task is in one place at a time: in the list of one worker, or among the pending
//! commands of the other worker. The daemon's commands for the task keep their order because it sends no further
//! command before the first worker has answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use rustix::event::epoll;

use super::rounds::{TaskEntry, WorkerLoop};
use super::{TaskId, Worker, WorkerCommand, WorkerState};

/// How long to wait for a worker to give a task away. A worker that takes longer is blocked.
const LIMIT: Duration = Duration::from_millis(50);

/// A command to give a task to another worker.
pub(super) struct MoveOrder {
    id: TaskId,
    to: Arc<WorkerState>,
    /// Cleared by the worker when it begins to execute the command, or by the daemon to withdraw the command.
    is_open: Arc<AtomicBool>,
    done: SyncSender<bool>,
}

impl Worker {
    /// Moves a task to another worker. Returns true if the task has moved, and false if this worker no longer has the
    /// task or is blocked. The caller sends later commands to the worker that has the task.
    pub fn move_to(&self, id: TaskId, to: &Worker) -> bool {
        let (done, answer) = mpsc::sync_channel(1);
        let is_open = Arc::new(AtomicBool::new(true));
        let order = MoveOrder { id, to: Arc::clone(&to.shared), is_open: Arc::clone(&is_open), done };
        self.shared.send(WorkerCommand::Move(order));
        // Either this withdraws the command, or the worker has already begun to execute it. Executing it takes only a
        // moment and never blocks.
        let late = || if is_open.swap(false, Ordering::AcqRel) { Ok(false) } else { answer.recv() };
        let is_there = answer.recv_timeout(LIMIT).or_else(|_| late()).unwrap_or(false);
        if is_there {
            self.shared.stats.ingresses.fetch_sub(1, Ordering::Relaxed);
            to.shared.stats.ingresses.fetch_add(1, Ordering::Relaxed);
        }
        is_there
    }
}

impl WorkerLoop {
    pub(super) fn carry_out(&mut self, order: &MoveOrder) {
        let is_there = order.is_open.swap(false, Ordering::AcqRel) && self.give(order.id, &order.to);
        // This fails only if the daemon no longer waits for the answer.
        let _ = order.done.try_send(is_there);
    }

    /// Gives a task to another worker. Returns whether this worker had the task.
    fn give(&mut self, id: TaskId, to: &WorkerState) -> bool {
        let Some(at) = self.position(id) else { return false };
        let left = self.guarded(at, |e, _, epoll| {
            // If the panic of another task ended a sleep, this task may still be armed.
            e.task.disarm();
            e.task.stop_asking(&mut |bell| {
                let _ = epoll::delete(epoll, bell);
            });
        });
        if !left {
            return false;
        }
        let entry = self.take_out(at);
        // The task is marked as ready, so that the other worker polls it once: work may be pending.
        to.send(WorkerCommand::Add(TaskEntry { ready: true, held: false, broken: None, ..entry }));
        true
    }
}
