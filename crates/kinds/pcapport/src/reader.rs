//! Reads a capture, in memory bounded by its longest frame.
//!
//! The formats are parsed here, not by `pcap-file`: its reader refuses frames cut by a snaplen, takes all pcapng time
//! stamps for nanoseconds, and returns a simple packet's padding as part of the frame
//! (docs/adr/0024-captures-are-read-by-ourselves.md). Its writer is right, and the tests cross-check both.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::DataLink;
use thiserror::Error;

use crate::classic::Classic;
use crate::ng::{Ng, SECTION_MAGIC};
use crate::source::{Fault, Source};

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The time stamp, since 1970; zero if the file has none (pcapng's simple packets).
    pub time: Duration,
    /// Length on the wire in bytes.
    pub orig_len: u32,
    /// The captured bytes of the frame: at most [`crate::MAX_CAPTURED`].
    pub bytes: &'a [u8],
}

/// An error reading a capture, at its start or later.
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
    #[error("cannot read the capture on at byte {at}, after {frames} frames: {source}")]
    Io {
        /// Offset of the record being read.
        at: u64,
        /// Whole frames before it.
        frames: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("not a pcap or pcapng file: {}", guess(*begins))]
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
    /// The file ends inside a record. All earlier frames were read.
    #[error("the capture is cut in the record at byte {at}, after {frames} whole frames: copy or record it again")]
    Truncated {
        /// Offset of the incomplete record.
        at: u64,
        /// Whole frames before it.
        frames: u64,
    },
    /// Another process's error.
    #[error("{0}")]
    Earlier(String),
    /// A record is invalid, so later ones cannot be found.
    #[error("the capture is damaged at byte {at}, after {frames} frames: {what}")]
    Damaged {
        /// Offset of that record.
        at: u64,
        /// Frames before it.
        frames: u64,
        /// The impossible value.
        what: &'static str,
    },
}

fn guess(begins: [u8; 4]) -> String {
    let packed = match begins {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd",
        [0xfd, b'7', b'z', b'X'] => "xz",
        [0x04, 0x22, 0x4d, 0x18] => "lz4",
        _ => return format!("it begins with the bytes {begins:02x?}"),
    };
    format!("it is compressed; unpack it with {packed} -d first")
}

#[derive(Debug)]
enum Kind {
    Classic(Classic),
    Ng(Ng),
}

/// An open capture: a file, or another source of bytes.
pub struct Reader<R = File> {
    source: Source<R>,
    kind: Kind,
    data: Vec<u8>,
    frames: u64,
    ended: bool,
}

impl Reader<File> {
    /// Opens a pcap or pcapng file, recognized by its first bytes.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened, or does not begin as a capture of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture's header; buffers by itself.
    ///
    /// # Errors
    /// [`ReadError`] if the input cannot be read, or does not begin as a capture of Ethernet frames.
    pub fn new(from: R) -> Result<Self, ReadError> {
        let mut source = Source::new(from);
        let kind = begin(&mut source).map_err(|fault| error(fault, source.record(), 0))?;
        Ok(Reader { source, kind, data: Vec::new(), frames: 0, ended: false })
    }

    /// The next frame; `None` at the end, and after an error.
    ///
    /// # Errors
    /// After the last whole frame: [`ReadError::Truncated`] for a truncated file; [`ReadError::Damaged`];
    /// [`ReadError::LinkType`] if pcapng describes another kind of interface in the middle of the file;
    /// [`ReadError::Io`].
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let Reader { source, kind, data, .. } = self;
        let head = match kind {
            Kind::Classic(classic) => classic.next(source, data),
            Kind::Ng(ng) => ng.next(source, data),
        };
        match head {
            Ok(Some(head)) => {
                self.frames += 1;
                Ok(Some(Frame { time: head.time, orig_len: head.orig_len, bytes: &self.data }))
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

    /// Frames read so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// The format, with its header.
fn begin<R: Read>(source: &mut Source<R>) -> Result<Kind, Fault> {
    let mut magic = [0; 4];
    if !source.begin(&mut magic)? {
        return Err(Fault::Cut);
    }
    if magic == SECTION_MAGIC {
        return Ng::begin(source).map(Kind::Ng);
    }
    let classic = Classic::of_magic(magic).ok_or(Fault::Magic(magic))?;
    classic.header(source)?;
    Ok(Kind::Classic(classic))
}

fn error(fault: Fault, at: u64, frames: u64) -> ReadError {
    match fault {
        Fault::Magic(begins) => ReadError::NotACapture { begins },
        Fault::Cut => ReadError::Truncated { at, frames },
        Fault::Bad(what) => ReadError::Damaged { at, frames, what },
        Fault::Io(source) => ReadError::Io { at, frames, source },
        Fault::LinkType(link) => ReadError::LinkType { name: link_name(link) },
    }
}

fn link_name(link: u32) -> String {
    match DataLink::from(link) {
        DataLink::Unknown(number) => format!("of link type {number}"),
        known => format!("{known:?}"),
    }
}
