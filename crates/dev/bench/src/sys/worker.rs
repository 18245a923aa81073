//! A worker: a second process of this program, for scenarios between processes.
//!
//! The parent runs `/proc/self/exe worker` with the task in an environment variable. The worker pins itself if
//! requested, sets up, prints [`READY`], and works until it is killed. It publishes its counts in shared counters,
//! which the parent samples. Between measurements, the worker is stopped. No messages are exchanged during
//! measurements.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tempfile::TempDir;

use crate::error::{BenchError, Result};
use crate::pin;
use crate::sys::child::Child;
use crate::sys::netns::Netns;
use crate::sys::part::Part;
use crate::sys::shm::SharedCounters;

/// The hidden subcommand, for which the command line calls [`main`].
pub const SUBCOMMAND: &str = "worker";
/// The environment variable that contains the task.
const TASK: &str = "NETVALE_BENCH_WORKER";
/// Time limit for a worker's set-up.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The line that a worker prints when its set-up is done.
pub const READY: &str = "netvale-bench worker ready";

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    role: String,
    core: Option<usize>,
    counters: String,
    arguments: serde_json::Value,
}

/// The context in which a role runs.
pub struct Context {
    counters: SharedCounters,
    arguments: serde_json::Value,
}

impl Context {
    /// Returns the role's arguments.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_value(self.arguments.clone())
            .map_err(|error| BenchError::Usage(format!("invalid arguments for the worker's role: {error}")))
    }

    /// Returns counter `index`.
    pub fn counter(&self, index: usize) -> &AtomicU64 {
        self.counters.counter(index)
    }

    /// Reports to the parent that the set-up is done.
    pub fn ready(&self) -> Result<()> {
        use std::io::Write;
        let mut out = std::io::stdout();
        writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(BenchError::io("reporting readiness"))
    }
}

/// Index of the counter of frames moved.
pub const FRAMES: usize = 0;
/// Index of the counter of frames with wrong bytes.
pub const WRONG: usize = 1;

/// Publishes a count only if it has changed, so that the cache line stays this process's own most of the time.
#[inline]
pub fn publish(counter: &AtomicU64, value: u64) {
    if counter.load(Ordering::Relaxed) != value {
        counter.store(value, Ordering::Relaxed);
    }
}

/// The body of a role: sets up, calls [`Context::ready`], and works until killed. It returns only on an error.
pub type Role = fn(&Context) -> Result<()>;

/// A running worker process.
pub struct Worker {
    child: Child,
    counters: SharedCounters,
    folder: TempDir,
}

/// How a worker is started.
#[derive(Clone, Copy)]
pub enum Wrapper<'a> {
    /// Directly, in this process's namespaces.
    None,
    /// In a network namespace.
    Network(&'a Netns),
    /// By `netvale run`, which connects it to the daemon of this run directory.
    Run(&'a Path),
}

impl Wrapper<'_> {
    fn command(self) -> Result<Command> {
        // The path contains the process id, because `/proc/self` belongs to another program when the path is looked up.
        let own = format!("/proc/{}/exe", std::process::id());
        let mut command = match self {
            Wrapper::None => Command::new("/proc/self/exe"),
            Wrapper::Network(namespace) => namespace.command(&own),
            Wrapper::Run(dir) => {
                let mut command = Command::new(super::netvale()?);
                command.arg("--run-dir").arg(dir).args(["run", "--", &own]);
                command
            }
        };
        command.arg(SUBCOMMAND);
        Ok(command)
    }
}

impl Worker {
    /// Starts a worker for `role`, pinned to a core or placed by the scheduler, and waits until it is ready. The worker
    /// is left running.
    pub fn spawn(how: Wrapper<'_>, role: &str, core: Option<usize>, arguments: &impl Serialize) -> Result<Rc<Self>> {
        Self::spawn_with(how.command()?, role, core, arguments).map(Rc::new)
    }

