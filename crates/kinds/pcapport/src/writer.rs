//! Writes a capture.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::PcapHeader;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use thiserror::Error;

use crate::source::MAX_CAPTURED;

const BUFFER: usize = 256 * 1024;
/// Bytes of a pcap record, and of a pcapng enhanced packet block without options, without the frame.
pub(crate) const PCAP_RECORD: usize = 16;
const NG_BLOCK: usize = 32;

/// The file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, time stamps in nanoseconds, from 1970 to 2106.
    Pcap,
    /// pcapng, time stamps in nanoseconds, from 1970 to 2554.
    PcapNg,
}

impl Format {
    /// The format for a file's name: pcapng for `*.pcapng` and `*.ntar`, else pcap.
    pub fn of(path: &Path) -> Format {
        let ng = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("pcapng") || e.eq_ignore_ascii_case("ntar"));
        if ng { Format::PcapNg } else { Format::Pcap }
    }
}

/// A frame's direction at its interface (`epb_flags` of pcapng).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The interface received it.
    In,
    /// The interface sent it.
    Out,
}

/// An error that keeps a capture from being written: a full disk, or a pipe whose reader has left.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}; what follows is not captured", path.as_deref().unwrap_or(Path::new("the capture")).display())]
pub struct WriteError {
    path: Option<PathBuf>,
    source: std::io::Error,
}

impl WriteError {
    pub(crate) fn new(path: Option<PathBuf>, source: std::io::Error) -> Self {
        WriteError { path, source }
    }

    /// The underlying system error.
    pub fn io(&self) -> Option<&std::io::Error> {
        Some(&self.source)
    }
}

/// Writes a capture through a buffer. Call [`Writer::finish`]: only its result shows whether everything reached the
/// file.
///
/// After an error it stops: the error is returned once, later frames are counted in [`Writer::lost`], and the file
/// keeps earlier frames.
pub struct Writer<W: Write> {
    to: BufWriter<W>,
    format: Format,
    path: Option<PathBuf>,
    stopped: bool,
    written: u64,
    lost: u64,
}

impl Writer<File> {
    /// Creates or truncates the file, and begins a capture of Ethernet frames. Errors will name the file.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be created, or its header cannot be written.
    pub fn create(path: &Path, format: Format) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|e| WriteError::new(Some(path.to_owned()), e))?;
        Self::new(file, format).map(|w| w.named(path))
    }
}

impl<W: Write> Writer<W> {
    /// Begins a capture of Ethernet frames.
    ///
    /// # Errors
    /// [`WriteError`] if the header cannot be written.
    pub fn new(to: W, format: Format) -> Result<Self, WriteError> {
        let mut to = BufWriter::with_capacity(BUFFER, to);
        begin(&mut to, format).map_err(|e| WriteError::new(None, e))?;
        Ok(Writer { to, format, path: None, stopped: false, written: 0, lost: 0 })
    }

    /// Continues a capture of `written` frames; `lost` is the number of frames after an error, if it had one.
    pub(crate) fn continued(to: W, format: Format, written: u64, lost: Option<u64>) -> Self {
        let to = BufWriter::with_capacity(BUFFER, to);
        Writer { to, format, path: None, stopped: lost.is_some(), written, lost: lost.unwrap_or(0) }
    }

    /// Names the file in later errors.
    pub fn named(self, path: &Path) -> Self {
        Writer { path: Some(path.to_owned()), ..self }
    }

