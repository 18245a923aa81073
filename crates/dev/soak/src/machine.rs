//! The machine's part of the daemons' waits: workers wait for a CPU, the host takes the CPU away, or the kernel removes
//! a network device. A daemon cannot prevent any of these.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of the checks.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval at which threads are looked up.
const SEARCH: Duration = Duration::from_millis(200);
/// Threads of each daemon on which bystanders' frames depend: the shared workers (the workers of single users have
/// higher numbers), and the thread that reads a replayed file.
const NEEDED: [&[&str]; 2] = [&["netvale-w0", "netvale-w1", "netvale-replay"], &["netvale-w0"]];
/// Parts of the names of kernel functions in which a thread waits while it removes a network device.
const ENDS_DEVICE: [&str; 4] = ["rcu", "netdev", "rtnl", "synchronize_net"];
/// Nanoseconds per tick of /proc/stat (USER_HZ).
const TICK: u64 = 10_000_000;

/// The process ids of both daemons; 0: not running.
pub type BothProcesses = [AtomicU32; 2];

/// Time that the machine has taken from each daemon so far.
#[derive(Default)]
pub struct GoneTime {
    /// The daemons' process ids.
    pub processes: Arc<BothProcesses>,
    gone: [AtomicU64; 2],
    looker: Mutex<TimeLooker>,
}

impl GoneTime {
    /// Returns the time that the first daemon had lost at the last check or, if `needs_second` is true, the sum of the
    /// times that both daemons had lost.
    pub fn of(&self, needs_second: bool) -> Duration {
        let which = if needs_second { &self.gone[..] } else { &self.gone[..1] };
        Duration::from_nanos(which.iter().map(|gone| gone.load(Ordering::Relaxed)).sum())
    }

    /// Like [`GoneTime::of`], but checks first, so that the time is up to date.
    pub fn now(&self, needs_second: bool) -> Duration {
        self.look();
        self.of(needs_second)
    }

    fn look(&self) {
        let mut looker = self.looker.lock().unwrap_or_else(PoisonError::into_inner);
        let more = looker.look(&self.processes);
        self.gone.iter().zip(more).for_each(|(gone, more)| _ = gone.fetch_add(more, Ordering::Relaxed));
    }
}

/// The thread that regularly checks how much time the daemons lose.
pub struct MachineProbe {
    /// The time lost so far.
    pub gone: Arc<GoneTime>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MachineProbe {
    /// Starts checking. [`MachineProbe::look_at`] sets the daemons.
    pub fn start() -> std::io::Result<MachineProbe> {
        let gone = Arc::<GoneTime>::default();
        let over = Arc::<AtomicBool>::default();
        let found = Arc::clone(&gone);
        let is_over = Arc::clone(&over);
        let run = move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                found.look();
            }
        };
        let thread = std::thread::Builder::new().name("soak-machine".into()).spawn(run)?;
        Ok(MachineProbe { gone, over, thread: Some(thread) })
    }

    /// Sets the daemons' process ids.
    pub fn look_at(&self, processes: [u32; 2]) {
        self.gone.processes.iter().zip(processes).for_each(|(known, now)| known.store(now, Ordering::Relaxed));
    }
}

impl Drop for MachineProbe {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread has stored its findings already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns a thread's run delay from schedstat: nanoseconds for which it was ready but had no CPU; `None` if the thread
/// has ended.
pub fn waited(schedstat: &File) -> Option<u64> {
    read(schedstat).split(' ').nth(1)?.trim().parse().ok()
}

fn read(file: &File) -> String {
    let mut room = [0; 512];
    // The thread may have ended.
    let got = file.read_at(&mut room, 0).unwrap_or(0);
    String::from_utf8_lossy(&room[..got]).into_owned()
}

/// A worker's files in /proc.
struct SharedWorker {
    schedstat: File,
    wchan: File,
    waited: u64,
}

impl SharedWorker {
    fn open(task: &Path) -> Option<SharedWorker> {
        let open = |name: &str| File::open(task.join(name)).ok();
        let schedstat = open("schedstat")?;
        Some(SharedWorker { waited: waited(&schedstat)?, schedstat, wchan: open("wchan")? })
    }

    /// Returns the nanoseconds that the worker has lost since the last check, which was `since` ago.
    fn look(&mut self, since: Duration) -> u64 {
        let before = self.waited;
        self.waited = waited(&self.schedstat).unwrap_or(before);
        let place = read(&self.wchan);
        let ends_device = ENDS_DEVICE.iter().any(|name| place.contains(name));
        self.waited.saturating_sub(before) + if ends_device { since.as_nanos() as u64 } else { 0 }
    }
}

/// Finds the threads of a process that have these names.
fn threads(process: u32, names: &[&str]) -> Vec<SharedWorker> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let is_needed = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| names.contains(&name.trim()))
    };
    tasks.filter(is_needed).filter_map(|task| SharedWorker::open(&task.path())).collect()
}

/// One daemon's workers.
#[derive(Default)]
struct OfDaemon {
    process: u32,
    workers: Vec<SharedWorker>,
    searched: Option<Instant>,
}

impl OfDaemon {
    fn find(&mut self, process: u32, names: &[&str]) {
        let is_old = self.searched.is_none_or(|at| at.elapsed() > SEARCH);
        if process != self.process || (self.workers.len() < names.len() && is_old) {
            *self = OfDaemon { process, workers: threads(process, names), searched: Some(Instant::now()) };
        }
    }
}

/// The state of the checks of both daemons.
#[derive(Default)]
struct TimeLooker {
    known: [OfDaemon; 2],
    /// The kernel threads that process frames deferred by interrupts: of TAPs, veth pairs and sockets. `None` before
    /// the first check.
    kernel: Option<Vec<SharedWorker>>,
    last: Option<Instant>,
    stolen: u64,
}

impl TimeLooker {
    /// Returns the nanoseconds lost since the last check.
    fn look(&mut self, processes: &BothProcesses) -> [u64; 2] {
        let since = self.last.replace(Instant::now()).map_or(Duration::ZERO, |last| last.elapsed());
        let before = std::mem::replace(&mut self.stolen, stolen_ticks());
        let stolen = if since.is_zero() { 0 } else { TICK * self.stolen.saturating_sub(before) };
        let kernel = longest(self.kernel.get_or_insert_with(of_kernel), since);
        let mut more = [stolen + kernel, 0];
        for (number, known) in self.known.iter_mut().enumerate() {
            known.find(processes[number].load(Ordering::Relaxed), NEEDED[number]);
            more[number] += longest(&mut known.workers, since);
        }
        more
    }
}

/// Returns the largest loss of any worker, an upper bound for the worker that a bystander needs.
fn longest(workers: &mut [SharedWorker], since: Duration) -> u64 {
    workers.iter_mut().map(|worker| worker.look(since)).max().unwrap_or(0)
}

/// Finds the kernel threads that process deferred frames (ksoftirqd), one for each CPU.
fn of_kernel() -> Vec<SharedWorker> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |process: &fs::DirEntry| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes.filter(is_one).filter_map(|process| SharedWorker::open(&process.path())).collect()
}

/// Returns the ticks that the host has stolen from all CPUs (proc_stat(5)).
fn stolen_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    all.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