    fn spawn_with(mut command: Command, role: &str, core: Option<usize>, arguments: &impl Serialize) -> Result<Self> {
        let counters = SharedCounters::create()?;
        let unfit = |error| BenchError::Usage(format!("cannot write the worker's arguments as JSON: {error}"));
        let arguments = serde_json::to_value(arguments).map_err(unfit)?;
        let task = Task { role: role.to_owned(), core, counters: counters.path(), arguments };
        command.env(TASK, serde_json::to_string(&task).map_err(unfit)?);
        let folder = super::scratch("worker")?;
        let child = Child::spawn(command, &folder.path().join("log"))?;
        let this = Self { child, counters, folder };
        match this.child.expect(&format!("{READY}\n"), START_LIMIT) {
            Ok(_) => Ok(this),
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => {
                let log = std::fs::read_to_string(this.folder.path().join("log")).unwrap_or_default();
                Err(BenchError::failed(format!("the bench worker {role:?}"), error, &log))
            }
        }
    }

    /// Returns the worker's process id, which is also the id of its pinned thread if the worker has a pinned thread.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Returns the present value of a counter.
    pub fn count(&self, index: usize) -> u64 {
        self.counters.counter(index).load(Ordering::Relaxed)
    }

    /// Returns the number of frames so far, with the time of counting.
    pub fn tally(&self) -> (u64, Instant) {
        (self.count(FRAMES), Instant::now())
    }
}

impl Part for Worker {
    fn children(&self) -> Vec<&Child> {
        vec![&self.child]
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        vec![(self.pid(), self.pid())]
    }
}

/// Runs in the worker process, for the hidden subcommand: does the task in the environment, and returns when the task
/// ends. `roles` are all known roles.
pub fn main(roles: &[(&str, Role)]) -> ExitCode {
    match work(roles) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn work(roles: &[(&str, Role)]) -> Result<()> {
    let misuse = || BenchError::Usage(format!("{SUBCOMMAND} is started by `netvale-bench` only"));
    let task = std::env::var(TASK).map_err(|_| misuse())?;
    let task: Task = serde_json::from_str(&task).map_err(|_| misuse())?;
    let (_, role) = roles.iter().find(|(name, _)| *name == task.role).ok_or_else(misuse)?;
    task.core.map(pin::pin).transpose()?;
    // Inside a guest, no other process reads the counters, so the task does not name them.
    let counters =
        if task.counters.is_empty() { SharedCounters::create()? } else { SharedCounters::open(&task.counters)? };
    role(&Context { counters, arguments: task.arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_up(context: &Context) -> Result<()> {
        let step: u64 = context.arguments()?;
        context.ready()?;
        loop {
            context.counters.counter(3).fetch_add(step, Ordering::Relaxed);
            std::thread::yield_now();
        }
    }

    /// Not a test of its own: the body of the child process of the tests below.
    #[test]
    #[ignore = "run as a child process by the tests below"]
    fn child_entry() {
        if let Err(error) = work(&[("count-up", count_up)]) {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }

    fn spawn(role: &str, arguments: &impl Serialize) -> Result<Worker> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "sys::worker::tests::child_entry", "--ignored", "--nocapture"]);
        let core = *pin::allowed()?.first().expect("a CPU");
        Worker::spawn_with(command, role, Some(core), arguments)
    }

    /// Objective: counts of the other process arrive, do not change while it is stopped, and grow again afterwards.
    #[test]
    fn counts_arrive_and_freeze() {
        let worker = spawn("count-up", &2u64).expect("it starts");
        let moved = |from: u64| {
            crate::interrupt::poll_until(Duration::from_secs(10), || {
                Ok((worker.count(3) > from).then(|| worker.count(3)))
            })
        };
        let first = moved(0).expect("no signal").expect("it counts");
        worker.freeze().expect("alive");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap_or_default();
        crate::interrupt::poll_until(Duration::from_secs(10), || Ok(state().contains(") T ").then_some(())))
            .expect("no signal")
            .expect("it stops");
        let frozen = worker.count(3);
        assert!(frozen >= first);
        assert_eq!(worker.count(3), frozen);
        worker.thaw().expect("alive");
        assert!(moved(frozen).expect("no signal").is_some(), "it continues");
    }

    /// Objective: a worker that cannot do its task prints the reason, which becomes part of the error.
    #[test]
    fn failures_carry_last_words() {
        let error = spawn("no-such-role", &()).map(drop).expect_err("unknown role");
        assert!(error.to_string().contains("started by `netvale-bench` only"), "{error}");
    }
}
