//! The worker threads, and the tasks of each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_switch::{PortId, Switch};

use crate::worker::{Job, Placed, Polling, TaskId, Worker};

/// Upper bound on waiting for workers to acknowledge the commands for a port. A worker that takes longer is busy with
/// ports, which matter more.
const TIMEOUT: Duration = Duration::from_millis(50);

/// All workers.
pub struct Workers {
    all: Vec<Worker>,
    next: TaskId,
}

impl Workers {
    /// Starts one worker for each entry, pinned to that CPU. `fault` is reported when a task panics.
    ///
    /// # Errors
    /// Whatever the system calls for threads return.
    pub fn start(cpus: &[Option<usize>], polling: Polling, fault: &Fault) -> std::io::Result<Workers> {
        let start = |(i, &cpu): (usize, &Option<usize>)| Worker::start(i, cpu, polling, fault.clone());
        Ok(Workers { all: cpus.iter().enumerate().map(start).collect::<Result<_, _>>()?, next: 1 })
    }

    /// All workers, by number.
    pub fn all(&self) -> &[Worker] {
        &self.all
    }

    /// Gives a task to the worker with the fewest tasks.
    pub fn place(&mut self, task: Job) -> Placed {
        let load = |(_, w): &(usize, &Worker)| w.stats().ingresses.load(Ordering::Relaxed);
        let (id, least) = (self.next, self.all.iter().enumerate().min_by_key(load));
        self.next += 1;
        let worker = least.map_or(0, |(worker, w)| {
            w.add(id, task);
            worker
        });
        Placed { id, worker }
    }

    /// The tasks that panicked since the last call.
    pub fn take_broken(&self) -> Vec<TaskId> {
        self.all.iter().flat_map(Worker::take_broken).collect()
    }

    /// Takes tasks away. When this returns they have been dropped with all they own, unless that takes long.
    pub fn retire(&self, tasks: &[Placed]) {
        self.ask(tasks, Worker::remove);
    }

    /// Waits until tasks have finished their pending work.
    pub fn drain(&self, tasks: &[Placed]) {
        self.ask(tasks, Worker::drain);
    }

    fn ask(&self, tasks: &[Placed], command: impl Fn(&Worker, TaskId) -> Receiver<()>) {
        let answers: Vec<_> = self.of(tasks).map(|(w, id)| command(w, id)).collect();
        let until = Instant::now() + TIMEOUT;
        for answer in answers {
            // Without time left it only looks.
            let _ = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Keeps the workers of these tasks from sleeping, or lets them sleep again.
    pub fn keep_awake(&self, tasks: &[Placed], on: bool) {
        self.of(tasks).for_each(|(w, id)| w.keep_awake(id, on));
    }

    /// Makes these tasks forward from port `from` of `switch`.
    pub fn rehome(&self, tasks: &[Placed], switch: &Arc<Switch>, from: PortId) {
        self.of(tasks).for_each(|(w, id)| w.rehome(id, Arc::clone(switch), from));
    }

    fn of<'a>(&'a self, tasks: &'a [Placed]) -> impl Iterator<Item = (&'a Worker, TaskId)> {
        tasks.iter().filter_map(|p| Some((self.all.get(p.worker)?, p.id)))
    }
}
