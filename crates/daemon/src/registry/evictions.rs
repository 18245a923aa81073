//! Programs that lost their port: their doorbell blocked a worker, or their memory is gone, or the port went away.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use netvale_control::types::{Evicted, Owner};
use netvale_mem::fault::{Fault, clear};

use crate::caller::Caller;

/// Evictions that are remembered.
const REMEMBERED: usize = 16;

/// Who is to go, and why the last ones went: their ports are gone, and cannot tell.
pub struct Evictions {
    faults: Arc<OwnedFd>,
    leaving: Vec<u64>,
    past: VecDeque<(Instant, Evicted)>,
}

impl Evictions {
    /// Nobody has gone; `faults` is readable when a program's fault was reported.
    pub fn new(faults: Arc<OwnedFd>) -> Evictions {
        Evictions { faults, leaving: Vec::new(), past: VecDeque::new() }
    }

    /// A fault for a new port's program, which wakes the main thread when it is reported.
    pub fn new_fault(&self) -> Fault {
        Fault::told_by(&self.faults)
    }

    /// Readable when a fault was reported, until [`Evictions::clear`].
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.faults.as_fd()
    }

    /// The faults that were reported are looked at now.
    pub fn clear(&self) {
        clear(&self.faults);
    }

    /// Connections that lost their port are to be closed.
    pub fn evict(&mut self, clients: impl IntoIterator<Item = u64>) {
        self.leaving.extend(clients);
    }

    /// A connection that is to be closed.
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

    /// The last evictions, the last one first.
    pub fn iter(&self) -> impl Iterator<Item = Evicted> {
        self.past.iter().map(|(at, one)| Evicted { age_seconds: at.elapsed().as_secs(), ..one.clone() })
    }
}
