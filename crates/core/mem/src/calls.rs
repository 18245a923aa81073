//! System calls that a peer could block, because it shares the descriptor (an eventfd, a queue of a TAP).
//!
//! Such a descriptor is set to non-blocking, but the flag belongs to the shared open file: the peer can clear it and
//! fill the eventfd's counter. The next thread that writes to the eventfd would sleep for as long as the peer likes. No
//! variant of the write prevents that (eventfd(2) supports neither `RWF_NOWAIT` nor `MSG_DONTWAIT`). Each thread
//! therefore marks its calls, and a watchdog interrupts calls that last too long ([`lasting`]). The interrupted thread
//! reports the peer ([`crate::fault`]).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::thread::Pid;

use crate::fault::{BLOCKED, Fault};

/// The number of calls that a thread has begun plus the number that have ended: odd during a call.
struct CallMarks {
    thread: Pid,
    calls: AtomicU64,
}

static ALL: Mutex<Vec<Arc<CallMarks>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Arc<CallMarks>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's marks, which are in [`ALL`] until the thread ends.
struct ThreadMarks(Arc<CallMarks>);

impl ThreadMarks {
    fn new() -> ThreadMarks {
        let marks = Arc::new(CallMarks { thread: rustix::thread::gettid(), calls: AtomicU64::new(0) });
        all().push(Arc::clone(&marks));
        ThreadMarks(marks)
    }
}

impl Drop for ThreadMarks {
    fn drop(&mut self) {
        all().retain(|marks| !Arc::ptr_eq(marks, &self.0));
    }
}

thread_local! {
    static HERE: ThreadMarks = ThreadMarks::new();
    /// Number of calls that this thread has begun or ended. `HERE` holds a copy for other threads.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn mark() {
    COUNT.set(COUNT.get().wrapping_add(1));
    // Calls of an ending thread are not watched.
    let _ = HERE.try_with(|here| here.0.calls.store(COUNT.get(), Ordering::Relaxed));
}

/// Whether calls are watched. Programs without a watchdog do not mark calls.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Starts marking the calls of this process, for [`lasting`].
pub fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// Makes a call, and marks its start and end if calls are watched.
pub(crate) fn marked<T>(call: impl FnOnce() -> T) -> T {
    if !WATCHED.load(Ordering::Relaxed) {
        return call();
    }
    mark();
    let done = call();
    mark();
    done
}

/// Makes a call on a descriptor that a peer shares, unless the peer has made such a call block before. Only calls that
/// block are interrupted, and only the peer can make a call block; an interrupted call is therefore reported as the
/// fault `why`.
///
/// # Errors
/// The error of the call; `EAGAIN` if the call was not made.
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

/// Duration of a call above which the CPU time of the next calls is measured, to tell whether the peer delays the calls
/// or other programs had the CPU.
const LONG: Duration = Duration::from_millis(2);
/// CPU time above which a call counts as slow. Normal calls take a microsecond.
const MOST: Duration = Duration::from_millis(1);

/// Like [`bounded`], for ringing a doorbell: the call wakes all waiters, of which a peer can create very many. After a
/// call that takes more than 2 ms, the CPU time of the next calls is measured; if too many of them use more than 1 ms,
/// the peer is reported.
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
    // libc's function, as rustix's function needs the vDSO, which valgrind hides (instructions are counted with
    // valgrind).
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to a structure that belongs to this function.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(done, 0, "every thread has such a clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Calls in progress: for each call, the calling thread and that thread's call count.
pub type CallsUnderWay = Vec<(Pid, u64)>;

/// Returns the calls in progress. Calls `interrupt` with the thread of each call that was already in progress in
/// `before`, the result of an earlier call of this function. The thread cannot end before `interrupt` returns.
pub fn lasting(before: &CallsUnderWay, mut interrupt: impl FnMut(Pid)) -> CallsUnderWay {
    let all = all();
    let now = all.iter().map(|marks| (marks.thread, marks.calls.load(Ordering::Relaxed)));
    let now: CallsUnderWay = now.filter(|(_, calls)| calls % 2 == 1).collect();
    now.iter().filter(|call| before.contains(call)).for_each(|(thread, _)| interrupt(*thread));
    now
}
