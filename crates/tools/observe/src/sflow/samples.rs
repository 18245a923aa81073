//! Encoding of samples (sFlow version 5, section 5). A frame's *output* is its destination: a port, the number of
//! ports, or the *discard*, which is the reason why the frame was dropped. A port's *traffic* is its counters in one
//! direction.

use super::xdr::Xdr;

const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const SAMPLED_HEADER: u32 = 1;
const IF_COUNTERS: u32 = 1;
const PORT_NAME: u32 = 1005;
/// `header_protocol`: ETHERNET-ISO88023.
const ETHERNET: u32 = 1;
/// Length in bytes of the frame check sequence, which sFlow's `frame_length` counts although samples do not contain it.
const FCS: u32 = 4;
/// `ifType`: ethernetCsmacd.
const ETHERNET_CSMACD: u32 = 6;
/// The value that sFlow defines for a counter that the agent does not have.
const NOT_COUNTED: u32 = u32::MAX;

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutput {
    /// Unknown, because the frame waits on a link or the ports to which it was sent no longer exist.
    Unknown,
    /// The port with this index.
    Port(u32),
    /// Several ports: the number of them.
    Several(u32),
    /// Dropped, for this reason.
    Discarded(Discard),
}

/// sFlow's codes of reasons for drops. Codes below 256, which this agent does not use, are the codes of ICMP (RFC 1812
/// section 5.2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Discard {
    /// Any reason for which there is no other code here.
    Unknown = 256,
    /// A filter rule dropped the frame.
    Acl = 258,
    /// There was no room for the frame.
    NoBuffer = 259,
    /// The frame exceeded the port's rate.
    Shaping = 261,
    /// The frame was longer than the port accepts.
    TooBig = 262,
}

impl Discard {
    /// Returns the sFlow code for one of the daemon's drop reasons.
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

impl FrameOutput {
    /// Returns the field `output` of a `flow_sample`: a format in the two highest bits, and a value in the remaining
    /// bits.
    fn to_field(self) -> u32 {
        match self {
            FrameOutput::Unknown => 0,
            FrameOutput::Port(index) => index,
            FrameOutput::Several(count) => 2 << 30 | count,
            FrameOutput::Discarded(why) => 1 << 30 | why as u32,
        }
    }
}

/// The sample of a frame.
#[derive(Clone, Debug)]
pub struct FlowSample<'a> {
    /// Sequence number of the sample among the flow samples of its port.
    pub sequence: u32,
    /// Index of the source port.
    pub port: u32,
    /// Sampling rate: one in this many frames is sampled.
    pub rate: u32,
    /// Total number, so far, of the port's frames among which samples were chosen.
    pub pool: u32,
    /// Total number, so far, of samples that were lost for lack of room.
    pub lost: u32,
    /// The frame's destination.
    pub output: FrameOutput,
    /// The frame's length in bytes.
    pub len: u32,
    /// The frame's first bytes.
    pub head: &'a [u8],
}

impl FlowSample<'_> {
    /// Encodes the sample.
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
    /// Sequence number of the sample among the counter samples of its port.
    pub sequence: u32,
    /// Index of the port.
    pub port: u32,
    /// Full name of the port.
    pub name: &'a str,
    /// Whether the port is in the state "open", which sFlow reports as "up".
    pub is_up: bool,
    /// Traffic from the port to the switch.
    pub input: PortTraffic,
    /// Traffic from the switch to the port.
    pub output: PortTraffic,
}

/// A port's traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTraffic {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of frames.
    pub frames: u64,
    /// Number of dropped frames.
    pub drops: u64,
}

impl PortTraffic {
    /// Appends the fields octets, unicast, multicast and broadcast packets, discards and errors. Counts other than
    /// octets have 32 bits, and wrap.
    fn put(&self, to: &mut Xdr) {
        to.u64(self.bytes).u32(self.frames as u32).u32(NOT_COUNTED).u32(NOT_COUNTED);
        to.u32(self.drops as u32).u32(NOT_COUNTED);
    }
}

impl CounterSample<'_> {
    /// Encodes the sample. Multicast and broadcast frames are not counted separately: the unicast counter includes
    /// them.
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
