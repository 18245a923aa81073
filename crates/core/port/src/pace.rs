//! How much of a worker's time a device of the kernel's may take.
//!
//! A frame that is written to a TAP, or that the kernel copies to a veth for AF_XDP, is received by the stack behind it
//! before the call returns: filters of sockets, rules and programs there run in the worker. What a frame takes is
//! looked at now and then: a meter times a batch of them, by the machine's clock (tests have another clock). Those that
//! take the worker's thread very long have a tenth of its time, and what comes beyond is dropped. What the kernel does
//! beside (interrupts, other interfaces' frames) takes less, and what other threads do does not count. A host that
//! takes the CPU away, and a kernel that catches up with what lay behind, look like slow calls, of which they make some
//! now and then. So the fewer of the last calls were slow, the less one counts: one alone as four milliseconds at most,
//! and twice that for each other one.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::calls::own_time;
use netvale_mem::spin::preemptions;

/// What a frame may take: a segment of 64 KiB to a socket takes a quarter of that.
const MOST_A_FRAME: Duration = Duration::from_micros(100);
/// How long a batch of such frames may last.
const MOST_A_BATCH: Duration = Duration::from_millis(1);
/// Slow batches have one part in that many of the time,
const PART: u32 = 10;
/// and before that as much as comes together in this time.
const AHEAD: Duration = Duration::from_secs(2);
/// How long all batches are looked at after one that took long.
pub const LOOKS_FOR: Duration = Duration::from_secs(1);
/// Of that many small batches, one is timed, in no order that slow frames could keep clear of.
const SAMPLE: u32 = 16;
/// What a slow call counts for that is alone among 32; it doubles with each other one.
const MOST_ALONE: Duration = Duration::from_millis(4);
/// So often at most: there is no limit then.
const MOST_DOUBLINGS: u32 = 16;
/// Batches of that many frames are timed always, and looked at after as many.
const MANY: u32 = 8;

/// What a pace goes by.
pub trait Clock {
    /// The time since some moment in the past.
    fn now(&self) -> Duration;

    /// The same, with what tells how much of the time since was the calling thread's.
    fn thread_time(&self) -> ThreadTime;
}

/// When something began or ended in a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTime {
    now: Duration,
    /// The time for which the thread had a CPU, if it was asked for. Of interrupts that it served, many kernels count
    /// nothing: with a veth, these are what the far end does.
    own: Option<Duration>,
    /// How often it had lost its CPU.
    lost: Option<u64>,
}

impl ThreadTime {
    /// Where no more than the clock is looked at.
    fn at(now: Duration) -> ThreadTime {
        ThreadTime { now, ..ThreadTime::default() }
    }

    /// What has passed since `begun`: of the thread's own time, if that is known.
    fn since(&self, begun: &ThreadTime) -> Duration {
        let own = self.own.zip(begun.own).map(|(to, from)| to.saturating_sub(from));
        own.unwrap_or_else(|| self.now.saturating_sub(begun.now))
    }

    /// The same by the clock, if the thread kept its CPU: what passed were interrupts, or the host had the CPU.
    fn kept_since(&self, begun: &ThreadTime) -> Option<Duration> {
        let kept = self.lost.is_some() && self.lost == begun.lost;
        kept.then(|| self.now.saturating_sub(begun.now))
    }
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct Machine;

/// The time when the first device was there.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for Machine {
    fn now(&self) -> Duration {
        BEGUN.elapsed()
    }

    fn thread_time(&self) -> ThreadTime {
        ThreadTime { now: self.now(), own: Some(own_time()), lost: preemptions() }
    }
}

/// The time that a device's queue takes.
#[derive(Debug, Default)]
pub struct Pace<C = Machine> {
    clock: C,
    /// Where it is in the sequence by which small batches are timed.
    sequence: AtomicU32,
    /// Until when batches are looked at: nanoseconds of the clock; 0: they are not.
    looks_until: AtomicU64,
    /// Which of the last 32 calls (of some frames each) took long, a bit each.
    slow_calls: AtomicU32,
    /// When the time that slow batches took is made up for: nanoseconds of the clock.
    owes_until: AtomicU64,
}

