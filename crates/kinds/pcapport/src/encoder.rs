//! Encodes a capture of one or more interfaces, for callers that write the bytes to files, pipes or sockets themselves.
//! The *encoder* creates pcapng blocks or pcap records; an interface's *statistics* count frames and losses.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{Block, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

use crate::source::MAX_CAPTURED;
use crate::writer::{self, PcapDirection, PcapFormat};

/// Length in bytes of an enhanced packet block with flags, without the frame.
const NG_BLOCK_WITH_FLAGS: usize = 44;

/// Description of an interface. Classic pcap has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Name of the interface (`if_name`).
    pub name: String,
    /// Description of the interface (`if_description`).
    pub description: String,
    /// The filter in use, in the syntax of pcap-filter(7) (`if_filter`); `None` without a filter.
    pub filter: Option<String>,
    /// Maximum number of bytes kept of a frame; 0: all bytes.
    pub snaplen: u32,
}

/// Statistics of a capture at an interface (pcapng's interface statistics block).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Start of the capture, since 1970.
    pub start: Duration,
    /// End of the capture, since 1970.
    pub end: Duration,
    /// Number of frames that arrived, including dropped frames (`isb_ifrecv`).
    pub received: u64,
    /// Number of frames lost because the capture did not keep up (`isb_ifdrop`), if known.
    pub dropped: Option<u64>,
    /// Number of frames that passed the filter (`isb_filteraccept`).
    pub accepted: u64,
    /// Number of frames written (`isb_usrdeliv`).
    pub delivered: u64,
}

/// Appends a capture's blocks or records to a buffer, which the caller reads and clears.
pub struct Encoder {
    format: PcapFormat,
    section: PcapNgWriter<Vec<u8>>,
}

impl Encoder {
    /// Starts a capture of Ethernet frames: writes the start of the file to the buffer. `application` is the name of
    /// the capturing program.
    #[must_use]
    pub fn begin(format: PcapFormat, application: &str, interfaces: &[CaptureInterface]) -> Encoder {
        let options = vec![SectionHeaderOption::UserApplication(Cow::Owned(application.to_owned()))];
        let header = SectionHeaderBlock { endianness: Endianness::native(), options, ..SectionHeaderBlock::default() };
        let section = PcapNgWriter::with_section_header(Vec::new(), header);
        let mut encoder = Encoder { format, section: section.unwrap_or_else(|_| unreachable!("a Vec takes it")) };
        match format {
            PcapFormat::Pcap => {
                encoder.clear();
                let _ = writer::begin(encoder.section.get_mut(), PcapFormat::Pcap);
            }
            PcapFormat::PcapNg => {
                interfaces.iter().for_each(|one| encoder.block(&Block::InterfaceDescription(description(one))))
            }
        }
        encoder
    }

    /// Appends the kept bytes of a frame of `orig_len` bytes, captured at `time` since 1970 on interface number
    /// `interface`. Classic pcap records neither interface nor direction.
    pub fn frame(
        &mut self,
        interface: u32,
        time: Duration,
        frame: &[u8],
        orig_len: u32,
        direction: Option<PcapDirection>,
    ) {
        let frame = frame.get(..MAX_CAPTURED as usize).unwrap_or(frame);
        let orig_len = orig_len.max(frame.len() as u32);
        let to = self.section.get_mut();
        // Appending to memory does not fail.
        let _ = match self.format {
            PcapFormat::Pcap => writer::record(to, time, frame, orig_len),
            PcapFormat::PcapNg => writer::packet_block(to, interface, time, frame, orig_len, direction),
        };
    }

    /// Maximum number of bytes that a frame takes in the file if `len` bytes of it are kept.
    #[must_use]
    pub fn size_of(&self, len: usize) -> u64 {
        self.format.size_of(len, NG_BLOCK_WITH_FLAGS)
    }

    /// Appends the statistics of an interface; does nothing for classic pcap, which has no statistics.
    pub fn statistics(&mut self, interface: u32, counts: &Statistics) {
        use InterfaceStatisticsOption::{IsbEndTime, IsbFilterAccept, IsbIfDrop, IsbIfRecv, IsbStartTime, IsbUsrDeliv};
        if self.format == PcapFormat::Pcap {
            return;
        }
        let mut options = vec![IsbStartTime(stamp(counts.start)), IsbEndTime(stamp(counts.end))];
        options.push(IsbIfRecv(counts.received));
        options.extend(counts.dropped.map(IsbIfDrop));
        options.extend([IsbFilterAccept(counts.accepted), IsbUsrDeliv(counts.delivered)]);
        let block = InterfaceStatisticsBlock { interface_id: interface, timestamp: stamp(counts.end), options };
        self.block(&Block::InterfaceStatistics(block));
    }

