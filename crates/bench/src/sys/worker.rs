//! A second process of our own executable, for scenarios between processes.
//!
//! The parent runs `/proc/self/exe worker` with the task in an environment variable. The worker pins itself if it is
//! told to, sets up, says `ready` and works until it is killed; it publishes what it does in shared counters, which the
//! parent samples. Between measurements it is frozen. No message is exchanged while measuring.

use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tempfile::TempDir;

use crate::error::{BenchError, Result};
use crate::pin;
use crate::sys::child::Child;
use crate::sys::netns::Netns;
use crate::sys::shm::SharedCounters;

/// The hidden subcommand; the command line calls [`main`] for it.
pub const SUBCOMMAND: &str = "worker";
/// The variable that holds the task.
const TASK: &str = "NETVALE_BENCH_WORKER";
/// The longest that a worker may take to set up.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The line that a worker prints once it works.
const READY: &str = "netvale-bench worker ready\n";

/// The task of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    role: String,
    core: Option<usize>,
    counters: String,
    arguments: serde_json::Value,
}

/// The context that a role runs in.
#[derive(Debug)]
pub struct Context {
    /// The counters in which it publishes its counts.
    pub counters: SharedCounters,
    arguments: serde_json::Value,
}

impl Context {
    /// The role's arguments.
    ///
    /// # Errors
    /// The arguments have another shape.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_value(self.arguments.clone())
            .map_err(|error| BenchError::Usage(format!("the worker's arguments do not fit its role: {error}")))
    }

    /// Tells the parent that set-up is done.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn ready(&self) -> Result<()> {
        use std::io::Write;
        let mut out = std::io::stdout();
        out.write_all(READY.as_bytes()).and_then(|()| out.flush()).map_err(BenchError::io("reporting to the bench"))
    }
}

/// A role's body: sets up, calls [`Context::ready`], works until killed. It returns only when it cannot go on.
pub type Role = fn(&Context) -> Result<()>;

/// A running worker.
pub struct Worker {
    child: Child,
    counters: SharedCounters,
    folder: TempDir,
}

impl Worker {
    /// Starts a worker for `role`, pinned to `core`, and waits until it is ready. It is then running.
    ///
    /// # Errors
    /// The worker does not start or gives up; the error holds the end of its output.
    pub fn spawn(role: &str, core: usize, arguments: &impl Serialize) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND);
        Self::spawn_with(command, role, Some(core), arguments)
    }

    /// Starts a worker as [`Worker::spawn`] does, but where the scheduler wants it.
    ///
    /// # Errors
    /// As [`Worker::spawn`].
    pub fn spawn_anywhere(role: &str, arguments: &impl Serialize) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND);
        Self::spawn_with(command, role, None, arguments)
    }

    /// Starts a worker as [`Worker::spawn_anywhere`] does, in a network namespace.
    ///
    /// # Errors
    /// As [`Worker::spawn`].
    pub fn spawn_anywhere_in(namespace: &Netns, role: &str, arguments: &impl Serialize) -> Result<Self> {
        Self::spawn_with(own_in(namespace), role, None, arguments)
    }

    /// Starts a worker as [`Worker::spawn`] does, in a network namespace.
    ///
    /// # Errors
    /// As [`Worker::spawn`].
    pub fn spawn_in(namespace: &Netns, role: &str, core: usize, arguments: &impl Serialize) -> Result<Self> {
        Self::spawn_with(own_in(namespace), role, Some(core), arguments)
    }

    /// Starts a worker as [`Worker::spawn`] does, under `netvale run` with the daemon in `run_dir`.
    ///
    /// # Errors
    /// As [`Worker::spawn`], or there are no libraries to preload.
    pub fn spawn_under_run(run_dir: &str, role: &str, core: usize, arguments: &impl Serialize) -> Result<Self> {
        let mut command = Command::new(super::netvale()?);
        // By number: `self` is another program by the time the path is looked up.
        let own = format!("/proc/{}/exe", std::process::id());
        command.args(["--run-dir", run_dir, "run", "--", &own, SUBCOMMAND]);
        Self::spawn_with(command, role, Some(core), arguments)
    }

    fn spawn_with(mut command: Command, role: &str, core: Option<usize>, arguments: &impl Serialize) -> Result<Self> {
        let counters = SharedCounters::create()?;
        let unfit = |error| BenchError::Usage(format!("the worker's arguments cannot be passed on: {error}"));
        let arguments = serde_json::to_value(arguments).map_err(unfit)?;
        let task = Task { role: role.to_owned(), core, counters: counters.path(), arguments };
        command.env(TASK, serde_json::to_string(&task).map_err(unfit)?);
        let folder = super::scratch("worker")?;
        let child = Child::spawn(command, &folder.path().join("log"))?;
        let this = Self { child, counters, folder };
        match this.child.expect(READY, START_LIMIT) {
            Ok(_) => Ok(this),
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => Err(this.last_words(role, &error)),
        }
    }

    fn last_words(&self, role: &str, error: &BenchError) -> BenchError {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        BenchError::Failed {
            program: format!("the bench worker {role:?}"),
            status: error.to_string(),
            output: super::child::tail(&log).to_owned(),
        }
    }

    /// The process id, which is also the id of its pinned thread if it has one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The present value of a counter.
    #[must_use]
    pub fn count(&self, index: usize) -> u64 {
        self.counters.counter(index).load(Ordering::Relaxed)
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn freeze(&self) -> Result<()> {
        self.child.freeze()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn thaw(&self) -> Result<()> {
        self.child.thaw()
    }
}

/// Our own executable in a network namespace, by number: `self` is another program by the time the path is looked up.
fn own_in(namespace: &Netns) -> Command {
    let mut command = namespace.command(&format!("/proc/{}/exe", std::process::id()));
    command.arg(SUBCOMMAND);
    command
}

/// The worker's side: does the task of the environment and ends when that ends. For the hidden subcommand. `roles` are
/// all there are.
#[must_use]
pub fn main(roles: &[&[(&str, Role)]]) -> ExitCode {
    match work(roles) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn work(roles: &[&[(&str, Role)]]) -> Result<()> {
    let misuse = || BenchError::Usage(format!("{SUBCOMMAND} is started by `netvale-bench` only"));
    let task = std::env::var(TASK).map_err(|_| misuse())?;
    let task: Task = serde_json::from_str(&task).map_err(|_| misuse())?;
    let role = roles
        .iter()
        .copied()
        .flatten()
        .find(|(name, _)| *name == task.role)
        .map(|(_, role)| role)
        .ok_or_else(misuse)?;
    task.core.map(pin::pin).transpose()?;
    // Inside a guest there is nobody to share them with.
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
        if let Err(error) = work(&[&[("count-up", count_up)]]) {
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

    /// Objective: counts of the other process arrive, stand still while it is frozen, and go on afterwards.
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
        assert!(moved(frozen).expect("no signal").is_some(), "it goes on");
    }

    /// Objective: a worker that cannot do its task says why, and the error carries it.
    #[test]
    fn failures_carry_last_words() {
        let error = spawn("no-such-role", &()).map(drop).expect_err("unknown role");
        assert!(error.to_string().contains("started by `netvale-bench` only"), "{error}");
    }
}
