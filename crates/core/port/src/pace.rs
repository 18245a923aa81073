//! Limits a worker's time in calls to a kernel device.
//!
//! The kernel processes a frame written to a TAP, or copied to a veth for AF_XDP, before the call returns: socket
//! filters, firewall rules and XDP programs behind the device run in the worker. A meter times sampled batches by the
//! machine's clock. Very slow frames get a tenth of the worker's time; frames beyond that are dropped. Other kernel
//! work in the worker (interrupts, other interfaces' frames) takes less time than the limits, and the time of other
//! threads does not count.
//!
//! A host that preempts the virtual CPU, or a kernel that works off a backlog, causes occasional slow calls. So a slow
//! call counts for at most 4 ms if it is the only slow call among the last 32 calls; this maximum doubles with each
//! further slow call.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::calls::own_time;
use netvale_mem::spin::preemptions;

/// Time per frame above which a batch is slow: four times as long as writing a 64 KiB segment to a socket takes.
const MOST_A_FRAME: Duration = Duration::from_micros(100);
/// Time before which a check within a batch ([`Meter::is_over`]) does not regard the batch as slow.
const MOST_A_BATCH: Duration = Duration::from_millis(1);
/// Slow batches get 1/`PART` of the worker's time.
const PART: u32 = 10;
/// Period for which slow batches may use their share of the time in advance.
const AHEAD: Duration = Duration::from_secs(2);
/// How long all batches are timed after a slow batch.
pub const LOOKS_FOR: Duration = Duration::from_secs(1);
/// On average, one in `SAMPLE` small batches is timed, chosen pseudo-randomly so that slow frames cannot avoid being
/// timed.
const SAMPLE: u32 = 16;
/// Maximum time charged for a slow call that is the only slow call among the last 32; doubled for each further slow
/// call.
const MOST_ALONE: Duration = Duration::from_millis(4);
/// Maximum number of times that [`MOST_ALONE`] is doubled: the maximum is then longer than any call takes.
const MOST_DOUBLINGS: u32 = 16;
/// Batches of at least `MANY` frames are always timed, and checked after every `MANY` frames.
const MANY: u32 = 8;

/// The clock of a [`QueuePace`].
pub trait Clock {
    /// Returns the time since a fixed moment in the past.
    fn now(&self) -> Duration;

    /// Returns the time of [`Clock::now`], together with the calling thread's CPU time and preemptions.
    fn thread_time(&self) -> ThreadTime;
}

/// What a thread's clocks show at the start or the end of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTime {
    now: Duration,
    /// CPU time of the thread; `None` if it was not requested. Many kernels do not count interrupts in this time; with
    /// a veth, interrupts do the far end's work.
    own: Option<Duration>,
    /// Number of preemptions of the thread; `None` if unknown.
    lost: Option<u64>,
}

impl ThreadTime {
    /// Creates a value without the thread's CPU time and preemptions.
    fn at(now: Duration) -> ThreadTime {
        ThreadTime { now, ..ThreadTime::default() }
    }

    /// Returns a measurement at `now` without asking for the thread's CPU time: as if the thread had run since. This
    /// CPU time may be too large, so that the time [since](ThreadTime::since) it may be too small.
    fn advanced_to(&self, now: Duration) -> ThreadTime {
        let own = self.own.map(|own| own + now.saturating_sub(self.now));
        ThreadTime { now, own, lost: self.lost }
    }

    /// Returns the time since `begun`: CPU time if both values have it, otherwise time of the clock.
    fn since(&self, begun: &ThreadTime) -> Duration {
        let own = self.own.zip(begun.own).map(|(to, from)| to.saturating_sub(from));
        own.unwrap_or_else(|| self.now.saturating_sub(begun.now))
    }

    /// Returns the clock's time since `begun`; `None` if the thread was preempted, or if that is unknown. Without
    /// preemption, the part that is not CPU time went to interrupts or to the host.
    fn kept_since(&self, begun: &ThreadTime) -> Option<Duration> {
        let kept = self.lost.is_some() && self.lost == begun.lost;
        kept.then(|| self.now.saturating_sub(begun.now))
    }
}

