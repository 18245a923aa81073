//! Worker threads and their tasks. A new task is placed on the least loaded worker, and may move to another worker when
//! the loads change.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_port::domain::TimeDomain;
use netvale_switch::{PortId, Switch, WaitingFrames};

use super::balance::{self, TaskLoad, TaskMove};
use crate::worker::parking::{self, ParkedWorkers, PauseState};
use crate::worker::{Polling, TaskId, Worker, WorkerTask};

/// How long to wait for workers to acknowledge the commands for a port. The main thread must serve other requests, so
/// it waits no longer for a busy worker.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Budget of time for which the main thread waits for trusted workers to drop tasks, in addition to [`TIMEOUT`] for
/// each port. Even on a busy machine, a port's interface must have been removed before its name is used again.
const RETIRING: Duration = Duration::from_secs(1);
/// Budget of time for which the main thread waits for one user's worker.
const PATIENCE: Duration = Duration::from_millis(100);
/// Divisor of the elapsed time: one tenth of the elapsed time is returned to the budget.
const COMES_BACK: u32 = 10;
/// The first part of each wait, which is not charged to the budget.
const PROMPT: Duration = Duration::from_millis(1);
/// Interval of load comparisons while a worker is busy.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest interval of load comparisons while no worker is busy. If other events wake the main thread, loads are
/// compared earlier.
const IDLE_PERIOD: Duration = Duration::from_secs(10);
/// Time for which a moved task stays on its worker.
const STAY: Duration = Duration::from_secs(10);
/// Number of parts into which a period is divided. A worker counts as busy if it works for more than one part of the
/// period. When a new task is placed, loads are compared in whole parts.
const PART: u64 = 10;

/// Maximum number of workers of untrusted users.
const MOST_OWN: usize = 256;

/// The increase of a counter in one period.
#[derive(Default)]
struct PeriodCount {
    before: u64,
    last: u64,
}

impl PeriodCount {
    /// Starts a period; `now` is the counter's present value.
    fn turn(&mut self, now: u64) {
        self.last = now.saturating_sub(self.before);
        self.before = now;
    }
}

/// A task's worker, and the time that the task takes.
struct TaskPlace {
    worker: usize,
    /// Time in nanoseconds that the task has taken. The task's worker counts it.
    taken: Arc<AtomicU64>,
    count: PeriodCount,
    /// Whether the task was placed less than a period ago.
    is_new: bool,
    stays_until: Option<Instant>,
}

/// A worker of one untrusted user.
struct UserWorker {
    number: usize,
    worker: Worker,
    patience: WaitBudget,
}

/// Budget of time for which the main thread waits for a user's worker. Without this budget, a user could occupy the
/// main thread by attaching and detaching many ports while the user's worker answers each command a little late.
struct WaitBudget {
    full: Duration,
    /// Longest single wait.
    most: Duration,
    left: Cell<Duration>,
    at: Cell<Instant>,
}

impl WaitBudget {
    fn new(full: Duration, most: Duration, now: Instant) -> WaitBudget {
        WaitBudget { full, most, left: Cell::new(full), at: Cell::new(now) }
    }

    /// Returns the longest wait for the next answer.
    fn left(&self, now: Instant) -> Duration {
        let back = now.saturating_duration_since(self.at.replace(now)) / COMES_BACK;
        self.left.set((self.left.get() + back).min(self.full));
        self.left.get().min(self.most)
    }

    /// Charges a wait of length `time` to the budget.
    fn took(&self, time: Duration) {
        self.left.set(self.left.get().saturating_sub(time.saturating_sub(PROMPT)));
    }
}

/// All workers.
pub struct Workers {
    /// Workers of the trusted domain (root and the daemon's own user).
    all: Vec<Worker>,
    /// Workers of untrusted users. A worker ends when it has no tasks.
    own: Vec<UserWorker>,
    /// Workers that have been told to end because they have no tasks, but have not ended yet.
    leaving: Vec<Worker>,
    polling: Polling,
    fault: Fault,
    /// State of the last pause of all workers. A worker that is started during the pause is added to it.
    pausing: PauseState,
    /// Budget of time for trusted workers' late answers when tasks are removed.
    retiring: WaitBudget,
    /// For each worker, the nanoseconds for which it was busy.
    busy: Vec<PeriodCount>,
    tasks: BTreeMap<TaskId, TaskPlace>,
    /// Number of tasks placed on each worker in this period.
    new: Vec<u64>,
    next: TaskId,
    /// End of the last period.
    ended: Instant,
    /// Length of the last period in nanoseconds.
    length: u64,
}

