//! The machine's part of the daemons' waits: workers wait for a processor, the host takes the processor away, or the
//! kernel removes a network device. A daemon cannot prevent any of it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of the checks.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval of the searches for threads.
const SEARCH: Duration = Duration::from_millis(200);
/// Threads of each daemon that bystanders' frames need: the shared workers (per-user ones have higher numbers), and the
/// thread that reads a replayed file.
const NEEDED: [&[&str]; 2] = [&["netvale-w0", "netvale-w1", "netvale-replay"], &["netvale-w0"]];
/// Kernel functions in which a thread waits while it removes a network device.
const ENDS_DEVICE: [&str; 4] = ["rcu", "netdev", "rtnl", "synchronize_net"];
/// Nanoseconds of a tick of /proc/stat (USER_HZ).
const TICK: u64 = 10_000_000;

/// The process ids of both daemons; zero if absent.
pub type BothProcesses = [AtomicU32; 2];

/// Nanoseconds lost so far, for each daemon, and their sources.
#[derive(Default)]
pub struct GoneTime {
    /// The daemons' process ids.
    pub processes: Arc<BothProcesses>,
    gone: [AtomicU64; 2],
    looker: Mutex<TimeLooker>,
}

impl GoneTime {
    /// Time lost by the first daemon, or by both, as of the last check.
    pub fn of(&self, needs_second: bool) -> Duration {
        let which = if needs_second { &self.gone[..] } else { &self.gone[..1] };
        Duration::from_nanos(which.iter().map(|gone| gone.load(Ordering::Relaxed)).sum())
    }

    /// Time lost as of now.
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

/// The checking thread.
pub struct Machinery {
    /// Its findings.
    pub gone: Arc<GoneTime>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Machinery {
    /// Starts to check daemons that [`Machinery::look_at`] will name.
    pub fn start() -> std::io::Result<Machinery> {
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
        Ok(Machinery { gone, over, thread: Some(thread) })
    }

    /// Sets the daemons' process ids.
    pub fn look_at(&self, processes: [u32; 2]) {
        self.gone.processes.iter().zip(processes).for_each(|(known, now)| known.store(now, Ordering::Relaxed));
    }
}

impl Drop for Machinery {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Its findings are already stored.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A thread's run delay from schedstat: nanoseconds for which it was ready without a processor.
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

    /// Nanoseconds lost since the last check, `since` ago.
    fn look(&mut self, since: Duration) -> u64 {
        let before = self.waited;
        self.waited = waited(&self.schedstat).unwrap_or(before);
        let place = read(&self.wchan);
        let ends_device = ENDS_DEVICE.iter().any(|name| place.contains(name));
        self.waited.saturating_sub(before) + if ends_device { since.as_nanos() as u64 } else { 0 }
    }
}

/// The threads of a process with these names.
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

/// Checks both daemons.
#[derive(Default)]
struct TimeLooker {
    known: [OfDaemon; 2],
    /// The kernel's threads that move frames deferred by interrupts: of TAPs, cables and sockets.
    kernel: Option<Vec<SharedWorker>>,
    last: Option<Instant>,
    stolen: u64,
}

impl TimeLooker {
    /// Nanoseconds lost since the last check.
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

/// The largest loss of any worker: an upper bound for the one that a bystander needs.
fn longest(workers: &mut [SharedWorker], since: Duration) -> u64 {
    workers.iter_mut().map(|worker| worker.look(since)).max().unwrap_or(0)
}

/// The kernel's threads of that kind, one per processor.
fn of_kernel() -> Vec<SharedWorker> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |process: &fs::DirEntry| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes.filter(is_one).filter_map(|process| SharedWorker::open(&process.path())).collect()
}

/// Ticks stolen by the host from all processors (proc_stat(5)).
fn stolen_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    all.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
