//! Traces of what becomes of single frames.

use serde::{Deserialize, Serialize};

use super::Direction;

/// What to trace. A connection has one trace; another one takes its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceBeginParams {
    /// Full names of the ports whose frames are traced, or the name of a switch: all ports that are the caller's.
    pub of: Vec<String>,
    /// A classic BPF program, as `tcpdump -ddd` prints it, lines separated by commas, that says which frames are
    /// traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Only frames of which something is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops: bool,
    /// One frame of that many, of each ring, is looked at; those of them that fit are traced.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub one_of: u32,
    /// Ports that come later are traced, too; a name of which there is nothing yet is waited for.
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

/// What a trace has begun with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegun {
    /// Full names of the ports.
    pub ports: Vec<String>,
}

/// What was traced since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRead {
    /// Number of ports that are still traced: those that leave their switch are not.
    pub ports: usize,
    /// Frames that found no room since then, as this was asked too late.
    pub lost: u64,
    /// The frames, in the order of each worker.
    pub frames: Vec<TracedFrame>,
}

/// What became of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFrame {
    /// How many nanoseconds ago that was.
    pub age_ns: u64,
    /// Full name of the port that it came from.
    pub port: String,
    /// The ring there.
    pub ring: u16,
    /// Its length in bytes; 0: what is told is not of one frame, but of some that were refused before there was one, or
    /// that had waited.
    pub len: u32,
    /// Bytes of payload of each segment, if its sender left it to be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u16>,
    /// Whether its sender left the checksum to be computed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_checksum: bool,
    /// Its first bytes, two hexadecimal digits each.
    pub head: String,
    /// What happened to it, in order.
    pub steps: Vec<TraceStep>,
    /// Number of further steps.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more_steps: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_none(n: &u32) -> bool {
    *n == 0
}

/// A rule of a port's filters, and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedRule {
    /// Full name of the port.
    pub port: String,
    /// `in`: of what the port sends; `out`: of what it gets.
    pub dir: Direction,
    /// Its number in that direction, from 1.
    pub number: u16,
    /// Whether it drops the frame.
    pub drops: bool,
}

/// Something that happens to a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceStep {
    /// It belongs to that VLAN.
    Vlan(u16),
    /// Its source address was not known, and is known from now on.
    Learned,
    /// Its source address was known behind that port.
    MovedFrom(String),
    /// Its source address stays known behind that port.
    Kept(String),
    /// Its source address is not learned: the port, or its owner, has as many addresses as it may.
    NotLearned,
    /// A filter's rule fits it.
    Rule(TracedRule),
    /// Nobody knows where its destination is.
    Unknown,
    /// It goes to all, or to the members of a group.
    Floods,
    /// What follows is decided by that port, to which it goes.
    For(String),
    /// It goes to that port's ring, written `PORT/RING`. It is delivered unless something else follows.
    To(String),
    /// It is on the link of its port, or of its destination, and comes out of it later.
    Link,
    /// It waits there for room.
    Waits,
    /// There was room after all.
    Taken,
    /// It was cut into that many segments.
    Cut(u32),
    /// Its checksum was filled in.
    Summed,
    /// It is dropped, for that reason; if it is more than one, that many times.
    Dropped(String, u32),
}
