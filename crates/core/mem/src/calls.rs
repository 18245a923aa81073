//! Threads inside a system call on a descriptor that a peer shares: an eventfd, a queue of a TAP.
//!
//! Such a descriptor is non-blocking when it is made, but that property belongs to what both sides share: the peer can
//! undo it, and then fill an eventfd's counter. The next thread that rings it would sleep for as long as the peer
//! likes. No way of writing prevents that (eventfd(2) supports neither `RWF_NOWAIT` nor `MSG_DONTWAIT`), so every call
//! is marked, and a process that must not be stopped looks for one that lasts and interrupts it ([`lasting`]). The peer
//! is reported then ([`crate::fault`]).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::thread::Pid;

use crate::fault::{BLOCKED, Fault};

/// A thread's count of calls begun and ended so far: an odd number while it is inside one.
struct Marks {
    thread: Pid,
    calls: AtomicU64,
}

static ALL: Mutex<Vec<Arc<Marks>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Arc<Marks>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's marks, which are in the list while the thread lives.
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
    /// The calls of this thread; the marks are a copy for other threads.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn mark() {
    COUNT.set(COUNT.get().wrapping_add(1));
    // A thread that is ending is not watched any more.
    let _ = HERE.try_with(|here| here.0.calls.store(COUNT.get(), Ordering::Relaxed));
}

/// Whether somebody watches: programs that use the library pay nothing otherwise.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Marks the calls of this process from now on, for [`lasting`].
pub fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// Makes a call, marked if somebody watches.
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
/// What the call says; `EAGAIN` if it was not made.
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

/// A call that lasts longer than this is looked at: other programs may have had the processor, or the peer has seen
/// to it.
const LONG: Duration = Duration::from_millis(2);
/// The processor time that a call may take. What it does is done in a microsecond.
const MOST: Duration = Duration::from_millis(1);

/// Like [`bounded`], for a doorbell: who waits for it is told by the call, and a peer can have very many wait. A call
/// that lasts is looked at, and so are the next ones; if they take the processor's time, the peer is reported.
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

/// The time for which the calling thread had a CPU.
pub fn own_time() -> Duration {
    // Not rustix's, which looks for the vDSO; under valgrind, which counts instructions, there is none.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the structure, which is ours.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(done, 0, "every thread has such a clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Calls under way: the thread, and the number of the call.
pub type Under = Vec<(Pid, u64)>;

/// Returns the calls under way now. `interrupt` gets the thread of each that was under way when `before` was taken; the
/// thread cannot end meanwhile.
pub fn lasting(before: &Under, mut interrupt: impl FnMut(Pid)) -> Under {
    let all = all();
    let now = all.iter().map(|marks| (marks.thread, marks.calls.load(Ordering::Relaxed)));
    let now: Under = now.filter(|(_, calls)| calls % 2 == 1).collect();
    now.iter().filter(|call| before.contains(call)).for_each(|(thread, _)| interrupt(*thread));
    now
}
