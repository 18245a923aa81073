//! The *link* of a TAP: the state of the interface behind its queues as the calls on a queue show it. It may be gone,
//! and calls may block.
//!
//! A queue is opened non-blocking. A program that holds another copy of its descriptor can undo that, as all copies
//! share the property. So calls on such a queue are marked, and one that blocks is interrupted
//! ([`netvale_mem::calls`]).

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

/// The known state of an interface. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<Inner>);

/// The function to call when the interface goes down or away, or comes up.
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
    /// For queues that another program may hold copies of.
    fault: Option<Fault>,
}

impl Link {
    /// The interface of queues that another program may hold copies of. Its end, and a call that blocks, are reported
    /// to `fault`.
    pub fn held_by(fault: Fault) -> Link {
        Link(Arc::new(Inner { fault: Some(fault), ..Inner::default() }))
    }

    /// Whether a call found the interface gone.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Whether the last frame found the interface down or gone.
    pub fn is_down(&self) -> bool {
        self.0.is_down.load(Ordering::Relaxed)
    }

    /// Has the thread that notices call `call` when the interface goes down or away, or comes up.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_change.set(Told(Box::new(call)));
    }

    /// Checks that the interface of a queue and its namespace still exist: returns [`GONE`] if not. The kernel removes
    /// the interfaces of a namespace some time after its end.
    pub fn look(&self, queue: impl AsFd) -> Option<String> {
        let is_gone = matches!(sys::namespace_of(queue), Err(Errno::BADFD | Errno::INVAL));
        is_gone.then(|| GONE.to_owned())
    }

    /// Where its state is reported, if another program may hold copies of its queues.
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
            // The errors of a queue without an interface, and with an interface that is down.
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
