//! Restores a replay in another process, from its state ([`ReplayState`]) or, after the predecessor was killed, from
//! its notes, made after each batch.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::noted::{NUMBERS, Noted};
use netvale_port::RingCounters;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Alarm, Mark, PcapIngress, ReplayError, ReplayOptions, ReplayStatus};
use crate::reader::ReadError;

/// Progress of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayState {
    /// The number of passes before this one.
    pub pass: u64,
    /// The number of the next frame in this pass.
    pub frame: u64,
    /// Number of frames in earlier passes, and the start of this pass, since the start of the replay.
    pub before: (u64, Duration),
    /// Arrival of the first frame, on the monotonic clock.
    pub began: Option<Duration>,
    /// Whether no more frames follow.
    pub finished: bool,
    /// The error that ended it.
    pub error: Option<String>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Decodes notes, which may hold any numbers.
fn state_of(numbers: [u64; NUMBERS]) -> ReplayState {
    let [pass, frame, before, begins, began, finished, ..] = numbers;
    let began = (began != 0).then(|| Duration::from_nanos(began));
    let before = (before, Duration::from_nanos(begins));
    ReplayState { pass, frame, before, began, finished: finished != 0, error: None }
}

/// The monotonic clock, shared by all processes.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl ReplayStatus {
    /// Position when its worker paused.
    pub fn settled(&self) -> ReplayState {
        let state = self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let error = self.error.get().filter(|_| state.finished).map(ToString::to_string);
        ReplayState { error, ..state }
    }
}

impl PcapIngress {
    pub(super) fn put_down(&mut self) {
        let Mark { pass, frame, before, begins } = self.next();
        let began = self.began.map(|(_, began)| began);
        let finished = self.status.finished();
        let pass = if finished { self.status.passes() } else { pass };
        let state = ReplayState { pass, frame, before: (before, begins), began, finished, error: None };
        *self.status.settled.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The next frame.
    pub(super) fn next(&self) -> Mark {
        let sent = self.current.as_ref().map_or(0, |(_, next)| *next as u64);
        Mark { frame: self.mark.frame + sent, ..self.mark }
    }

    /// Its notes, for [`PcapIngress::after_a_kill`].
    pub fn noted(&self) -> BorrowedFd<'_> {
        self.noted.as_fd()
    }

    /// Notes its position, if changed.
    pub(super) fn note(&mut self) {
        let next = self.next();
        if next != self.noted_at {
            self.noted_at = next;
            self.note_all();
        }
    }

    /// Notes its position.
    pub(super) fn note_all(&mut self) {
        self.noted.write(self.numbers());
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        let Mark { pass, frame, before, begins } = self.next();
        let began = self.began.map_or(0, |(_, began)| nanos(began));
        // A replay that ended with an error is continued: it will meet the error again.
        let finished = self.status.finished() && self.status.error().is_none();
        let pass = if finished { self.status.passes() } else { pass };
        let mut numbers = [0; NUMBERS];
        numbers[..6].copy_from_slice(&[pass, frame, before, nanos(begins), began, u64::from(finished)]);
        numbers
    }

    /// Restores another process's replay of the same file. Frames before its position are read again.
    ///
    /// # Errors
    /// [`ReplayError`] if the file is no longer a capture, or a thread cannot be started.
    pub fn continued(
        file: File,
        path: &Path,
        options: ReplayOptions,
        state: ReplayState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        Self::go_on(file, path, options, (state, Noted::new().map_err(std::io::Error::from)?), counters)
    }

    /// Restores a killed process's replay; `noted` is its [`PcapIngress::noted`]. Frames of the batch in flight are
    /// sent again.
    ///
    /// # Errors
    /// [`ReplayError`] if the file is no longer a capture, `noted` is anything else, or a thread cannot be started.
    pub fn after_a_kill(
        file: File,
        noted: OwnedFd,
        path: &Path,
        options: ReplayOptions,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        let noted = Noted::continued(noted).map_err(std::io::Error::from)?;
        let state = state_of(noted.read());
        Self::go_on(file, path, options, (state, noted), counters)
    }

    /// Continues at the position of a state.
    fn go_on(
        file: File,
        path: &Path,
        options: ReplayOptions,
        (state, noted): (ReplayState, Noted),
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        if !file.metadata()?.is_file() {
            return Err(ReplayError::NotAFile { path: path.to_owned() });
        }
        let (before, begins) = state.before;
        // Bounds the counts, so counting on cannot overflow.
        let [pass, frame, before] = [state.pass, state.frame, before].map(|count| count.min(u64::MAX >> 2));
        let mark = Mark { pass, frame, before, begins };
        if state.finished {
            return Self::finished((mark, noted), state, counters);
        }
        let status = ReplayStatus::default();
        let began = state.began.and_then(|began| Instant::now().checked_sub(now().saturating_sub(began)));
        let began = began.zip(state.began);
        let this = Self::start((Arc::new(file), path, 0), options, (mark, noted), status, counters)?;
        let mut this = PcapIngress { began, ..this };
        this.note_all();
        Ok(this)
    }

