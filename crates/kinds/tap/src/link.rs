//! The interface behind the queues of a TAP, as far as a queue's calls tell: whether it is still there, and whether
//! they block. That is its *link*.
//!
//! A queue is non-blocking when it is opened. A program that holds another copy of its descriptor can undo that, since
//! the property belongs to what the copies share: so the calls of such a queue are marked, and one that blocks is
//! interrupted ([`netvale_mem::calls`]).

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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

/// What is called when the interface goes down or away, or comes up.
struct Told(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

#[derive(Debug, Default)]
struct Inner {
    is_gone: AtomicBool,
    is_down: AtomicBool,
    on_change: OnceLock<Told>,
    /// For queues of which somebody else may hold a copy.
    fault: Option<Fault>,
}

impl Link {
    /// The interface of queues of which somebody else may hold copies; `fault` is told when it is gone, and when a call
    /// blocked.
    pub fn held_by(fault: Fault) -> Link {
        Link(Arc::new(Inner { fault: Some(fault), ..Inner::default() }))
    }

    /// Whether a call found that it is gone.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Whether the last frame found that it is down, or gone.
    pub fn is_down(&self) -> bool {
        self.0.is_down.load(Ordering::Relaxed)
    }

    /// Has that called, by the thread that finds out, when the interface goes down or away, or comes up.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_change.set(Told(Box::new(call)));
    }

    /// Looks whether the interface behind a queue is still there, and its namespace: [`GONE`] if not. The kernel
    /// removes the interfaces of a namespace a while after it has ended.
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
        match done {
            Ok(_) if self.is_down() => self.turn(false),
            // What a queue answers without an interface, and one whose interface is down.
            Err(Errno::BADFD) => {
                self.lose();
                self.turn(true);
            }
            Err(Errno::IO) => self.turn(true),
            _ => {}
        }
        done
    }

    #[cold]
    fn turn(&self, down: bool) {
        if self.0.is_down.swap(down, Ordering::Relaxed) != down {
            self.0.on_change.get().into_iter().for_each(|Told(call)| call());
        }
    }

    #[cold]
    fn lose(&self) {
        let was_gone = self.0.is_gone.swap(true, Ordering::Relaxed);
        if let (false, Some(fault)) = (was_gone, &self.0.fault) {
            fault.report(GONE);
        }
    }
}
