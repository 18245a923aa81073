//! The pcapng format: blocks, each with a type, a length, a body and the length again (draft-ietf-opsawg-pcapng).
//! Section headers, interface descriptions and frames are read; all other blocks are skipped.

use std::io::Read;
use std::time::Duration;

use crate::source::{PcapByteOrder, PcapSource, RecordHead, SourceFault};

/// Block type of a section header, the same in either byte order.
pub(crate) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Length in bytes of a block's type and both lengths.
const FRAMING: u32 = 12;
/// Maximum number of interfaces of a section, which bounds the memory for a hostile file.
const MAX_INTERFACES: usize = 65_536;
const ETHERNET: u16 = 1;

const OPT_END: u16 = 0;
const OPT_TSRESOL: u16 = 9;
const OPT_TSOFFSET: u16 = 14;

/// The properties of an interface that are needed to read its frames.
#[derive(Clone, Copy, Debug)]
struct NgInterface {
    /// Maximum number of bytes captured of a frame; 0: all bytes.
    snaplen: u32,
    clock: NgClock,
}

/// The resolution and offset of an interface's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NgClock {
    /// `if_tsresol`: 10^-n, or with the top bit set 2^-n seconds.
    resolution: u8,
    /// `if_tsoffset`, in seconds.
    offset: i64,
}

impl NgClock {
    /// The clock of an interface without options: microseconds since 1970.
    const DEFAULT: NgClock = NgClock { resolution: 6, offset: 0 };

    fn time(self, ticks: u64) -> Duration {
        let ticks = u128::from(ticks);
        let n = u32::from(self.resolution & 0x7f);
        let nanos = match (self.resolution & 0x80 != 0, n) {
            // The product has at most 64 + 30 bits.
            (true, _) => (ticks * 1_000_000_000) >> n,
            (false, 0..=9) => ticks * 10u128.pow(9 - n),
            (false, _) => 10u128.checked_pow(n - 9).map_or(0, |unit| ticks / unit),
        };
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Duration::new(seconds.saturating_add_signed(self.offset), (nanos % 1_000_000_000) as u32)
    }
}

/// A block whose body is being read.
#[derive(Clone, Copy, Debug)]
struct NgBlock {
    kind: u32,
    total: u32,
    /// Number of bytes of the body not read yet.
    left: u32,
}

impl NgBlock {
    fn is_packet(&self) -> bool {
        matches!(self.kind, OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET)
    }

    /// Subtracts `len` bytes from the rest of the body.
    fn claim(&mut self, len: usize) -> Result<(), SourceFault> {
        let left = u32::try_from(len).ok().and_then(|len| self.left.checked_sub(len));
        self.left = left.ok_or(SourceFault::Bad("a block shorter than its contents"))?;
        Ok(())
    }

    fn fill<R: Read>(&mut self, source: &mut PcapSource<R>, to: &mut [u8]) -> Result<(), SourceFault> {
        self.claim(to.len())?;
        source.fill(to)
    }

    fn skip<R: Read>(&mut self, source: &mut PcapSource<R>, len: u32) -> Result<(), SourceFault> {
        self.claim(len as usize)?;
        source.skip(len)
    }

    /// Skips the rest of the body, and checks the length after it.
    fn end<R: Read>(mut self, source: &mut PcapSource<R>, order: PcapByteOrder) -> Result<(), SourceFault> {
        self.skip(source, self.left)?;
        let mut total = [0; 4];
        source.fill(&mut total)?;
        if order.u32(total) == self.total { Ok(()) } else { Err(SourceFault::Bad("a block whose two lengths differ")) }
    }
}

/// A pcapng file after its first section header.
#[derive(Debug)]
pub(crate) struct NgFile {
    order: PcapByteOrder,
    interfaces: Vec<NgInterface>,
    /// A packet block whose type and length have been read already, if any.
    ahead: Option<NgBlock>,
}

