//! How long to poll before sleeping, learned from the results of polling.
//!
//! Polling saves a wake-up if the other side works on another CPU. It does harm if the other side waits for this very
//! CPU, or for one that another thread uses: then the sooner this side sleeps, the sooner the other one runs, and a
//! thread that slept is scheduled before those that kept running. So polling is a trial: if it finds nothing, or
//! another thread ran here in between, this side sleeps immediately for a while, and tries again later.
//!
//! Polling never yields: where other programs compete, a thread that yields loses its CPU to them for a whole slice,
//! and news does not wake it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Two clock reads farther apart than this had another thread, or another virtual machine, in between.
const GAP: Duration = Duration::from_micros(40);
/// How long polling is suspended after it stopped paying, at first.
const HOLD_OFF: Duration = Duration::from_millis(1);
/// The longest suspension, after repeated failures.
const MOST_HOLD_OFF: Duration = Duration::from_millis(32);
/// How long looks are as close together as possible. After that each fruitless look only takes the cache line from the
/// other side, and rarer looks find more.
const EAGER: Duration = Duration::from_micros(1);
/// Pauses between two later looks: about a quarter of a microsecond.
const PAUSES: u32 = 8;
/// Number of failures forgiven after as many successes.
const MOST_CREDIT: u32 = 4;

/// Experience of one side with polling for another.
#[derive(Debug)]
pub struct Spin {
    /// Pauses between two looks, except at first.
    pauses: u32,
    /// The longest time to poll.
    most: Duration,
    credit: u32,
    hold_off: Duration,
    /// End of the suspension of polling.
    not_before: Option<Instant>,
    trial: Option<Trial>,
}

/// A trial in progress.
#[derive(Debug)]
struct Trial {
    began: Instant,
    looked: Instant,
}

impl Default for Spin {
    /// Never polls.
    fn default() -> Self {
        Spin::new(Duration::ZERO)
    }
}

impl Spin {
    /// Polls for at most `most` each time.
    pub fn new(most: Duration) -> Self {
        Spin { pauses: PAUSES, most, credit: MOST_CREDIT, hold_off: HOLD_OFF, not_before: None, trial: None }
    }

    /// Shortens the pauses for a poller of many places: its looks take enough time.
    #[must_use]
    pub fn restless(self) -> Self {
        Spin { pauses: 1, ..self }
    }

    /// Sets the longest time to poll.
    pub fn set_most(&mut self, most: Duration) {
        self.most = most;
    }

    /// Polls after a fruitless look, until `look` finds something or polling stops paying. Returns whether it found
    /// something.
    pub fn poll(&mut self, mut look: impl FnMut() -> bool) -> bool {
        while self.go_on() {
            if look() {
                self.paid();
                return true;
            }
        }
        false
    }

    /// Handles a fruitless look: begins to poll, or pauses. Returns whether to look again; if not, sleep.
    pub fn go_on(&mut self) -> bool {
        let Some(Trial { began, looked }) = &self.trial else {
            return !self.most.is_zero() && has_company() && self.begin_at(Instant::now());
        };
        let eager = looked.duration_since(*began) < EAGER;
        (0..if eager { 1 } else { self.pauses }).for_each(|_| std::hint::spin_loop());
        self.go_on_at(Instant::now(), was_preempted)
    }

    fn begin_at(&mut self, now: Instant) -> bool {
        if self.not_before.is_none_or(|at| now >= at) {
            self.trial = Some(Trial { began: now, looked: now });
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

    /// Records a find: polling for it paid, if it was polled for.
    #[inline]
    pub fn paid(&mut self) {
        if self.trial.take().is_some() {
            self.hold_off = HOLD_OFF;
            self.credit = MOST_CREDIT.min(self.credit + 1);
        }
    }
}

/// Polls for a value that keeps its own experience, which `spin` finds.
pub fn poll_for<T>(it: &mut T, spin: impl Fn(&mut T) -> &mut Spin, mut look: impl FnMut(&mut T) -> bool) -> bool {
    let mut learned = std::mem::take(spin(it));
    let found = learned.poll(|| look(it));
    *spin(it) = learned;
    found
}

/// Whether another thread has taken the calling one's CPU since the last call; also true the first time, if ever. A gap
/// without that was the hypervisor's, or an interrupt's, and says nothing about this machine's threads.
#[cold]
fn was_preempted() -> bool {
    thread_local! {
        static TIMES: Cell<u64> = const { Cell::new(0) };
    }
    preemptions().is_none_or(|times| TIMES.replace(times) != times)
}

/// Number of times that another thread took the calling one's CPU. `None`: the kernel does not report it.
pub fn preemptions() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills this function's own structure if it succeeds.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded.
    Some(unsafe { usage.assume_init() }.ru_nivcsw.unsigned_abs())
}

/// Whether the machine has more than one CPU: with one, nothing happens while a thread polls. This process's CPUs are
/// not enough to tell: the others may run elsewhere. Read once, before a sandbox hides the answer.
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

    /// A fruitless trial that begins at `now`. Returns its end; `None` if there was no trial.
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

    /// A trial that soon pays.
    fn pays(spin: &mut Spin, now: Instant) {
        assert!(spin.begin_at(now) && spin.go_on_at(now + STEP, || true));
        spin.paid();
    }

    /// Objective: a trial lasts as long as configured; after the forgiven failures trials stop for 1 ms, then after one
    /// more for twice as long, up to the limit.
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

    /// Objective: one success makes the next suspension short again, and pays for one failure; many pay for no more
    /// than the limit.
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

    /// Objective: a thread that lost its CPU while polling does not poll for a while, however well it went before.
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

    /// Objective: without a time to poll there are no looks; with one, looks continue until something is found.
    #[test]
    #[cfg_attr(miri, ignore = "Miri is slow enough to be taken for preempted, and cannot ask the kernel")]
    fn looks() {
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

    /// Objective: a value keeps its experience with polling, including the latest.
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