/// The machine's monotonic clock.
#[derive(Debug, Default)]
pub struct MachineClock;

/// Start of [`MachineClock`]: its first use.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        BEGUN.elapsed()
    }

    fn thread_time(&self) -> ThreadTime {
        ThreadTime { now: self.now(), own: Some(own_time()), lost: preemptions() }
    }
}

/// Accounts for the worker time that a device queue uses.
#[derive(Debug, Default)]
pub struct QueuePace<C = MachineClock> {
    clock: C,
    /// Last number of the pseudo-random sequence that selects small batches.
    sequence: AtomicU32,
    /// Time until which all batches are timed, in nanoseconds of the clock; 0: only samples are timed.
    looks_until: AtomicU64,
    /// One bit for each of the last 32 timed calls: 1 if the call was slow.
    slow_calls: AtomicU32,
    /// Time at which slow batches will be within their share again, in nanoseconds of the clock.
    owes_until: AtomicU64,
}

/// Times one batch. Created by [`QueuePace::begin`].
#[derive(Debug)]
pub struct Meter<'a, C> {
    pace: &'a QueuePace<C>,
    /// Start of the timing; `None` if the batch is not timed.
    begun: Option<ThreadTime>,
    /// Whether all batches are timed, so that the thread's CPU time is read, too.
    looks: bool,
    /// Frames written since `begun`.
    frames: u32,
    rests: bool,
}

