//! Samples, to the byte: sFlow version 5, section 5. A frame's *output* is the port that it went to, their number, or
//! why it was dropped, its *discard*; a port's *traffic* is its counters of one direction.

use super::xdr::Xdr;

const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const SAMPLED_HEADER: u32 = 1;
const IF_COUNTERS: u32 = 1;
const PORT_NAME: u32 = 1005;
/// `header_protocol`: ETHERNET-ISO88023.
const ETHERNET: u32 = 1;
/// Length of the frame check sequence: counted in `frame_length`, and never there.
const FCS: u32 = 4;
/// `ifType`: ethernetCsmacd.
const ETHERNET_CSMACD: u32 = 6;
/// What a counter is that nobody counts.
const NOT_COUNTED: u32 = u32::MAX;

/// Where a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It waits on a link, or its ports are gone.
    Unknown,
    /// To one port, with that number.
    Port(u32),
    /// To that many ports.
    Several(u32),
    /// To none, for the reason with that code.
    Discarded(Discard),
}

/// Reasons as sFlow tells them: those of RFC 1812, section 5.2.7.1, and these from 256 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Discard {
    /// None of the others.
    Unknown = 256,
    /// A rule forbids it.
    Acl = 258,
    /// No room for it.
    NoBuffer = 259,
    /// More than the port may send.
    Shaping = 261,
    /// Longer than the port takes.
    TooBig = 262,
}

impl Discard {
    /// What a drop's reason, by its name, is.
    #[must_use]
    pub fn of(reason: &str) -> Discard {
        match reason {
            "no-room" | "link-full" | "stalled" => Discard::NoBuffer,
            "rate" | "storm" => Discard::Shaping,
            "too-long" => Discard::TooBig,
            "filter" | "isolated" | "locked" | "vlan" => Discard::Acl,
            reason if reason.starts_with("spoofed-") || reason.starts_with("rogue-") => Discard::Acl,
            reason if reason.starts_with("address-") => Discard::Acl,
            _ => Discard::Unknown,
        }
    }
}

impl Output {
    /// The field of `flow_sample`: format in the two highest bits, value in the others.
    fn to_field(self) -> u32 {
        match self {
            Output::Unknown => 0,
            Output::Port(index) => index,
            Output::Several(count) => 2 << 30 | count,
            Output::Discarded(why) => 1 << 30 | why as u32,
        }
    }
}

/// A frame that was chosen.
#[derive(Clone, Debug)]
pub struct FlowSample<'a> {
    /// Number of the sample, from its port.
    pub sequence: u32,
    /// Number of the port that it came from.
    pub port: u32,
    /// One frame of that many is chosen.
    pub rate: u32,
    /// Frames that could have been chosen.
    pub pool: u32,
    /// Samples that found no room.
    pub lost: u32,
    /// Where it went.
    pub output: Output,
    /// Its length.
    pub len: u32,
    /// Its first bytes.
    pub head: &'a [u8],
}

impl FlowSample<'_> {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut header = Xdr::default();
        header.u32(ETHERNET).u32(self.len.saturating_add(FCS)).u32(FCS).opaque(self.head);
        let mut sample = Xdr::default();
        sample.u32(self.sequence).u32(self.port).u32(self.rate).u32(self.pool).u32(self.lost);
        sample.u32(self.port).u32(self.output.to_field()).u32(1).structure(SAMPLED_HEADER, &header);
        let mut whole = Xdr::default();
        whole.structure(FLOW_SAMPLE, &sample);
        whole.0
    }
}

/// A port's counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterSample<'a> {
    /// Number of the sample, from its port.
    pub sequence: u32,
    /// Number of the port.
    pub port: u32,
    /// Its full name.
    pub name: &'a str,
    /// Whether it is open.
    pub is_up: bool,
    /// What came into the switch from it: bytes and frames, and frames of them that were dropped.
    pub input: Traffic,
    /// The same of what was for it.
    pub output: Traffic,
}

/// What passed a port in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Frames.
    pub frames: u64,
    /// Frames that were dropped.
    pub drops: u64,
}

impl Traffic {
    /// Octets, unicast, multicast and broadcast packets, discards, errors. Packets wrap at 32 bits, as their counters
    /// do.
    fn put(&self, to: &mut Xdr) {
        to.u64(self.bytes).u32(self.frames as u32).u32(NOT_COUNTED).u32(NOT_COUNTED);
        to.u32(self.drops as u32).u32(NOT_COUNTED);
    }
}

impl CounterSample<'_> {
    /// The bytes. Frames to groups and to all are not counted apart, and are among those to one address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut counters = Xdr::default();
        let full_duplex = 1;
        counters.u32(self.port).u32(ETHERNET_CSMACD).u64(0).u32(full_duplex).u32(1 | u32::from(self.is_up) << 1);
        self.input.put(&mut counters);
        let unknown_protocols = NOT_COUNTED;
        counters.u32(unknown_protocols);
        self.output.put(&mut counters);
        let promiscuous = 0;
        counters.u32(promiscuous);
        let mut name = Xdr::default();
        name.opaque(self.name.as_bytes());
        let mut sample = Xdr::default();
        sample.u32(self.sequence).u32(self.port).u32(2);
        sample.structure(IF_COUNTERS, &counters).structure(PORT_NAME, &name);
        let mut whole = Xdr::default();
        whole.structure(COUNTERS_SAMPLE, &sample);
        whole.0
    }
}

#[cfg(test)]
mod tests;
