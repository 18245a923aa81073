//! A daemon that a service manager starts again.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_harness::{Manager, Process};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{self, stdout};

/// For anything that is waited for.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A daemon, its run directory and the service manager that starts it.
pub struct Managed {
    pub daemon: Option<Process>,
    pub manager: Manager,
    dir: TempDir,
}

impl Managed {
    pub fn new() -> Managed {
        let dir = netvale_harness::daemon::scratch("run").expect("a folder");
        let mut managed = Managed { daemon: None, manager: Manager::new().expect("it listens"), dir };
        managed.start();
        managed
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).expect("it can be written");
        let quiet = |command: &mut Command| {
            command.env_remove("NETVALE_RUN_DIR").stdout(Stdio::null()).stderr(log);
        };
        let run_dir = self.dir.path().to_str().expect("text");
        let program = netvale_system_tests::netvale();
        let mut daemon = self.manager.start(&program, &["up", "--run-dir", run_dir], quiet).expect("it starts");
        let is_alive = || matches!(daemon.child().try_wait(), Ok(None));
        assert!(netvale_harness::daemon::ready(self.dir.path(), LIMIT, is_alive), "it does not answer");
        self.daemon = Some(daemon);
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What all daemons have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).expect("it can be read")
    }

    /// Ends the daemon in that way, and starts another one.
    pub fn restart(&mut self, signal: Signal) {
        // What it did for earlier requests is kept before it looks at another one.
        assert!(netvale_harness::daemon::ready(self.dir.path(), LIMIT, || true), "it does not answer");
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.signal(signal);
        daemon.child().wait().expect("it ends");
        self.start();
    }

    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = common::netvale();
        stdout(&command.arg("--run-dir").arg(self.dir()).args(arguments).output().expect("it runs"))
    }
}
