//! Restores another process's replay, from its state ([`ReplayState`]) or, if that process was killed, from its notes:
//! counters in shared memory, written after each batch.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::noted::{NUMBERS, NotedCounts};
use netvale_port::RingCounters;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Alarm, FrameMark, PcapIngress, ReplayError, ReplayInput, ReplayOptions, ReplayStatus};
use crate::reader::ReadError;

/// Saved state of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayState {
    /// Number of passes before the current pass.
    pub pass: u64,
    /// Index of the next frame in the current pass.
    pub frame: u64,
    /// Number of frames in earlier passes, and the time from the start of the replay to the start of the current pass.
    pub before: (u64, Duration),
    /// `CLOCK_MONOTONIC` time at which the first frame arrived from the feeder; `None` before that.
    pub began: Option<Duration>,
    /// Whether the replay is over.
    pub finished: bool,
    /// The error that ended the replay, if any.
    pub error: Option<String>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts the numbers that a replay has noted into its state. The numbers may have any values.
fn state_of(numbers: [u64; NUMBERS]) -> ReplayState {
    let [pass, frame, before, begins, began, finished, ..] = numbers;
    let began = (began != 0).then(|| Duration::from_nanos(began));
    let before = (before, Duration::from_nanos(begins));
    ReplayState { pass, frame, before, began, finished: finished != 0, error: None }
}

/// Time of the monotonic clock, which all processes share.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl ReplayStatus {
    /// Returns the state saved when the worker last paused, with the error that ended the replay, if any.
    pub fn settled(&self) -> ReplayState {
        let state = self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let error = self.error.get().filter(|_| state.finished).map(ToString::to_string);
        ReplayState { error, ..state }
    }
}

impl PcapIngress {
    pub(super) fn put_down(&mut self) {
        let FrameMark { pass, frame, before, begins } = self.next();
        let began = self.began.map(|(_, began)| began);
        let finished = self.status.finished();
        let pass = if finished { self.status.passes() } else { pass };
        let state = ReplayState { pass, frame, before: (before, begins), began, finished, error: None };
        *self.status.settled.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Position of the next frame.
    pub(super) fn next(&self) -> FrameMark {
        let sent = self.current.as_ref().map_or(0, |(_, next)| *next as u64);
        FrameMark { frame: self.mark.frame + sent, ..self.mark }
    }

    /// Returns the shared memory that contains the notes, for [`PcapIngress::after_a_kill`].
    pub fn noted(&self) -> BorrowedFd<'_> {
        self.noted.as_fd()
    }

    /// Writes the notes if the position has changed.
    pub(super) fn note(&mut self) {
        let next = self.next();
        if next != self.noted_at {
            self.noted_at = next;
            self.note_all();
        }
    }

    /// Writes the position, the start time and whether the replay is over to the notes.
    pub(super) fn note_all(&mut self) {
        self.noted.write(self.numbers());
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        let FrameMark { pass, frame, before, begins } = self.next();
        let began = self.began.map_or(0, |(_, began)| nanos(began));
        // A replay that ended with an error does not count as finished: its successor reads the error again.
        let finished = self.status.finished() && self.status.error().is_none();
        let pass = if finished { self.status.passes() } else { pass };
        let mut numbers = [0; NUMBERS];
        numbers[..6].copy_from_slice(&[pass, frame, before, nanos(begins), began, u64::from(finished)]);
        numbers
    }

