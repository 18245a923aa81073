//! Input that may end anywhere, with untrusted length fields.

use std::io::{BufReader, ErrorKind, Read};
use std::time::Duration;

/// Longest captured frame that is read, in bytes; libpcap's limit, too (`MAXIMUM_SNAPLEN`). A record with a greater
/// length is damaged, and nothing is allocated for it. The file's own snaplen does not help: some files exceed it.
pub const MAX_CAPTURED: u32 = 262_144;

const BUFFER: usize = 64 * 1024;

/// An error that ends reading; the reader adds its position.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The first bytes are of neither format.
    Magic([u8; 4]),
    /// The input ends inside a record.
    Cut,
    /// A field has an impossible value.
    Bad(&'static str),
    /// Frames that are not Ethernet.
    LinkType(u32),
    /// The system's error.
    Io(std::io::Error),
}

/// The fields of a record, without the frame's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The time stamp, since 1970.
    pub time: Duration,
    /// Length on the wire in bytes.
    pub orig_len: u32,
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Big,
    Little,
}

impl Order {
    pub(crate) fn u16(self, b: [u8; 2]) -> u16 {
        match self {
            Order::Big => u16::from_be_bytes(b),
            Order::Little => u16::from_le_bytes(b),
        }
    }

    pub(crate) fn u32(self, b: [u8; 4]) -> u32 {
        match self {
            Order::Big => u32::from_be_bytes(b),
            Order::Little => u32::from_le_bytes(b),
        }
    }

    pub(crate) fn u64(self, b: [u8; 8]) -> u64 {
        match self {
            Order::Big => u64::from_be_bytes(b),
            Order::Little => u64::from_le_bytes(b),
        }
    }

    /// Converts bytes to words of 32 bits.
    pub(crate) fn words<const N: usize>(self, bytes: &[[u8; 4]; N]) -> [u32; N] {
        bytes.map(|b| self.u32(b))
    }
}

/// A buffered input that knows its position.
pub(crate) struct Source<R> {
    from: BufReader<R>,
    at: u64,
    record: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(from: R) -> Self {
        Source { from: BufReader::with_capacity(BUFFER, from), at: 0, record: 0 }
    }

    /// Offset of the current record.
    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    /// Begins a record: fills `to`, or returns false at the end of the input.
    pub(crate) fn begin(&mut self, to: &mut [u8]) -> Result<bool, Fault> {
        self.record = self.at;
        match self.some(to)? {
            0 => Ok(false),
            n if n == to.len() => Ok(true),
            _ => Err(Fault::Cut),
        }
    }

    /// Fills `to`.
    pub(crate) fn fill(&mut self, to: &mut [u8]) -> Result<(), Fault> {
        if self.some(to)? == to.len() { Ok(()) } else { Err(Fault::Cut) }
    }

    /// Fills as much of `to` as the input has.
    fn some(&mut self, to: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::Io(e)),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// Reads a frame of the record's length `len` into `data`.
    pub(crate) fn frame(&mut self, len: u32, data: &mut Vec<u8>) -> Result<(), Fault> {
        if len > MAX_CAPTURED {
            return Err(Fault::Bad("a frame longer than 262144 bytes"));
        }
        data.resize(len as usize, 0);
        self.fill(data)
    }

    /// Skips `len` bytes, in constant memory.
    pub(crate) fn skip(&mut self, len: u32) -> Result<(), Fault> {
        let mut sink = [0; 4096];
        let mut left = len as usize;
        while left > 0 {
            let n = left.min(sink.len());
            self.fill(&mut sink[..n])?;
            left -= n;
        }
        Ok(())
    }
}
