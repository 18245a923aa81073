//! Doorbells of ports: the eventfds to which the daemon writes.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, Result};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_getfd, pidfd_open, setrlimit,
};

/// Number of copies of a doorbell's descriptor in each epoll set.
const COPIES: usize = 900;
/// The file with the kernel's limit of watches per user.
const MOST: &str = "/proc/sys/fs/epoll/max_user_watches";

/// Fills an eventfd and makes it blocking, so that the next writer blocks.
///
/// # Errors
/// The descriptor is not an eventfd.
pub fn block(bell: impl AsFd) -> Result<()> {
    let flags = fcntl_getfl(&bell)?;
    fcntl_setfl(&bell, flags | OFlags::NONBLOCK)?;
    loop {
        let _pending = rustix::io::read(&bell, &mut [0; 8]);
        match rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()) {
            // The daemon wrote between the read and the write: read again.
            Err(Errno::AGAIN) => {}
            written => break written.map(drop)?,
        };
    }
    fcntl_setfl(&bell, flags - OFlags::NONBLOCK)
}

/// Epoll sets that watch a doorbell until they are dropped.
#[derive(Debug)]
pub struct Watchers(#[expect(dead_code, reason = "held, so that they watch")] Vec<OwnedFd>);

/// Watches a doorbell `times` times, but at most half the kernel's limit per user, through epoll sets of many
/// descriptors. Each write to the doorbell must notify all watches.
///
/// # Errors
/// There are too few descriptors or watches.
pub fn watch(bell: impl AsFd, times: usize) -> Result<Watchers> {
    let highest = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: highest, maximum: highest })?;
    let most = std::fs::read_to_string(MOST).ok().and_then(|text| text.trim().parse().ok());
    let times = times.min(most.unwrap_or(usize::MAX) / 2);
    let mut held = Vec::new();
    for _ in 0..COPIES.min(times) {
        held.push(rustix::io::fcntl_dupfd_cloexec(&bell, 0)?);
    }
    let copies = held.len();
    for first in (0..times).step_by(COPIES) {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for copy in &held[..copies.min(times - first)] {
            epoll::add(&set, copy, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        held.push(set);
    }
    Ok(Watchers(held))
}

/// Returns the descriptor numbers of all eventfds of this process: those to which it writes and those on which it
/// waits.
#[must_use]
pub fn numbers() -> HashSet<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_bell = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("[eventfd]"))
    };
    entries.filter(is_bell).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Copies the descriptors of this process that have these numbers, except descriptors closed meanwhile.
///
/// # Errors
/// The kernel lacks pidfds.
pub fn copies(numbers: impl IntoIterator<Item = i32>) -> Result<Vec<OwnedFd>> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let copy = |number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok();
    Ok(numbers.into_iter().filter_map(copy).collect())
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Objective: watchers of a doorbell are notified, the doorbell's descriptor is found among this process's
    /// descriptors, and a full doorbell has no room.
    #[test]
    fn watchers_are_notified_of_a_wake_up() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let _watching = watch(&bell, 1000).unwrap();
        let found = copies(numbers()).unwrap();
        assert!(found.len() > COPIES, "including the copies");
        block(&bell).unwrap();
        rustix::io::ioctl_fionbio(&bell, true).unwrap();
        assert_eq!(rustix::io::write(&bell, &1u64.to_ne_bytes()), Err(rustix::io::Errno::AGAIN));
    }
}