/// Times one batch.
#[derive(Debug)]
pub struct Meter<'a, C> {
    pace: &'a Pace<C>,
    /// Since when it is timed, if it is.
    begun: Option<ThreadTime>,
    /// Whether the thread's own time is looked at.
    looks: bool,
    /// Frames since.
    frames: u32,
    rests: bool,
}

impl<C: Clock> Pace<C> {
    /// Begins a batch of that many frames, in one call each or several.
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
        // Other workers count, too: none needs to be right.
        let last = self.sequence.load(Ordering::Relaxed);
        // A linear congruential generator (Numerical Recipes), whose upper bits follow no short period.
        let next = last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.sequence.store(next, Ordering::Relaxed);
        next < u32::MAX / SAMPLE
    }

    /// Whether a batch has taken long of late, so that all are looked at.
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
        // It stays if another worker has seen a slow one just now.
        let _ = self.looks_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        false
    }

    #[cold]
    fn rests(&self, now: Duration) -> bool {
        nanos(now + AHEAD) < self.owes_until.load(Ordering::Relaxed)
    }

    /// Looks at all batches for a while.
    #[cold]
    pub fn look(&self) {
        self.looks_until.store(nanos(self.clock.now() + LOOKS_FOR), Ordering::Relaxed);
    }

    /// What a call counts for that took so long.
    fn charged(&self, took: Duration, is_slow: bool) -> Duration {
        let calls = self.slow_calls.load(Ordering::Relaxed) << 1 | u32::from(is_slow);
        self.slow_calls.store(calls, Ordering::Relaxed);
        let doublings = calls.count_ones().saturating_sub(1).min(MOST_DOUBLINGS);
        took.min(MOST_ALONE * (1 << doublings))
    }

    /// A call was looked at, which took that long.
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
    /// By the clock alone unless it looks closely, which takes system calls.
    #[inline]
    fn now(&self) -> ThreadTime {
        if self.looks { self.pace.clock.thread_time() } else { ThreadTime::at(self.pace.clock.now()) }
    }

    /// Whether another frame may be written.
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

    /// How many frames a call may take next.
    #[inline]
    pub fn at_once(&self) -> usize {
        match (self.rests, self.looks) {
            (true, _) => 0,
            (false, true) => MANY as usize,
            (false, false) => usize::MAX,
        }
    }

    /// A call took that many frames, perhaps in an interrupt. Returns whether another one may be made.
    #[inline]
    pub fn took(&mut self, frames: u32) -> bool {
        self.frames += frames;
        let Some(begun) = self.begun else { return true };
        if !self.looks {
            return !self.is_over(begun);
        }
        let now = self.now();
        // An interrupt takes nothing of the thread's own time.
        let took = now.kept_since(&begun).unwrap_or_else(|| now.since(&begun));
        self.looked(now, took);
        !self.rests
    }

    /// Looks at the frames so far.
    #[cold]
    fn looked(&mut self, now: ThreadTime, took: Duration) {
        let most = MOST_A_FRAME * std::mem::take(&mut self.frames);
        self.begun = Some(now);
        self.pace.looked(took, most);
        self.rests = self.pace.rests(now.now);
    }

    /// Whether the frames so far took too long, and the time for such frames is over.
    fn is_over(&mut self, begun: ThreadTime) -> bool {
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

    /// The batch is over.
    #[inline]
    pub fn end(self) {
        if let Some(begun) = self.begun
            && self.frames > 0
            && !self.rests
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

    /// A clock that stands still but for what is said to pass.
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
        /// The thread has the CPU.
        fn passes(&self, time: Duration) {
            self.own.set(self.own.get() + time);
            self.is_served(time);
        }

        /// It serves an interrupt, which the kernel does not count.
        fn is_served(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }

        /// Another thread has it.
        fn is_others(&self, time: Duration) {
            self.lost.set(self.lost.get() + 1);
            self.is_served(time);
        }
    }

    struct Passed {
        dropped: usize,
        /// The part of the time that frames took.
        share: f64,
    }

    /// Batches of that many frames, each of which takes what `frame` says, for some seconds.
    fn passed(pace: &Pace<Said>, batch: usize, frame: impl Fn(&Said)) -> Passed {
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

    /// Objective: frames that take very long get a part of the time, in batches of any size; once they do not, all pass
    /// again.
    #[test]
    fn slow_frames_have_a_part_of_the_time() {
        for batch in BATCHES {
            let pace = Pace::default();
            let slow = passed(&pace, batch, |clock| clock.passes(4 * MOST_A_FRAME));
            assert!(slow.dropped > 0, "none is dropped of batches of {batch}");
            // What may come together is a tenth of this time, too.
            assert!((0.1..0.25).contains(&slow.share), "{} of the time, in batches of {batch}", slow.share);
            pace.clock.passes(AHEAD);
            assert_eq!(passed(&pace, batch, |_| ()).dropped, 0, "in batches of {batch}");
        }
    }

    /// Objective: frames that take what large segments to a socket do all pass.
    #[test]
    fn others_pass() {
        for batch in BATCHES {
            let passed = passed(&Pace::default(), batch, |clock| clock.passes(MOST_A_FRAME / 10));
            assert_eq!(passed.dropped, 0, "in batches of {batch}");
        }
    }

    /// Objective: frames that are slow now and then, among others that are not, have a part of the time, too.
    #[test]
    fn some_slow_frames_have_a_part_of_the_time() {
        for batch in BATCHES {
            for every in [2, 40, 300] {
                let frames = Cell::new(0u32);
                let passed = passed(&Pace::default(), batch, |clock| {
                    frames.set(frames.get() + 1);
                    let is_slow = frames.get().is_multiple_of(every);
                    clock.passes(if is_slow { MOST_ALONE } else { MOST_A_FRAME / 100 });
                });
                assert!(passed.dropped > 0, "none is dropped of batches of {batch}, one in {every} being slow");
                assert!(passed.share < 0.3, "{} of the time, in batches of {batch}, one in {every}", passed.share);
            }
        }
    }

    /// Calls for several frames of batches of 64, each of which takes what `call` says, for some seconds. Returns the
    /// most frames of a call, too, from the second batch on.
    fn passed_together(pace: &Pace<Said>, mut call: impl FnMut(&Said, u32)) -> (Passed, usize) {
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

    /// Objective: calls that take several frames get a part of the time, too, also where an interrupt takes it, and
    /// take few frames once these are slow.
    #[test]
    fn calls_of_several_frames() {
        for way in [Said::passes, Said::is_served] {
            let slow = |clock: &Said, frames| way(clock, 4 * MOST_A_FRAME * frames);
            let (passed, most) = passed_together(&Pace::default(), slow);
            assert!(passed.dropped > 0 && (0.1..0.25).contains(&passed.share), "{} of the time", passed.share);
            assert_eq!(most, MANY as usize);
        }
    }

    /// Objective: a host that takes the CPU away for a while now and then has no frame dropped, whether the kernel
    /// counts that as the thread's own time or not.
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
            assert_eq!(passed_together(&Pace::default(), call).0.dropped, 0);
            for batch in BATCHES {
                assert_eq!(passed(&Pace::default(), batch, |clock| call(clock, 1)).dropped, 0, "in batches of {batch}");
            }
        }
    }

    /// Objective: no frame is dropped of the few on a machine that lacks CPUs, where one of sixteen calls takes long.
    #[test]
    fn a_starved_machines_time_counts_little() {
        for stolen in [Said::passes, Said::is_served] {
            let pace = Pace::default();
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

    /// Objective: what other threads take meanwhile is not counted, and hides nothing.
    #[test]
    fn other_threads_time_does_not_count() {
        for batch in BATCHES {
            let beside = passed(&Pace::default(), batch, |clock| clock.is_others(4 * MOST_A_FRAME));
            assert_eq!(beside.dropped, 0, "in batches of {batch}");
            let slow = passed(&Pace::default(), batch, |clock| {
                clock.passes(4 * MOST_A_FRAME);
                clock.is_others(4 * MOST_A_FRAME);
            });
            assert!(slow.dropped > 0, "none is dropped of batches of {batch}");
        }
    }
}
