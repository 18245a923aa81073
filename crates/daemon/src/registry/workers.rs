//! The worker threads, and the tasks of each: a new one goes to the worker with the least to do, and moves when that
//! has changed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_port::domain::TimeDomain;
use netvale_switch::{PortId, Switch, WaitingFrames};

use super::balance::{self, Load, Move};
use crate::worker::parking::{self, Parked, Pausing};
use crate::worker::{Job, Polling, TaskId, Worker};

/// Upper bound on waiting for workers to acknowledge the commands for a port. A worker that takes longer is busy with
/// ports, which matter more.
const TIMEOUT: Duration = Duration::from_millis(50);
/// How long one user's worker may have the main thread wait in all, and the part of the time since that comes back. An
/// answer within `PROMPT` costs nothing.
const PATIENCE: Duration = Duration::from_millis(100);
const COMES_BACK: u32 = 10;
const PROMPT: Duration = Duration::from_millis(1);
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

/// Most workers of users at a time.
const MOST_OWN: usize = 256;

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

/// A user's own worker.
struct UserWorker {
    number: usize,
    worker: Worker,
    patience: Patience,
}

/// How long a user's worker may still be waited for: with many ports that come and go, or with one that comes and goes
/// again and again, each answer a little late, a user would have the main thread's time.
struct Patience {
    left: Cell<Duration>,
    at: Cell<Instant>,
}

impl Patience {
    fn new(now: Instant) -> Patience {
        Patience { left: Cell::new(PATIENCE), at: Cell::new(now) }
    }

    /// How long an answer may take.
    fn left(&self, now: Instant) -> Duration {
        let back = now.saturating_duration_since(self.at.replace(now)) / COMES_BACK;
        self.left.set((self.left.get() + back).min(PATIENCE));
        self.left.get().min(TIMEOUT)
    }

    /// An answer was waited for.
    fn took(&self, time: Duration) {
        self.left.set(self.left.get().saturating_sub(time.saturating_sub(PROMPT)));
    }
}

