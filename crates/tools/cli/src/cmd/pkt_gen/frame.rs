//! The frames that pkt-gen sends: UDP, with addresses that step through ranges or are chosen at random.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use netvale_wire::{MacAddr, build};

use super::PktGenArgs;
use crate::CliError;

/// The text that fills the payload, repeated.
const PAYLOAD: &[u8] = b"netvale pkt-gen ";

/// A range of addresses combined with a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: (IpAddr, u16),
    last: (IpAddr, u16),
}

impl AddressRange {
    /// Parses `IP[:PORT[-IP:PORT]]`; an IPv6 address before a port is in brackets.
    pub fn parse(text: &str) -> Option<AddressRange> {
        let (first, last) = match text.split_once('-') {
            Some((a, b)) => (endpoint(a)?, endpoint(b)?),
            None => (endpoint(text)?, endpoint(text)?),
        };
        let same_kind = first.0.is_ipv4() == last.0.is_ipv4();
        (same_kind && bits(first.0) <= bits(last.0) && first.1 <= last.1).then_some(AddressRange { first, last })
    }

    fn is_single(&self) -> bool {
        self.first == self.last
    }

    /// Returns the `n`th pair of address and port of the range, modulo the number of pairs.
    fn nth(&self, n: u64) -> (IpAddr, u16) {
        let ports = u64::from(self.last.1 - self.first.1) + 1;
        let hosts = (bits(self.last.0) - bits(self.first.0)).saturating_add(1);
        let host = bits(self.first.0).wrapping_add(u128::from(n / ports) % hosts);
        (address(host, self.first.0.is_ipv4()), self.first.1 + (n % ports) as u16)
    }
}

fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    if let Ok(full) = text.parse::<std::net::SocketAddr>() {
        return Some((full.ip(), full.port()));
    }
    text.trim_matches(['[', ']']).parse().ok().map(|ip| (ip, 1234))
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn address(bits: u128, v4: bool) -> IpAddr {
    if v4 { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() }
}

/// A small random number generator, good enough to vary addresses.
pub struct Dice(u64);

impl Dice {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number (xorshift64*).
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Reads all frames of a capture file.
fn read(path: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let bad = |e: &dyn std::fmt::Display| {
        CliError::failed(format!("{}: {e}", path.display()), "give -P a complete pcap or pcapng file")
    };
    let mut reader = netvale_pcapport::PcapReader::open(path).map_err(|e| bad(&e))?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().map_err(|e| bad(&e))? {
        frames.push(frame.bytes.to_vec());
    }
    if frames.is_empty() { Err(bad(&"the file has no frames")) } else { Ok(frames) }
}

/// The source of the frames to send.
pub struct FrameSource {
    src: AddressRange,
    dst: AddressRange,
    /// Source and destination.
    macs: [MacAddr; 2],
    random: (bool, bool),
    sizes: (usize, usize),
    dice: Dice,
    made: u64,
    frame: Vec<u8>,
    /// Frames of a capture file, which are sent in turn; if empty, frames are generated.
    recording: Vec<Vec<u8>>,
    /// Whether each frame is copied into its buffer again, even if the buffer already contains it from an earlier round
    /// of the ring.
    anew: bool,
}

impl FrameSource {
    /// Creates the source from the options; the frames depend on the thread's number `thread`, so that threads send
    /// different frames.
    ///
    /// # Errors
    /// An address is invalid.
    pub fn new(args: &PktGenArgs, thread: u64) -> Result<FrameSource, CliError> {
        let range = |text: Option<&str>, v4: &str, v6: &str| {
            let text = text.unwrap_or(if args.ipv6 { v6 } else { v4 });
            let next = "write e.g. 10.0.0.1:1-10.0.0.9:99, with -6 [fd00::1]:1";
            let found = AddressRange::parse(text).filter(|range| range.first.0.is_ipv4() != args.ipv6);
            found.ok_or_else(|| CliError::usage(format!("invalid address range {text}"), next))
        };
        let mac = |text: Option<&str>, default: [u8; 6]| {
            let Some(text) = text else { return Ok(MacAddr(default)) };
            let bad = |_| CliError::usage(format!("invalid MAC address {text}"), "write e.g. 02:00:00:00:00:0a");
            text.parse().map_err(bad)
        };
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = [2, 0, 0, high, low, thread as u8];
        let largest = args.pkt_size.first().copied().unwrap_or(60) as usize;
        let smallest = args.pkt_size.get(1).copied().unwrap_or(largest as u32) as usize;
        let mut source = FrameSource {
            src: range(args.src_ip.as_deref(), "10.0.0.1:1234", "[fd00::2]:1234")?,
            dst: range(args.dst_ip.as_deref(), "10.1.0.1:1234", "[fd00::1]:1234")?,
            macs: [mac(args.src_mac.as_deref(), own)?, mac(args.dst_mac.as_deref(), [0xff; 6])?],
            random: (args.random_src, args.random_dst),
            sizes: (smallest.min(largest), largest.max(smallest)),
            dice: Dice::new(thread + 1),
            made: 0,
            frame: Vec::new(),
            recording: args.pcap.as_deref().map(read).transpose()?.unwrap_or_default(),
            anew: args.options & super::OPT_COPY != 0,
        };
        source.build();
        Ok(source)
    }

