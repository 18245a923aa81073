//! The state of a replay that another process goes on with.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::noted::Noted;
use netvale_port::RingCounters;
use rustix::time::{ClockId, clock_gettime};

use super::{Alarm, Mark, PcapIngress, ReplayError, ReplayOptions, ReplayStatus};
use crate::reader::ReadError;

/// How far a replay has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayState {
    /// The number of passes before this one.
    pub pass: u64,
    /// The number of the next frame in this pass.
    pub frame: u64,
    /// The number of frames in the passes before, and when this pass begins, counted from the replay's beginning.
    pub before: (u64, Duration),
    /// When the first frame was there, by the monotonic clock.
    pub began: Option<Duration>,
    /// Whether nothing comes any more.
    pub finished: bool,
    /// The error that ended it.
    pub error: Option<String>,
}

/// The monotonic clock, which all processes share.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl ReplayStatus {
    /// Where it was when its worker paused.
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

    /// Goes on with a replay of another process, in the same file. The frames before its place are read once more.
    ///
    /// # Errors
    /// [`ReplayError`] if the file is no capture any more, or no thread can be started.
    pub fn continued(
        file: File,
        path: &Path,
        options: ReplayOptions,
        state: ReplayState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        Self::go_on(file, path, options, (state, Noted::new().map_err(std::io::Error::from)?), counters)
    }

    pub(super) fn go_on(
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
        // So that they can be counted on.
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

    /// One of which nothing comes any more.
    fn finished(
        (mark, noted): (Mark, Noted),
        state: ReplayState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapIngress, ReplayError> {
        let status = ReplayStatus::default();
        status.finished.store(true, Ordering::Release);
        status.passes.store(state.pass, Ordering::Relaxed);
        // It is the first.
        state.error.into_iter().for_each(|text| drop(status.error.set(ReadError::Earlier(text))));
        // Nobody is at the other ends.
        let ((_, filled), (empty, _)) = (sync_channel(0), sync_channel(0));
        let alarm = Arc::new(Alarm::new().map_err(std::io::Error::from)?);
        let (status, current, began) = (Arc::new(status), None, None);
        let mut this =
            PcapIngress { filled, empty, current, mark, alarm, began, status, counters, noted, noted_at: mark };
        this.note_all();
        Ok(this)
    }
}
