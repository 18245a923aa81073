//! Items about capture files: the state of a replay and of a capture, and what users have captured.

use std::path::PathBuf;
use std::time::Duration;

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

/// What a capture port says of itself. Descriptors: the file that is replayed, the file that is written.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    /// How far the replay has come.
    pub replay: Option<Replay>,
    /// How far the capture has come.
    pub capture: Option<Capture>,
    /// In place of both: it is noted how far they have come. A descriptor of what is noted follows that of each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<NotedFiles>,
}

/// What is kept of a capture port at any time.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotedFiles {
    /// Whether there is a replay.
    pub replay: bool,
    /// If there is a capture: whether its user's allowance limits it.
    pub capture: Option<bool>,
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
    /// Whether its user's allowance limits it.
    pub shares: bool,
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

impl Capture {
    /// How far a capture has come, and whether its user's allowance limits it.
    pub fn new(state: CaptureState, shares: bool) -> Capture {
        let CaptureState { bytes, written, failed, cut_off, portions, ended, error } = state;
        let ended = ended.map(|why| match why {
            Ended::Limit(bytes) => Limited::Limit(bytes),
            Ended::Quota(portions) => Limited::Quota(portions),
        });
        Capture { shares, bytes, written, failed, cut_off, portions, ended, error }
    }
}

impl From<Capture> for CaptureState {
    fn from(capture: Capture) -> CaptureState {
        let Capture { bytes, written, failed, cut_off, portions, ended, error, .. } = capture;
        let ended = ended.map(|why| match why {
            Limited::Limit(bytes) => Ended::Limit(bytes),
            Limited::Quota(portions) => Ended::Quota(portions.min(u64::MAX >> 24)),
        });
        CaptureState { bytes, written, failed, cut_off, portions, ended, error }
    }
}
