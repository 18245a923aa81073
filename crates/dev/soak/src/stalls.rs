//! Samples the daemons' threads while a bystander waits. The kernel functions in which the threads wait show the cause.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::frames::FlowTally;
use crate::machine::BothProcesses;
use crate::pairs::PairCounts;

/// Time without a frame of a flow after which the threads are sampled.
const WAITS: Duration = Duration::from_millis(60);
/// Sampling interval.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of stored samples, which are needed if the wait turns out to be too long.
const MOST_LOOKS: usize = 500;
/// Maximum number of reported samples of one wait.
const MOST_REPORTED: usize = 6;
/// If a pair receives no frame for this long, the states of the daemons' threads are reported immediately, independent
/// of how the wait is judged later.
const STALLED: Duration = Duration::from_millis(1500);
/// Minimum interval of reports about stalled pairs.
const AGAIN: Duration = Duration::from_secs(3);
/// Maximum number of reports.
const MOST: usize = 24;
/// Threads whose kernel stack is also reported: the shared workers.
const SHARED_WORKERS: [&str; 2] = ["netvale-w0", "netvale-w1"];

/// The sampling thread.
pub struct StallWatch {
    over: Arc<AtomicBool>,
    seen: Arc<StallFindings>,
    thread: Option<JoinHandle<()>>,
}

/// The findings of the sampling thread.
#[derive(Default)]
struct StallFindings {
    /// Samples of the threads while a flow waited.
    looks: Mutex<VecDeque<(Instant, String)>>,
    /// Reports of the stalls found.
    found: Mutex<Vec<String>>,
}

impl StallWatch {
    /// Starts watching the pairs with these names and counts, and these daemons.
    pub fn start(
        pairs: Vec<(&'static str, Arc<PairCounts>)>,
        processes: Arc<BothProcesses>,
    ) -> std::io::Result<StallWatch> {
        let over = Arc::<AtomicBool>::default();
        let seen = Arc::<StallFindings>::default();
        let looker = StallSampler { over: Arc::clone(&over), processes, seen: Arc::clone(&seen) };
        let thread = std::thread::Builder::new().name("soak-stalls".into()).spawn(move || looker.run(&pairs))?;
        Ok(StallWatch { over, seen, thread: Some(thread) })
    }

    /// Returns the reports so far.
    pub fn found(&self) -> Vec<String> {
        self.seen.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns some samples of the threads during a wait.
    pub fn during(&self, since: Instant, until: Instant) -> Vec<String> {
        let looks = self.seen.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let those: Vec<&(Instant, String)> = looks.iter().filter(|(at, _)| (since..until).contains(at)).collect();
        let step = those.len().div_ceil(MOST_REPORTED).max(1);
        let told = |(at, threads): &&(Instant, String)| format!("+{} ms: {threads}", (*at - since).as_millis());
        those.iter().step_by(step).map(told).collect()
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread has stored its findings already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct StallSampler {
    over: Arc<AtomicBool>,
    processes: Arc<BothProcesses>,
    seen: Arc<StallFindings>,
}

/// For each flow, the number of frames received, and the time since which this number has not changed.
type FlowProgress = Vec<(u64, Instant)>;

impl StallSampler {
    fn run(&self, pairs: &[(&'static str, Arc<PairCounts>)]) {
        let begun = Instant::now();
        let mut quiet = begun;
        let mut progress: Vec<FlowProgress> =
            pairs.iter().map(|(_, books)| books.tallies.iter().map(|_| (0, begun)).collect()).collect();
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let is_up = self.processes.iter().all(|process| process.load(Ordering::Relaxed) != 0);
            let waits: Vec<[Duration; 2]> =
                pairs.iter().zip(&mut progress).map(|((_, books), progress)| waits(books, progress, is_up)).collect();
            if waits.iter().any(|[one_flow, _]| *one_flow > WAITS) {
                self.remember();
            }
            let stalled = pairs.iter().zip(&waits).filter(|(_, [_, all_flows])| *all_flows > STALLED);
            let stalled: Vec<&str> = stalled.map(|((name, _), _)| *name).collect();
            if !stalled.is_empty() && Instant::now() >= quiet {
                self.write_down(begun, &stalled);
                quiet = Instant::now() + AGAIN;
            }
        }
    }

    fn remember(&self) {
        let at = Instant::now();
        let threads = self.threads();
        let mut looks = self.seen.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == MOST_LOOKS {
            looks.pop_front();
        }
        looks.push_back((at, threads));
    }

    fn write_down(&self, begun: Instant, waiting: &[&str]) {
        let mut found = self.seen.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < MOST {
            let after = begun.elapsed().as_secs();
            found.push(format!("after {after} s: {} wait; threads: {}", waiting.join(", "), self.threads()));
        }
    }

    fn threads(&self) -> String {
        let kernel = of_kernel();
        let daemons = self.processes.iter().map(|process| threads(process.load(Ordering::Relaxed)));
        daemons.chain([kernel]).collect::<Vec<_>>().join(" | ")
    }
}

/// Returns the longest time for which a flow of the pair has received no frame, and the time for which none of its
/// flows has received a frame.
fn waits(books: &PairCounts, progress: &mut FlowProgress, is_up: bool) -> [Duration; 2] {
    for (tally, (frames, since)) in books.tallies.iter().zip(progress.iter_mut()) {
        let now = FlowTally::get(&tally.received);
        if now != *frames || !is_up {
            *frames = now;
            *since = Instant::now();
        }
    }
    let waits = || progress.iter().map(|(_, since)| since.elapsed());
    [waits().max().unwrap_or_default(), waits().min().unwrap_or_default()]
}

/// Returns the kernel's packet processing: for each CPU, a line of softnet_stat (frames, drops, rounds cut short).
fn of_kernel() -> String {
    let stat = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let first = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    format!("softnet {}", stat.lines().map(first).collect::<Vec<_>>().join(", "))
}

/// Returns name, state and place in the kernel of each thread.
fn threads(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let describe = |task: fs::DirEntry| {
        let read = |what: &str| fs::read_to_string(task.path().join(what)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t")?.chars().next()).unwrap_or('?');
        let call = read("syscall");
        let place = read("wchan");
        let call = call.split(' ').next().unwrap_or_default().trim();
        let name = read("comm");
        let name = name.trim();
        let way = if SHARED_WORKERS.contains(&name) { way_in_kernel(&read("stack")) } else { String::new() };
        format!("{name} {state} {place} call {call}{way}")
    };
    tasks.map(describe).collect::<Vec<_>>().join("; ")
}

/// Returns the functions of a kernel stack, innermost first.
fn way_in_kernel(stack: &str) -> String {
    let function = |line: &str| Some(format!(" {}", line.split_whitespace().nth(1)?.split('+').next()?));
    stack.lines().filter_map(function).take(8).collect()
}