    /// Returns whether all frames are equal, so that filled buffers can be reused.
    pub fn is_constant(&self) -> bool {
        self.recording.is_empty() && self.has_one_form() && !self.anew
    }

    fn has_one_form(&self) -> bool {
        self.random == (false, false) && self.src.is_single() && self.dst.is_single() && self.sizes.0 == self.sizes.1
    }

    /// Returns the current frame.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the current frame, mutable.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.frame
    }

    /// Returns the maximum length of a frame in bytes.
    pub fn longest(&self) -> usize {
        self.recording.iter().map(Vec::len).max().unwrap_or(self.sizes.1)
    }

    /// Prepares the next frame.
    pub fn next(&mut self) {
        if !self.recording.is_empty() || !self.has_one_form() {
            self.made += 1;
            self.build();
        }
    }

    fn build(&mut self) {
        if !self.recording.is_empty() {
            let at = (self.made % self.recording.len() as u64) as usize;
            self.frame.clone_from(&self.recording[at]);
            return;
        }
        let span = (self.sizes.1 - self.sizes.0 + 1) as u64;
        let len = self.sizes.0 + if span > 1 { (self.dice.roll() % span) as usize } else { 0 };
        let mut pick =
            |range: &AddressRange, random: bool| range.nth(if random { self.dice.roll() >> 8 } else { self.made });
        let src = pick(&self.src, self.random.0);
        let dst = pick(&self.dst, self.random.1);
        self.frame.clear();
        self.frame.resize(len, 0);
        let frame = &mut self.frame;
        let ports = [src.1, dst.1];
        let built = match (src.0, dst.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => build::udp4(frame, &udp(self.macs, [from, to], ports)).is_ok(),
            (IpAddr::V6(from), IpAddr::V6(to)) => build::udp6(frame, &udp(self.macs, [from, to], ports)).is_ok(),
            _ => false,
        };
        if !built {
            fill_ethernet(frame, self.macs);
        }
    }
}

/// Fills in a frame that is too short or too long for UDP: it gets only an Ethernet header, with the EtherType for
/// experiments (IEEE 802: 0x88b5).
fn fill_ethernet(frame: &mut [u8], [src, dst]: [MacAddr; 2]) {
    let header = [&dst.0[..], &src.0[..], &[0x88, 0xb5]].concat();
    let n = header.len().min(frame.len());
    frame[..n].copy_from_slice(&header[..n]);
}

/// Returns the parameters of a frame with pkt-gen's payload. In each array, the source precedes the destination.
fn udp<A>(
    [src_mac, dst_mac]: [MacAddr; 2],
    [src, dst]: [A; 2],
    [src_port, dst_port]: [u16; 2],
) -> build::Udp<'static, A> {
    build::Udp { src_mac, dst_mac, src, dst, src_port, dst_port, ttl: 64, payload: PAYLOAD }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: ranges step through the ports of an address, then through the addresses, and start from the beginning
    /// after the last.
    #[test]
    fn ranges_step_through_ports_then_addresses() {
        let r = AddressRange::parse("10.0.0.1:5-10.0.0.2:6").unwrap();
        let all: Vec<String> = (0..5).map(|n| r.nth(n)).map(|(a, p)| format!("{a}:{p}")).collect();
        assert_eq!(all, ["10.0.0.1:5", "10.0.0.1:6", "10.0.0.2:5", "10.0.0.2:6", "10.0.0.1:5"]);
        assert!(AddressRange::parse("10.0.0.1").unwrap().is_single());
        assert!(AddressRange::parse("[fd00::1]:7").is_some() && AddressRange::parse("fd00::1").is_some());
        for bad in ["", "x", "10.0.0.2:1-10.0.0.1:1", "10.0.0.1:9-10.0.0.1:1", "10.0.0.1:1-[::1]:1"] {
            assert_eq!(AddressRange::parse(bad), None, "{bad}");
        }
    }
}