/// All workers.
pub struct Workers {
    /// Those of all who are trusted.
    all: Vec<Worker>,
    /// Those of other users, while they have tasks.
    own: Vec<UserWorker>,
    /// Those that have no tasks any more, until they have ended.
    leaving: Vec<Worker>,
    polling: Polling,
    fault: Fault,
    /// Whether all pause.
    pausing: Pausing,
    /// Nanoseconds that each was busy.
    busy: Vec<Count>,
    tasks: BTreeMap<TaskId, Place>,
    /// How many tasks of each are there for less than a period.
    new: Vec<u64>,
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
        let start =
            |(i, &cpu): (usize, &Option<usize>)| Worker::start(i, cpu, polling, fault.clone(), TimeDomain::TRUSTED);
        let all: Vec<_> = cpus.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let busy = all.iter().map(|_| Count::default()).collect();
        let new = vec![0; all.len()];
        let (own, leaving, tasks, pausing) = Default::default();
        let fault = fault.clone();
        let ended = Instant::now();
        Ok(Workers { all, own, leaving, polling, fault, pausing, busy, tasks, new, next: 1, ended, length: 1 })
    }

    /// The workers of all who are trusted, by number.
    pub fn all(&self) -> &[Worker] {
        &self.all
    }

    /// All workers with their numbers.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Worker)> {
        self.all.iter().enumerate().chain(self.own.iter().map(|own| (own.number, &own.worker)))
    }

    /// All workers.
    pub fn list(&self) -> Vec<&Worker> {
        self.each().map(|(_, worker)| worker).collect()
    }

    fn get(&self, number: usize) -> Option<&Worker> {
        self.all.get(number).or_else(|| Some(&self.own.iter().find(|own| own.number == number)?.worker))
    }

    /// Starts a worker for the domain, if it needs one: it has none, or all have tasks, and it has fewer than `most`.
    /// Its tasks may be placed then.
    ///
    /// # Errors
    /// Whatever the system calls for threads return; `EAGAIN` if there are as many as there can be, and none of it.
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
        self.own.push(UserWorker { number, worker, patience: Patience::new(Instant::now()) });
        Ok(())
    }

    /// Whether tasks of that domain may be placed: it has a worker, or may have one.
    pub fn has_room_for(&self, domain: TimeDomain) -> bool {
        let is_there = domain == TimeDomain::TRUSTED || self.own_of(domain).next().is_some();
        is_there || domain == TimeDomain::SOMEBODY || !self.are_many()
    }

    /// Whether users have as many workers as they may have.
    fn are_many(&self) -> bool {
        self.own.len() + self.leaving.len() >= MOST_OWN
    }

    /// The worker for a new task of that domain.
    fn number_of(&self, domain: TimeDomain) -> Option<usize> {
        if domain == TimeDomain::TRUSTED {
            return Some(self.least());
        }
        self.own_of(domain).min_by_key(|own| own.worker.tasks()).map(|own| own.number)
    }

    fn own_of(&self, domain: TimeDomain) -> impl Iterator<Item = &UserWorker> {
        self.own.iter().filter(move |own| own.worker.domain() == domain)
    }

    /// Ends workers of users who have no tasks any more.
    fn end_idle(&mut self) {
        let is_idle = |own: &mut UserWorker| own.worker.tasks() == 0;
        for UserWorker { worker, .. } in self.own.extract_if(.., is_idle) {
            worker.stop();
            self.leaving.push(worker);
        }
    }

    /// Number of the worker that has a task.
    pub fn worker_of(&self, task: TaskId) -> Option<usize> {
        self.tasks.get(&task).map(|place| place.worker)
    }

    /// The domain whose worker has a task.
    pub fn domain_of(&self, task: TaskId) -> TimeDomain {
        let worker = self.worker_of(task).and_then(|number| self.get(number));
        worker.map_or(TimeDomain::TRUSTED, Worker::domain)
    }

    /// The user whose own worker has a task. `None`: those who are trusted.
    pub fn user_of(&self, task: TaskId) -> Option<u32> {
        self.domain_of(task).user()
    }

    /// Gives a task to the worker with the least to do.
    pub fn place(&mut self, task: Job) -> TaskId {
        self.place_for(TimeDomain::TRUSTED, task)
    }

    /// Gives a task to a worker of the domain, which was [begun](Workers::begin).
    pub fn place_for(&mut self, domain: TimeDomain, task: Job) -> TaskId {
        let id = self.next;
        let worker = self.number_of(domain).unwrap_or_default();
        self.next += 1;
        if let Some(w) = self.get(worker) {
            let place =
                Place { worker, taken: w.add(id, task), count: Count::default(), is_new: true, stays_until: None };
            self.tasks.insert(id, place);
            self.new.get_mut(worker).into_iter().for_each(|new| *new += 1);
        }
        id
    }

    /// The worker that had the least to do in the last period; among equals, that with the fewest tasks. What a new
    /// task will take is not known: it counts like a part of the period.
    fn least(&self) -> usize {
        let load = |&worker: &usize| {
            let parts = self.busy.get(worker).map_or(0, |busy| busy.last * PART / self.length);
            let tasks = self.all.get(worker).map_or(0, Worker::tasks);
            (parts + self.new.get(worker).copied().unwrap_or_default(), tasks)
        };
        (0..self.all.len()).min_by_key(load).unwrap_or(0)
    }

    /// Moves a task if a period is over and that makes a busy worker's load smaller. Returns the time until the next
    /// call.
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
        self.new.fill(0);
    }

    fn is_busy(&self) -> bool {
        self.busy.iter().any(|busy| busy.last > self.length / PART)
    }

    /// What each task took of the time that its worker was busy: only few rounds are timed, so that their sum may be
    /// more than that, or less.
    fn loads(&self, now: Instant) -> Vec<Load> {
        let mut sums = vec![0u64; self.all.len()];
        // Those of users stay at these users' workers.
        let tasks = || self.tasks.iter().filter(|(_, place)| place.worker < self.all.len());
        tasks().for_each(|(_, place)| sums[place.worker] += place.count.last);
        let load = |(&task, place): (&TaskId, &Place)| {
            let (sum, busy) = (sums[place.worker].max(1), self.busy[place.worker].last);
            let time = u128::from(place.count.last) * u128::from(busy) / u128::from(sum);
            let stays = place.stays_until.is_some_and(|until| now < until);
            Load { task, worker: place.worker, time: time as u64, stays }
        };
        tasks().map(load).collect()
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
        self.each().flat_map(|(_, worker)| worker.take_broken()).collect()
    }

    /// Takes tasks away. When this returns they have been dropped with all they own, unless that takes long.
    pub fn retire(&mut self, tasks: &[TaskId]) {
        self.ask(tasks, Worker::remove);
        let gone = tasks.iter().filter_map(|task| self.tasks.remove(task)).filter(|place| place.is_new);
        gone.for_each(|place| self.new.get_mut(place.worker).into_iter().for_each(|new| *new -= 1));
        self.end_idle();
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
        let begun = Instant::now();
        let patience = |w: &Worker| self.own_of(w.domain()).next().map(|own| &own.patience);
        let answers: Vec<_> = self.of(tasks).map(|(w, id)| (command(w, id), patience(w))).collect();
        for (answer, patience) in answers {
            let now = Instant::now();
            let limit = patience.map_or(TIMEOUT, |patience| patience.left(now));
            // Without time left it only looks.
            let _ = answer.recv_timeout((begun + limit).saturating_duration_since(now));
            patience.into_iter().for_each(|patience| patience.took(now.elapsed()));
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

    /// Parks all workers, and those that are started before they go on.
    ///
    /// # Errors
    /// Whose workers are held up by a peer, if some are: then all go on.
    pub fn park(&mut self) -> Result<Parked, Vec<TimeDomain>> {
        let parked = parking::park(self.each().map(|(_, worker)| worker))?;
        self.pausing = Pausing::of(&parked);
        Ok(parked)
    }

    /// Makes a task begin with frames that waited for room in another process.
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
    /// All of them end at the same time.
    fn drop(&mut self) {
        self.each().for_each(|(_, worker)| worker.stop());
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

    /// Objective: a user's tasks are at a worker of that user's own, which gets nobody else's, and which is there while
    /// they are.
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
        // What has no tasks is not there any more at the next look, and ends.
        let has_ended = || workers.tick(Instant::now()) <= IDLE_PERIOD && workers.leaving.is_empty();
        assert!(netvale_harness::until(Duration::from_secs(60), Duration::from_millis(1), has_ended));
        assert_eq!(workers.each().count(), 3);
    }

    /// A task that says when it begins.
    struct Begins(std::sync::mpsc::Sender<()>);

    impl Task<Work> for Begins {
        fn pass(&mut self, _work: &mut Work) -> Passed {
            let _ = self.0.send(());
            Passed::Idle
        }

        fn arm(&mut self) -> bool {
            true
        }
    }

    /// Objective: a user's worker that is started while all pause does nothing before the others do: a port that is
    /// there already would send to ports that are not there yet.
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
        // One that is taken away again meanwhile is gone.
        let (begins, begun_and_gone) = std::sync::mpsc::channel();
        let gone = workers.place_for(domains[0], Box::new(Begins(begins)));
        workers.retire(&[gone]);
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err());
        drop(parked);
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let gone = begun_and_gone.recv_timeout(Duration::from_secs(60));
        assert_eq!(gone, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
        // Afterwards nobody waits for anything.
        let (begins, begun) = std::sync::mpsc::channel();
        workers.begin(TimeDomain::of_user(9), 1).unwrap();
        workers.place_for(TimeDomain::of_user(9), Box::new(Begins(begins)));
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    /// Objective: a domain that may have several workers has one more as long as all have tasks, and spreads tasks over
    /// them.
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

    /// Objective: where there are as many workers as there can be, more of one domain is no mistake, and of users who
    /// are not known there is always one.
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

    /// Objective: with many tasks that answer late, a user has little of the caller's time; a moment later, some again.
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

    /// Objective: a new task goes to the worker with less to do, though it has more tasks; an idle daemon looks seldom,
    /// and one with a single worker never.
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