impl Workers {
    /// Starts one worker for each entry of `cpus`, pinned to that CPU, or unpinned if the entry is `None`. Panics of
    /// tasks are reported through `fault`.
    ///
    /// # Errors
    /// Fails if a thread, an eventfd or an epoll set cannot be created.
    pub fn start(cpus: &[Option<usize>], polling: Polling, fault: &Fault) -> std::io::Result<Workers> {
        let start =
            |(i, &cpu): (usize, &Option<usize>)| Worker::start(i, cpu, polling, fault.clone(), TimeDomain::TRUSTED);
        let all: Vec<_> = cpus.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let busy = all.iter().map(|_| PeriodCount::default()).collect();
        let new = vec![0; all.len()];
        let (own, leaving, tasks, pausing) = Default::default();
        let fault = fault.clone();
        let ended = Instant::now();
        let retiring = WaitBudget::new(RETIRING, RETIRING, ended);
        Ok(Workers {
            all,
            own,
            leaving,
            polling,
            fault,
            pausing,
            retiring,
            busy,
            tasks,
            new,
            next: 1,
            ended,
            length: 1,
        })
    }

    /// Returns the workers of the trusted domain, by number.
    pub fn all(&self) -> &[Worker] {
        &self.all
    }

    /// Iterates over all workers, each with its number.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Worker)> {
        self.all.iter().enumerate().chain(self.own.iter().map(|own| (own.number, &own.worker)))
    }

    /// Returns all workers.
    pub fn list(&self) -> Vec<&Worker> {
        self.each().map(|(_, worker)| worker).collect()
    }

    fn get(&self, number: usize) -> Option<&Worker> {
        self.all.get(number).or_else(|| Some(&self.own.iter().find(|own| own.number == number)?.worker))
    }

    /// Starts a worker for the domain if the domain has no worker, or if it has fewer than `most` workers and all of
    /// them have tasks. If this succeeds, tasks of the domain can be placed.
    ///
    /// # Errors
    /// Fails if a system call for threads fails. Fails with `EAGAIN` if the domain has no worker and the number of
    /// workers is at its maximum.
    pub fn begin(&mut self, domain: TimeDomain, most: usize) -> std::io::Result<()> {
        let has_room = |own: &UserWorker| own.worker.tasks() == 0;
        let has = self.own_of(domain).count();
        if domain == TimeDomain::TRUSTED || has > 0 && (has >= most || self.own_of(domain).any(has_room)) {
            return Ok(());
        }
        if !self.has_room_for(domain) {
            return Err(std::io::Error::from(rustix::io::Errno::AGAIN));
        }
        if has > 0 && self.are_many() {
            return Ok(());
        }
        let is_free = |number: &usize| self.get(*number).is_none();
        let number = (self.all.len()..).find(is_free).unwrap_or(usize::MAX);
        let worker = Worker::start(number, None, self.polling, self.fault.clone(), domain)?;
        self.pausing.include(&worker);
        self.own.push(UserWorker { number, worker, patience: WaitBudget::new(PATIENCE, TIMEOUT, Instant::now()) });
        Ok(())
    }

    /// Whether tasks of that domain can be placed, because the domain has a worker, or may get a worker.
    pub fn has_room_for(&self, domain: TimeDomain) -> bool {
        let is_there = domain == TimeDomain::TRUSTED || self.own_of(domain).next().is_some();
        is_there || domain == TimeDomain::SOMEBODY || !self.are_many()
    }

    /// Whether the number of workers of untrusted users has reached the maximum.
    fn are_many(&self) -> bool {
        self.own.len() + self.leaving.len() >= MOST_OWN
    }

    /// Returns the number of the worker for a new task of that domain; `None` if the domain has no worker.
    fn number_of(&self, domain: TimeDomain) -> Option<usize> {
        if domain == TimeDomain::TRUSTED {
            return Some(self.least());
        }
        self.own_of(domain).min_by_key(|own| own.worker.tasks()).map(|own| own.number)
    }

    fn own_of(&self, domain: TimeDomain) -> impl Iterator<Item = &UserWorker> {
        self.own.iter().filter(move |own| own.worker.domain() == domain)
    }

    /// Ends the workers of untrusted users that have no tasks.
    fn end_idle(&mut self) {
        let is_idle = |own: &mut UserWorker| own.worker.tasks() == 0;
        for UserWorker { worker, .. } in self.own.extract_if(.., is_idle) {
            worker.stop();
            self.leaving.push(worker);
        }
    }

    /// Returns the number of a task's worker; `None` if there is no such task.
    pub fn worker_of(&self, task: TaskId) -> Option<usize> {
        self.tasks.get(&task).map(|place| place.worker)
    }

    /// Returns the domain of a task's worker; if there is no such task, returns the trusted domain.
    pub fn domain_of(&self, task: TaskId) -> TimeDomain {
        let worker = self.worker_of(task).and_then(|number| self.get(number));
        worker.map_or(TimeDomain::TRUSTED, Worker::domain)
    }

    /// Returns the user of a task's worker; `None` for the trusted domain.
    pub fn user_of(&self, task: TaskId) -> Option<u32> {
        self.domain_of(task).user()
    }

    /// Places a task on the least loaded worker of the trusted domain.
    pub fn place(&mut self, task: WorkerTask) -> TaskId {
        self.place_for(TimeDomain::TRUSTED, task)
    }

    /// Places a task on a worker of the domain. [`begin`](Workers::begin) must have been called for the domain.
    pub fn place_for(&mut self, domain: TimeDomain, task: WorkerTask) -> TaskId {
        let id = self.next;
        let worker = self.number_of(domain).unwrap_or_default();
        self.next += 1;
        if let Some(w) = self.get(worker) {
            let place = TaskPlace {
                worker,
                taken: w.add(id, task),
                count: PeriodCount::default(),
                is_new: true,
                stays_until: None,
            };
            self.tasks.insert(id, place);
            self.new.get_mut(worker).into_iter().for_each(|new| *new += 1);
        }
        id
    }

    /// Returns the worker with the lowest load in the last period; among workers with equal loads, the worker with the
    /// fewest tasks. Each task placed since then counts as a tenth of a period, because its load is unknown.
    fn least(&self) -> usize {
        let load = |&worker: &usize| {
            let parts = self.busy.get(worker).map_or(0, |busy| busy.last * PART / self.length);
            let tasks = self.all.get(worker).map_or(0, Worker::tasks);
            (parts + self.new.get(worker).copied().unwrap_or_default(), tasks)
        };
        (0..self.all.len()).min_by_key(load).unwrap_or(0)
    }

    /// Moves a task if a period is over and a move would relieve a busy worker. Returns the time until the next call.
    pub fn tick(&mut self, now: Instant) -> Duration {
        self.end_idle();
        self.leaving.retain(|worker| !worker.has_ended());
        let again = if self.leaving.is_empty() { Duration::MAX } else { PERIOD };
        if self.all.len() < 2 {
            return again;
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
        (self.ended + period).saturating_duration_since(now).min(again)
    }

    /// Ends the current period, and computes the workers' and the tasks' times in that period.
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
        self.new.fill(0);
    }

    fn is_busy(&self) -> bool {
        self.busy.iter().any(|busy| busy.last > self.length / PART)
    }

    /// Returns each task's share of its worker's busy time. Only some rounds are timed, so the measured times of a
    /// worker's tasks are scaled so that their sum is the worker's busy time.
    fn loads(&self, now: Instant) -> Vec<TaskLoad> {
        let mut sums = vec![0u64; self.all.len()];
        // Tasks of untrusted users are not moved: they stay on their users' workers.
        let tasks = || self.tasks.iter().filter(|(_, place)| place.worker < self.all.len());
        tasks().for_each(|(_, place)| sums[place.worker] += place.count.last);
        let load = |(&task, place): (&TaskId, &TaskPlace)| {
            let sum = sums[place.worker].max(1);
            let busy = self.busy[place.worker].last;
            let time = u128::from(place.count.last) * u128::from(busy) / u128::from(sum);
            let stays = place.stays_until.is_some_and(|until| now < until);
            TaskLoad { task, worker: place.worker, time: time as u64, stays }
        };
        tasks().map(load).collect()
    }

    fn carry_out(&mut self, TaskMove { task, to }: TaskMove, now: Instant) {
        let Some(place) = self.tasks.get_mut(&task) else { return };
        let (Some(here), Some(there)) = (self.all.get(place.worker), self.all.get(to)) else { return };
        // If the move fails, it is not retried immediately either.
        place.stays_until = Some(now + STAY);
        if here.move_to(task, there) {
            tracing::debug!(task, from = place.worker, to, "moved a task to a worker with less load");
            place.worker = to;
        }
    }

    /// Returns the tasks that panicked since the last call.
    pub fn take_broken(&self) -> Vec<TaskId> {
        self.each().flat_map(|(_, worker)| worker.take_broken()).collect()
    }

    /// Removes tasks. When this function returns, the tasks and the resources that they own have been dropped, unless
    /// dropping them takes longer than [`TIMEOUT`] and the budget of time for late tasks is used up.
    pub fn retire(&mut self, tasks: &[TaskId]) {
        let begun = Instant::now();
        let is_trusted = self.of(tasks).all(|(worker, _)| worker.domain() == TimeDomain::TRUSTED);
        self.ask(tasks, self.retiring.left(begun).max(TIMEOUT), Worker::remove);
        if is_trusted {
            self.retiring.took(begun.elapsed());
        }
        let gone = tasks.iter().filter_map(|task| self.tasks.remove(task)).filter(|place| place.is_new);
        gone.for_each(|place| self.new.get_mut(place.worker).into_iter().for_each(|new| *new -= 1));
        self.end_idle();
    }

    /// Waits at most [`TIMEOUT`] until tasks have forwarded the frames that are left in their ingresses.
    pub fn drain(&self, tasks: &[TaskId]) {
        self.ask(tasks, TIMEOUT, Worker::drain);
    }

    /// Like [`Workers::drain`], for a port that ends: frames that find no room are counted as dropped.
    pub fn finish(&self, tasks: &[TaskId]) {
        self.ask(tasks, TIMEOUT, Worker::finish);
    }

    fn ask(&self, tasks: &[TaskId], limit: Duration, command: impl Fn(&Worker, TaskId) -> Receiver<()>) {
        let begun = Instant::now();
        let patience = |w: &Worker| self.own_of(w.domain()).next().map(|own| &own.patience);
        let answers: Vec<_> = self.of(tasks).map(|(w, id)| (command(w, id), patience(w))).collect();
        for (answer, patience) in answers {
            let now = Instant::now();
            let limit = patience.map_or(limit, |patience| patience.left(now));
            // If no time is left, this only polls for the answer.
            let _ = answer.recv_timeout((begun + limit).saturating_duration_since(now));
            patience.into_iter().for_each(|patience| patience.took(now.elapsed()));
        }
    }

    /// Keeps the workers of these tasks awake, or lets them sleep again.
    pub fn keep_awake(&self, tasks: &[TaskId], on: bool) {
        self.of(tasks).for_each(|(w, id)| w.keep_awake(id, on));
    }

    /// Makes these forwarding tasks send from port `from` of `switch`.
    pub fn rehome(&self, tasks: &[TaskId], switch: &Arc<Switch>, from: PortId) {
        self.of(tasks).for_each(|(w, id)| w.rehome(id, Arc::clone(switch), from));
    }

    /// Parks all workers, including workers that are started during the pause.
    ///
    /// # Errors
    /// The domains of the workers that a peer blocks. In this case, all workers resume.
    pub fn park(&mut self) -> Result<ParkedWorkers, Vec<TimeDomain>> {
        let parked = parking::park(self.each().map(|(_, worker)| worker))?;
        self.pausing = PauseState::of(&parked);
        Ok(parked)
    }

    /// Gives a restored task the frames that waited for room at a receiver in the predecessor.
    pub fn wait_with(&self, task: TaskId, waiting: Vec<WaitingFrames>) {
        if let Some(worker) = self.worker_of(task).and_then(|worker| self.get(worker)) {
            worker.wait_with(task, waiting);
        }
    }

    fn of<'a>(&'a self, tasks: &'a [TaskId]) -> impl Iterator<Item = (&'a Worker, TaskId)> {
        tasks.iter().filter_map(|&id| Some((self.get(self.worker_of(id)?)?, id)))
    }
}

