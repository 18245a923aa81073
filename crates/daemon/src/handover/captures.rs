//! Items about capture files: the state of a replay and of a capture, and what users have captured. A file's *progress*
//! is how far it has come.

use std::path::PathBuf;
use std::time::Duration;

use netvale_fdio::state::Fd;
use netvale_pcapport::{CaptureState, Ended, ReplayState};
use serde::{Deserialize, Serialize};

/// What a user has captured.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserCaptures {
    /// The user.
    pub user: u32,
    /// Portions of the user's allowance that are used up.
    pub used: u64,
    /// The files of captures that are over.
    pub files: Vec<KeptCapture>,
}

/// The file of a capture that is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Its path.
    pub path: PathBuf,
    /// Its device and inode number.
    pub file: (u64, u64),
    /// The portions that it took when it was last looked at.
    pub portions: u64,
}

/// What a capture port says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    /// The file that is replayed.
    pub replay: Option<FileState<Replay>>,
    /// The file that is written, and whether its user's allowance limits it.
    pub capture: Option<(FileState<Capture>, bool)>,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileState<T> {
    /// Its descriptor.
    pub file: Fd,
    /// How far it has come.
    pub progress: Progress<T>,
}

/// How far a file has come.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress<T> {
    /// It was said by who paused.
    Said(T),
    /// It is noted in this memory, as at any time.
    Noted(Fd),
}

/// How far a replay has come, see [`ReplayState`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Replay {
    pass: u64,
    frame: u64,
    before: (u64, Duration),
    began: Option<Duration>,
    finished: bool,
    error: Option<String>,
}

impl From<ReplayState> for Replay {
    fn from(ReplayState { pass, frame, before, began, finished, error }: ReplayState) -> Replay {
        Replay { pass, frame, before, began, finished, error }
    }
}

impl From<Replay> for ReplayState {
    fn from(Replay { pass, frame, before, began, finished, error }: Replay) -> ReplayState {
        ReplayState { pass, frame, before, began, finished, error }
    }
}

/// How far a capture has come, see [`CaptureState`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Capture {
    bytes: u64,
    written: u64,
    failed: u64,
    cut_off: u64,
    portions: u64,
    ended: Option<Limited>,
    error: Option<String>,
}

/// See [`Ended`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Limited {
    Limit(u64),
    Quota(u64),
}

impl From<CaptureState> for Capture {
    fn from(state: CaptureState) -> Capture {
        let CaptureState { bytes, written, failed, cut_off, portions, ended, error } = state;
        let ended = ended.map(|why| match why {
            Ended::Limit(bytes) => Limited::Limit(bytes),
            Ended::Quota(portions) => Limited::Quota(portions),
        });
        Capture { bytes, written, failed, cut_off, portions, ended, error }
    }
}

impl From<Capture> for CaptureState {
    fn from(capture: Capture) -> CaptureState {
        let Capture { bytes, written, failed, cut_off, portions, ended, error } = capture;
        let ended = ended.map(|why| match why {
            Limited::Limit(bytes) => Ended::Limit(bytes),
            Limited::Quota(portions) => Ended::Quota(portions.min(u64::MAX >> 24)),
        });
        CaptureState { bytes, written, failed, cut_off, portions, ended, error }
    }
}
