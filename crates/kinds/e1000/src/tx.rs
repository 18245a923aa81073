//! Transmit descriptors, and the assembly of packets from them (§3.3). A descriptor that requests a report gets the
//! report when the descriptor is done.

use serde::{Deserialize, Serialize};

/// Maximum number of pieces of a packet. Drivers use a few more than one per page.
pub const MAX_PIECES: usize = 64;
/// Maximum length in bytes of a packet before segmentation, although the length field of a context has 20 bits.
pub const LONGEST: u32 = 65_550;

/// CMD and DCMD: end of packet. `CMD` is the command byte of a legacy descriptor, `DCMD` is the command byte of a data
/// descriptor, and `TUCMD` is the command byte of a context descriptor.
const EOP: u8 = 1;
/// CMD: insert a checksum.
const IC: u8 = 1 << 2;
/// CMD, DCMD, TUCMD: report status, i.e. write DD back and set the cause.
const RS: u8 = 1 << 3;
/// CMD, DCMD, TUCMD: the descriptor is a data or context descriptor, not a legacy descriptor.
const DEXT: u8 = 1 << 5;
/// CMD and DCMD: insert a VLAN tag.
const VLE: u8 = 1 << 6;
/// CMD, DCMD, TUCMD: the cause may be delayed.
const IDE: u8 = 1 << 7;
/// DCMD: segment the packet.
const TSE: u8 = 1 << 2;
/// TUCMD: the packet is TCP, otherwise UDP.
const TCP: u8 = 1;
/// TUCMD: the packet is IPv4, otherwise IPv6.
const IPV4: u8 = 1 << 1;
/// POPTS: insert the IP checksum.
const IXSM: u8 = 1;
/// POPTS: insert the transport checksum.
const TXSM: u8 = 1 << 1;
/// DTYP of a context descriptor.
const CONTEXT: u8 = 0;
/// DTYP of a data descriptor.
const DATA: u8 = 1;

/// DD, descriptor done, in the second word of a transmit descriptor (§3.3.3.2).
pub(crate) const TX_DONE: u64 = 1 << 32;

/// The raw form of a descriptor: two little-endian words of 64 bits.
pub type RawDesc = [u64; 2];

/// A request to compute a checksum and to store it in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumRequest {
    /// Offset of the first byte that the checksum covers.
    pub start: u8,
    /// Offset at which the checksum is stored.
    pub at: u8,
    /// Offset of the last byte that the checksum covers; 0: the packet's last byte.
    pub end: u16,
}

/// A context descriptor (§3.3.6), which applies to the data descriptors that follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxContext {
    /// The IP header's checksum.
    pub ip: ChecksumRequest,
    /// The TCP or UDP checksum.
    pub transport: ChecksumRequest,
    /// Length of the payload in bytes, without headers.
    pub payload: u32,
    /// Length of all headers in bytes.
    pub headers: u8,
    /// Maximum payload of a segment in bytes (MSS).
    pub segment: u16,
    /// Whether the transport is TCP; otherwise it is UDP.
    pub is_tcp: bool,
    /// Whether the packet is IPv4; otherwise it is IPv6.
    pub is_v4: bool,
}

/// The offload requested for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Checksum of the IP header to store, if any.
    pub ip: Option<ChecksumRequest>,
    /// Transport checksum to store, if any.
    pub transport: Option<ChecksumRequest>,
    /// Context of the segmentation, if the packet must be cut into segments.
    pub segments: Option<TxContext>,
    /// Control information of the VLAN tag to insert, if any.
    pub vlan: Option<u16>,
}

/// A packet as its descriptors describe it: pieces of guest memory.
#[derive(Clone, Debug)]
pub struct TxPacket {
    pieces: [(u64, u32); MAX_PIECES],
    count: usize,
    /// Length of all pieces in bytes.
    pub len: u32,
    /// The offload that the first data descriptor requests.
    pub offload: TxOffload,
    /// Whether the packet has too many pieces or bytes, and is not sent.
    pub is_absurd: bool,
}

impl TxPacket {
    const EMPTY: TxPacket =
        TxPacket { pieces: [(0, 0); MAX_PIECES], count: 0, len: 0, offload: NOTHING, is_absurd: false };

    /// Guest addresses and lengths of the pieces.
    pub fn pieces(&self) -> &[(u64, u32)] {
        self.pieces.get(..self.count).unwrap_or_default()
    }

    /// Whether the packet is valid and needs no offload.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.offload == NOTHING && !self.is_absurd
    }

    fn add(&mut self, address: u64, len: u32) {
        if len == 0 {
            return;
        }
        let total = self.len.saturating_add(len);
        match self.pieces.get_mut(self.count).filter(|_| total <= LONGEST) {
            Some(piece) => {
                *piece = (address, len);
                self.count += 1;
                self.len = total;
            }
            None => self.is_absurd = true,
        }
    }
}

const NOTHING: TxOffload = TxOffload { ip: None, transport: None, segments: None, vlan: None };

