//! A *toucher*: a thread that touches memory in place of threads that must not wait for such an access.
//!
//! While a hole is punched in a file, an access to that range waits. The process that punches can prolong the wait as
//! long as it likes, and no signal ends it. A thread that serves many users therefore lets a toucher, one per owner,
//! access such memory, and proceeds without the result if the toucher makes no progress, that is, if it has work and
//! does not wait for a CPU, but uses no CPU time. Large memory and busy machines do not count as a lack of progress.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::fault::raise;

/// Time between two checks of the thread's progress.
const LOOK: Duration = Duration::from_millis(100);
/// Number of consecutive checks without progress after which a touch counts as stuck. One check is not enough: this
/// process itself may have been stopped.
const LOOKS: u32 = 2;
/// Duration above which a touch counts as stuck unless it has used enough CPU time ([`PART`]).
const LONG: Duration = Duration::from_secs(1);
/// A long touch makes progress if it has used at least 1/`PART` of its duration as CPU time.
const PART: u32 = 16;
/// Minimum CPU time between two checks that counts as progress: waiting itself uses a little CPU time.
const MOVES: Duration = Duration::from_millis(1);

type TouchFn = Box<dyn FnOnce() + Send>;

/// A handle to a toucher's thread. The thread ends after its last task once the handle is dropped.
#[derive(Debug)]
pub struct Toucher {
    touches: Sender<TouchFn>,
    state: Arc<TouchState>,
    news: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct TouchState {
    /// The thread's id in the kernel; 0 before the thread has begun.
    thread: AtomicI32,
    /// Number of touches (actions on memory) given to the thread.
    given: AtomicU64,
    /// Number of touches that the thread has done.
    done: AtomicU64,
    /// Number of touches that must be done before callers wait for touches again: the value of `given` when a touch
    /// last took too long.
    late: AtomicU64,
    /// Whether a touch took too long since the last [`Toucher::take_late`].
    was_late: AtomicBool,
}

/// The id of the calling thread in the kernel.
fn number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

impl TouchState {
    /// CPU time used by the thread.
    fn used(&self) -> Duration {
        let thread = self.thread.load(Ordering::Relaxed);
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // The clock of a thread (CPUCLOCK_SCHED, CPUCLOCK_PERTHREAD of the kernel's posix-timers.h).
        let clock = !thread << 3 | 6;
        // SAFETY: the kernel writes to a structure that belongs to this function.
        let is_known = thread != 0 && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
        if is_known { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
    }

    /// Whether the thread runs or waits for a CPU. A busy machine is not the peer's fault.
    fn is_ready(&self) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        let stat = std::fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        // The state follows the name, which is in brackets (proc_pid_stat(5)).
        let name_end = stat.iter().rposition(|&byte| byte == b')');
        name_end.and_then(|at| stat.get(at + 2)) == Some(&b'R')
    }
}

impl Toucher {
    /// Starts the thread; `news` becomes readable when a touch takes too long.
    ///
    /// # Errors
    /// The error of creating a thread.
    pub fn start(name: String, news: &Arc<OwnedFd>) -> std::io::Result<Toucher> {
        let (touches, given) = mpsc::channel::<TouchFn>();
        let state = Arc::new(TouchState::default());
        let done = Arc::clone(&state);
        std::thread::Builder::new().name(name).spawn(move || {
            done.thread.store(number(), Ordering::Relaxed);
            for touch in given {
                touch();
                done.done.fetch_add(1, Ordering::Release);
            }
        })?;
        Ok(Toucher { touches, state, news: Arc::clone(news) })
    }

    /// Runs an action in the thread, and returns its result. `None` if the action, or an earlier action, takes too
    /// long: the action still runs when its turn comes, and its result is dropped.
    pub fn touch<R: Send + 'static>(&self, what: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        // A call from the toucher's own thread, e.g. by the drop of a value in that thread, runs immediately.
        if self.state.thread.load(Ordering::Relaxed) == number() {
            return Some(what());
        }
        let (done, answer) = mpsc::sync_channel(1);
        self.give(move || drop(done.send(what())));
        if self.state.done.load(Ordering::Acquire) < self.state.late.load(Ordering::Relaxed) {
            return None;
        }
        let answer = self.wait(&answer);
        if answer.is_none() {
            self.say_late();
        }
        answer
    }

    fn wait<R>(&self, answer: &Receiver<R>) -> Option<R> {
        let begun = Instant::now();
        let at_first = self.state.used();
        let mut before = at_first;
        let mut idle = 0;
        while idle < LOOKS {
            match answer.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                other => return other.ok(),
            }
            let used = self.state.used();
            let lasted = begun.elapsed();
            let is_slow = lasted > LONG && (used - at_first) * PART < lasted;
            let waits = (used - before < MOVES || is_slow) && !self.state.is_ready();
            idle = if waits { idle + 1 } else { 0 };
            before = used;
        }
        None
    }

    /// Runs an action in the thread without waiting for its end.
    pub fn give(&self, what: impl FnOnce() + Send + 'static) {
        self.state.given.fetch_add(1, Ordering::Relaxed);
        // The thread holds the receiver, and ends only after this value is dropped.
        let _ = self.touches.send(Box::new(what));
    }

    #[cold]
    fn say_late(&self) {
        self.state.late.store(self.state.given.load(Ordering::Relaxed), Ordering::Relaxed);
        self.state.was_late.store(true, Ordering::Release);
        raise(&self.news);
    }

    /// Returns whether a touch took too long since the last call.
    pub fn take_late(&self) -> bool {
        self.state.was_late.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    fn toucher() -> Toucher {
        Toucher::start("touches".into(), &crate::fault::news().unwrap()).unwrap()
    }

    /// Objective: callers wait for a touch that makes progress, however long it takes.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no clocks of threads")]
    fn work_is_waited_for() {
        let works = |time: Duration| {
            let until = Instant::now() + time;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            9
        };
        assert_eq!(toucher().touch(move || works(LONG + 3 * LOOK)), Some(9));
    }

    /// Objective: a touch returns its result; callers do not wait for a stuck touch, nor for later touches until the
    /// stuck touch is done; after that, touches return their results again.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no eventfd of this kind")]
    fn nobody_waits() {
        let toucher = Arc::new(toucher());
        let inner = Arc::clone(&toucher);
        assert_eq!(
            toucher.touch(move || inner.touch(|| 7)),
            Some(Some(7)),
            "a touch within the toucher runs immediately"
        );
        let (go_on, wait) = channel::<()>();
        let begun = Instant::now();
        assert_eq!(toucher.touch(move || wait.recv().is_ok()), None);
        assert!(begun.elapsed() >= LOOKS * LOOK);
        let (say, said) = channel();
        assert!(toucher.touch(move || say.send(5)).is_none(), "the touch before it lasts");
        assert_eq!((toucher.take_late(), toucher.take_late()), (true, false));
        go_on.send(()).unwrap();
        assert_eq!(said.recv(), Ok(5), "the touch is done nevertheless");
        let works = || toucher.touch(|| 8) == Some(8);
        let until = Instant::now() + Duration::from_secs(60);
        while !works() {
            assert!(Instant::now() < until);
        }
    }
}
