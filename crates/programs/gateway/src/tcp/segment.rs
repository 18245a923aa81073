//! TCP segments of a connection with a guest: parsing of the guest's segments, and building of frames for the guest.
//!
//! A [`TcpSegment`] is a received segment. A [`SegmentOut`] describes a segment to send, with the range of its payload
//! in the connection's queue; a [`SegmentWriter`] turns it into a [`SegmentFrame`], the headers.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use netvale_wire::checksum::pseudo;
use netvale_wire::layers::TCP;
use netvale_wire::tcp::{self, ACK, FIN, HEADER_LEN, RST, SYN};
use netvale_wire::{MacAddr, Sum, VnetHdr, ethernet, ipv4, ipv6, vnet};

use super::seq::TcpSeq;
use crate::frame::build::{self, FrameHeaders, PacketEnds, TTL};
use crate::guests::GuestId;

/// Kinds of TCP options (RFC 9293 §3.2, RFC 7323 §2).
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_SCALE: u8 = 3;
/// The largest shift of window scaling (RFC 7323 §2.3).
const MAX_SCALE: u8 = 14;
/// Number of bytes of options in the gateway's SYN.
const SYN_OPTIONS: usize = 8;

/// A segment from a guest.
#[derive(Clone, Copy, Debug)]
pub struct TcpSegment<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: TcpSeq,
    /// Acknowledgement number.
    pub ack: TcpSeq,
    /// Flags.
    pub flags: u8,
    /// Window field, before scaling.
    pub window: u16,
    /// MSS option of a SYN, if present: the longest payload that the guest accepts, in bytes.
    pub mss: Option<u16>,
    /// Window scale option of a SYN, if present: the shift of the window field in the guest's later segments.
    pub scale: Option<u8>,
    /// Payload.
    pub payload: &'a [u8],
}

/// Parses a segment. Options that extend past the end of the header are ignored. Returns `None` if the header is
/// malformed.
pub fn parse(l4: &[u8]) -> Option<TcpSegment<'_>> {
    let header = tcp::Header::parse(l4).ok()?;
    let (options, payload) = l4[HEADER_LEN..].split_at(header.header_len() - HEADER_LEN);
    let mut segment = TcpSegment {
        src_port: header.src_port(),
        dst_port: header.dst_port(),
        seq: TcpSeq(header.seq()),
        ack: TcpSeq(header.ack()),
        flags: header.flags(),
        window: header.window(),
        mss: None,
        scale: None,
        payload,
    };
    if segment.has(SYN) {
        read_options(options, &mut segment);
    }
    Some(segment)
}

fn read_options(mut options: &[u8], segment: &mut TcpSegment<'_>) {
    loop {
        match options {
            [] | [OPTION_END, ..] => return,
            [OPTION_NOP, rest @ ..] => options = rest,
            [kind, len, ..] => {
                let Some((option, rest)) = options.split_at_checked((*len).into()).filter(|_| *len >= 2) else {
                    return;
                };
                match (*kind, &option[2..]) {
                    (OPTION_MSS, [high, low]) => segment.mss = Some(u16::from_be_bytes([*high, *low])),
                    (OPTION_SCALE, [shift]) => segment.scale = Some((*shift).min(MAX_SCALE)),
                    _ => {}
                }
                options = rest;
            }
            [_] => return,
        }
    }
}

impl TcpSegment<'_> {
    /// Returns whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the number of sequence numbers that the segment occupies: its payload, SYN and FIN.
    pub fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// Returns whether the segment occupies no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the reset that answers a segment which belongs to no known connection (RFC 9293 §3.10.7.1), or `None` if
    /// the segment is itself a reset.
    pub fn refusal(&self) -> Option<SegmentOut> {
        let none = SegmentOut { seq: TcpSeq(0), ack: TcpSeq(0), flags: RST, window: 0, syn: None, data: 0..0 };
        if self.has(RST) {
            None
        } else if self.has(ACK) {
            Some(SegmentOut { seq: self.ack, ..none })
        } else {
            Some(SegmentOut { ack: self.seq.plus(self.len()), flags: RST | ACK, ..none })
        }
    }
}

/// The options of the gateway's SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynOptions {
    /// The longest payload that the gateway accepts, in bytes.
    pub mss: u16,
    /// Shift of the window field in the gateway's later segments; `None` without window scaling.
    pub scale: Option<u8>,
}

