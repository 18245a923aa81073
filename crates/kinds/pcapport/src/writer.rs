//! Writes captures.

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
/// Length in bytes of a pcap record without its frame.
const PCAP_RECORD: usize = 16;
/// Length in bytes of a pcapng enhanced packet block without options, without its frame.
const NG_BLOCK: usize = 32;

/// Format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapFormat {
    /// pcap, with time stamps in nanoseconds from 1970 to 2106.
    Pcap,
    /// pcapng, with time stamps in nanoseconds from 1970 to 2554.
    PcapNg,
}

impl PcapFormat {
    /// Returns the format that a file's name implies: pcapng for `*.pcapng` and `*.ntar`, pcap for other names.
    pub fn of(path: &Path) -> PcapFormat {
        let ng = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("pcapng") || e.eq_ignore_ascii_case("ntar"));
        if ng { PcapFormat::PcapNg } else { PcapFormat::Pcap }
    }

    /// Returns the number of bytes that a frame takes in a file if `len` bytes of it are kept. `block` is the length of
    /// a pcapng block without its frame.
    pub(crate) fn size_of(self, len: usize, block: usize) -> u64 {
        let len = len.min(MAX_CAPTURED as usize);
        let bytes = match self {
            PcapFormat::Pcap => PCAP_RECORD + len,
            PcapFormat::PcapNg => block + len.next_multiple_of(4),
        };
        bytes as u64
    }
}

/// A frame's direction at its interface (`epb_flags` of pcapng).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapDirection {
    /// The interface received the frame.
    In,
    /// The interface sent the frame.
    Out,
}

/// An error in writing a capture, for example because a disk is full, or the reader of a pipe has closed it.
#[derive(Debug, Error)]
#[error(
    "cannot write {}: {source}; later frames are not captured",
    path.as_deref().unwrap_or(Path::new("the capture")).display()
)]
pub struct WriteError {
    path: Option<PathBuf>,
    source: std::io::Error,
}

impl WriteError {
    pub(crate) fn new(path: Option<PathBuf>, source: std::io::Error) -> Self {
        WriteError { path, source }
    }

    /// Returns the underlying system error; never `None`.
    pub fn io(&self) -> Option<&std::io::Error> {
        Some(&self.source)
    }
}

/// Writes a capture through a buffer. Only the result of [`PcapWriter::finish`] shows whether everything reached the
/// file.
///
/// After an error, the writer stops: it returns the error once and counts later frames in [`PcapWriter::lost`]. The
/// file keeps earlier frames.
pub struct PcapWriter<W: Write> {
    to: BufWriter<W>,
    format: PcapFormat,
    path: Option<PathBuf>,
    stopped: bool,
    written: u64,
    lost: u64,
}

