//! Closes descriptors that a client passed. Closing can block for as long as their owner likes (a socket that lingers, a file system in user
//! space), so a few threads of their own do it.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Most descriptors that one message carries (`SCM_MAX_FD`). The kernel itself closes those for which the receiver has no room, and has it wait.
pub const MOST_PASSED: usize = 253;
/// Most threads that close.
const MOST: usize = 16;

struct Closing {
    threads: usize,
    waiting: Vec<OwnedFd>,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { threads: 0, waiting: Vec::new() });

/// Hands a descriptor to a thread that closes it.
pub fn close(fd: OwnedFd) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.waiting.push(fd);
    if closing.threads < MOST {
        match std::thread::Builder::new().name("netvale-closing".into()).spawn(close_all) {
            Ok(_) => closing.threads += 1,
            // It is closed with the next one.
            Err(e) => tracing::warn!("no thread to close a client's descriptor: {e}"),
        }
    }
}

/// A thread's work: until nothing waits any more.
fn close_all() {
    while let Some(fd) = next() {
        drop(fd);
    }
}

fn next() -> Option<OwnedFd> {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    let next = closing.waiting.pop();
    if next.is_none() {
        closing.threads -= 1;
    }
    next
}
