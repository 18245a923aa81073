//! Network namespaces without names: they exist only as open files, so nothing is left behind however this process
//! ends.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::error::{BenchError, Result};
use crate::sys::child;

/// A network namespace of our own. Its interfaces vanish with it.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// Creates one, with its loopback up.
    pub fn new() -> Result<Self> {
        let made = in_own_thread(|| {
            // SAFETY: `unshare` is unsafe because of what happens to a process that shares what is unshared:
            // - NEWNET concerns this thread's view of the network alone; no memory, file table or credentials;
            // - the thread is ours and ends right after, so no other code runs in the changed namespace unaware of it.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(BenchError::io("creating a network namespace (needs root)"))?;
            File::open("/proc/thread-self/ns/net").map_err(BenchError::io("opening the network namespace"))
        })?;
        let this = Self(made);
        this.ip("link set lo up")?;
        Ok(this)
    }

    /// Runs `work` on a thread inside the namespace: sockets it opens belong there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_own_thread(|| {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(BenchError::io("entering the network namespace"))?;
            work()
        })
    }

    /// A command that will run inside. (Not through [`Netns::inside`]: children die with the thread that starts them.)
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    /// Runs `ip` with blank-separated arguments inside.
    pub fn ip(&self, arguments: &str) -> Result<()> {
        child::run(self.command("ip").args(arguments.split_whitespace())).map(drop)
    }

    /// Keeps its future interfaces from sending neighbour discovery of their own.
    pub fn silence_ipv6(&self) -> Result<()> {
        self.inside(|| {
            // Absent where the kernel has no IPv6: then there is nothing to silence.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(())
        })
    }

    /// Runs `ip link add` for a veth pair, and sets both ends up.
    pub fn veth(&self, a: &str, b: &str) -> Result<()> {
        self.ip(&format!("link add {a} type veth peer name {b}"))?;
        self.ip(&format!("link set {a} up"))?;
        self.ip(&format!("link set {b} up"))
    }

    /// A number that the kernel counts for interface `name`: the column of /proc/net/dev behind the name, from 0.
    pub fn counter(&self, name: &str, column: usize) -> Result<u64> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading counters"));
        let text = self.inside(read)?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        let count = line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok());
        count.ok_or_else(|| BenchError::NoTraffic(name.to_owned()))
    }

    /// A path that names the namespace for `ip link … netns PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

fn in_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: interfaces made inside are seen inside and not outside. Passes without a check where not permitted.
    #[test]
    fn inside_is_another_network() {
        if crate::sys::need(&[crate::sys::NETWORKS], 0).is_err() {
            eprintln!("skipped: needs root");
            return;
        }
        let namespace = Netns::new().expect("root may");
        namespace.ip("link add nvtest0 type veth peer name nvtest1").expect("root may");
        let seen = || std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading net/dev"));
        assert!(namespace.inside(seen).expect("readable").contains("nvtest0"));
        assert!(!seen().expect("readable").contains("nvtest0"));
    }
}
