//! pcap: a header of 24 bytes, then records of a header of 16 bytes and a frame each (draft-ietf-opsawg-pcap).

use std::io::Read;
use std::time::Duration;

use crate::source::{Fault, Head, Order, Source};

/// The link type without the bits about the frame check sequence (§4).
const LINK_TYPE: u32 = 0x03ff_ffff;
const ETHERNET: u32 = 1;

/// A pcap file after its header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Classic {
    order: Order,
    /// Nanoseconds in one unit of a time stamp's second word.
    unit: u64,
}

impl Classic {
    /// Recognizes the first four bytes; `None` for another format.
    pub(crate) fn of_magic(magic: [u8; 4]) -> Option<Classic> {
        let (order, unit) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            _ => return None,
        };
        Some(Classic { order, unit })
    }

    /// Reads the header after the magic.
    pub(crate) fn header<R: Read>(&self, source: &mut Source<R>) -> Result<(), Fault> {
        let mut header = [[0; 4]; 5];
        source.fill(header.as_flattened_mut())?;
        let [version, _, _, _, link] = header;
        if self.order.u16([version[0], version[1]]) != 2 {
            return Err(Fault::Bad("a version of pcap other than 2"));
        }
        match self.order.u32(link) & LINK_TYPE {
            ETHERNET => Ok(()),
            other => Err(Fault::LinkType(other)),
        }
    }

    /// Reads the next frame into `data`; `None` at the end.
    pub(crate) fn next<R: Read>(&self, source: &mut Source<R>, data: &mut Vec<u8>) -> Result<Option<Head>, Fault> {
        let mut header = [[0; 4]; 4];
        if !source.begin(header.as_flattened_mut())? {
            return Ok(None);
        }
        let [seconds, fraction, len, orig_len] = self.order.words(&header);
        source.frame(len, data)?;
        // A fraction above a second is carried over, as in libpcap.
        let time = Duration::from_secs(seconds.into()) + Duration::from_nanos(u64::from(fraction) * self.unit);
        Ok(Some(Head { time, orig_len: orig_len.max(len) }))
    }
}
