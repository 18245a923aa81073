//! Writing a capture.

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, Endianness, TsResolution};
use thiserror::Error;

/// Longest frame a capture of ours holds.
const SNAPLEN: u32 = 262_144;

/// The file's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, time stamps in nanoseconds.
    Pcap,
    /// pcapng, time stamps in nanoseconds.
    PcapNg,
}

/// The capture cannot be written on: a full disk, a reader that went away.
#[derive(Debug, Error)]
#[error("the capture cannot be written: {0}")]
pub struct WriteError(#[from] pcap_file::PcapError);

impl WriteError {
    /// The system's error behind it, if it is one.
    pub fn io(&self) -> Option<&std::io::Error> {
        match &self.0 {
            pcap_file::PcapError::IoError(e) => Some(e),
            _ => None,
        }
    }
}

enum Kind<W: Write> {
    Pcap(PcapWriter<BufWriter<W>>),
    PcapNg(PcapNgWriter<BufWriter<W>>),
}

/// A capture being written. Call [`Writer::finish`]: only it tells whether all of it reached the file.
pub struct Writer<W: Write>(Kind<W>);

impl<W: Write> Writer<W> {
    /// Begins a capture of Ethernet frames.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn new(to: W, format: Format) -> Result<Self, WriteError> {
        let to = BufWriter::new(to);
        Ok(Writer(match format {
            Format::Pcap => {
                let header = PcapHeader {
                    version_major: 2,
                    version_minor: 4,
                    ts_correction: 0,
                    ts_accuracy: 0,
                    snaplen: SNAPLEN,
                    datalink: DataLink::ETHERNET,
                    ts_resolution: TsResolution::NanoSecond,
                    endianness: Endianness::native(),
                };
                Kind::Pcap(PcapWriter::with_header(to, header)?)
            }
            Format::PcapNg => {
                let mut writer = PcapNgWriter::new(to)?;
                // Nanoseconds: 10^-9.
                let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
                let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: SNAPLEN, options };
                writer.write_pcapng_block(interface)?;
                Kind::PcapNg(writer)
            }
        }))
    }

    /// Appends a frame captured at `time` (since 1970).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> Result<(), WriteError> {
        let len = frame.len() as u32;
        match &mut self.0 {
            Kind::Pcap(w) => w.write_packet(&PcapPacket::new(time, len, frame)).map(|_| ())?,
            Kind::PcapNg(w) => {
                let block = EnhancedPacketBlock {
                    interface_id: 0,
                    timestamp: time,
                    original_len: len,
                    data: Cow::Borrowed(frame),
                    options: Vec::new(),
                };
                w.write_pcapng_block(block).map(|_| ())?;
            }
        }
        Ok(())
    }

    /// Writes out what is buffered and ends the capture.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn finish(self) -> Result<(), WriteError> {
        let mut to = match self.0 {
            Kind::Pcap(w) => w.into_writer(),
            Kind::PcapNg(w) => w.into_inner(),
        };
        to.flush().map_err(|e| WriteError(pcap_file::PcapError::IoError(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    /// Objective: what is written is read back, in both forms; a file cut anywhere gives its whole frames and then says so.
    #[test]
    fn round_trip_and_cut() {
        let dir = tempfile::tempdir().unwrap();
        for format in [Format::Pcap, Format::PcapNg] {
            let mut bytes = Vec::new();
            let mut w = Writer::new(&mut bytes, format).unwrap();
            let frames: Vec<(Duration, Vec<u8>)> = (0..5u8)
                .map(|i| (Duration::new(1_700_000_000 + u64::from(i), 123_456_789), vec![i; 60 + usize::from(i)]))
                .collect();
            frames.iter().for_each(|(t, f)| w.write(*t, f).unwrap());
            w.finish().unwrap();
            for cut in 0..=bytes.len() {
                let path = dir.path().join("x");
                std::fs::write(&path, &bytes[..cut]).unwrap();
                let Ok(mut r) = Reader::open(&path) else { continue };
                let mut got = Vec::new();
                while let Ok(Some(f)) = r.next_frame() {
                    got.push((f.time, f.bytes));
                    assert!(got.len() <= 5);
                }
                assert_eq!(got[..], frames[..got.len()], "{format:?} cut at {cut}");
                assert!(cut < bytes.len() || got.len() == 5, "{format:?}");
            }
        }
    }

    /// Objective: a full disk is an error, at the latest at the end.
    #[test]
    fn full_disk() {
        let file = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut w = Writer::new(file, Format::Pcap).unwrap();
        let written = (0..1000).try_for_each(|_| w.write(Duration::ZERO, &[0; 60]));
        let error = written.and_then(|()| w.finish()).unwrap_err();
        assert_eq!(error.io().and_then(std::io::Error::raw_os_error), Some(libc::ENOSPC));
    }
}
