//! Starts short-lived daemons and programs for the demo, measurements and tests, waits for them, and cleans up after
//! them.
//!
//! | module | what it is |
//! |---|---|
//! | [`attacks`] | misuse by hostile users |
//! | [`daemon`] | a daemon in a run directory of its own |
//! | [`launch`] | the command of a daemon's process |
//! | [`manager`] | a service manager that keeps descriptors |
//! | [`net`] | network namespaces, and interfaces in them |
//! | [`packet`] | packet sockets |
//! | [`pretender`] | a successor that takes over and then does nothing |
//! | [`process`] | a program that ends with its owner |
//! | [`shapes`] | values on both sides of the limits of settings |
//!
//! Everything ends when dropped, and every wait has a limit.

pub mod attacks;
pub mod daemon;
pub mod launch;
pub mod manager;
pub mod net;
pub mod packet;
pub mod pretender;
pub mod process;
pub mod shapes;

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use daemon::TestDaemon;
pub use launch::Launch;
pub use manager::Manager;
pub use pretender::Pretender;
pub use process::ChildProcess;

/// A step that failed.
#[derive(Debug, Error)]
#[error("cannot {what}: {source}")]
pub struct FailedStep {
    /// The step.
    pub what: String,
    /// The cause.
    pub source: io::Error,
}

impl FailedStep {
    pub(crate) fn to(what: impl Into<String>) -> impl FnOnce(io::Error) -> FailedStep {
        move |source| FailedStep { what: what.into(), source }
    }
}

/// Creates a folder that is removed when dropped. Its name begins with `netvale-PURPOSE-`.
///
/// # Errors
/// The folder cannot be created.
pub fn scratch(purpose: &str) -> Result<tempfile::TempDir, FailedStep> {
    tempfile::Builder::new().prefix(&format!("netvale-{purpose}-")).tempdir().map_err(FailedStep::to("create a folder"))
}

/// Polls `done` with a pause until it returns true or the limit is over. Returns whether `done` returned true.
pub fn until(limit: Duration, pause: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        if pause.is_zero() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
        }
    }
    true
}

/// Returns a command that runs the ignored test `name` of this test program. Such a test is the part of another test
/// that needs a process of its own.
///
/// # Errors
/// The path of this program is unknown.
pub fn role(name: &str) -> Result<std::process::Command, FailedStep> {
    let own = std::env::current_exe().map_err(FailedStep::to("find the path of this program"))?;
    let mut command = std::process::Command::new(own);
    command.args(["--exact", name, "--nocapture", "--ignored"]).stdout(std::process::Stdio::null());
    Ok(command)
}

/// Reports that a test cannot run here, and why. The report is also appended to the file named by `NETVALE_SKIPPED`,
/// because the output of passing tests is not shown.
pub fn skip(why: &str) {
    let line = format!("skipped: {}: {why}\n", std::thread::current().name().unwrap_or_default());
    eprint!("{line}");
    if let Some(file) = std::env::var_os("NETVALE_SKIPPED") {
        let list = std::fs::File::options().create(true).append(true).open(file);
        // A single write is not interleaved with writes of other processes.
        let written = list.and_then(|mut list| io::Write::write_all(&mut list, line.as_bytes()));
        written.unwrap_or_else(|e| eprintln!("cannot write the list of skipped tests: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a condition that becomes true ends the wait; otherwise the limit ends it.
    #[test]
    fn a_true_condition_ends_the_wait() {
        let mut looks = 0;
        assert!(until(Duration::from_secs(60), Duration::ZERO, || {
            looks += 1;
            looks == 3
        }));
        assert_eq!(looks, 3);
        assert!(!until(Duration::from_millis(3), Duration::from_millis(1), || false));
    }
}
