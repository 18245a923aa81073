//! Threads inside a system call on a descriptor that a peer shares: an eventfd, a queue of a TAP.
//!
//! Such a descriptor is made non-blocking, but the flag belongs to the shared open file: the peer can clear it, and
//! then fill an eventfd's counter. The next thread that rings it would sleep for as long as the peer likes. No way of
//! writing prevents that (eventfd(2) supports neither `RWF_NOWAIT` nor `MSG_DONTWAIT`). So every call is marked, and a
//! process that must not be stopped looks for calls that last and interrupts them ([`lasting`]). The peer is then
//! reported ([`crate::fault`]).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::thread::Pid;

use crate::fault::{BLOCKED, Fault};

/// A thread's count of calls begun and ended: odd inside a call.
struct Marks {
    thread: Pid,
    calls: AtomicU64,
}

static ALL: Mutex<Vec<Arc<Marks>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Arc<Marks>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's marks, listed while the thread lives.
struct Here(Arc<Marks>);

impl Here {
    fn new() -> Here {
        let marks = Arc::new(Marks { thread: rustix::thread::gettid(), calls: AtomicU64::new(0) });
        all().push(Arc::clone(&marks));
        Here(marks)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        all().retain(|marks| !Arc::ptr_eq(marks, &self.0));
    }
}

thread_local! {
    static HERE: Here = Here::new();
    /// This thread's count of calls; the marks are a copy for other threads.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn mark() {
    COUNT.set(COUNT.get().wrapping_add(1));
    // A thread that is ending is no longer watched.
    let _ = HERE.try_with(|here| here.0.calls.store(COUNT.get(), Ordering::Relaxed));
}

/// Whether calls are watched; programs without a watch pay nothing.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Marks the calls of this process from now on, for [`lasting`].
pub fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// Makes a call, marked if calls are watched.
pub(crate) fn marked<T>(call: impl FnOnce() -> T) -> T {
    if !WATCHED.load(Ordering::Relaxed) {
        return call();
    }
    mark();
    let done = call();
    mark();
    done
}

/// Makes a call on a descriptor that a peer shares, unless the peer has made such a call block before. Only a call that
/// blocks is interrupted, and only the peer can make it block: then `why` is reported.
///
/// # Errors
/// The error of the call; `EAGAIN` if it was not made.
#[inline]
pub fn bounded<T>(fault: &Fault, why: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    if fault.is_blocked() {
        return Err(Errno::AGAIN);
    }
    let done = marked(call);
    if matches!(done, Err(Errno::INTR)) {
        fault.block(why);
    }
    done
}

/// A call longer than this is checked: either other programs had the processor, or the peer delayed it.
const LONG: Duration = Duration::from_millis(2);
/// Processor time that a call may take. Normal calls take a microsecond.
const MOST: Duration = Duration::from_millis(1);

/// Like [`bounded`], for a doorbell: the call wakes all waiters, and a peer can have very many. A call that lasts is
/// checked, and so are the next ones; if they take processor time, the peer is reported.
///
/// # Errors
/// Like [`bounded`].
#[inline]
pub fn timed<T>(fault: &Fault, call: impl FnOnce() -> Result<T>) -> Result<T> {
    if fault.is_looked_at() {
        return looked_at(fault, call);
    }
    let begin = Instant::now();
    let done = bounded(fault, BLOCKED, call);
    if begin.elapsed() > LONG {
        fault.look_at();
    }
    done
}

#[cold]
fn looked_at<T>(fault: &Fault, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = own_time();
    let done = bounded(fault, BLOCKED, call);
    fault.looked(own_time().saturating_sub(begin) > MOST);
    done
}

/// Returns the CPU time of the calling thread.
pub fn own_time() -> Duration {
    // Not rustix's function: it looks for the vDSO, which is missing under valgrind, the counter of instructions.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes this function's own structure.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(done, 0, "every thread has such a clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Calls in progress: the thread, and the number of the call.
pub type Under = Vec<(Pid, u64)>;

/// Returns the calls in progress. `interrupt` gets the thread of each that already was when `before` was taken; the
/// thread cannot end meanwhile.
pub fn lasting(before: &Under, mut interrupt: impl FnMut(Pid)) -> Under {
    let all = all();
    let now = all.iter().map(|marks| (marks.thread, marks.calls.load(Ordering::Relaxed)));
    let now: Under = now.filter(|(_, calls)| calls % 2 == 1).collect();
    now.iter().filter(|call| before.contains(call)).for_each(|(thread, _)| interrupt(*thread));
    now
}
