//! Reads captures, in memory bounded by the longest frame.
//!
//! The formats are parsed here and not by `pcap-file`, whose reader refuses frames truncated by a snaplen, interprets
//! all pcapng time stamps as nanoseconds, and returns a simple packet's padding as part of the frame
//! (docs/adr/0024-captures-are-read-by-ourselves.md). The writer of `pcap-file` is correct, and tests check reader and
//! writer against each other.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::DataLink;
use thiserror::Error;

use crate::classic::ClassicFile;
use crate::ng::{NgFile, SECTION_MAGIC};
use crate::source::{PcapSource, SourceFault};

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapFrame<'a> {
    /// The time stamp, since 1970; zero if the record has none (pcapng's simple packets).
    pub time: Duration,
    /// Length on the wire in bytes.
    pub orig_len: u32,
    /// The captured bytes of the frame: at most [`crate::MAX_CAPTURED`].
    pub bytes: &'a [u8],
}

/// An error in reading a capture.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file does not exist or may not be read.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Reading failed.
    #[error("cannot read the capture at byte {at}, after {frames} frames: {source}")]
    Io {
        /// Offset of the record being read.
        at: u64,
        /// Number of complete frames before that record.
        frames: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("expected a pcap or pcapng file, found {}", guess(*begins))]
    NotACapture {
        /// The file's first bytes.
        begins: [u8; 4],
    },
    /// The frames are not Ethernet.
    #[error("the capture's frames are {name}, not Ethernet: only Ethernet can cross a switch")]
    LinkType {
        /// Name of the link type, or its number.
        name: String,
    },
    /// The file ends inside a record. All frames before it were read.
    #[error(
        "the capture is truncated in the record at byte {at}, after {frames} whole frames: copy or record it again"
    )]
    Truncated {
        /// Offset of the incomplete record.
        at: u64,
        /// Number of complete frames before that record.
        frames: u64,
    },
    /// An error that the predecessor reported, restored from its text.
    #[error("{0}")]
    Earlier(String),
    /// A record is invalid, so that later records cannot be found.
    #[error("the capture is damaged at byte {at}, after {frames} frames: {what}")]
    Damaged {
        /// Offset of the record.
        at: u64,
        /// Number of frames before that record.
        frames: u64,
        /// A description of the invalid value.
        what: &'static str,
    },
}

fn guess(begins: [u8; 4]) -> String {
    let packed = match begins {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd",
        [0xfd, b'7', b'z', b'X'] => "xz",
        [0x04, 0x22, 0x4d, 0x18] => "lz4",
        _ => return format!("a file that begins with {begins:02x?}"),
    };
    format!("a compressed file; unpack it with {packed} -d first")
}

#[derive(Debug)]
enum ReaderKind {
    Classic(ClassicFile),
    Ng(NgFile),
}

/// An open capture: a file, or another source of bytes.
pub struct PcapReader<R = File> {
    source: PcapSource<R>,
    kind: ReaderKind,
    data: Vec<u8>,
    frames: u64,
    ended: bool,
}

impl PcapReader<File> {
    /// Opens a pcap or pcapng file; its first bytes decide the format.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened, or does not begin as a capture of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?)
    }
}

impl<R: Read> PcapReader<R> {
    /// Reads a capture's header from `from`, which need not be buffered.
    ///
    /// # Errors
    /// [`ReadError`] if the input cannot be read, or does not begin as a capture of Ethernet frames.
    pub fn new(from: R) -> Result<Self, ReadError> {
        let mut source = PcapSource::new(from);
        let kind = begin(&mut source).map_err(|fault| error(fault, source.record(), 0))?;
        Ok(PcapReader { source, kind, data: Vec::new(), frames: 0, ended: false })
    }

    /// Reads the next frame; `None` at the end, and after an error.
    ///
    /// # Errors
    /// Returned after the last valid frame: [`ReadError::Truncated`], [`ReadError::Damaged`], [`ReadError::Io`], or
    /// [`ReadError::LinkType`] if a pcapng file describes another type of interface in the middle.
    pub fn next_frame(&mut self) -> Result<Option<PcapFrame<'_>>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let PcapReader { source, kind, data, .. } = self;
        let head = match kind {
            ReaderKind::Classic(classic) => classic.next(source, data),
            ReaderKind::Ng(ng) => ng.next(source, data),
        };
        match head {
            Ok(Some(head)) => {
                self.frames += 1;
                Ok(Some(PcapFrame { time: head.time, orig_len: head.orig_len, bytes: &self.data }))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(fault) => {
                self.ended = true;
                Err(error(fault, self.source.record(), self.frames))
            }
        }
    }

    /// Number of frames read so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// Recognizes the format and reads the header.
fn begin<R: Read>(source: &mut PcapSource<R>) -> Result<ReaderKind, SourceFault> {
    let mut magic = [0; 4];
    if !source.begin(&mut magic)? {
        return Err(SourceFault::Cut);
    }
    if magic == SECTION_MAGIC {
        return NgFile::begin(source).map(ReaderKind::Ng);
    }
    let classic = ClassicFile::of_magic(magic).ok_or(SourceFault::Magic(magic))?;
    classic.header(source)?;
    Ok(ReaderKind::Classic(classic))
}

fn error(fault: SourceFault, at: u64, frames: u64) -> ReadError {
    match fault {
        SourceFault::Magic(begins) => ReadError::NotACapture { begins },
        SourceFault::Cut => ReadError::Truncated { at, frames },
        SourceFault::Bad(what) => ReadError::Damaged { at, frames, what },
        SourceFault::Io(source) => ReadError::Io { at, frames, source },
        SourceFault::LinkType(link) => ReadError::LinkType { name: link_name(link) },
    }
}

fn link_name(link: u32) -> String {
    match DataLink::from(link) {
        DataLink::Unknown(number) => format!("of link type {number}"),
        known => format!("{known:?}"),
    }
}