impl PcapWriter<File> {
    /// Creates or truncates the file, and starts a capture of Ethernet frames. Error messages contain the path.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be created, or its header cannot be written.
    pub fn create(path: &Path, format: PcapFormat) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|e| WriteError::new(Some(path.to_owned()), e))?;
        Self::new(file, format).map(|w| w.named(path))
    }
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture of Ethernet frames.
    ///
    /// # Errors
    /// [`WriteError`] if the header cannot be written.
    pub fn new(to: W, format: PcapFormat) -> Result<Self, WriteError> {
        let mut to = BufWriter::with_capacity(BUFFER, to);
        begin(&mut to, format).map_err(|e| WriteError::new(None, e))?;
        Ok(PcapWriter { to, format, path: None, stopped: false, written: 0, lost: 0 })
    }

    /// Continues a capture of `written` frames. `lost` is the number of frames lost since an error stopped the capture;
    /// `None` if no error has stopped it.
    pub(crate) fn continued(to: W, format: PcapFormat, written: u64, lost: Option<u64>) -> Self {
        let to = BufWriter::with_capacity(BUFFER, to);
        PcapWriter { to, format, path: None, stopped: lost.is_some(), written, lost: lost.unwrap_or(0) }
    }

    /// Sets the path for later error messages.
    pub fn named(self, path: &Path) -> Self {
        PcapWriter { path: Some(path.to_owned()), ..self }
    }

    /// Appends a whole frame, captured at `time` since 1970. Times beyond the format's range become its latest time.
    ///
    /// # Errors
    /// [`WriteError`] at the first write that fails; later calls return `Ok`.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> Result<(), WriteError> {
        self.write_cut(time, frame, u32::try_from(frame.len()).unwrap_or(u32::MAX))
    }

    /// Appends the captured part of a frame of `orig_len` bytes. Keeps at most [`MAX_CAPTURED`] bytes of it.
    ///
    /// # Errors
    /// [`WriteError`] at the first write that fails; later calls return `Ok`.
    pub fn write_cut(&mut self, time: Duration, frame: &[u8], orig_len: u32) -> Result<(), WriteError> {
        if self.stopped {
            self.lost += 1;
            return Ok(());
        }
        let frame = frame.get(..MAX_CAPTURED as usize).unwrap_or(frame);
        let len = frame.len() as u32;
        let written = match self.format {
            PcapFormat::Pcap => record(&mut self.to, time, frame, orig_len.max(len)),
            PcapFormat::PcapNg => packet_block(&mut self.to, 0, time, frame, orig_len.max(len), None),
        };
        let noted = self.note(written);
        let count = if noted.is_ok() { &mut self.written } else { &mut self.lost };
        *count += 1;
        noted
    }

    /// Number of bytes that a frame takes in the file if `len` bytes of it are kept.
    pub fn size_of(&self, len: usize) -> u64 {
        self.format.size_of(len, NG_BLOCK)
    }

    /// Whether a frame of which `len` bytes are kept fits into the buffer, so that appending it does not write to the
    /// file.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let room = self.to.capacity() - self.to.buffer().len();
        self.size_of(len) < room as u64
    }

    /// Writes the buffer to the file.
    ///
    /// # Errors
    /// [`WriteError`] at the first write that fails; later calls return `Ok`.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.note(flushed)
    }

    /// Writes the buffer to the file and ends the capture.
    ///
    /// # Errors
    /// [`WriteError`] if writing failed and the error was not returned before.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.flush()
    }

    /// Number of frames written, at least to the buffer.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Number of frames lost: the frame at which the error occurred, and all later frames.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Stops the writer if `result` is an error.
    fn note(&mut self, result: std::io::Result<()>) -> Result<(), WriteError> {
        result.map_err(|e| {
            self.stopped = true;
            WriteError::new(self.path.clone(), e)
        })
    }
}

pub(crate) fn begin<W: Write>(to: &mut W, format: PcapFormat) -> std::io::Result<()> {
    match format {
        PcapFormat::Pcap => {
            let header = PcapHeader {
                snaplen: MAX_CAPTURED,
                datalink: DataLink::ETHERNET,
                ts_resolution: TsResolution::NanoSecond,
                endianness: Endianness::native(),
                ..PcapHeader::default()
            };
            header.write_to(to).map(drop).map_err(io_error)
        }
        PcapFormat::PcapNg => {
            let mut to = PcapNgWriter::new(to).map_err(io_error)?;
            // Nanoseconds: 10^-9.
            let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
            let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: MAX_CAPTURED, options };
            to.write_pcapng_block(interface).map(drop).map_err(io_error)
        }
    }
}

/// Writes a pcap record. `pcap-file` cannot append to a file: its writers always begin a new file.
pub(crate) fn record<W: Write>(to: &mut W, time: Duration, frame: &[u8], orig_len: u32) -> std::io::Result<()> {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let header = [seconds, time.subsec_nanos(), frame.len() as u32, orig_len].map(u32::to_ne_bytes);
    to.write_all(header.as_flattened())?;
    to.write_all(frame)
}

/// Writes a pcapng enhanced packet block. `pcap-file` cannot append blocks to a file.
pub(crate) fn packet_block<W: Write>(
    to: &mut W,
    interface: u32,
    time: Duration,
    frame: &[u8],
    orig_len: u32,
    direction: Option<PcapDirection>,
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

/// Encodes the option `epb_flags` with a direction, and the end of options.
fn flags(direction: PcapDirection) -> [u8; 12] {
    const EPB_FLAGS: [u16; 2] = [2, 4];
    let word: u32 = if direction == PcapDirection::In { 1 } else { 2 };
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