impl NgFile {
    /// Reads the file after its first four bytes up to the first frame, so that a file of another link type is refused
    /// immediately.
    pub(crate) fn begin<R: Read>(source: &mut PcapSource<R>) -> Result<NgFile, SourceFault> {
        let mut length = [0; 4];
        source.fill(&mut length)?;
        let mut ng = NgFile { order: PcapByteOrder::Little, interfaces: Vec::new(), ahead: None };
        let section = ng.section(source, length)?;
        ng.section_body(section, source)?;
        while let Some(block) = ng.header(source)? {
            if block.is_packet() {
                ng.ahead = Some(block);
                break;
            }
            ng.other(block, source)?;
        }
        Ok(ng)
    }

    /// Reads the next frame into `data`; `None` at the end.
    pub(crate) fn next<R: Read>(
        &mut self,
        source: &mut PcapSource<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<RecordHead>, SourceFault> {
        loop {
            let Some(block) = self.ahead.take().map_or_else(|| self.header(source), |b| Ok(Some(b)))? else {
                return Ok(None);
            };
            match block.kind {
                SIMPLE_PACKET => return self.simple(block, source, data).map(Some),
                _ if block.is_packet() => return self.packet(block, source, data).map(Some),
                _ => self.other(block, source)?,
            }
        }
    }

    /// Reads type and length of the next block (§3.1); `None` at the end.
    fn header<R: Read>(&mut self, source: &mut PcapSource<R>) -> Result<Option<NgBlock>, SourceFault> {
        let mut words = [[0; 4]; 2];
        if !source.begin(words.as_flattened_mut())? {
            return Ok(None);
        }
        let [kind, length] = words;
        if kind == SECTION_MAGIC {
            return self.section(source, length).map(Some);
        }
        block(self.order.u32(kind), self.order.u32(length)).map(Some)
    }

    /// Reads a section header up to its byte-order magic, which is needed to decode the block's length (§4.1).
    fn section<R: Read>(&mut self, source: &mut PcapSource<R>, length: [u8; 4]) -> Result<NgBlock, SourceFault> {
        let mut magic = [0; 4];
        source.fill(&mut magic)?;
        self.order = match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => PcapByteOrder::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => PcapByteOrder::Little,
            _ => return Err(SourceFault::Bad("a section without a byte-order magic")),
        };
        let mut block = block(SECTION, self.order.u32(length))?;
        block.claim(magic.len())?;
        Ok(block)
    }

    fn section_body<R: Read>(&mut self, mut block: NgBlock, source: &mut PcapSource<R>) -> Result<(), SourceFault> {
        let mut version = [0; 2];
        block.fill(source, &mut version)?;
        if self.order.u16(version) != 1 {
            return Err(SourceFault::Bad("a version of pcapng other than 1"));
        }
        self.interfaces.clear();
        block.end(source, self.order)
    }

    /// Handles a block without a frame.
    fn other<R: Read>(&mut self, block: NgBlock, source: &mut PcapSource<R>) -> Result<(), SourceFault> {
        match block.kind {
            SECTION => self.section_body(block, source),
            INTERFACE => self.interface(block, source),
            _ => block.end(source, self.order),
        }
    }

    /// Reads an Interface Description Block (§4.2).
    fn interface<R: Read>(&mut self, mut block: NgBlock, source: &mut PcapSource<R>) -> Result<(), SourceFault> {
        let mut fields = [[0; 4]; 2];
        block.fill(source, fields.as_flattened_mut())?;
        let [link, snaplen] = fields;
        let clock = self.clock(&mut block, source)?;
        block.end(source, self.order)?;
        match self.order.u16([link[0], link[1]]) {
            ETHERNET if self.interfaces.len() < MAX_INTERFACES => {
                self.interfaces.push(NgInterface { snaplen: self.order.u32(snaplen), clock });
                Ok(())
            }
            ETHERNET => Err(SourceFault::Bad("more than 65536 interfaces")),
            other => Err(SourceFault::LinkType(other.into())),
        }
    }

