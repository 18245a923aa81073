//! The pcap format: a header of 24 bytes, then records, each with a header of 16 bytes and a frame
//! (draft-ietf-opsawg-pcap).

use std::io::Read;
use std::time::Duration;

use crate::source::{PcapByteOrder, PcapSource, RecordHead, SourceFault};

/// Mask of the link type, without the bits that describe the frame check sequence (§4).
const LINK_TYPE: u32 = 0x03ff_ffff;
const ETHERNET: u32 = 1;

/// The format of a pcap file, as its magic number defines it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClassicFile {
    order: PcapByteOrder,
    /// Nanoseconds in one unit of a time stamp's second word.
    unit: u64,
}

impl ClassicFile {
    /// Recognizes the magic number; `None` for another format.
    pub(crate) fn of_magic(magic: [u8; 4]) -> Option<ClassicFile> {
        let (order, unit) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (PcapByteOrder::Big, 1000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (PcapByteOrder::Big, 1),
            [0xd4, 0xc3, 0xb2, 0xa1] => (PcapByteOrder::Little, 1000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (PcapByteOrder::Little, 1),
            _ => return None,
        };
        Some(ClassicFile { order, unit })
    }

    /// Reads the rest of the header.
    pub(crate) fn header<R: Read>(&self, source: &mut PcapSource<R>) -> Result<(), SourceFault> {
        let mut header = [[0; 4]; 5];
        source.fill(header.as_flattened_mut())?;
        let [version, _, _, _, link] = header;
        if self.order.u16([version[0], version[1]]) != 2 {
            return Err(SourceFault::Bad("a version of pcap other than 2"));
        }
        match self.order.u32(link) & LINK_TYPE {
            ETHERNET => Ok(()),
            other => Err(SourceFault::LinkType(other)),
        }
    }

    /// Reads the next frame into `data`; `None` at the end.
    pub(crate) fn next<R: Read>(
        &self,
        source: &mut PcapSource<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<RecordHead>, SourceFault> {
        let mut header = [[0; 4]; 4];
        if !source.begin(header.as_flattened_mut())? {
            return Ok(None);
        }
        let [seconds, fraction, len, orig_len] = self.order.words(&header);
        source.frame(len, data)?;
        // A fraction of more than a second is added, as in libpcap.
        let time = Duration::from_secs(seconds.into()) + Duration::from_nanos(u64::from(fraction) * self.unit);
        Ok(Some(RecordHead { time, orig_len: orig_len.max(len) }))
    }
}
