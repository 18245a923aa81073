//! Traces of single frames.

use serde::{Deserialize, Serialize};

use super::Direction;

/// The selection of a trace. A connection has one trace; another one replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceBeginParams {
    /// Full names of the ports to trace, or the name of a switch: all of the caller's ports on it.
    pub of: Vec<String>,
    /// A classic BPF program that selects frames, as `tcpdump -ddd` prints it, lines separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Only frames with a drop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops: bool,
    /// Examines one frame of this many, of each ring; those that match are traced.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub one_of: u32,
    /// Also traces later ports; waits for names without a port or switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// The start of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegun {
    /// Full names of the ports.
    pub ports: Vec<String>,
}

/// The frames traced since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRead {
    /// Number of ports still traced: those that leave their switch are not.
    pub ports: usize,
    /// Frames lost since then, because the caller read too late.
    pub lost: u64,
    /// The frames, in the order of each worker.
    pub frames: Vec<TracedFrame>,
}

/// A traced frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFrame {
    /// Its age in nanoseconds.
    pub age_ns: u64,
    /// Full name of its port.
    pub port: String,
    /// Its ring.
    pub ring: u16,
    /// Its length in bytes; 0 in a record that is not of one frame, but of frames that were refused before they
    /// existed, or that had waited.
    pub len: u32,
    /// Bytes of payload of each segment, if its sender left the segmentation pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u16>,
    /// Whether its sender left the checksum pending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_checksum: bool,
    /// Its first bytes, two hexadecimal digits each.
    pub head: String,
    /// Its steps, in order.
    pub steps: Vec<TraceStep>,
    /// Number of further steps.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more_steps: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_none(n: &u32) -> bool {
    *n == 0
}

/// A matching rule of a port's filters, and its action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedRule {
    /// Full name of the port.
    pub port: String,
    /// `in`: for frames that the port sends; `out`: for frames that it gets.
    pub dir: Direction,
    /// Its number in that direction, from 1.
    pub number: u16,
    /// Whether it drops the frame.
    pub drops: bool,
}

/// An event in a frame's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceStep {
    /// It belongs to this VLAN.
    Vlan(u16),
    /// Its source address was unknown, and is now learned.
    Learned,
    /// Its source address was known behind this port.
    MovedFrom(String),
    /// Its source address stays with this port.
    Kept(String),
    /// Its source address is not learned: the port, or its owner, is at its limit of addresses.
    NotLearned,
    /// A filter's rule matches.
    Rule(TracedRule),
    /// Its destination is unknown.
    Unknown,
    /// It is flooded, or goes to the members of a group.
    Floods,
    /// The steps that follow are decided by this destination port.
    For(String),
    /// It goes to this ring of a port, written `PORT/RING`. It is delivered unless another step follows.
    To(String),
    /// It enters the link of its port, or of its destination, and leaves it later.
    Link,
    /// It waits there for room.
    Waits,
    /// It found room after waiting.
    Taken,
    /// It was cut into this many segments.
    Cut(u32),
    /// Its checksum was filled in.
    Summed,
    /// It was dropped, for this reason and this many times.
    Dropped(String, u32),
}