    /// The bytes appended since the last [`Encoder::clear`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.section.get_ref()
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.section.get_mut().clear();
    }

    fn block(&mut self, block: &Block<'_>) {
        // Appending to memory does not fail, and all interfaces have been described.
        let _ = self.section.write_block(block);
    }
}

fn description(interface: &CaptureInterface) -> InterfaceDescriptionBlock<'static> {
    let mut options = vec![
        InterfaceDescriptionOption::IfName(Cow::Owned(interface.name.clone())),
        InterfaceDescriptionOption::IfDescription(Cow::Owned(interface.description.clone())),
        // Nanoseconds: 10^-9.
        InterfaceDescriptionOption::IfTsResol(9),
    ];
    // The first byte 0 marks a filter expression.
    let filter = interface.filter.as_ref().map(|text| [b"\0", text.as_bytes()].concat());
    options.extend(filter.map(|bytes| InterfaceDescriptionOption::IfFilter(Cow::Owned(bytes))));
    let snaplen = if interface.snaplen == 0 { MAX_CAPTURED } else { interface.snaplen };
    InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen, options }
}

/// Encodes a time of a statistics block. The time's upper half comes first in either byte order, but `pcap-file` writes
/// the time as a 64-bit number.
fn stamp(time: Duration) -> u64 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if cfg!(target_endian = "little") { nanos.rotate_left(32) } else { nanos }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PcapReader;

    fn interface(name: &str) -> CaptureInterface {
        CaptureInterface { name: name.into(), filter: Some("udp".into()), snaplen: 96, ..CaptureInterface::default() }
    }

    /// Objective: frames of several interfaces, with lengths that need different padding, are read back in both
    /// formats, and none takes more bytes than `size_of` returns.
    #[test]
    fn encoded_frames_read_back_in_both_formats() {
        for format in [PcapFormat::Pcap, PcapFormat::PcapNg] {
            let mut encoder = Encoder::begin(format, "test", &[interface("vale0:a"), interface("netmap:p{1")]);
            let mut file = encoder.bytes().to_vec();
            encoder.clear();
            for n in 0..9_usize {
                let time = Duration::new(7, n as u32);
                let frame = vec![n as u8; n];
                let direction = [None, Some(PcapDirection::In), Some(PcapDirection::Out)][n % 3];
                encoder.frame(n as u32 % 2, time, &frame, 100, direction);
                assert!(encoder.bytes().len() as u64 <= encoder.size_of(n), "{n}");
                file.extend_from_slice(encoder.bytes());
                encoder.clear();
            }
            encoder.statistics(1, &Statistics { dropped: Some(3), ..Statistics::default() });
            file.extend_from_slice(encoder.bytes());
            let mut reader = PcapReader::new(&file[..]).unwrap();
            for n in 0..9_usize {
                let frame = reader.next_frame().unwrap().unwrap();
                assert_eq!((frame.bytes, frame.time), (&vec![n as u8; n][..], Duration::new(7, n as u32)));
            }
            assert!(reader.next_frame().unwrap().is_none());
        }
    }

    /// Objective: the flags of a packet block contain the direction; times of statistics have their upper half first
    /// (pcapng, sections 4.3 and 4.6).
    #[test]
    fn blocks_have_the_layout_of_pcapng() {
        let mut encoder = Encoder::begin(PcapFormat::PcapNg, "test", &[interface("a")]);
        encoder.clear();
        encoder.frame(0, Duration::ZERO, b"abcd", 4, Some(PcapDirection::Out));
        let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let block = encoder.bytes();
        assert_eq!((block.len(), word(block, 4), word(block, 44)), (48, 48, 48));
        assert_eq!((word(block, 32), word(block, 36), word(block, 40)), (u32::from_ne_bytes([2, 0, 4, 0]), 2, 0));
        encoder.clear();
        encoder.statistics(0, &Statistics { end: Duration::from_nanos(0x1_0000_0002), ..Statistics::default() });
        assert_eq!((word(encoder.bytes(), 12), word(encoder.bytes(), 16)), (1, 2));
    }
}