/// The result of processing a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescResult {
    /// Whether the packet is complete.
    pub ends: bool,
    /// Whether the driver requests a report: status written back, and the cause set.
    pub reports: bool,
    /// Whether the delay timers may delay the cause.
    pub may_wait: bool,
}

/// How to report to the driver that descriptors are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxReport {
    /// No report: no descriptor requested a report.
    None,
    /// A report that the delay timers may delay.
    Delayed,
    /// An immediate report, because at least one descriptor requested it.
    Immediate,
}

impl TxReport {
    /// Returns the report for a batch of descriptors: `asked` is true if any descriptor requested a report, and
    /// `may_wait` if all requested reports may be delayed.
    pub fn of(asked: bool, may_wait: bool) -> TxReport {
        match (asked, may_wait) {
            (false, _) => TxReport::None,
            (true, true) => TxReport::Delayed,
            (true, false) => TxReport::Immediate,
        }
    }
}

/// State of an [`Assembler`] between two packets, or in a packet that it discards, to which it can return.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TxPosition {
    context: TxContext,
    fresh: bool,
}

/// Assembles packets descriptor by descriptor. Only its [`TxPosition`] is saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "TxPosition", from = "TxPosition")]
pub struct Assembler {
    context: TxContext,
    packet: TxPacket,
    /// Whether the next data descriptor is the first one of a packet.
    fresh: bool,
}

impl From<Assembler> for TxPosition {
    fn from(assembler: Assembler) -> Self {
        assembler.position()
    }
}

impl From<TxPosition> for Assembler {
    fn from(mut position: TxPosition) -> Self {
        // The field in the descriptor has 20 bits.
        position.context.payload &= 0xf_ffff;
        let mut assembler = Assembler::default();
        assembler.rewind(position);
        assembler
    }
}

impl Default for Assembler {
    fn default() -> Self {
        Assembler { context: TxContext::default(), packet: TxPacket::EMPTY, fresh: true }
    }
}

impl Assembler {
    /// Whether no packet has begun.
    pub fn is_between(&self) -> bool {
        self.fresh
    }

    /// The state to which [`Assembler::rewind`] can return.
    pub fn position(&self) -> TxPosition {
        TxPosition { context: self.context, fresh: self.fresh }
    }

    /// Returns to an earlier state, so that the descriptors processed since then can be processed again.
    pub fn rewind(&mut self, position: TxPosition) {
        self.context = position.context;
        self.fresh = position.fresh;
        if !position.fresh {
            self.give_up();
        }
    }

    /// Discards the packet that has begun, including its descriptors that are still to come.
    pub fn give_up(&mut self) {
        self.packet = TxPacket { is_absurd: true, ..TxPacket::EMPTY };
    }

    /// The packet so far. It is complete after a step with [`DescResult::ends`].
    pub fn packet(&self) -> &TxPacket {
        &self.packet
    }

    /// Processes the next descriptor; `vme` is CTRL.VME.
    pub fn step(&mut self, raw: RawDesc, vme: bool) -> DescResult {
        let [address, word] = raw;
        let command = (word >> 24) as u8;
        let step = |ends| DescResult { ends, reports: command & RS != 0, may_wait: command & IDE != 0 };
        if command & DEXT == 0 {
            self.begin();
            self.packet.add(address, (word & 0xffff) as u32);
            if self.fresh {
                self.packet.offload = legacy_offload(word, command);
                self.tag(word, command, vme);
            }
            return step(self.end(command));
        }
        match (word >> 20 & 0xf) as u8 {
            CONTEXT => {
                self.context = context(raw, command);
                step(false)
            }
            DATA => {
                self.begin();
                self.packet.add(address, (word & 0xf_ffff) as u32);
                if self.fresh {
                    self.packet.offload = self.offload(word, command);
                    self.tag(word, command, vme);
                }
                step(self.end(command))
            }
            // Reserved types are skipped.
            _ => step(false),
        }
    }

    /// Begins a new packet if the last packet is complete.
    fn begin(&mut self) {
        if self.fresh {
            // Pieces beyond `count` are unused.
            self.packet.count = 0;
            self.packet.len = 0;
            self.packet.offload = NOTHING;
            self.packet.is_absurd = false;
        }
    }

    fn end(&mut self, command: u8) -> bool {
        self.fresh = command & EOP != 0;
        self.fresh
    }

    fn tag(&mut self, word: u64, command: u8, vme: bool) {
        self.packet.offload.vlan = (vme && command & VLE != 0).then_some((word >> 48) as u16);
    }

    fn offload(&self, word: u64, command: u8) -> TxOffload {
        let options = (word >> 40) as u8;
        TxOffload {
            ip: (options & IXSM != 0).then_some(self.context.ip),
            transport: (options & TXSM != 0).then_some(self.context.transport),
            segments: (command & TSE != 0).then_some(self.context),
            vlan: None,
        }
    }
}

/// Decodes CSO and CSS of a legacy descriptor (§3.3.3).
fn legacy_offload(word: u64, command: u8) -> TxOffload {
    let sum = ChecksumRequest { start: (word >> 40) as u8, at: (word >> 16) as u8, end: 0 };
    TxOffload { transport: (command & IC != 0).then_some(sum), ..NOTHING }
}