/// A segment to a guest, without its addresses and ports, and without the payload bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentOut {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: TcpSeq,
    /// Acknowledgement number.
    pub ack: TcpSeq,
    /// Flags.
    pub flags: u8,
    /// Window field, already scaled.
    pub window: u16,
    /// Options, of a SYN only.
    pub syn: Option<SynOptions>,
    /// The payload, as a range of bytes in the connection's queue.
    pub data: Range<usize>,
}

/// The addresses and ports in a connection's segments.
#[derive(Clone, Copy, Debug)]
pub struct SegmentWriter {
    /// The gateway's MAC address.
    pub own_mac: MacAddr,
    /// The guest.
    pub who: GuestId,
    /// The guest's address and port.
    pub guest: SocketAddr,
    /// The other end's address and port, as the guest sees them.
    pub remote: SocketAddr,
}

/// The headers of a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentFrame {
    frame: FrameHeaders,
    tcp: [u8; HEADER_LEN + SYN_OPTIONS],
    len: usize,
}

impl SegmentFrame {
    /// Returns the headers before TCP's: virtio-net, Ethernet, IP.
    pub fn frame(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Returns the TCP header with its options.
    pub fn tcp(&self) -> &[u8] {
        &self.tcp[..self.len]
    }
}

impl SegmentWriter {
    /// Returns the headers of a segment; `None` if it is too long for an IP packet. The receiver completes the
    /// checksum, and splits a segment whose payload is longer than `mss`.
    pub fn headers(&self, segment: &SegmentOut, mss: u16) -> Option<SegmentFrame> {
        let options = if segment.syn.is_some() { SYN_OPTIONS } else { 0 };
        let len = HEADER_LEN + options;
        let payload = segment.data.len();
        let ends = PacketEnds { src_mac: self.own_mac, to: self.who, src: self.remote.ip(), dst: self.guest.ip() };
        let mut bytes = [0; HEADER_LEN + SYN_OPTIONS];
        self.write(&mut bytes, segment, options)?;
        if let Some(syn) = segment.syn {
            bytes[HEADER_LEN..].copy_from_slice(&syn_options(syn));
        }
        let total = u16::try_from(len + payload).ok()?;
        // The checksum field has the sum of the pseudo header, as virtio-net requires with partial checksums (virtio
        // 1.3 §5.1.6.2).
        let half = pseudo(ends.src, ends.dst, TCP, total).unwrap_or(Sum::ZERO).fold();
        bytes[16..18].copy_from_slice(&half.to_be_bytes());
        let vnet = self.vnet(len, payload, mss);
        Some(SegmentFrame { frame: build::headers(&ends, TCP, TTL, len + payload, &vnet), tcp: bytes, len })
    }

    fn write(&self, bytes: &mut [u8], segment: &SegmentOut, options: usize) -> Option<()> {
        let mut header = tcp::Header::init(bytes, options).ok()?;
        header.set_src_port(self.remote.port());
        header.set_dst_port(self.guest.port());
        header.set_seq(segment.seq.0);
        header.set_ack(segment.ack.0);
        header.set_flags(segment.flags);
        header.set_window(segment.window);
        Some(())
    }

    fn vnet(&self, header: usize, payload: usize, mss: u16) -> VnetHdr {
        let ip = if self.guest.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let tag = if self.who.network.vlan().is_some() { ethernet::VLAN_TAG_LEN } else { 0 };
        let start = ethernet::HEADER_LEN + tag + ip;
        let summed = VnetHdr {
            flags: vnet::F_NEEDS_CSUM,
            csum_start: start as u16,
            csum_offset: tcp::CHECKSUM_OFFSET,
            ..VnetHdr::default()
        };
        if payload <= usize::from(mss) {
            return summed;
        }
        let gso_type = if self.guest.is_ipv4() { vnet::GSO_TCPV4 } else { vnet::GSO_TCPV6 };
        VnetHdr { gso_type, hdr_len: (start + header) as u16, gso_size: mss, ..summed }
    }
}

fn syn_options(syn: SynOptions) -> [u8; SYN_OPTIONS] {
    let [high, low] = syn.mss.to_be_bytes();
    match syn.scale {
        Some(shift) => [OPTION_MSS, 4, high, low, OPTION_NOP, OPTION_SCALE, 3, shift],
        None => [OPTION_MSS, 4, high, low, OPTION_END, OPTION_END, OPTION_END, OPTION_END],
    }
}

/// Returns the maximum length of the TCP payload of a packet to `guest` with this MTU, in bytes.
pub fn mss_of(mtu: u16, guest: IpAddr) -> u16 {
    let ip = if guest.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    mtu.saturating_sub((ip + HEADER_LEN) as u16).max(MIN_MSS)
}

/// The smallest MSS that the gateway accepts from a guest: with a tiny MSS, every few bytes would need a frame.
pub const MIN_MSS: u16 = 216;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::frame::{GuestFrame, VNET_LEN};
    use crate::guests::NetworkId;

