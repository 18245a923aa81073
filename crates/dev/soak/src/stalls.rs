//! Looks at the daemons' threads when a bystander waits: what they wait for in the kernel says why.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::frames::Tally;
use crate::machine::BothProcesses;
use crate::pairs::Books;

/// The time without a frame that is worth a look, and the time until the next look.
const STALLED: Duration = Duration::from_millis(1500);
const AGAIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);
/// What is written down at most.
const MOST: usize = 24;

/// The thread that looks.
pub struct Watch {
    over: Arc<AtomicBool>,
    found: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks after pairs with these names and books, and these daemons.
    pub fn start(pairs: Vec<(&'static str, Arc<Books>)>, processes: Arc<BothProcesses>) -> std::io::Result<Watch> {
        let over = Arc::<AtomicBool>::default();
        let found = Arc::<Mutex<Vec<String>>>::default();
        let looker = Looker { over: Arc::clone(&over), processes, found: Arc::clone(&found) };
        let thread = std::thread::Builder::new().name("soak-stalls".into()).spawn(move || looker.run(&pairs))?;
        Ok(Watch { over, found, thread: Some(thread) })
    }

    /// What was found so far.
    pub fn found(&self) -> Vec<String> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
    found: Arc<Mutex<Vec<String>>>,
}

impl Looker {
    fn run(&self, pairs: &[(&'static str, Arc<Books>)]) {
        let (begun, mut quiet) = (Instant::now(), Instant::now());
        let mut seen: Vec<(u64, Instant)> = pairs.iter().map(|_| (0, begun)).collect();
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let is_up = self.processes.iter().all(|process| process.load(Ordering::Relaxed) != 0);
            let mut waiting = Vec::new();
            for ((name, books), (frames, since)) in pairs.iter().zip(&mut seen) {
                let now = books.tallies.iter().map(|tally| Tally::get(&tally.received)).sum();
                if now != *frames || !is_up {
                    (*frames, *since) = (now, Instant::now());
                } else if since.elapsed() > STALLED {
                    waiting.push(*name);
                }
            }
            if !waiting.is_empty() && Instant::now() >= quiet {
                self.write_down(begun, &waiting);
                quiet = Instant::now() + AGAIN;
            }
        }
    }

    fn write_down(&self, begun: Instant, waiting: &[&str]) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < MOST {
            let threads = self.processes.iter().map(|process| threads(process.load(Ordering::Relaxed)));
            let threads: Vec<String> = threads.collect();
            let after = begun.elapsed().as_secs();
            found.push(format!("after {after} s: {} wait; threads: {}", waiting.join(", "), threads.join(" | ")));
        }
    }
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
        format!("{} {state} {place} call {call}", read("comm").trim())
    };
    tasks.map(describe).collect::<Vec<_>>().join("; ")
}