fn context([first, second]: RawDesc, command: u8) -> TxContext {
    let sum = |word: u32| ChecksumRequest { start: word as u8, at: (word >> 8) as u8, end: (word >> 16) as u16 };
    TxContext {
        ip: sum(first as u32),
        transport: sum((first >> 32) as u32),
        payload: (second & 0xf_ffff) as u32,
        headers: (second >> 40) as u8,
        segment: (second >> 48) as u16,
        is_tcp: command & TCP != 0,
        is_v4: command & IPV4 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(address: u64, len: u64, command: u8, options: u8, special: u16) -> RawDesc {
        let kind = u64::from(DATA) << 20;
        let command = u64::from(command | DEXT) << 24;
        [address, len | kind | command | u64::from(options) << 40 | u64::from(special) << 48]
    }

    /// Objective: a legacy packet of two pieces has the checksum and tag of its first descriptor; the next packet does
    /// not inherit them.
    #[test]
    fn a_legacy_packet_has_its_first_descriptors_checksum() {
        let mut a = Assembler::default();
        let first = [0x1000, 60 | 24 << 16 | u64::from(IC | VLE) << 24 | 14 << 40 | 0x0123 << 48];
        assert_eq!(a.step(first, true), DescResult { ends: false, reports: false, may_wait: false });
        let last = [0x2000, 40 | u64::from(EOP | RS | IDE) << 24];
        assert_eq!(a.step(last, true), DescResult { ends: true, reports: true, may_wait: true });
        assert_eq!((a.packet().pieces(), a.packet().len), (&[(0x1000, 60), (0x2000, 40)][..], 100));
        let offload =
            TxOffload { transport: Some(ChecksumRequest { start: 14, at: 24, end: 0 }), vlan: Some(0x0123), ..NOTHING };
        assert_eq!(a.packet().offload, offload);
        assert!(a.step([0x3000, 64 | u64::from(EOP | VLE) << 24], false).ends);
        assert_eq!((a.packet().pieces(), a.packet().offload), (&[(0x3000, 64)][..], NOTHING));
    }

    /// Objective: a context applies to all data descriptors up to the next context, and is not a packet itself.
    #[test]
    fn a_context_applies_until_the_next() {
        let mut a = Assembler::default();
        let first = 14 | 24 << 8 | 33 << 16 | 34u64 << 32 | 50u64 << 40;
        let second = 9000 | u64::from(DEXT | TCP | IPV4 | TSE | RS) << 24 | 54 << 40 | 1460 << 48;
        assert_eq!(a.step([first, second], false), DescResult { ends: false, reports: true, may_wait: false });
        let expected = TxContext {
            ip: ChecksumRequest { start: 14, at: 24, end: 33 },
            transport: ChecksumRequest { start: 34, at: 50, end: 0 },
            payload: 9000,
            headers: 54,
            segment: 1460,
            is_tcp: true,
            is_v4: true,
        };
        for _ in 0..2 {
            assert!(!a.step(data(0x1000, 54, TSE, IXSM | TXSM, 0), false).ends);
            assert!(a.step(data(0x2000, 9000, TSE | EOP, 0, 0), false).ends);
            let offload = a.packet().offload;
            assert_eq!(offload.segments, Some(expected));
            assert_eq!((offload.ip, offload.transport), (Some(expected.ip), Some(expected.transport)));
            assert_eq!(a.packet().len, 9054);
        }
        assert!(a.step(data(0x1000, 60, EOP, TXSM, 0), false).ends);
        assert_eq!(a.packet().offload, TxOffload { transport: Some(expected.transport), ..NOTHING });
    }

    /// Objective: packets without an end stay bounded, and later packets are complete; empty pieces do not count.
    #[test]
    fn packets_without_an_end_stay_bounded() {
        let mut a = Assembler::default();
        for i in 0..100_000u64 {
            assert!(!a.step(data(i << 12, 0xf_ffff, 0, 0, 0), false).ends);
            assert!(a.packet().pieces().len() <= MAX_PIECES && a.packet().len <= LONGEST);
        }
        assert!(a.step(data(0, 1, EOP, 0, 0), false).ends && a.packet().is_absurd);
        for i in 0..200 {
            a.step(data(i << 12, i % 2, 0, 0, 0), false);
        }
        assert!(a.step(data(0, 1, EOP, 0, 0), false).ends && a.packet().is_absurd, "too many pieces");
        a.step(data(0x1000, 0, 0, 0, 0), false);
        assert!(a.step(data(0x2000, 60, EOP, 0, 0), false).ends && !a.packet().is_absurd);
        assert_eq!(a.packet().pieces(), &[(0x2000, 60)]);
        // A descriptor of a reserved type.
        let reserved = [0, 7 << 20 | u64::from(DEXT | EOP | RS) << 24];
        assert_eq!(a.step(reserved, false), DescResult { ends: false, reports: true, may_wait: false });
    }
}
