//! The interface behind the queues of a TAP, as far as a queue's calls tell: whether it is still there, and whether they block. That is its *link*.
//!
//! A queue is non-blocking when it is opened. A program that holds another copy of its descriptor can undo that, since the property belongs to what the
//! copies share: so the calls of such a queue are marked, and one that blocks is interrupted ([`netvale_mem::calls`]).

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netvale_mem::calls::bounded;
use netvale_mem::fault::Fault;
use rustix::io::Errno;

use crate::sys;

/// The reason for a port whose interface is gone.
pub const GONE: &str = "its interface is gone: it was deleted, or its network namespace has ended";
/// The reason for a port whose queue blocked.
const BLOCKED: &str = "its TAP's descriptor was made blocking: using it would block a worker";

/// What is known of an interface. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_gone: AtomicBool,
    /// For queues of which somebody else may hold a copy.
    fault: Option<Fault>,
}

impl Link {
    /// The interface of queues of which somebody else may hold copies; `fault` is told when it is gone, and when a call blocked.
    pub fn held_by(fault: Fault) -> Link {
        Link(Arc::new(Inner { is_gone: AtomicBool::new(false), fault: Some(fault) }))
    }

    /// Whether a call found that it is gone.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Looks whether the interface behind a queue is still there, and its namespace: [`GONE`] if not. The kernel removes
    /// the interfaces of a namespace a while after it has ended.
    pub fn look(&self, queue: impl AsFd) -> Option<String> {
        let is_gone = matches!(sys::namespace_of(queue), Err(Errno::BADFD | Errno::INVAL));
        is_gone.then(|| GONE.to_owned())
    }

    /// What is told of it, if somebody else may hold copies of its queues.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }

    /// Makes a call on a queue.
    #[inline]
    pub(crate) fn call(&self, call: impl FnOnce() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
        let done = match &self.0.fault {
            None => call(),
            Some(fault) => bounded(fault, BLOCKED, call),
        };
        // What a queue without an interface answers.
        if done == Err(Errno::BADFD) {
            self.lose();
        }
        done
    }

    #[cold]
    fn lose(&self) {
        let was_gone = self.0.is_gone.swap(true, Ordering::Relaxed);
        if let (false, Some(fault)) = (was_gone, &self.0.fault) {
            fault.report(GONE);
        }
    }
}
