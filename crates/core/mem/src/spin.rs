//! How long one side of a ring polls for the other side before it sleeps, learned from the results of polling.
//!
//! Polling saves a wake-up if the other side runs on another CPU. It does harm if the other side waits for a CPU, which
//! this side would free by sleeping; besides, the scheduler prefers threads that have slept. Each period of polling is
//! therefore a trial. After several trials that find nothing, or one trial during which another thread ran on this CPU,
//! polling is suspended: this side sleeps immediately, and tries to poll again later.
//!
//! Polling never yields the CPU: if other programs compete for it, a thread that yields loses the CPU for a whole time
//! slice, and a doorbell does not end that wait.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A time between two clock reads that exceeds this value means that another thread, or another virtual machine, ran in
/// between.
const GAP: Duration = Duration::from_micros(40);
/// Duration of the first suspension, after polling has stopped paying off.
const HOLD_OFF: Duration = Duration::from_millis(1);
/// Maximum duration of a suspension, reached after repeated failures.
const MOST_HOLD_OFF: Duration = Duration::from_millis(32);
/// Period at the start of polling in which looks (checks for the event) follow one another closely. Later looks are
/// further apart: a look that finds nothing takes the cache line from the other side, and so delays the event that it
/// waits for.
const EAGER: Duration = Duration::from_micros(1);
/// Number of spin-loop pauses between two later looks: about a quarter of a microsecond.
const PAUSES: u32 = 8;
/// Maximum credit. A successful trial adds 1, a failed one subtracts 1; polling is suspended at 0.
const MOST_CREDIT: u32 = 4;

/// Decides whether one side polls for the other before it sleeps, from the results of earlier polling.
#[derive(Debug)]
pub struct Spin {
    /// Number of spin-loop pauses between two looks, after the first microsecond ([`EAGER`]).
    pauses: u32,
    /// Maximum time to poll.
    most: Duration,
    credit: u32,
    hold_off: Duration,
    /// End of the last suspension of polling; `None` if polling was never suspended.
    not_before: Option<Instant>,
    trial: Option<SpinTrial>,
}

/// A trial (a period of polling) in progress.
#[derive(Debug)]
struct SpinTrial {
    began: Instant,
    looked: Instant,
}

impl Default for Spin {
    /// Returns a value that never polls.
    fn default() -> Self {
        Spin::new(Duration::ZERO)
    }
}

impl Spin {
    /// Creates a value that polls for at most `most` each time.
    pub fn new(most: Duration) -> Self {
        Spin { pauses: PAUSES, most, credit: MOST_CREDIT, hold_off: HOLD_OFF, not_before: None, trial: None }
    }

    /// Shortens the pauses between polls, for a side that polls many places: one pass over them takes long enough that
    /// no further pause is needed.
    #[must_use]
    pub fn restless(self) -> Self {
        Spin { pauses: 1, ..self }
    }

    /// Sets the maximum time to poll.
    pub fn set_most(&mut self, most: Duration) {
        self.most = most;
    }

    /// Polls after a look that found nothing, until `look` returns true or polling no longer pays off. Returns whether
    /// `look` returned true.
    pub fn poll(&mut self, mut look: impl FnMut() -> bool) -> bool {
        while self.go_on() {
            if look() {
                self.paid();
                return true;
            }
        }
        false
    }

    /// Handles a look that found nothing: begins to poll, or pauses. Returns whether the caller should look again;
    /// otherwise it should sleep.
    pub fn go_on(&mut self) -> bool {
        let Some(SpinTrial { began, looked }) = &self.trial else {
            return !self.most.is_zero() && has_company() && self.begin_at(Instant::now());
        };
        let eager = looked.duration_since(*began) < EAGER;
        (0..if eager { 1 } else { self.pauses }).for_each(|_| std::hint::spin_loop());
        self.go_on_at(Instant::now(), was_preempted)
    }

    fn begin_at(&mut self, now: Instant) -> bool {
        if self.not_before.is_none_or(|at| now >= at) {
            self.trial = Some(SpinTrial { began: now, looked: now });
        }
        self.trial.is_some()
    }

    fn go_on_at(&mut self, now: Instant, was_preempted: impl Fn() -> bool) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let gap = now.duration_since(std::mem::replace(&mut trial.looked, now));
        let alone = gap <= GAP || !was_preempted();
        if alone && now.duration_since(trial.began) < self.most {
            return true;
        }
        self.trial = None;
        self.credit = if alone { self.credit.saturating_sub(1) } else { 0 };
        if self.credit == 0 {
            self.not_before = Some(now + self.hold_off);
            self.hold_off = (self.hold_off * 2).min(MOST_HOLD_OFF);
        }
        false
    }

    /// Records that a look found something. If polling was in progress, the trial counts as successful.
    #[inline]
    pub fn paid(&mut self) {
        if self.trial.take().is_some() {
            self.hold_off = HOLD_OFF;
            self.credit = MOST_CREDIT.min(self.credit + 1);
        }
    }
}

/// Like [`Spin::poll`], for a value `it` that contains the [`Spin`]; `spin` returns a reference to that [`Spin`].
pub fn poll_for<T>(it: &mut T, spin: impl Fn(&mut T) -> &mut Spin, mut look: impl FnMut(&mut T) -> bool) -> bool {
    let mut learned = std::mem::take(spin(it));
    let found = learned.poll(|| look(it));
    *spin(it) = learned;
    found
}

