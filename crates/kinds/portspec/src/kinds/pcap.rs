//! `pcap:IN`, `pcap:in=FILE,out=FILE`: capture files.

use std::fmt;
use std::path::Path;

use super::{AfterColon, SpecKind, fitting, stem};
use crate::cursor::{Cursor, SpecResult};
use crate::text::{FilePath, Ident};

/// The kind of ports that replay a capture file and may write another one.
pub(super) const REPLAY: SpecKind = SpecKind {
    word: "replaying pcap",
    pattern: Some("^pcap:(?!out=)|^pcap:out=.*,in="),
    example: "pcap:in=/a.pcap,out=/b.pcap",
    help: &[
        ("pcap:FILE", "frames of this capture file enter the switch"),
        ("pcap:in=FILE,out=FILE", "replay one file, capture into another; either may be omitted"),
    ],
    takes: &["loop", "speed", "capture_limit"],
    adjusts: &[],
    page: "guide/capture.md",
};

/// The kind of ports that only write a capture file.
pub(super) const CAPTURE: SpecKind = SpecKind {
    word: "capturing pcap",
    pattern: Some("^pcap:out=(?!.*,in=)"),
    example: "pcap:out=/b.pcap",
    help: &[],
    takes: &["capture_limit"],
    adjusts: &[],
    page: "guide/capture.md",
};

/// Capture files of a port, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PcapFiles {
    /// `in=`: frames of this file enter the switch.
    Replay(FilePath),
    /// `out=`: frames that the switch delivers are written to this file.
    Capture(FilePath),
    /// `in=` and `out=`: one file is replayed, another file is written.
    Both {
        /// Source of frames for the switch.
        replay: FilePath,
        /// Destination of delivered frames.
        capture: FilePath,
    },
}

impl PcapFiles {
    /// Returns the file to replay, if any.
    pub fn replay(&self) -> Option<&FilePath> {
        match self {
            Self::Replay(file) | Self::Both { replay: file, .. } => Some(file),
            Self::Capture(_) => None,
        }
    }

    /// Returns the file to capture to, if any.
    pub fn capture(&self) -> Option<&FilePath> {
        match self {
            Self::Capture(file) | Self::Both { capture: file, .. } => Some(file),
            Self::Replay(_) => None,
        }
    }

    /// Returns the file to replay, otherwise the file to capture to.
    fn any(&self) -> &FilePath {
        match self {
            Self::Replay(file) | Self::Capture(file) | Self::Both { replay: file, .. } => file,
        }
    }
}

impl AfterColon for PcapFiles {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        const FILE: &str = "a file's path";
        if cursor.eat("in=") {
            let replay = FilePath::take(cursor, FILE)?;
            if !cursor.eat(",") {
                return Ok(Self::Replay(replay));
            }
            cursor.expect("out=", "'out=' and a path after ','")?;
            return Ok(Self::Both { replay, capture: FilePath::take(cursor, FILE)? });
        }
        if cursor.eat("out=") {
            let capture = FilePath::take(cursor, FILE)?;
            if !cursor.eat(",") {
                return Ok(Self::Capture(capture));
            }
            cursor.expect("in=", "'in=' and a path after ','")?;
            return Ok(Self::Both { replay: FilePath::take(cursor, FILE)?, capture });
        }
        FilePath::take(cursor, "a file's path, or 'in=' and 'out=' with a path each").map(Self::Replay)
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(stem(self.any().as_str()))
    }

    fn files(&self) -> Vec<&str> {
        self.replay().into_iter().chain(self.capture()).map(FilePath::as_str).collect()
    }

    fn in_folder(&self, here: &Path) -> Option<String> {
        let written = |key: &str, file: &FilePath| format!("{key}={}", here.join(file.as_str()).display());
        let files = self.replay().map(|file| written("in", file)).into_iter();
        let files = files.chain(self.capture().map(|file| written("out", file)));
        Some(files.collect::<Vec<_>>().join(","))
    }

    fn kind(&self, _kinds: &'static [SpecKind]) -> &'static SpecKind {
        if self.replay().is_some() { &REPLAY } else { &CAPTURE }
    }
}

impl fmt::Display for PcapFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(file) => write!(f, "in={file}"),
            Self::Capture(file) => write!(f, "out={file}"),
            Self::Both { replay, capture } => write!(f, "in={replay},out={capture}"),
        }
    }
}