    /// Restores another process's replay of the same file. Reads the frames before the position in `state` again,
    /// without sending them.
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
        Self::go_on(file, path, options, state, NotedCounts::new().map_err(std::io::Error::from)?, counters)
    }

    /// Restores a killed process's replay from its notes ([`PcapIngress::noted`]). Frames of the batch that was in
    /// flight are sent again.
    ///
    /// # Errors
    /// [`ReplayError`] if the file is no longer a capture, `noted` is not memory with notes, or a thread cannot be
    /// started.
    pub fn after_a_kill(
        file: File,
        noted: OwnedFd,
        path: &Path,
        options: ReplayOptions,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        let noted = NotedCounts::continued(noted).map_err(std::io::Error::from)?;
        let state = state_of(noted.read());
        Self::go_on(file, path, options, state, noted, counters)
    }

    /// Continues a replay at the position in its state.
    fn go_on(
        file: File,
        path: &Path,
        options: ReplayOptions,
        state: ReplayState,
        noted: NotedCounts,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        if !file.metadata()?.is_file() {
            return Err(ReplayError::NotAFile { path: path.to_owned() });
        }
        let (before, begins) = state.before;
        // Bound the counts, so that further counting cannot overflow.
        let [pass, frame, before] = [state.pass, state.frame, before].map(|count| count.min(u64::MAX >> 2));
        let mark = FrameMark { pass, frame, before, begins };
        if state.finished {
            return Self::finished(mark, noted, state, counters);
        }
        let status = ReplayStatus::default();
        let began = state.began.and_then(|began| Instant::now().checked_sub(now().saturating_sub(began)));
        let began = began.zip(state.began);
        let file = ReplayInput { file: Arc::new(file), path, at: 0 };
        let this = Self::start(file, options, mark, noted, status, counters)?;
        let mut this = PcapIngress { began, ..this };
        this.note_all();
        Ok(this)
    }

    /// Creates a replay that is over.
    fn finished(
        mark: FrameMark,
        noted: NotedCounts,
        state: ReplayState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        let status = ReplayStatus::default();
        status.finished.store(true, Ordering::Release);
        status.passes.store(state.pass, Ordering::Relaxed);
        // Cannot fail: no error is stored yet.
        state.error.into_iter().for_each(|text| drop(status.error.set(ReadError::Earlier(text))));
        // The other ends of these channels are closed.
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
    use crate::pace::{ReplayPace, Speed};
    use crate::replay::ReplayState;

    /// Restores a replay as after a kill. The old replay is leaked, because a killed process drops nothing.
    fn killed(source: Source<PcapIngress>, path: &Path, options: ReplayOptions) -> Source<PcapIngress> {
        let noted = source.ingress().noted().try_clone_to_owned().unwrap();
        std::mem::forget(source);
        let file = File::open(path).unwrap();
        Source::new(Box::new(PcapIngress::after_a_kill(file, noted, path, options, Arc::default()).unwrap()))
    }

    /// Objective: a replay that is killed anywhere, even within a batch, sends each frame of each pass in order; only
    /// the batch in flight is repeated. A finished replay sends nothing.
    #[test]
    fn a_killed_replay_goes_on_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 3000);
        let options = ReplayOptions { passes: 3, pace: ReplayPace::Fast };
        for step in [1, 500, 1024, 3000, 7000] {
            let mut source = open(&path, 3, ReplayPace::Fast);
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

    /// Objective: after a kill, send times still count from the original start, and an error that ended a replay is
    /// reported again.
    #[test]
    fn in_time_and_to_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 40);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let options = ReplayOptions { passes: 1, pace: ReplayPace::Recorded(Speed::ONE) };
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

    /// Objective: a descriptor that is not memory for notes is refused.
    #[test]
    fn memory_that_is_not_for_notes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = capture(&dir, 5);
        let file = File::open(&path).unwrap();
        let other = File::open("/dev/null").unwrap();
        let result = PcapIngress::after_a_kill(file, other.into(), &path, ReplayOptions::default(), Arc::default());
        assert!(matches!(result, Err(ReplayError::System(_))));
    }

    proptest! {
        /// Objective: any numbers decode to some state without a panic.
        #[test]
        fn any_numbers_decode_without_harm(numbers in any::<[u64; NUMBERS]>()) {
            let ReplayState { pass, frame, before, finished, .. } = state_of(numbers);
            prop_assert_eq!([pass, frame, before.0, before.1.as_nanos() as u64], &numbers[..4]);
            prop_assert_eq!(finished, numbers[5] != 0);
        }
    }
}