    /// A replay without further frames.
    fn finished(
        (mark, noted): (Mark, Noted),
        state: ReplayState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        let status = ReplayStatus::default();
        status.finished.store(true, Ordering::Release);
        status.passes.store(state.pass, Ordering::Relaxed);
        // The first error, so it is stored.
        state.error.into_iter().for_each(|text| drop(status.error.set(ReadError::Earlier(text))));
        // These channels have no other ends.
        let (_, filled) = sync_channel(0);
        let (empty, _) = sync_channel(0);
        let alarm = Arc::new(Alarm::new().map_err(std::io::Error::from)?);
        let status = Arc::new(status);
        let current = None;
        let began = None;
        let mut this =
            PcapIngress { filled, empty, current, mark, alarm, began, status, counters, noted, noted_at: mark };
        this.note_all();
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use netvale_port::{BATCH, Source};
    use proptest::prelude::*;

    use super::super::tests::{capture, drive, frame, open};
    use super::*;
    use crate::pace::{Pace, Speed};
    use crate::replay::ReplayState;

    /// Another process restores a replay without its help. It stays in memory: its end must not be noticed.
    fn killed(source: Source<PcapIngress>, path: &Path, options: ReplayOptions) -> Source<PcapIngress> {
        let noted = source.ingress().noted().try_clone_to_owned().unwrap();
        std::mem::forget(source);
        let file = File::open(path).unwrap();
        Source::new(Box::new(PcapIngress::after_a_kill(file, noted, path, options, Arc::default()).unwrap()))
    }

    /// Objective: a replay killed anywhere, also within a batch, sends each frame of each pass in order; only the batch
    /// in flight is repeated. After its end nothing follows.
    #[test]
    fn goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 3000);
        let options = ReplayOptions { passes: 3, pace: Pace::Fast };
        for step in [1, 500, 1024, 3000, 7000] {
            let mut source = open(&path, 3, Pace::Fast);
            let mut came = Vec::new();
            for _ in 0..3 {
                drive(&mut source, step, |f| came.push(f.to_vec()));
                let under_way = source.take(&mut Box::default()).len();
                assert!(under_way <= BATCH);
                source = killed(source, &path, options);
            }
            drive(&mut source, usize::MAX, |f| came.push(f.to_vec()));
            assert!(came.iter().enumerate().all(|(i, f)| *f == frame(i as u32 % 3000)), "by {step}");
            assert_eq!((came.len(), source.ingress().status().passes()), (9000, 3), "by {step}");
            let mut source = killed(source, &path, options);
            assert!(source.ingress().status().finished());
            assert_eq!((drive(&mut source, 1, |_| ()), source.ingress().status().passes()), (0, 3));
        }
    }

    /// Objective: send times also continue; an error that ended a replay is found again.
    #[test]
    fn in_time_and_to_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 40);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let options = ReplayOptions { passes: 1, pace: Pace::Recorded(Speed::ONE) };
        let begun = Instant::now();
        let mut at = Vec::new();
        let mut source = open(&path, 1, options.pace);
        for _ in 0..4 {
            drive(&mut source, 7, |_| at.push(begun.elapsed()));
            source = killed(source, &path, options);
        }
        drive(&mut source, usize::MAX, |_| at.push(begun.elapsed()));
        assert_eq!(at.len(), 39);
        assert!(at.iter().enumerate().all(|(i, at)| *at >= Duration::from_millis(i as u64)), "{at:?}");
        let text = |source: &Source<PcapIngress>| source.ingress().status().error().map(ToString::to_string);
        let error = text(&source);
        let mut source = killed(source, &path, options);
        assert_eq!(drive(&mut source, usize::MAX, |_| ()), 0);
        assert!(error.is_some() && text(&source) == error, "{error:?}");
    }

    /// Objective: anything but memory for notes is refused.
    #[test]
    fn other_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 5);
        let file = File::open(&path).unwrap();
        let other = File::open("/dev/null").unwrap();
        let result = PcapIngress::after_a_kill(file, other.into(), &path, ReplayOptions::default(), Arc::default());
        assert!(matches!(result, Err(ReplayError::System(_))));
    }

    proptest! {
        /// Objective: any numbers decode to some state, without harm.
        #[test]
        fn any_numbers(numbers in any::<[u64; NUMBERS]>()) {
            let ReplayState { pass, frame, before, finished, .. } = state_of(numbers);
            prop_assert_eq!([pass, frame, before.0, before.1.as_nanos() as u64], &numbers[..4]);
            prop_assert_eq!(finished, numbers[5] != 0);
        }
    }
}
