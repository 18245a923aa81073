//! A daemon that is replaced by others.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;
use std::process::{Command, Stdio};

use netvale_control::client::Client;
use netvale_harness::Daemon;
use rustix::process::{Pid, Signal, kill_process};

use super::common::stdout;
use super::sequence::LIMIT;

/// A daemon whose successors end with the test.
pub struct Upgraded(Daemon);

impl Upgraded {
    pub fn start(arguments: &[&str]) -> Upgraded {
        let quiet = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        };
        Upgraded(Daemon::start(&netvale_system_tests::netvale(), arguments, LIMIT, quiet).expect("it starts"))
    }

    pub fn dir(&self) -> &Path {
        self.0.dir()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.0.command(arguments)
    }

    pub fn run(&self, arguments: &[&str]) -> String {
        stdout(&self.command(arguments).output().expect("it runs"))
    }

    pub fn pid(&self) -> u32 {
        Client::connect(self.dir()).expect("it answers").daemon_pid().expect("it is seen")
    }

    /// Replaces the daemon, by another process, which must answer then.
    pub fn upgrade(&self) {
        let before = self.pid();
        let said = self.run(&["upgrade"]);
        assert_ne!(before, self.pid(), "{said}");
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        // The first process may be gone for long.
        let last = Client::connect(self.dir()).ok().and_then(|mut client| client.daemon_pid());
        let pid = last.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
