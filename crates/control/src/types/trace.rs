//! Traces of single frames.

use serde::{Deserialize, Serialize};

use super::Direction;

/// The selection of frames to trace. A connection has one trace; a new trace replaces the previous one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceBeginParams {
    /// Full names of the ports to trace; the name of a switch selects all of the caller's ports on that switch.
    pub of: Vec<String>,
    /// A classic BPF program that selects frames, as `tcpdump -ddd` prints it, lines separated by commas; `None`
    /// selects all frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Whether to trace only frames of which at least one copy is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops: bool,
    /// One of this many frames of each ring is examined, and traced if it matches.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub one_of: u32,
    /// Whether to also trace ports that are attached later; names of ports and switches that do not exist yet are then
    /// accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// The reply of `trace.begin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBeginReply {
    /// Full names of the traced ports.
    pub ports: Vec<String>,
}

/// The reply of `trace.read`: the frames traced since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRead {
    /// Number of ports that are being traced; a port that left its switch no longer counts.
    pub ports: usize,
    /// Frames lost since the last call because the caller read too late.
    pub lost: u64,
    /// The frames; frames of the same worker are in the order in which they were recorded.
    pub frames: Vec<TracedFrame>,
}

/// A traced frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFrame {
    /// Nanoseconds between the recording of the frame and this answer.
    pub age_ns: u64,
    /// Full name of the sending port.
    pub port: String,
    /// Index of the sending port's ring.
    pub ring: u16,
    /// Length of the frame in bytes; 0 in a record of dropped frames that could not be examined, such as invalid slots.
    pub len: u32,
    /// Payload bytes of each segment, if the sender left segmentation pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u16>,
    /// Whether the sender left the checksum pending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_checksum: bool,
    /// First bytes of the frame, two hexadecimal digits each.
    pub head: String,
    /// Steps on the frame's path, in order.
    pub steps: Vec<TraceStep>,
    /// Number of further steps, not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_steps: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A matching rule of a port's filters, and its action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedRule {
    /// Full name of the port.
    pub port: String,
    /// `in` for frames that the port sends, `out` for frames that it receives.
    pub dir: Direction,
    /// Number of the rule in that direction, from 1.
    pub number: u16,
    /// Whether the rule drops the frame.
    pub drops: bool,
}

/// An event on a frame's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceStep {
    /// The frame belongs to this VLAN.
    Vlan(u16),
    /// The source address was unknown and has been learned.
    Learned,
    /// The source address was known behind the port of this name, and has moved to the sender.
    MovedFrom(String),
    /// The source address stays with the port of this name, and does not move to the sender.
    Kept(String),
    /// The source address was not learned: the port, or its owner, is at its limit of addresses.
    NotLearned,
    /// A filter rule matched.
    Rule(TracedRule),
    /// The destination address is unknown.
    Unknown,
    /// The frame is flooded, or goes to the members of a group.
    Floods,
    /// The following steps concern this destination port.
    For(String),
    /// The frame goes to this ring, written `PORT/RING`. It is delivered unless another step follows.
    To(String),
    /// The frame enters the emulated link of its sender or of its destination, and leaves the link later.
    Link,
    /// The frame waits for room.
    Waits,
    /// The frame found room after waiting.
    Taken,
    /// The frame was cut into this number of segments.
    Cut(u32),
    /// The frame's checksum was filled in.
    Summed,
    /// The frame was dropped: the reason and the number of drops.
    Dropped(String, u32),
}