/// Whether another thread has preempted the calling thread since its previous call of this function, or since the
/// thread began. A gap without a preemption is due to the hypervisor or an interrupt, not to this machine's threads.
#[cold]
fn was_preempted() -> bool {
    thread_local! {
        static TIMES: Cell<u64> = const { Cell::new(0) };
    }
    preemptions().is_none_or(|times| TIMES.replace(times) != times)
}

/// Number of times that another thread preempted the calling thread; `None` if the kernel does not report it.
pub fn preemptions() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes to a structure that belongs to this function, and fills it on success.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded.
    Some(unsafe { usage.assume_init() }.ru_nivcsw.unsigned_abs())
}

/// Whether the machine has more than one CPU: with a single CPU, the other side cannot run while a thread polls. The
/// number of CPUs of this process does not matter, as the other side may run on CPUs outside this process's set. The
/// first call reads the list of online CPUs from a file, and must precede a sandbox that hides the file.
pub fn has_company() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        std::fs::read_to_string("/sys/devices/system/cpu/online").map_or(true, |cpus| cpus.trim() != "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(100);
    const STEP: Duration = Duration::from_micros(1);

    /// Runs a failing trial that begins at `now`. Returns its end; `None` if there was no trial.
    fn fails(spin: &mut Spin, now: Instant) -> Option<Instant> {
        let mut at = now;
        if !spin.begin_at(now) {
            return None;
        }
        loop {
            at += STEP;
            if !spin.go_on_at(at, || false) {
                return Some(at);
            }
        }
    }

    /// Runs a trial that soon pays off.
    fn pays(spin: &mut Spin, now: Instant) {
        assert!(spin.begin_at(now) && spin.go_on_at(now + STEP, || true));
        spin.paid();
    }

    /// Objective: a trial lasts as long as configured; after as many failures as the initial credit covers, trials are
    /// suspended for 1 ms, and after each further failure for twice as long, up to the limit.
    #[test]
    fn failures_make_trials_rare() {
        let mut spin = Spin::new(MOST);
        let mut now = Instant::now();
        for _ in 0..MOST_CREDIT {
            let end = fails(&mut spin, now).unwrap();
            assert_eq!(end - now, MOST);
            now = end;
        }
        for millis in [1, 2, 4, 8, 16, 32, 32] {
            let until = now + Duration::from_millis(millis);
            assert!(!spin.begin_at(now) && !spin.begin_at(until - STEP));
            now = fails(&mut spin, until).unwrap();
        }
    }

    /// Objective: one success makes the next suspension short again, and earns credit for one failure; many successes
    /// earn no more than the maximum credit.
    #[test]
    fn successes_are_remembered() {
        let mut spin = Spin::new(MOST);
        let mut now = Instant::now();
        while let Some(end) = fails(&mut spin, now) {
            now = end;
        }
        now += Duration::from_millis(1);
        now = fails(&mut spin, now).unwrap() + Duration::from_millis(2);
        pays(&mut spin, now);
        now = fails(&mut spin, now).unwrap();
        assert!(!spin.begin_at(now));
        now += Duration::from_millis(1);
        (0..100).for_each(|_| pays(&mut spin, now));
        for _ in 0..MOST_CREDIT {
            now = fails(&mut spin, now).unwrap();
        }
        assert!(!spin.begin_at(now));
    }

    /// Objective: a thread that was preempted while polling does not poll for a while, despite earlier successes.
    #[test]
    fn another_thread_ran_here() {
        let mut spin = Spin::new(MOST);
        let now = Instant::now();
        (0..10).for_each(|_| pays(&mut spin, now));
        assert!(spin.begin_at(now));
        let back = now + GAP + STEP;
        assert!(spin.go_on_at(back, || false), "it was the hypervisor");
        let back = back + GAP + STEP;
        assert!(!spin.go_on_at(back, || true));
        assert!(!spin.begin_at(back) && spin.begin_at(back + HOLD_OFF));
    }

    /// Objective: with a maximum time of zero there are no looks; otherwise looks continue until something is found.
    #[test]
    #[cfg_attr(miri, ignore = "Miri is slow enough to be taken for preempted, and cannot ask the kernel")]
    fn looks_continue_until_something_is_found() {
        let mut spin = Spin::default();
        assert!(!spin.poll(|| panic!("nobody looks")));
        spin.set_most(MOST);
        let mut left = 3;
        let found = spin.poll(|| {
            left -= 1;
            left == 0
        });
        assert!(found || !has_company() || left > 0, "a gap may end the trial early");
    }

    /// Objective: `poll_for` puts the results of earlier polling back into the value: here, that polling is suspended.
    #[test]
    fn experience_is_kept() {
        let mut it = (Spin::new(MOST), 0);
        it.0.not_before = Some(Instant::now() + Duration::from_secs(3600));
        assert!(!poll_for(
            &mut it,
            |it| &mut it.0,
            |it| {
                it.1 += 1;
                true
            }
        ));
        assert_eq!((it.0.most, it.1, it.0.not_before.is_some()), (MOST, 0, true));
    }
}
