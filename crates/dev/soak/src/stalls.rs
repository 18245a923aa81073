//! Looks at the daemons' threads when a bystander waits: what they wait for in the kernel says why.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::frames::Tally;
use crate::machine::BothProcesses;
use crate::pairs::Books;

/// The time without a frame of a flow after which the threads are looked at, and how often they are.
const WAITS: Duration = Duration::from_millis(60);
const PAUSE: Duration = Duration::from_millis(20);
/// Looks that are remembered, for a wait that turns out to be too long.
const MOST_LOOKS: usize = 500;
/// Looks of one wait that are reported.
const MOST_REPORTED: usize = 6;
/// The time without a frame of a pair that is reported in any case, and the time until the next such report.
const STALLED: Duration = Duration::from_millis(1500);
const AGAIN: Duration = Duration::from_secs(3);
/// What is written down at most.
const MOST: usize = 24;
/// Threads whose way in the kernel is told, too: workers that all share.
const SHARED_WORKERS: [&str; 2] = ["netvale-w0", "netvale-w1"];

/// The thread that looks.
pub struct Watch {
    over: Arc<AtomicBool>,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

/// What it has seen.
#[derive(Default)]
struct Seen {
    /// The threads, as they were while a flow waited.
    looks: Mutex<VecDeque<(Instant, String)>>,
    /// What is reported.
    found: Mutex<Vec<String>>,
}

impl Watch {
    /// Looks after pairs with these names and books, and these daemons.
    pub fn start(pairs: Vec<(&'static str, Arc<Books>)>, processes: Arc<BothProcesses>) -> std::io::Result<Watch> {
        let over = Arc::<AtomicBool>::default();
        let seen = Arc::<Seen>::default();
        let looker = Looker { over: Arc::clone(&over), processes, seen: Arc::clone(&seen) };
        let thread = std::thread::Builder::new().name("soak-stalls".into()).spawn(move || looker.run(&pairs))?;
        Ok(Watch { over, seen, thread: Some(thread) })
    }

    /// What was found so far.
    pub fn found(&self) -> Vec<String> {
        self.seen.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The threads during a wait, a few times.
    pub fn during(&self, since: Instant, until: Instant) -> Vec<String> {
        let looks = self.seen.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let those: Vec<&(Instant, String)> = looks.iter().filter(|(at, _)| (since..until).contains(at)).collect();
        let step = those.len().div_ceil(MOST_REPORTED).max(1);
        let told = |(at, threads): &&(Instant, String)| format!("+{} ms: {threads}", (*at - since).as_millis());
        those.iter().step_by(step).map(told).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // What it found is there already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Looker {
    over: Arc<AtomicBool>,
    processes: Arc<BothProcesses>,
    seen: Arc<Seen>,
}

/// How many frames of a flow had come, and since when.
type Progress = Vec<(u64, Instant)>;

impl Looker {
    fn run(&self, pairs: &[(&'static str, Arc<Books>)]) {
        let begun = Instant::now();
        let mut quiet = begun;
        let mut progress: Vec<Progress> =
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

/// For how long a pair has had no frame of its slowest flow, and of all flows.
fn waits(books: &Books, progress: &mut Progress, is_up: bool) -> [Duration; 2] {
    for (tally, (frames, since)) in books.tallies.iter().zip(progress.iter_mut()) {
        let now = Tally::get(&tally.received);
        if now != *frames || !is_up {
            (*frames, *since) = (now, Instant::now());
        }
    }
    let waits = || progress.iter().map(|(_, since)| since.elapsed());
    [waits().max().unwrap_or_default(), waits().min().unwrap_or_default()]
}

/// What the kernel does for packets: a line of softnet_stat for each processor (frames, drops, rounds cut short).
fn of_kernel() -> String {
    let stat = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let first = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    format!("softnet {}", stat.lines().map(first).collect::<Vec<_>>().join(", "))
}

/// Name, state and place in the kernel of each thread.
fn threads(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let describe = |task: fs::DirEntry| {
        let read = |what: &str| fs::read_to_string(task.path().join(what)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t")?.chars().next()).unwrap_or('?');
        let (call, place) = (read("syscall"), read("wchan"));
        let call = call.split(' ').next().unwrap_or_default().trim();
        let name = read("comm");
        let name = name.trim();
        let way = if SHARED_WORKERS.contains(&name) { way_in_kernel(&read("stack")) } else { String::new() };
        format!("{name} {state} {place} call {call}{way}")
    };
    tasks.map(describe).collect::<Vec<_>>().join("; ")
}

/// The functions of a kernel stack, the innermost first.
fn way_in_kernel(stack: &str) -> String {
    let function = |line: &str| Some(format!(" {}", line.split_whitespace().nth(1)?.split('+').next()?));
    stack.lines().filter_map(function).take(8).collect()
}