    fn writer() -> SegmentWriter {
        SegmentWriter {
            own_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            who: NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 9])),
            guest: "10.0.0.9:4000".parse().unwrap(),
            remote: "192.0.2.1:80".parse().unwrap(),
        }
    }

    fn out(flags: u8, data: usize) -> SegmentOut {
        SegmentOut { seq: TcpSeq(7), ack: TcpSeq(9), flags, window: 100, syn: None, data: 0..data }
    }

    #[test]
    fn a_segment_reads_back_as_written() {
        let syn = SynOptions { mss: 1460, scale: Some(4) };
        let headers = writer().headers(&SegmentOut { syn: Some(syn), ..out(SYN | ACK, 0) }, 1460).unwrap();
        let frame = [headers.frame(), headers.tcp()].concat();
        let Some(GuestFrame::Packet(packet)) = crate::frame::parse(&frame) else { panic!("a packet") };
        let segment = parse(packet.l4).unwrap();
        assert_eq!((segment.src_port, segment.dst_port, segment.seq, segment.ack), (80, 4000, TcpSeq(7), TcpSeq(9)));
        assert_eq!((segment.mss, segment.scale, segment.len()), (Some(1460), Some(4), 1));
    }

    /// Objective: the virtio-net headers of short and long segments pass the switch's check of offloads.
    #[test]
    fn the_work_that_is_left_fits_the_frame() {
        let tagged = NetworkId::of_vlan(7).unwrap().station(writer().who.mac);
        let writers = [writer(), SegmentWriter { who: tagged, ..writer() }];
        for (writer, payload) in writers.iter().flat_map(|writer| [0, 1, 1460, 1461, 64_000].map(|len| (writer, len))) {
            let headers = writer.headers(&out(ACK, payload), 1460).unwrap();
            let frame = [headers.frame(), headers.tcp(), &vec![0; payload]].concat();
            let vnet = VnetHdr::parse(&frame, vnet::VnetForm::Mergeable).unwrap();
            let offload = vnet.check(frame.len() - VNET_LEN, &frame[VNET_LEN..]).unwrap();
            assert_eq!(matches!(offload, netvale_wire::Offload::Gso(_)), payload > 1460, "{payload}");
        }
    }

    #[test]
    fn options_that_run_past_their_end_are_ignored() {
        let with = |options: &[u8]| {
            let mut bytes = vec![0; HEADER_LEN];
            let len = options.len().next_multiple_of(4);
            let mut header = tcp::Header::init(&mut bytes, len).unwrap();
            header.set_flags(SYN);
            bytes.extend_from_slice(options);
            bytes.resize(HEADER_LEN + len, 0);
            let segment = parse(&bytes).unwrap();
            (segment.mss, segment.scale)
        };
        assert_eq!(with(&[1, 2, 4, 5, 180, 3, 3, 99]), (Some(1460), Some(MAX_SCALE)));
        for bad in [&[2, 0][..], &[2, 1], &[2, 3, 5], &[3, 200, 1], &[2, 8, 5], &[8]] {
            assert_eq!(with(bad), (None, None), "{bad:?}");
        }
        assert_eq!(with(&[0, 2, 4, 5, 180]), (None, None), "behind the end");
    }

    #[test]
    fn a_refusal_is_what_the_standard_says() {
        let segment = |flags: u8, payload: &'static [u8]| TcpSegment {
            src_port: 1,
            dst_port: 2,
            seq: TcpSeq(10),
            ack: TcpSeq(20),
            flags,
            window: 0,
            mss: None,
            scale: None,
            payload,
        };
        let refusal = |flags, payload| segment(flags, payload).refusal().map(|out| (out.seq, out.ack, out.flags));
        assert_eq!(refusal(SYN, b""), Some((TcpSeq(0), TcpSeq(11), RST | ACK)));
        assert_eq!(refusal(FIN, b"ab"), Some((TcpSeq(0), TcpSeq(13), RST | ACK)));
        assert_eq!(refusal(ACK, b"ab"), Some((TcpSeq(20), TcpSeq(0), RST)));
        assert_eq!(refusal(RST | ACK, b""), None);
    }
}
