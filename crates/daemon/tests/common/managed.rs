//! A daemon that a service manager starts again after it was killed.
#![allow(dead_code)]

use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;

use netvale_harness::{Manager, Process};
use rustix::process::Signal;

use crate::common::{DAEMON_CONFIG, DAEMON_DIR, Daemon, LIMIT};

/// The ignored test `role` of the test program plays it.
pub struct Managed {
    pub d: Daemon,
    process: Mutex<Option<Process>>,
    pub manager: Manager,
    role: &'static str,
    more: String,
}

impl Managed {
    pub fn start(role: &'static str, more: &str) -> Managed {
        let (manager, dir) = (Manager::new().unwrap(), tempfile::tempdir().unwrap());
        let more = more.to_owned();
        let process = begin(&manager, dir.path(), role, &more);
        let d = Daemon::of_process(dir, process.id());
        Managed { d, process: Mutex::new(Some(process)), manager, role, more }
    }

    /// Ends the process in that way, and starts another one. `meanwhile` runs while there is none.
    pub fn restart(&self, signal: Signal, meanwhile: impl FnOnce()) {
        let mut process = self.process.lock().unwrap();
        // What it did for earlier requests is kept before it looks at another one.
        self.d.ports();
        let mut before = process.take().unwrap();
        before.signal(signal);
        before.child().wait().unwrap();
        meanwhile();
        *process = Some(begin(&self.manager, self.d.dir.path(), self.role, &self.more));
    }

    /// The number of the running process.
    pub fn id(&self) -> u32 {
        self.process.lock().unwrap().as_ref().unwrap().id()
    }

    pub fn is_killed(&self) {
        self.restart(Signal::KILL, || ());
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.d.path("log")).unwrap_or_default());
            let shown = self.d.call_if_alive("port.show", serde_json::json!({"port": "vale0:guest"}));
            eprintln!("{}", shown.unwrap_or_default());
        }
    }
}

fn begin(manager: &Manager, dir: &Path, role: &str, more: &str) -> Process {
    let arguments = ["--exact", role, "--nocapture", "--ignored"];
    let mut process = manager
        .start(&std::env::current_exe().unwrap(), &arguments, |command| {
            command.env(DAEMON_DIR, dir).env(DAEMON_CONFIG, more).stdout(Stdio::null());
        })
        .unwrap();
    let is_alive = || matches!(process.child().try_wait(), Ok(None));
    assert!(netvale_harness::daemon::ready(dir, LIMIT, is_alive), "the daemon does not answer");
    process
}
