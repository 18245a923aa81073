//! Buffered input that may end anywhere and whose length fields are untrusted.

use std::io::{BufReader, ErrorKind, Read};
use std::time::Duration;

/// Maximum length of a captured frame in bytes, as in libpcap (`MAXIMUM_SNAPLEN`). A record with a greater length is
/// damaged, and nothing is allocated for it. The file's own snaplen is no limit, because some files exceed it.
pub const MAX_CAPTURED: u32 = 262_144;

const BUFFER: usize = 64 * 1024;

/// An error that ends reading. The reader adds the position.
#[derive(Debug)]
pub(crate) enum SourceFault {
    /// The first bytes are the magic number of neither pcap nor pcapng.
    Magic([u8; 4]),
    /// The input ends inside a record.
    Cut,
    /// A field has an impossible value.
    Bad(&'static str),
    /// The frames are not Ethernet.
    LinkType(u32),
    /// Reading the input failed.
    Io(std::io::Error),
}

/// The fields of a record, without the frame's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// Time stamp, as the time since 1970.
    pub time: Duration,
    /// Length on the wire in bytes.
    pub orig_len: u32,
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PcapByteOrder {
    Big,
    Little,
}

impl PcapByteOrder {
    pub(crate) fn u16(self, b: [u8; 2]) -> u16 {
        if self == PcapByteOrder::Big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) }
    }

    pub(crate) fn u32(self, b: [u8; 4]) -> u32 {
        if self == PcapByteOrder::Big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
    }

    pub(crate) fn u64(self, b: [u8; 8]) -> u64 {
        if self == PcapByteOrder::Big { u64::from_be_bytes(b) } else { u64::from_le_bytes(b) }
    }

    /// Converts bytes to words of 32 bits.
    pub(crate) fn words<const N: usize>(self, bytes: &[[u8; 4]; N]) -> [u32; N] {
        bytes.map(|b| self.u32(b))
    }
}

/// A buffered input that tracks its position.
pub(crate) struct PcapSource<R> {
    from: BufReader<R>,
    at: u64,
    record: u64,
}

impl<R: Read> PcapSource<R> {
    pub(crate) fn new(from: R) -> Self {
        PcapSource { from: BufReader::with_capacity(BUFFER, from), at: 0, record: 0 }
    }

    /// Offset of the current record in the input, in bytes.
    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    /// Begins a record and fills `to` with its first bytes. Returns false if the input has ended.
    pub(crate) fn begin(&mut self, to: &mut [u8]) -> Result<bool, SourceFault> {
        self.record = self.at;
        match self.some(to)? {
            0 => Ok(false),
            n if n == to.len() => Ok(true),
            _ => Err(SourceFault::Cut),
        }
    }

    /// Fills all of `to`. Returns [`SourceFault::Cut`] if the input ends first.
    pub(crate) fn fill(&mut self, to: &mut [u8]) -> Result<(), SourceFault> {
        if self.some(to)? == to.len() { Ok(()) } else { Err(SourceFault::Cut) }
    }

    /// Fills as much of `to` as the input has. Returns the number of bytes.
    fn some(&mut self, to: &mut [u8]) -> Result<usize, SourceFault> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(SourceFault::Io(e)),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// Reads a frame of `len` bytes, as the record states, into `data`.
    pub(crate) fn frame(&mut self, len: u32, data: &mut Vec<u8>) -> Result<(), SourceFault> {
        if len > MAX_CAPTURED {
            return Err(SourceFault::Bad("a frame longer than 262144 bytes"));
        }
        data.resize(len as usize, 0);
        self.fill(data)
    }

    /// Skips `len` bytes, in constant memory.
    pub(crate) fn skip(&mut self, len: u32) -> Result<(), SourceFault> {
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
