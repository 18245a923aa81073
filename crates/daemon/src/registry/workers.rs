//! The worker threads, and the tasks of each: a new one goes to the worker with the least to do, and moves when that has
//! changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_switch::{PortId, Switch, WaitingFrames};

use super::balance::{self, Load, Move};
use crate::worker::parking::{self, Parked};
use crate::worker::{Job, Polling, TaskId, Worker};

/// Upper bound on waiting for workers to acknowledge the commands for a port. A worker that takes longer is busy with
/// ports, which matter more.
const TIMEOUT: Duration = Duration::from_millis(50);
/// How often loads are compared while a worker has something to do.
const PERIOD: Duration = Duration::from_secs(1);
/// How often they are looked at while none has, at least. Other reasons for which the main thread wakes up come more
/// often.
const IDLE_PERIOD: Duration = Duration::from_secs(10);
/// How long a task that was moved stays where it is.
const STAY: Duration = Duration::from_secs(10);
/// The part of a period from which a worker counts as having something to do, and in which loads are compared for a new
/// task.
const PART: u64 = 10;

/// A counter, and what it was a period ago.
#[derive(Default)]
struct Count {
    before: u64,
    last: u64,
}

impl Count {
    /// Begins a period: `now` is what the counter has come to.
    fn turn(&mut self, now: u64) {
        self.last = now.saturating_sub(self.before);
        self.before = now;
    }
}

/// Where a task is, and what it costs.
struct Place {
    worker: usize,
    /// Nanoseconds that it took, counted by its worker.
    taken: Arc<AtomicU64>,
    count: Count,
    /// Whether it is there for less than a period.
    is_new: bool,
    stays_until: Option<Instant>,
}

/// All workers.
pub struct Workers {
    all: Vec<Worker>,
    /// Nanoseconds that each was busy.
    busy: Vec<Count>,
    tasks: BTreeMap<TaskId, Place>,
    next: TaskId,
    /// The last period: when it ended, and its length in nanoseconds.
    ended: Instant,
    length: u64,
}

impl Workers {
    /// Starts one worker for each entry, pinned to that CPU. `fault` is reported when a task panics.
    ///
    /// # Errors
    /// Whatever the system calls for threads return.
    pub fn start(cpus: &[Option<usize>], polling: Polling, fault: &Fault) -> std::io::Result<Workers> {
        let start = |(i, &cpu): (usize, &Option<usize>)| Worker::start(i, cpu, polling, fault.clone());
        let all: Vec<_> = cpus.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let busy = all.iter().map(|_| Count::default()).collect();
        Ok(Workers { all, busy, tasks: BTreeMap::new(), next: 1, ended: Instant::now(), length: 1 })
    }

    /// All workers, by number.
    pub fn all(&self) -> &[Worker] {
        &self.all
    }

    /// Number of the worker that has a task.
    pub fn worker_of(&self, task: TaskId) -> Option<usize> {
        self.tasks.get(&task).map(|place| place.worker)
    }

    /// Gives a task to the worker with the least to do.
    pub fn place(&mut self, task: Job) -> TaskId {
        let (id, worker) = (self.next, self.least());
        self.next += 1;
        if let Some(w) = self.all.get(worker) {
            let place =
                Place { worker, taken: w.add(id, task), count: Count::default(), is_new: true, stays_until: None };
            self.tasks.insert(id, place);
        }
        id
    }

    /// The worker that had the least to do in the last period; among equals, that with the fewest tasks. What a new task
    /// will take is not known: it counts like a part of the period.
    fn least(&self) -> usize {
        let new = |worker| self.tasks.values().filter(|place| place.is_new && place.worker == worker).count() as u64;
        let load = |&worker: &usize| {
            let parts = self.busy.get(worker).map_or(0, |busy| busy.last * PART / self.length);
            let tasks = self.all.get(worker).map_or(0, |w| w.stats().ingresses.load(Ordering::Relaxed));
            (parts + new(worker), tasks)
        };
        (0..self.all.len()).min_by_key(load).unwrap_or(0)
    }

