//! Network namespaces without names: they exist only as open files, so nothing is left behind however this process
//! ends.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::error::{BenchError, Result};
use crate::sys::child;

/// A network namespace. Its interfaces are removed with the namespace.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// Creates a namespace whose loopback interface is up.
    pub fn new() -> Result<Self> {
        let made = in_own_thread(|| {
            // SAFETY: `unshare` is unsafe because it affects threads that share what is unshared:
            // - NEWNET changes only this thread's view of the network, and no memory, file table or credentials;
            // - this function starts the thread, which ends right after, so no other code runs in the changed namespace
            //   unaware of it.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(BenchError::io("creating a network namespace (needs root)"))?;
            File::open("/proc/thread-self/ns/net").map_err(BenchError::io("opening the network namespace"))
        })?;
        let this = Self(made);
        this.ip("link set lo up")?;
        Ok(this)
    }

    /// Creates a namespace without neighbour discovery on the interfaces that are added to it.
    pub fn silent() -> Result<Self> {
        let this = Self::new()?;
        this.inside(|| {
            // The file is absent if the kernel has no IPv6, which needs no setting.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(())
        })?;
        Ok(this)
    }

    /// Creates a namespace like [`Netns::silent`] with a veth pair, `p0` and `p1`.
    pub fn with_wire() -> Result<Self> {
        let this = Self::silent()?;
        this.veth("p0", "p1")?;
        Ok(this)
    }

    /// Returns another handle of the namespace, which exists until all its handles are dropped.
    pub fn again(&self) -> Result<Self> {
        self.0.try_clone().map(Self).map_err(BenchError::io("opening the network namespace again"))
    }

    /// Writes `value` to the file `name` below /proc/sys/net, as seen inside the namespace.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{name}");
        self.inside(|| std::fs::write(&path, value).map_err(BenchError::io(format!("writing {path}"))))
    }

    /// Runs `work` on a thread inside the namespace. Sockets that `work` opens belong to the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_own_thread(|| {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(BenchError::io("entering the network namespace"))?;
            work()
        })
    }

    /// Returns a command that runs inside the namespace. ([`Netns::inside`] does not serve this purpose, because
    /// children die with the thread that starts them.)
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    /// Runs `ip` with blank-separated arguments inside the namespace.
    pub fn ip(&self, arguments: &str) -> Result<()> {
        child::run(self.command("ip").args(arguments.split_whitespace())).map(drop)
    }

    /// Gives interface `name` the address `address`, with the length of its prefix, and brings the interface up.
    pub fn set_up(&self, name: &str, address: &str) -> Result<()> {
        self.ip(&format!("addr add {address} dev {name}"))?;
        self.ip(&format!("link set {name} up"))
    }

    /// Creates a veth pair, and brings both ends up.
    pub fn veth(&self, a: &str, b: &str) -> Result<()> {
        self.ip(&format!("link add {a} type veth peer name {b}"))?;
        self.ip(&format!("link set {a} up"))?;
        self.ip(&format!("link set {b} up"))
    }

    /// Returns a counter of interface `name` from /proc/net/dev: `column` counts from 0, starting after the name.
    pub fn counter(&self, name: &str, column: usize) -> Result<u64> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").map_err(BenchError::io("reading counters"));
        let text = self.inside(read)?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        let count = line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok());
        count.ok_or_else(|| BenchError::NoTraffic(name.to_owned()))
    }

    /// Returns a path of the namespace for `ip link … netns PATH`.
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

    /// Objective: interfaces made inside are visible inside and not outside. Without permission, the test passes
    /// unchecked.
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
