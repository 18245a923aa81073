//! The *link* of a TAP: the state of the interface behind a queue, as the results of calls on the queue show it. A call
//! may find that the interface is gone, and it may block.
//!
//! A queue is opened non-blocking. A program that holds a copy of the descriptor can make it blocking, as all copies
//! share this setting. If a program may hold copies, calls on the queue are therefore registered, and a call that
//! blocks is interrupted ([`netvale_mem::calls`]).

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use netvale_mem::calls::bounded;
use netvale_mem::fault::Fault;
use rustix::io::Errno;

use crate::sys;

/// The reason for ending a port whose interface is gone.
pub const GONE: &str = "the interface is gone: it was deleted, or its network namespace has ended";
/// The reason for ending a port whose queue blocked.
const BLOCKED: &str = "the TAP's descriptor was made blocking: a worker that uses the descriptor would block";

/// The state of an interface, as the results of the last calls on its queues showed it. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct TapLink(Arc<TapLinkState>);

/// A callback for an interface that goes down, vanishes, or comes up.
struct LinkListener(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for LinkListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkListener")
    }
}

#[derive(Debug, Default)]
struct TapLinkState {
    is_gone: AtomicBool,
    is_down: AtomicBool,
    on_change: OnceLock<LinkListener>,
    /// Where faults of the program that may hold copies of the queues are reported; `None` if there is no such program.
    fault: Option<Fault>,
}

impl TapLink {
    /// Creates the link of queues of which another program may hold copies. If the interface vanishes or a call blocks,
    /// this is reported to `fault`.
    pub fn held_by(fault: Fault) -> TapLink {
        TapLink(Arc::new(TapLinkState { fault: Some(fault), ..TapLinkState::default() }))
    }

    /// Returns whether a call found the interface gone.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Returns whether the interface was down or gone when a frame was last read or written.
    pub fn is_down(&self) -> bool {
        self.0.is_down.load(Ordering::Relaxed)
    }

    /// Sets the callback for an interface that goes down, vanishes, or comes up. The thread that detects the change
    /// makes the call.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_change.set(LinkListener(Box::new(call)));
    }

    /// Checks that a queue's interface and its namespace still exist. Returns `None` if both exist, otherwise [`GONE`].
    /// The kernel removes a namespace's interfaces some time after the namespace's end.
    pub fn look(&self, queue: impl AsFd) -> Option<String> {
        let is_gone = matches!(sys::namespace_of(queue), Err(Errno::BADFD | Errno::INVAL));
        is_gone.then(|| GONE.to_owned())
    }

    /// Returns the fault to which misbehaviour of another program is reported; `None` if no other program may hold
    /// copies of the queues.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }

    /// Makes a system call on a queue, and records what the result shows about the interface.
    #[inline]
    pub(crate) fn call(&self, call: impl FnOnce() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
        let done = match &self.0.fault {
            None => call(),
            Some(fault) => bounded(fault, BLOCKED, call),
        };
        match done {
            Ok(_) if self.is_down() => self.turn(false),
            // `EBADFD` means that the interface is gone, `EIO` that it is down.
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
            self.0.on_change.get().into_iter().for_each(|LinkListener(call)| call());
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
