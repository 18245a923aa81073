//! A daemon that a service manager starts again after it was killed.

use std::process::Stdio;

use netvale_harness::Manager;
use rustix::process::{Pid, Signal, kill_process};

use super::heirs::ROLE;
use super::{DAEMON_CONFIG, DAEMON_DIR, Daemon, LIMIT};

impl Daemon {
    /// One in a process of its own, which this service manager starts: the test program's, as for [`Daemon::start_apart`].
    pub fn start_managed(manager: &Manager, more: &str) -> Daemon {
        Daemon::start_managed_in(manager, tempfile::tempdir().unwrap(), more)
    }

    /// The same in that folder.
    pub fn start_managed_in(manager: &Manager, dir: tempfile::TempDir, more: &str) -> Daemon {
        let mut daemon = Daemon { dir, process: 0, thread: None };
        daemon.is_started(manager, more);
        daemon
    }

    fn is_started(&mut self, manager: &Manager, more: &str) {
        let program = std::env::current_exe().unwrap();
        let started = manager.start(&program, &["--exact", ROLE, "--nocapture", "--ignored"], |command| {
            command.env(DAEMON_DIR, self.dir.path()).env(DAEMON_CONFIG, more).stdout(Stdio::null());
        });
        let mut started = started.unwrap();
        self.process = started.id();
        self.thread = Some(std::thread::spawn(move || assert!(started.child().wait().is_ok())));
        let is_alive = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        assert!(netvale_harness::daemon::ready(self.dir.path(), LIMIT, is_alive), "the daemon does not answer");
    }

    /// Kills it without notice, and starts another one.
    pub fn is_killed(&mut self, manager: &Manager, more: &str) {
        self.is_killed_and(manager, more, || ());
    }

    /// The same; `meanwhile` happens when no daemon runs.
    pub fn is_killed_and(&mut self, manager: &Manager, more: &str, meanwhile: impl FnOnce()) {
        self.is_kept(manager);
        kill_process(Pid::from_raw(self.process.cast_signed()).unwrap(), Signal::KILL).unwrap();
        self.thread.take().unwrap().join().unwrap();
        meanwhile();
        self.is_started(manager, more);
    }

    /// Waits until the service manager keeps what it has.
    pub fn is_kept(&self, manager: &Manager) {
        // It is kept before the next request is looked at.
        self.ports();
        manager.sync().unwrap();
    }
}