    /// Appends a frame captured whole at `time` (since 1970; later times than the format knows become its latest).
    ///
    /// # Errors
    /// [`WriteError`] if writing fails, the first time only.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> Result<(), WriteError> {
        self.write_cut(time, frame, u32::try_from(frame.len()).unwrap_or(u32::MAX))
    }

    /// Appends the kept part of a frame of `orig_len` bytes, at most [`MAX_CAPTURED`] bytes of it.
    ///
    /// # Errors
    /// [`WriteError`] if writing fails, the first time only.
    pub fn write_cut(&mut self, time: Duration, frame: &[u8], orig_len: u32) -> Result<(), WriteError> {
        if self.stopped {
            self.lost += 1;
            return Ok(());
        }
        let frame = frame.get(..MAX_CAPTURED as usize).unwrap_or(frame);
        let len = frame.len() as u32;
        let written = match self.format {
            Format::Pcap => record(&mut self.to, time, frame, orig_len.max(len)),
            Format::PcapNg => packet_block(&mut self.to, 0, time, frame, orig_len.max(len), None),
        };
        let noted = self.note(written);
        let count = if noted.is_ok() { &mut self.written } else { &mut self.lost };
        *count += 1;
        noted
    }

    /// Bytes in the file for a frame of which `len` bytes are kept.
    pub fn size_of(&self, len: usize) -> u64 {
        let len = len.min(MAX_CAPTURED as usize);
        let bytes = match self.format {
            Format::Pcap => PCAP_RECORD + len,
            Format::PcapNg => NG_BLOCK + len.next_multiple_of(4),
        };
        bytes as u64
    }

    /// Whether a frame of which `len` bytes are kept fits the buffer: then nothing is written to the file yet.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let room = self.to.capacity() - self.to.buffer().len();
        self.size_of(len) < room as u64
    }

    /// Writes out the buffer.
    ///
    /// # Errors
    /// [`WriteError`] if writing fails, the first time only.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.note(flushed)
    }

    /// Writes out the buffer and ends the capture.
    ///
    /// # Errors
    /// [`WriteError`] if writing failed and the error was not returned before.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.flush()
    }

    /// Frames written, at least to the buffer.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Frames after an error, and the one that met it.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Stops at the first error.
    fn note(&mut self, result: std::io::Result<()>) -> Result<(), WriteError> {
        result.map_err(|e| {
            self.stopped = true;
            WriteError::new(self.path.clone(), e)
        })
    }
}

pub(crate) fn begin<W: Write>(to: &mut W, format: Format) -> std::io::Result<()> {
    match format {
        Format::Pcap => {
            let header = PcapHeader {
                snaplen: MAX_CAPTURED,
                datalink: DataLink::ETHERNET,
                ts_resolution: TsResolution::NanoSecond,
                endianness: Endianness::native(),
                ..PcapHeader::default()
            };
            header.write_to(to).map(drop).map_err(io_error)
        }
        Format::PcapNg => {
            let mut to = PcapNgWriter::new(to).map_err(io_error)?;
            // Nanoseconds: 10^-9.
            let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
            let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: MAX_CAPTURED, options };
            to.write_pcapng_block(interface).map(drop).map_err(io_error)
        }
    }
}

/// Writes a pcap record. `pcap-file` cannot: its writers always begin a file.
pub(crate) fn record<W: Write>(to: &mut W, time: Duration, frame: &[u8], orig_len: u32) -> std::io::Result<()> {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let header = [seconds, time.subsec_nanos(), frame.len() as u32, orig_len].map(u32::to_ne_bytes);
    to.write_all(header.as_flattened())?;
    to.write_all(frame)
}

/// Writes a pcapng enhanced packet block, for the same reason.
pub(crate) fn packet_block<W: Write>(
    to: &mut W,
    interface: u32,
    time: Duration,
    frame: &[u8],
    orig_len: u32,
    direction: Option<Direction>,
) -> std::io::Result<()> {
    const ENHANCED_PACKET: u32 = 6;
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let padding = frame.len().next_multiple_of(4) - frame.len();
    let options = direction.map(flags);
    let total = (NG_BLOCK + frame.len() + padding + options.map_or(0, |words| words.len())) as u32;
    let [high, low] = [(nanos >> 32) as u32, nanos as u32];
    let header = [ENHANCED_PACKET, total, interface, high, low, frame.len() as u32, orig_len].map(u32::to_ne_bytes);
    to.write_all(header.as_flattened())?;
    to.write_all(frame)?;
    to.write_all(&[0; 3][..padding])?;
    if let Some(options) = options {
        to.write_all(&options)?;
    }
    to.write_all(&total.to_ne_bytes())
}

/// The option `epb_flags` with a direction, and the end of options.
fn flags(direction: Direction) -> [u8; 12] {
    const EPB_FLAGS: [u16; 2] = [2, 4];
    let word: u32 = if direction == Direction::In { 1 } else { 2 };
    let [code, len] = EPB_FLAGS.map(u16::to_ne_bytes);
    let mut option = [0; 12];
    option[..2].copy_from_slice(&code);
    option[2..4].copy_from_slice(&len);
    option[4..8].copy_from_slice(&word.to_ne_bytes());
    option
}

fn io_error(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(e) => e,
        other => std::io::Error::other(other),
    }
}