    /// Moves a task if a period is over and that makes a busy worker's load smaller. Returns the time until the next call.
    pub fn tick(&mut self, now: Instant) -> Duration {
        if self.all.len() < 2 {
            return Duration::MAX;
        }
        if now.duration_since(self.ended) >= PERIOD {
            self.measure(now);
            if self.is_busy()
                && let Some(best) = balance::best(&self.loads(now), self.all.len(), self.length)
            {
                self.carry_out(best, now);
            }
        }
        let period = if self.is_busy() { PERIOD } else { IDLE_PERIOD };
        (self.ended + period).saturating_duration_since(now)
    }

    /// Ends a period.
    fn measure(&mut self, now: Instant) {
        self.length = (now.duration_since(self.ended).as_nanos() as u64).max(1);
        self.ended = now;
        for (worker, busy) in self.all.iter().zip(&mut self.busy) {
            busy.turn(worker.stats().busy_ns.load(Ordering::Relaxed));
        }
        for place in self.tasks.values_mut() {
            place.count.turn(place.taken.load(Ordering::Relaxed));
            place.is_new = false;
        }
    }

    fn is_busy(&self) -> bool {
        self.busy.iter().any(|busy| busy.last > self.length / PART)
    }

    /// What each task took of the time that its worker was busy: only few rounds are timed, so that their sum may be more
    /// than that, or less.
    fn loads(&self, now: Instant) -> Vec<Load> {
        let mut sums = vec![0u64; self.all.len()];
        self.tasks.values().for_each(|place| sums[place.worker] += place.count.last);
        let load = |(&task, place): (&TaskId, &Place)| {
            let (sum, busy) = (sums[place.worker].max(1), self.busy[place.worker].last);
            let time = u128::from(place.count.last) * u128::from(busy) / u128::from(sum);
            let stays = place.stays_until.is_some_and(|until| now < until);
            Load { task, worker: place.worker, time: time as u64, stays }
        };
        self.tasks.iter().map(load).collect()
    }

    fn carry_out(&mut self, Move { task, to }: Move, now: Instant) {
        let Some(place) = self.tasks.get_mut(&task) else { return };
        let (Some(here), Some(there)) = (self.all.get(place.worker), self.all.get(to)) else { return };
        // One that could not be moved is not tried again immediately either.
        place.stays_until = Some(now + STAY);
        if here.move_to(task, there) {
            tracing::debug!(task, from = place.worker, to, "a task was moved to a worker with less to do");
            place.worker = to;
        }
    }

    /// The tasks that panicked since the last call.
    pub fn take_broken(&self) -> Vec<TaskId> {
        self.all.iter().flat_map(Worker::take_broken).collect()
    }

    /// Takes tasks away. When this returns they have been dropped with all they own, unless that takes long.
    pub fn retire(&mut self, tasks: &[TaskId]) {
        self.ask(tasks, Worker::remove);
        tasks.iter().for_each(|task| drop(self.tasks.remove(task)));
    }

    /// Waits until tasks have finished their pending work.
    pub fn drain(&self, tasks: &[TaskId]) {
        self.ask(tasks, Worker::drain);
    }

    /// The same for tasks of a port that ends: what finds no room is counted as dropped.
    pub fn finish(&self, tasks: &[TaskId]) {
        self.ask(tasks, Worker::finish);
    }