    /// Reads the resolution and offset of time stamps from an interface's options (§3.5).
    fn clock<R: Read>(&self, block: &mut NgBlock, source: &mut PcapSource<R>) -> Result<NgClock, SourceFault> {
        let mut clock = NgClock::DEFAULT;
        while block.left >= 4 {
            let mut option = [[0; 2]; 2];
            block.fill(source, option.as_flattened_mut())?;
            let [code, len] = option.map(|b| self.order.u16(b));
            let padded = u32::from(len).next_multiple_of(4);
            match (code, len) {
                (OPT_END, _) => break,
                (OPT_TSRESOL, 1) => {
                    let mut value = [0; 4];
                    block.fill(source, &mut value)?;
                    clock.resolution = value[0];
                }
                (OPT_TSOFFSET, 8) => {
                    let mut value = [0; 8];
                    block.fill(source, &mut value)?;
                    clock.offset = self.order.u64(value).cast_signed();
                }
                _ => block.skip(source, padded)?,
            }
        }
        Ok(clock)
    }

    /// Reads an Enhanced Packet Block (§4.3) or an obsolete Packet Block (Appendix A); they differ in the width of the
    /// interface's index.
    fn packet<R: Read>(
        &self,
        mut b: NgBlock,
        source: &mut PcapSource<R>,
        data: &mut Vec<u8>,
    ) -> Result<RecordHead, SourceFault> {
        let mut fields = [[0; 4]; 5];
        b.fill(source, fields.as_flattened_mut())?;
        let [mut number, high, low, len, orig_len] = self.order.words(&fields);
        if b.kind == OLD_PACKET {
            number = self.order.u16([fields[0][0], fields[0][1]]).into();
        }
        let interface = self.interface_at(number)?;
        b.claim(len as usize)?;
        source.frame(len, data)?;
        b.end(source, self.order)?;
        let time = interface.clock.time(u64::from(high) << 32 | u64::from(low));
        Ok(RecordHead { time, orig_len: orig_len.max(len) })
    }

    /// Reads a Simple Packet Block (§4.4): it has no time and belongs to the first interface.
    fn simple<R: Read>(
        &self,
        mut b: NgBlock,
        source: &mut PcapSource<R>,
        data: &mut Vec<u8>,
    ) -> Result<RecordHead, SourceFault> {
        let mut orig_len = [0; 4];
        b.fill(source, &mut orig_len)?;
        let orig_len = self.order.u32(orig_len);
        let len = match self.interface_at(0)?.snaplen {
            0 => orig_len,
            snaplen => orig_len.min(snaplen),
        };
        b.claim(len as usize)?;
        source.frame(len, data)?;
        b.end(source, self.order)?;
        Ok(RecordHead { time: Duration::ZERO, orig_len })
    }

    fn interface_at(&self, number: u32) -> Result<&NgInterface, SourceFault> {
        self.interfaces.get(number as usize).ok_or(SourceFault::Bad("a frame of an undescribed interface"))
    }
}

fn block(kind: u32, total: u32) -> Result<NgBlock, SourceFault> {
    match total.checked_sub(FRAMING) {
        Some(left) if total.is_multiple_of(4) => Ok(NgBlock { kind, total, left }),
        _ => Err(SourceFault::Bad("a block of invalid length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: ticks of every resolution, even extreme ones, convert to a time without overflow.
    #[test]
    fn no_resolution_overflows_the_time() {
        let time = |resolution, offset, ticks| NgClock { resolution, offset }.time(ticks);
        assert_eq!(time(6, 0, 1_500_000), Duration::from_millis(1500));
        assert_eq!(time(9, 0, 1_500_000_001), Duration::new(1, 500_000_001));
        assert_eq!(time(0, 0, 7), Duration::from_secs(7));
        assert_eq!(time(3, -2, 5_250), Duration::from_millis(3250));
        assert_eq!(time(12, 0, 1_500_000_000_000), Duration::from_millis(1500));
        assert_eq!(time(0x80 | 10, 0, 1536), Duration::from_millis(1500));
        assert_eq!(time(0, i64::MAX, u64::MAX).as_secs(), u64::MAX);
        assert_eq!(time(6, i64::MIN, 1).as_secs(), 0);
        for resolution in 0..=255 {
            assert!(time(resolution, 0, u64::MAX) >= time(resolution, 0, 0));
        }
    }
}