impl<C: Clock> QueuePace<C> {
    /// Begins a batch of `frames` frames, which the caller writes in one or more calls.
    pub fn begin(&self, frames: usize) -> Meter<'_, C> {
        let looks = self.looks();
        let is_timed = looks || frames >= MANY as usize || self.is_sampled();
        let meter = Meter { pace: self, begun: None, looks, frames: 0, rests: false };
        if !is_timed {
            return meter;
        }
        let rests = looks && self.rests(self.clock.now());
        Meter { begun: Some(meter.now()), rests, ..meter }
    }

    fn is_sampled(&self) -> bool {
        // Other workers also advance the sequence; a lost update does no harm.
        let last = self.sequence.load(Ordering::Relaxed);
        // A linear congruential generator (Numerical Recipes), whose upper bits follow no short period.
        let next = last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.sequence.store(next, Ordering::Relaxed);
        next < u32::MAX / SAMPLE
    }

    /// Whether all batches are timed at present, because a recent batch was slow.
    #[inline]
    pub fn looks(&self) -> bool {
        let until = self.looks_until.load(Ordering::Relaxed);
        until > 0 && self.still_looks(until)
    }

    #[cold]
    fn still_looks(&self, until: u64) -> bool {
        if nanos(self.clock.now()) < until {
            return true;
        }
        // The exchange fails, and `looks_until` stays set, if another worker has just timed a slow batch.
        let _ = self.looks_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        false
    }

    #[cold]
    fn rests(&self, now: Duration) -> bool {
        nanos(now + AHEAD) < self.owes_until.load(Ordering::Relaxed)
    }

    /// Starts timing all batches, for [`LOOKS_FOR`].
    #[cold]
    pub fn look(&self) {
        self.looks_until.store(nanos(self.clock.now() + LOOKS_FOR), Ordering::Relaxed);
    }

    /// Returns the time to charge for a call that took `took`.
    fn charged(&self, took: Duration, is_slow: bool) -> Duration {
        let calls = self.slow_calls.load(Ordering::Relaxed) << 1 | u32::from(is_slow);
        self.slow_calls.store(calls, Ordering::Relaxed);
        let doublings = calls.count_ones().saturating_sub(1).min(MOST_DOUBLINGS);
        took.min(MOST_ALONE * (1 << doublings))
    }

    /// Records the time of a call, which is slow if it exceeds `most`. Charges slow calls.
    #[cold]
    fn looked(&self, took: Duration, most: Duration) {
        let is_slow = took > most;
        let took = self.charged(took, is_slow);
        if !is_slow {
            return;
        }
        let owes_until = self.owes_until.load(Ordering::Relaxed).max(nanos(self.clock.now()));
        self.owes_until.store(owes_until + nanos(took * PART), Ordering::Relaxed);
        self.look();
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl<C: Clock> Meter<'_, C> {
    /// Reads the clock and, if `looks` is set, the thread's CPU time and preemptions, which takes system calls.
    #[inline]
    fn now(&self) -> ThreadTime {
        if self.looks { self.pace.clock.thread_time() } else { ThreadTime::at(self.pace.clock.now()) }
    }

    /// Returns whether another frame may be written. If so, counts that frame.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        let Some(begun) = self.begun else { return true };
        let is_now = self.looks || self.frames > 0 && self.frames.is_multiple_of(MANY);
        if self.rests || is_now && self.is_over(begun) {
            return false;
        }
        self.frames += 1;
        true
    }

    /// Returns how many frames the next call may write; 0 if slow frames have used up their time.
    #[inline]
    pub fn at_once(&self) -> usize {
        match (self.rests, self.looks) {
            (true, _) => 0,
            (false, true) => MANY as usize,
            (false, false) => usize::MAX,
        }
    }

    /// Records a call that wrote `frames` frames. The kernel may have processed them in an interrupt. Returns whether
    /// another call is allowed.
    #[inline]
    pub fn took(&mut self, frames: u32) -> bool {
        self.frames += frames;
        let Some(begun) = self.begun else { return true };
        if !self.looks {
            return !self.is_over(begun);
        }
        if self.is_fast(begun, 1) {
            return !self.rests;
        }
        let now = self.now();
        // The kernel may not count the time of interrupts as the thread's CPU time.
        let took = now.kept_since(&begun).unwrap_or_else(|| now.since(&begun));
        self.looked(now, took);
        !self.rests
    }

    /// Whether the frames written so far are certainly not slow, as even the clock's time is within the limit; no
    /// system call is needed then. Records these frames if there are at least `enough`.
    #[inline]
    fn is_fast(&mut self, begun: ThreadTime, enough: u32) -> bool {
        let now = self.pace.clock.now();
        let took = now.saturating_sub(begun.now);
        let is_fast = took <= MOST_A_FRAME * self.frames;
        if is_fast && self.frames >= enough {
            self.looked(begun.advanced_to(now), took);
        }
        is_fast || self.frames == 0
    }

    /// Charges the time of the frames written so far.
    #[cold]
    fn looked(&mut self, now: ThreadTime, took: Duration) {
        let most = MOST_A_FRAME * std::mem::take(&mut self.frames);
        self.begun = Some(now);
        self.pace.looked(took, most);
        self.rests = self.pace.rests(now.now);
    }

    /// Checks the time of the frames written so far. Returns whether the time for slow frames is used up.
    fn is_over(&mut self, begun: ThreadTime) -> bool {
        if self.looks && self.is_fast(begun, MANY) {
            return self.rests;
        }
        let now = self.now();
        let took = now.since(&begun);
        let is_slow = took >= MOST_A_BATCH && took >= MOST_A_FRAME * self.frames;
        if self.looks && (is_slow || self.frames >= MANY) {
            self.looked(now, took);
        } else if is_slow {
            self.pace.look();
            self.looks = true;
            self.begun = Some(self.now());
            self.frames = 0;
        }
        self.rests
    }

    /// Ends the batch and charges its time.
    #[inline]
    pub fn end(mut self) {
        if let Some(begun) = self.begun
            && self.frames > 0
            && !self.rests
            && !(self.looks && self.is_fast(begun, 1))
        {
            let took = self.now().since(&begun);
            let most = MOST_A_FRAME * self.frames;
            if self.looks {
                self.pace.looked(took, most);
            } else if took > most {
                self.pace.look();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const BATCHES: [usize; 3] = [1, 5, 64];

    /// A clock that only the test advances.
    #[derive(Default)]
    struct Said {
        now: Cell<Duration>,
        own: Cell<Duration>,
        lost: Cell<u64>,
    }

    impl Clock for Said {
        fn now(&self) -> Duration {
            self.now.get()
        }

        fn thread_time(&self) -> ThreadTime {
            ThreadTime { now: self.now.get(), own: Some(self.own.get()), lost: Some(self.lost.get()) }
        }
    }

    impl Said {
        /// The thread runs on the CPU for `time`.
        fn passes(&self, time: Duration) {
            self.own.set(self.own.get() + time);
            self.is_served(time);
        }

        /// The thread serves an interrupt for `time`, which the kernel does not count as CPU time.
        fn is_served(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }

        /// The thread is preempted: another thread runs on the CPU for `time`.
        fn is_others(&self, time: Duration) {
            self.lost.set(self.lost.get() + 1);
            self.is_served(time);
        }
    }

    struct Passed {
        dropped: usize,
        /// Share of the total time that the frames took.
        share: f64,
    }

    /// Sends batches of `batch` frames for some seconds of the test's clock. `frame` is called for each frame, and
    /// advances the clock by the time that the frame takes.
    fn passed(pace: &QueuePace<Said>, batch: usize, frame: impl Fn(&Said)) -> Passed {
        let clock = &pace.clock;
        let begun = clock.now();
        let mut took = Duration::ZERO;
        let mut dropped = 0;
        while clock.now() - begun < 10 * AHEAD {
            let mut meter = pace.begin(batch);
            let since = clock.now();
            let written = (0..batch).take_while(|_| meter.goes_on()).inspect(|_| frame(clock)).count();
            meter.end();
            dropped += batch - written;
            took += clock.now() - since;
            clock.passes(Duration::from_micros(20));
        }
        Passed { dropped, share: took.as_secs_f64() / (clock.now() - begun).as_secs_f64() }
    }

    /// Objective: very slow frames get a tenth of the time, in batches of any size; once frames are fast again, all
    /// pass.
    #[test]
    fn slow_frames_have_a_part_of_the_time() {
        for batch in BATCHES {
            let pace = QueuePace::default();
            let slow = passed(&pace, batch, |clock| clock.passes(4 * MOST_A_FRAME));
            assert!(slow.dropped > 0, "none is dropped of batches of {batch}");
            // The share exceeds a tenth, because slow batches may use the time of `AHEAD` in advance.
            assert!((0.1..0.25).contains(&slow.share), "{} of the time, in batches of {batch}", slow.share);
            pace.clock.passes(AHEAD);
            assert_eq!(passed(&pace, batch, |_| ()).dropped, 0, "in batches of {batch}");
        }
    }

    /// Objective: frames that take a tenth of the time limit all pass.
    #[test]
    fn others_pass() {
        for batch in BATCHES {
            let passed = passed(&QueuePace::default(), batch, |clock| clock.passes(MOST_A_FRAME / 10));
            assert_eq!(passed.dropped, 0, "in batches of {batch}");
        }
    }

    /// Objective: occasional slow frames among fast frames get a limited share of the time, too.
    #[test]
    fn some_slow_frames_have_a_part_of_the_time() {
        for batch in BATCHES {
            for every in [2, 40, 300] {
                let frames = Cell::new(0u32);
                let passed = passed(&QueuePace::default(), batch, |clock| {
                    frames.set(frames.get() + 1);
                    let is_slow = frames.get().is_multiple_of(every);
                    clock.passes(if is_slow { MOST_ALONE } else { MOST_A_FRAME / 100 });
                });
                assert!(passed.dropped > 0, "none is dropped of batches of {batch}, one in {every} being slow");
                assert!(passed.share < 0.3, "{} of the time, in batches of {batch}, one in {every}", passed.share);
            }
        }
    }

    /// Sends batches of 64 frames for some seconds of the test's clock, several frames per call. `call` advances the
    /// clock by the time that a call takes. Also returns the largest number of frames in a call, from the second batch
    /// on.
    fn passed_together(pace: &QueuePace<Said>, mut call: impl FnMut(&Said, u32)) -> (Passed, usize) {
        let clock = &pace.clock;
        let begun = clock.now();
        let mut took = Duration::ZERO;
        let mut dropped = 0;
        let mut most = 0;
        for round in 0.. {
            if clock.now() - begun > 10 * AHEAD {
                break;
            }
            let mut meter = pace.begin(64);
            let mut left = 64;
            while left > 0 && meter.at_once() > 0 {
                let count = meter.at_once().min(left);
                let since = clock.now();
                call(clock, count as u32);
                took += clock.now() - since;
                meter.took(count as u32);
                left -= count;
                most = if round == 0 { 0 } else { most.max(count) };
            }
            dropped += left;
            meter.end();
            clock.passes(Duration::from_micros(20));
        }
        (Passed { dropped, share: took.as_secs_f64() / (clock.now() - begun).as_secs_f64() }, most)
    }

    /// Objective: slow calls of several frames get a limited share of the time, even if the time is spent in
    /// interrupts, and later calls get fewer frames.
    #[test]
    fn calls_of_several_frames() {
        for way in [Said::passes, Said::is_served] {
            let slow = |clock: &Said, frames| way(clock, 4 * MOST_A_FRAME * frames);
            let (passed, most) = passed_together(&QueuePace::default(), slow);
            assert!(passed.dropped > 0 && (0.1..0.25).contains(&passed.share), "{} of the time", passed.share);
            assert_eq!(most, MANY as usize);
        }
    }

    /// Objective: a host that occasionally preempts the virtual CPU causes no drops, whether or not the kernel counts
    /// that time as the thread's CPU time.
    #[test]
    fn a_hosts_time_does_not_count() {
        for stolen in [Said::passes, Said::is_served] {
            let calls = Cell::new(0u32);
            let call = |clock: &Said, frames| {
                clock.passes(MOST_A_FRAME / 20 * frames);
                calls.set(calls.get() + frames);
                if calls.get() >= 500 {
                    calls.set(0);
                    stolen(clock, Duration::from_millis(50));
                }
            };
            assert_eq!(passed_together(&QueuePace::default(), call).0.dropped, 0);
            for batch in BATCHES {
                assert_eq!(
                    passed(&QueuePace::default(), batch, |clock| call(clock, 1)).dropped,
                    0,
                    "in batches of {batch}"
                );
            }
        }
    }

    /// Objective: on a machine short of CPUs, where one in sixteen calls is slow, a sender of a few frames loses no
    /// frames.
    #[test]
    fn a_starved_machines_time_counts_little() {
        for stolen in [Said::passes, Said::is_served] {
            let pace = QueuePace::default();
            for call in 0..1000 {
                let mut meter = pace.begin(1);
                assert!(meter.at_once() > 0, "call {call}");
                stolen(&pace.clock, if call % 16 == 0 { Duration::from_millis(100) } else { MOST_A_FRAME / 2 });
                meter.took(1);
                meter.end();
                pace.clock.is_others(Duration::from_millis(20));
            }
        }
    }

    /// Objective: the time of other threads is not counted, and does not hide slow frames.
    #[test]
    fn other_threads_time_does_not_count() {
        for batch in BATCHES {
            let beside = passed(&QueuePace::default(), batch, |clock| clock.is_others(4 * MOST_A_FRAME));
            assert_eq!(beside.dropped, 0, "in batches of {batch}");
            let slow = passed(&QueuePace::default(), batch, |clock| {
                clock.passes(4 * MOST_A_FRAME);
                clock.is_others(4 * MOST_A_FRAME);
            });
            assert!(slow.dropped > 0, "none is dropped of batches of {batch}");
        }
    }
}
