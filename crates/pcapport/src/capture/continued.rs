//! The state of a capture that another process goes on with.

use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use netvale_mem::noted::Noted;
use netvale_port::RingCounters;
use rustix::fs::{OFlags, fcntl_getfl};
use thiserror::Error;

use super::{CaptureOptions, CaptureStatus, Job, PcapEgress, Recorder};
use crate::limit::{Ended, Limit, PORTION, Written};
use crate::writer::{WriteError, Writer};

/// How far a capture has come. All of it is in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureState {
    /// Bytes of the file, as far as they count for limits.
    pub bytes: u64,
    /// Frames written.
    pub written: u64,
    /// Frames lost after an error.
    pub failed: u64,
    /// Frames lost after a limit.
    pub cut_off: u64,
    /// Portions of its user's allowance that it has taken.
    pub portions: u64,
    /// The limit that ended it.
    pub ended: Option<Ended>,
    /// The error that ended it.
    pub error: Option<String>,
}

/// What came is not the file of the capture.
#[derive(Debug, Error)]
pub enum NotContinued {
    /// It cannot be written.
    #[error("its file is not open for writing")]
    NotOpen,
    /// It is at another place.
    #[error("its file is at byte {at}, not {said}")]
    Elsewhere {
        /// Where it is.
        at: u64,
        /// Where it should be.
        said: u64,
    },
    /// It has no place.
    #[error("its file is no regular file")]
    NotAFile,
    /// The system's error.
    #[error("its file cannot be continued: {0}")]
    System(#[from] std::io::Error),
}

/// So that it can be counted on.
fn at_most(count: u64) -> u64 {
    count.min(u64::MAX >> 2)
}

impl Recorder {
    pub(super) fn state(&self) -> CaptureState {
        CaptureState {
            bytes: self.written.bytes(),
            written: self.writer.written(),
            failed: self.writer.lost(),
            cut_off: self.cut_off,
            portions: self.written.portions(),
            ended: self.status.ended(),
            error: self.status.error().and_then(WriteError::io).map(ToString::to_string),
        }
    }
}

impl PcapEgress {
    /// Waits until all frames that were delivered are in the file; nobody may deliver meanwhile. Nothing is written
    /// from then on before more are. `None`: it took too long.
    pub fn settle(&self, limit: Duration) -> Option<CaptureState> {
        let (answer, answered) = sync_channel(1);
        self.full.try_send(Job::Settle(answer)).ok()?;
        answered.recv_timeout(limit).ok()
    }

    /// Goes on with a capture of another process, whose state is the result of [`PcapEgress::settle`].
    ///
    /// # Errors
    /// [`NotContinued`] if it is another file, or no thread can be started.
    pub fn continued(
        mut file: File,
        path: &Path,
        options: CaptureOptions,
        limit: Limit,
        state: CaptureState,
        counters: Arc<RingCounters>,
    ) -> Result<PcapEgress, NotContinued> {
        is_open_for_writing(&file)?;
        if file.metadata()?.is_file() && state.error.is_none() {
            let (at, said) = (file.stream_position()?, state.bytes);
            if at != said {
                return Err(NotContinued::Elsewhere { at, said });
            }
        }
        let noted = Noted::new().map_err(std::io::Error::from)?;
        Self::go_on(file, path, options, limit, (state, noted), counters)
    }

    /// Goes on with a file that is where its state says.
    pub(super) fn go_on(
        file: File,
        path: &Path,
        options: CaptureOptions,
        limit: Limit,
        (state, noted): (CaptureState, Noted),
        counters: Arc<RingCounters>,
    ) -> Result<PcapEgress, NotContinued> {
        let CaptureState { ended, error, .. } = state;
        let [bytes, written, failed, cut_off] = [state.bytes, state.written, state.failed, state.cut_off].map(at_most);
        let portions = state.portions.min(at_most(u64::MAX) / PORTION);
        let status = CaptureStatus::default();
        status.lost.store(failed + cut_off, Ordering::Relaxed);
        ended.into_iter().for_each(|why| status.end(why));
        let lost = error.as_ref().map(|_| failed);
        if let Some(text) = error {
            status.fail(WriteError::new(Some(path.to_owned()), std::io::Error::other(text)));
        }
        let writer = Writer::continued(file, options.format, written, lost).named(path);
        let written = Written::continued(limit, bytes, portions);
        Ok(Self::start((writer, written), noted, status, options, counters)?)
    }
}

pub(super) fn is_open_for_writing(file: &File) -> Result<(), NotContinued> {
    let mode = fcntl_getfl(file).map_err(std::io::Error::from)?;
    if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE == OFlags::RDONLY {
        return Err(NotContinued::NotOpen);
    }
    Ok(())
}