impl Drop for Workers {
    /// Ends all workers, in parallel.
    fn drop(&mut self) {
        self.each().for_each(|(_, worker)| worker.stop());
    }
}

#[cfg(test)]
mod tests {
    use netvale_port::{PassResult, Task};
    use netvale_switch::ForwardMemory;

    use super::*;

    /// A task whose every pass takes the given time.
    struct Works(Duration);

    impl Task<ForwardMemory> for Works {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            let start = Instant::now();
            while start.elapsed() < self.0 {
                std::hint::spin_loop();
            }
            PassResult::count(usize::from(!self.0.is_zero()))
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

    /// Objective: two busy tasks on one worker are separated within a few periods, and stay on different workers.
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
        let mut periods = 0;
        let mut last = Instant::now();
        ticks_until(&mut |workers| {
            assert_ne!(at(workers)[0], at(workers)[2]);
            periods += u32::from(std::mem::replace(&mut last, workers.ended) != workers.ended);
            periods > 3
        });
        workers.retire(&tasks);
        assert_eq!(tasks.map(|task| workers.worker_of(task)), [None; 3]);
    }

    /// Objective: a user's tasks run on that user's own worker, which runs only that user's tasks and exists only as
    /// long as there are such tasks.
    #[test]
    fn users_have_workers_of_their_own() {
        let mut workers = start();
        let users = [7, 8].map(TimeDomain::of_user);
        let tasks = users.map(|user| {
            workers.begin(user, 1).unwrap();
            workers.place_for(user, Box::new(Works(Duration::ZERO)))
        });
        let trusted = [(); 3].map(|()| place(&mut workers, 0));
        assert_eq!(tasks.map(|task| workers.worker_of(task)), [Some(2), Some(3)]);
        assert!(trusted.iter().all(|&task| workers.worker_of(task) < Some(2)));
        workers.retire(&tasks[..1]);
        assert_eq!(workers.each().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1, 3]);
        workers.begin(users[0], 1).unwrap();
        assert_eq!(workers.each().count(), 4);
        // A worker without tasks ends at the next tick.
        let has_ended = || workers.tick(Instant::now()) <= IDLE_PERIOD && workers.leaving.is_empty();
        assert!(netvale_harness::until(Duration::from_secs(60), Duration::from_millis(1), has_ended));
        assert_eq!(workers.each().count(), 3);
    }

    /// A task that reports its passes.
    struct Begins(std::sync::mpsc::Sender<()>);

    impl Task<ForwardMemory> for Begins {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            let _ = self.0.send(());
            PassResult::Idle
        }

        fn arm(&mut self) -> bool {
            true
        }
    }

    /// Objective: a user's worker that starts during a pause runs no task before the pause ends, because the tasks
    /// could send to ports that do not exist yet.
    #[test]
    fn workers_that_are_started_during_a_pause() {
        let mut workers = start();
        let (begins, begun) = std::sync::mpsc::channel();
        let parked = workers.park().unwrap();
        let domains = [TimeDomain::of_user(7), TimeDomain::TRUSTED, TimeDomain::of_user(8)];
        for domain in domains {
            workers.begin(domain, 1).unwrap();
            workers.place_for(domain, Box::new(Begins(begins.clone())));
        }
        // A task that is removed during the pause is dropped.
        let (begins, begun_and_gone) = std::sync::mpsc::channel();
        let gone = workers.place_for(domains[0], Box::new(Begins(begins)));
        workers.retire(&[gone]);
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err());
        drop(parked);
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let gone = begun_and_gone.recv_timeout(Duration::from_secs(60));
        assert_eq!(gone, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
        // After the pause, tasks start immediately.
        let (begins, begun) = std::sync::mpsc::channel();
        workers.begin(TimeDomain::of_user(9), 1).unwrap();
        workers.place_for(TimeDomain::of_user(9), Box::new(Begins(begins)));
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    /// Objective: a domain with several workers gets another worker while all of its workers have tasks, and spreads
    /// its tasks over them.
    #[test]
    fn a_domain_with_several_workers() {
        let mut workers = start();
        let user = TimeDomain::of_user(7);
        let place = |workers: &mut Workers| {
            workers.begin(user, 2).unwrap();
            let task = workers.place_for(user, Box::new(Works(Duration::ZERO)));
            assert_eq!(workers.domain_of(task), user);
            workers.worker_of(task)
        };
        assert_eq!([(); 5].map(|()| place(&mut workers)), [2, 3, 2, 3, 2].map(Some));
    }

    /// Objective: at the maximum number of workers, a domain that has a worker gets no second worker, which is no
    /// error; the domain of unknown users always gets a worker.
    #[test]
    fn as_many_as_there_can_be() {
        let mut workers = start();
        for uid in 0..MOST_OWN as u32 {
            workers.begin(TimeDomain::of_user(uid), 1).unwrap();
        }
        assert!(!workers.has_room_for(TimeDomain::of_user(1000)));
        assert!(workers.begin(TimeDomain::of_user(1000), 1).is_err());
        workers.place_for(TimeDomain::of_user(5), Box::new(Works(Duration::ZERO)));
        workers.begin(TimeDomain::of_user(5), 2).unwrap();
        workers.begin(TimeDomain::SOMEBODY, 2).unwrap();
        let somebodys = workers.place_for(TimeDomain::SOMEBODY, Box::new(Works(Duration::ZERO)));
        assert_eq!(workers.domain_of(somebodys), TimeDomain::SOMEBODY);
        assert_eq!(workers.own.len(), MOST_OWN + 1);
    }

    /// Objective: many tasks that answer late delay the caller only a little, and the budget for the user's worker is
    /// restored later.
    #[test]
    fn users_have_little_of_the_callers_time() {
        let mut workers = start();
        let user = TimeDomain::of_user(7);
        workers.begin(user, 1).unwrap();
        let tasks = [(); 60].map(|()| workers.place_for(user, Box::new(Works(Duration::from_millis(40)))));
        let begun = Instant::now();
        tasks.iter().for_each(|&task| workers.finish(&[task]));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(workers.own[0].patience.left(Instant::now() + Duration::from_secs(60)), TIMEOUT);
        workers.retire(&tasks);
    }

    /// A task that records that it was dropped, and whose drop takes long.
    struct LateDrop(Arc<AtomicU64>);

    impl Task<ForwardMemory> for LateDrop {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            PassResult::Idle
        }
    }

    impl Drop for LateDrop {
        fn drop(&mut self) {
            std::thread::sleep(4 * TIMEOUT);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Objective: the removal of a trusted task waits until the task is dropped, even if that takes long; but many such
    /// tasks delay the caller only a little.
    #[test]
    fn late_drops_are_awaited_within_a_budget() {
        let mut workers = start();
        let dropped = Arc::new(AtomicU64::new(0));
        let task =
            |workers: &mut Workers| workers.place_for(TimeDomain::TRUSTED, Box::new(LateDrop(Arc::clone(&dropped))));
        let first = task(&mut workers);
        workers.retire(&[first]);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        let others = [(); 40].map(|()| task(&mut workers));
        let begun = Instant::now();
        others.iter().for_each(|&task| workers.retire(&[task]));
        assert!(begun.elapsed() < 40 * 3 * TIMEOUT, "{:?}", begun.elapsed());
    }

    /// Objective: a new task goes to the worker with the lower load, even if that worker has more tasks; an idle daemon
    /// seldom compares loads, and a daemon with a single worker never.
    #[test]
    fn where_new_tasks_go() {
        let mut workers = start();
        let idle = |workers: &mut Workers| place(workers, 0);
        assert_eq!(workers.tick(workers.ended + PERIOD), IDLE_PERIOD);
        let first = [(); 4].map(|()| idle(&mut workers));
        assert_eq!(first.map(|task| workers.worker_of(task).unwrap()), [0, 1, 0, 1]);
        workers.measure(workers.ended + PERIOD);
        workers.busy[0].last = workers.length / 2;
        // Worker 0 has a load of five tenths, so the idle worker 1 gets five new tasks until both loads count as equal.
        // After that, the number of tasks decides.
        let next = [(); 6].map(|()| idle(&mut workers));
        assert_eq!(next.map(|task| workers.worker_of(task).unwrap()), [1, 1, 1, 1, 1, 0]);
        let mut one = Workers::start(&[None], Polling::Spin(Duration::ZERO), &Fault::new().unwrap()).unwrap();
        assert_eq!(one.tick(one.ended + PERIOD), Duration::MAX);
    }
}
