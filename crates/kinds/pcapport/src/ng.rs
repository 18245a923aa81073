//! pcapng: blocks of a type, a length, a body and the length again (draft-ietf-opsawg-pcapng). Section and interface
//! descriptions are kept, frames are read, all other blocks are skipped.

use std::io::Read;
use std::time::Duration;

use crate::source::{Fault, Head, Order, Source};

/// First bytes of a section, in either byte order.
pub(crate) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of type, length and the second length.
const FRAMING: u32 = 12;
/// Most interfaces of a section: bounds the memory for a hostile file.
const MAX_INTERFACES: usize = 65_536;
const ETHERNET: u16 = 1;

const OPT_END: u16 = 0;
const OPT_TSRESOL: u16 = 9;
const OPT_TSOFFSET: u16 = 14;

/// The properties of an interface that its frames need.
#[derive(Clone, Copy, Debug)]
struct Interface {
    /// Bytes captured of a frame; 0: all.
    snaplen: u32,
    clock: Clock,
}

/// The resolution and offset of an interface's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// `if_tsresol`: 10^-n, or with the top bit set 2^-n seconds.
    resolution: u8,
    /// `if_tsoffset`, in seconds.
    offset: i64,
}

impl Clock {
    /// Without options: microseconds since 1970.
    const DEFAULT: Clock = Clock { resolution: 6, offset: 0 };

    fn time(self, ticks: u64) -> Duration {
        let ticks = u128::from(ticks);
        let n = u32::from(self.resolution & 0x7f);
        let nanos = match (self.resolution & 0x80 != 0, n) {
            // 64 + 30 bits at most.
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
struct Block {
    kind: u32,
    total: u32,
    /// Bytes of the body not read yet.
    left: u32,
}

impl Block {
    fn is_packet(&self) -> bool {
        matches!(self.kind, OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET)
    }

    /// Accounts for `len` bytes of the body.
    fn claim(&mut self, len: usize) -> Result<(), Fault> {
        let left = u32::try_from(len).ok().and_then(|len| self.left.checked_sub(len));
        self.left = left.ok_or(Fault::Bad("a block shorter than what it holds"))?;
        Ok(())
    }

    fn fill<R: Read>(&mut self, source: &mut Source<R>, to: &mut [u8]) -> Result<(), Fault> {
        self.claim(to.len())?;
        source.fill(to)
    }

    fn skip<R: Read>(&mut self, source: &mut Source<R>, len: u32) -> Result<(), Fault> {
        self.claim(len as usize)?;
        source.skip(len)
    }

    /// Skips the rest of the body and checks the length after it.
    fn end<R: Read>(mut self, source: &mut Source<R>, order: Order) -> Result<(), Fault> {
        self.skip(source, self.left)?;
        let mut total = [0; 4];
        source.fill(&mut total)?;
        if order.u32(total) == self.total { Ok(()) } else { Err(Fault::Bad("a block whose two lengths differ")) }
    }
}

/// A pcapng file after its first section header.
#[derive(Debug)]
pub(crate) struct Ng {
    order: Order,
    interfaces: Vec<Interface>,
    /// A packet block whose type and length have been read.
    ahead: Option<Block>,
}

impl Ng {
    /// Reads from after the first four bytes up to the first frame: a file of another link type is refused immediately.
    pub(crate) fn begin<R: Read>(source: &mut Source<R>) -> Result<Ng, Fault> {
        let mut length = [0; 4];
        source.fill(&mut length)?;
        let mut ng = Ng { order: Order::Little, interfaces: Vec::new(), ahead: None };
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
    pub(crate) fn next<R: Read>(&mut self, source: &mut Source<R>, data: &mut Vec<u8>) -> Result<Option<Head>, Fault> {
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

    /// Type and length of the next block (§3.1); `None` at the end.
    fn header<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Block>, Fault> {
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

    /// Reads a section's byte order, which gives its length (§4.1).
    fn section<R: Read>(&mut self, source: &mut Source<R>, length: [u8; 4]) -> Result<Block, Fault> {
        let mut magic = [0; 4];
        source.fill(&mut magic)?;
        self.order = match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            _ => return Err(Fault::Bad("a section without a byte-order magic")),
        };
        let mut block = block(SECTION, self.order.u32(length))?;
        block.claim(magic.len())?;
        Ok(block)
    }

    fn section_body<R: Read>(&mut self, mut block: Block, source: &mut Source<R>) -> Result<(), Fault> {
        let mut version = [0; 2];
        block.fill(source, &mut version)?;
        if self.order.u16(version) != 1 {
            return Err(Fault::Bad("a version of pcapng other than 1"));
        }
        self.interfaces.clear();
        block.end(source, self.order)
    }

    /// Handles a block without a frame.
    fn other<R: Read>(&mut self, block: Block, source: &mut Source<R>) -> Result<(), Fault> {
        match block.kind {
            SECTION => self.section_body(block, source),
            INTERFACE => self.interface(block, source),
            _ => block.end(source, self.order),
        }
    }

    /// Interface Description Block (§4.2).
    fn interface<R: Read>(&mut self, mut block: Block, source: &mut Source<R>) -> Result<(), Fault> {
        let mut fields = [[0; 4]; 2];
        block.fill(source, fields.as_flattened_mut())?;
        let [link, snaplen] = fields;
        let clock = self.clock(&mut block, source)?;
        block.end(source, self.order)?;
        match self.order.u16([link[0], link[1]]) {
            ETHERNET if self.interfaces.len() < MAX_INTERFACES => {
                self.interfaces.push(Interface { snaplen: self.order.u32(snaplen), clock });
                Ok(())
            }
            ETHERNET => Err(Fault::Bad("more than 65536 interfaces")),
            other => Err(Fault::LinkType(other.into())),
        }
    }

    /// Reads the resolution and offset of time stamps from an interface's options (§3.5).
    fn clock<R: Read>(&self, block: &mut Block, source: &mut Source<R>) -> Result<Clock, Fault> {
        let mut clock = Clock::DEFAULT;
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

    /// Enhanced Packet Block (§4.3) and its predecessor (Appendix A), which differ in the width of the interface's
    /// number.
    fn packet<R: Read>(&self, mut b: Block, source: &mut Source<R>, data: &mut Vec<u8>) -> Result<Head, Fault> {
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
        Ok(Head { time, orig_len: orig_len.max(len) })
    }

    /// Simple Packet Block (§4.4): no time, and the first interface.
    fn simple<R: Read>(&self, mut b: Block, source: &mut Source<R>, data: &mut Vec<u8>) -> Result<Head, Fault> {
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
        Ok(Head { time: Duration::ZERO, orig_len })
    }

    fn interface_at(&self, number: u32) -> Result<&Interface, Fault> {
        self.interfaces.get(number as usize).ok_or(Fault::Bad("a frame of an interface that is not described"))
    }
}

fn block(kind: u32, total: u32) -> Result<Block, Fault> {
    match total.checked_sub(FRAMING) {
        Some(left) if total.is_multiple_of(4) => Ok(Block { kind, total, left }),
        _ => Err(Fault::Bad("a block of an impossible length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: every resolution, even an extreme one, gives its time without overflow.
    #[test]
    fn resolutions() {
        let time = |resolution, offset, ticks| Clock { resolution, offset }.time(ticks);
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
