//! Evictions: programs lose their port because their doorbell blocked a worker, their memory is gone, or the port went
//! away.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use netvale_control::types::{Evicted, Owner};
use netvale_mem::fault::{Fault, clear};

use crate::caller::Caller;

/// Number of evictions that are remembered.
const REMEMBERED: usize = 16;

/// The connections to close, and the reasons of the last evictions: their ports are gone and cannot be asked.
pub struct Evictions {
    faults: Arc<OwnedFd>,
    leaving: Vec<u64>,
    past: VecDeque<(Instant, Evicted)>,
}

impl Evictions {
    /// Creates an empty list; `faults` is readable when a program's fault was reported.
    pub fn new(faults: Arc<OwnedFd>) -> Evictions {
        Evictions { faults, leaving: Vec::new(), past: VecDeque::new() }
    }

    /// Creates a fault for a new port's program, which wakes the main thread when it is reported.
    pub fn new_fault(&self) -> Fault {
        Fault::told_by(&self.faults)
    }

    /// A descriptor that is readable once a fault was reported, until [`Evictions::clear`].
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.faults.as_fd()
    }

    /// Clears the reports before the faults are looked at.
    pub fn clear(&self) {
        clear(&self.faults);
    }

    /// Marks connections that lost their port for closing.
    pub fn evict(&mut self, clients: impl IntoIterator<Item = u64>) {
        self.leaving.extend(clients);
    }

    /// Returns a connection to close.
    pub fn next(&mut self) -> Option<u64> {
        self.leaving.pop()
    }

    /// Remembers why a port was taken away.
    pub fn note(&mut self, port: &str, owner: Caller, reason: String) {
        tracing::warn!(port, why = reason, "its program is evicted");
        self.past.truncate(REMEMBERED - 1);
        let owner = Owner { uid: owner.uid, pid: owner.pid };
        self.past.push_front((Instant::now(), Evicted { port: port.to_owned(), owner, reason, age_seconds: 0 }));
    }

    /// The last evictions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Evicted> {
        self.past.iter().map(|(at, one)| Evicted { age_seconds: at.elapsed().as_secs(), ..one.clone() })
    }
}