    fn ask(&self, tasks: &[TaskId], command: impl Fn(&Worker, TaskId) -> Receiver<()>) {
        let answers: Vec<_> = self.of(tasks).map(|(w, id)| command(w, id)).collect();
        let until = Instant::now() + TIMEOUT;
        for answer in answers {
            // Without time left it only looks.
            let _ = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Keeps the workers of these tasks from sleeping, or lets them sleep again.
    pub fn keep_awake(&self, tasks: &[TaskId], on: bool) {
        self.of(tasks).for_each(|(w, id)| w.keep_awake(id, on));
    }

    /// Makes these tasks forward from port `from` of `switch`.
    pub fn rehome(&self, tasks: &[TaskId], switch: &Arc<Switch>, from: PortId) {
        self.of(tasks).for_each(|(w, id)| w.rehome(id, Arc::clone(switch), from));
    }

    /// Parks all workers. `None` if one of them is held up by a peer: then all go on.
    pub fn park(&self) -> Option<Parked> {
        parking::park(self.all.iter())
    }

    /// Makes a task begin with frames that waited for room in another process.
    pub fn wait_with(&self, task: TaskId, waiting: Vec<WaitingFrames>) {
        if let Some(worker) = self.worker_of(task).and_then(|worker| self.all.get(worker)) {
            worker.wait_with(task, waiting);
        }
    }

    fn of<'a>(&'a self, tasks: &'a [TaskId]) -> impl Iterator<Item = (&'a Worker, TaskId)> {
        tasks.iter().filter_map(|&id| Some((self.all.get(self.worker_of(id)?)?, id)))
    }
}

#[cfg(test)]
mod tests {
    use netvale_port::{Passed, Task};
    use netvale_switch::Work;

    use super::*;

    /// A task that works for so long in each pass.
    struct Works(Duration);

    impl Task<Work> for Works {
        fn pass(&mut self, _work: &mut Work) -> Passed {
            let start = Instant::now();
            while start.elapsed() < self.0 {
                std::hint::spin_loop();
            }
            Passed::count(usize::from(!self.0.is_zero()))
        }

        fn arm(&mut self) -> bool {
            !self.0.is_zero()
        }
    }

    fn start() -> Workers {
        Workers::start(&[None, None], Polling::Spin(Duration::ZERO), &Fault::new().unwrap()).unwrap()
    }

    fn place(workers: &mut Workers, micros: u64) -> TaskId {
        workers.place(Box::new(Works(Duration::from_micros(micros))))
    }

    /// Objective: two busy tasks that came to the same worker are on two workers after a few periods, and stay there.
    #[test]
    fn busy_tasks_part() {
        let mut workers = start();
        let tasks = [20, 0, 5].map(|micros| place(&mut workers, micros));
        let at = |workers: &Workers| tasks.map(|task| workers.worker_of(task).unwrap());
        assert_eq!(at(&workers), [0, 1, 0]);
        let mut ticks_until = |done: &mut dyn FnMut(&Workers) -> bool| {
            let tick = || {
                assert!(workers.tick(Instant::now()) <= IDLE_PERIOD);
                done(&workers)
            };
            assert!(netvale_harness::until(Duration::from_secs(60), Duration::from_millis(1), tick));
        };
        ticks_until(&mut |workers| at(workers)[0] != at(workers)[2]);
        let (mut periods, mut last) = (0, Instant::now());
        ticks_until(&mut |workers| {
            assert_ne!(at(workers)[0], at(workers)[2]);
            periods += u32::from(std::mem::replace(&mut last, workers.ended) != workers.ended);
            periods > 3
        });
        workers.retire(&tasks);
        assert_eq!(tasks.map(|task| workers.worker_of(task)), [None; 3]);
    }

    /// Objective: a new task goes to the worker with less to do, though it has more tasks; an idle daemon looks seldom, and one
    /// with a single worker never.
    #[test]
    fn where_new_tasks_go() {
        let mut workers = start();
        let idle = |workers: &mut Workers| place(workers, 0);
        assert_eq!(workers.tick(workers.ended + PERIOD), IDLE_PERIOD);
        let first = [(); 4].map(|()| idle(&mut workers));
        assert_eq!(first.map(|task| workers.worker_of(task).unwrap()), [0, 1, 0, 1]);
        workers.measure(workers.ended + PERIOD);
        workers.busy[0].last = workers.length / 2;
        // Five tenths are as much as five new tasks; then the number of tasks decides.
        let next = [(); 6].map(|()| idle(&mut workers));
        assert_eq!(next.map(|task| workers.worker_of(task).unwrap()), [1, 1, 1, 1, 1, 0]);
        let mut one = Workers::start(&[None], Polling::Spin(Duration::ZERO), &Fault::new().unwrap()).unwrap();
        assert_eq!(one.tick(one.ended + PERIOD), Duration::MAX);
    }
}
