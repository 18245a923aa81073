//! Items about capture files: the state of a replay and of a capture, and what users have captured. A file's *progress*
//! is how far it has come.

use std::path::PathBuf;

use netvale_fdio::state::Fd;
use netvale_pcapport::{CaptureState, ReplayState};
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
    pub replay: Option<FileState<ReplayState>>,
    /// The file that is written, and whether its user's allowance limits it.
    pub capture: Option<(FileState<CaptureState>, bool)>,
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
