//! All counters at one moment, for `netvale top` and the metrics.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use super::{Drops, PortKind, PortState, SwitchInfo};
use crate::kinds::{Detail, KindStats};

/// Parameters of `stats.all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllStatsParams {
    /// Limits the answer to ports whose names sort after this name: [`AllStats::next`] of the previous answer. `None`:
    /// starts with the first port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Reply of `stats.all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllStats {
    /// Time at which the counters were read, in nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// The daemon's release.
    pub version: String,
    /// Switches, sorted by name.
    #[serde(default)]
    pub switches: Vec<SwitchStats>,
    /// Ports, sorted by name.
    pub ports: Vec<PortDetails>,
    /// If there are more ports: name of the last port in this answer, for `after` of the next request; otherwise
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Workers, sorted by number.
    #[serde(default)]
    pub workers: Vec<WorkerStats>,
    /// Regions in use.
    #[serde(default)]
    pub regions: Vec<RegionStats>,
    /// Number of refused requests and connections: the caller's own, or, if the caller is root or the daemon's own
    /// user, those of all users.
    #[serde(default)]
    pub refused: u64,
    /// Number of programs that lost their port; 0 for callers other than root and the daemon's own user.
    #[serde(default)]
    pub evicted: u64,
    /// Number of stalls of the main thread: actions that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// Counters of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStats {
    /// The switch's entry in `switch.list`.
    #[serde(flatten)]
    pub info: SwitchInfo,
    /// Multicast counters, if the switch snoops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastStats>,
}

/// Counters of multicast group messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastStats {
    /// Number of memberships: pairs of a group and a member port.
    pub memberships: u64,
    /// Number of messages that joined or left groups.
    pub reports: u64,
    /// Number of queries from queriers other than this switch.
    pub queries: u64,
    /// Number of joins refused because a limit was reached.
    pub refused_joins: u64,
    /// Number of messages that could not be parsed.
    pub malformed: u64,
    /// Number of messages dropped because too many were waiting.
    pub lost: u64,
}

/// A port's counters since it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDetails {
    /// Full name, e.g. `vale0:a`.
    pub name: String,
    /// Name of the port's switch; `None` for a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The kind of port.
    pub kind: PortKind,
    /// Whether the port is open.
    pub state: PortState,
    /// Number of the region with the port's rings; `None` for a port without a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u32>,
    /// The port's rings into the switch.
    #[serde(rename = "in")]
    pub ingress: Vec<RingStats>,
    /// The port's rings out of the switch.
    #[serde(rename = "out")]
    pub egress: Vec<RingStats>,
    /// Dropped frames that the port sent, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub in_drops: Drops,
    /// Dropped frames that were destined for the port, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub out_drops: Drops,
    /// Number of frames for the port that arrived while the port had no receiver, e.g. no program had the port open;
    /// not counted among drops.
    #[serde(default)]
    pub idle: u64,
    /// Kicks (wake-ups by eventfd) that the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks that the daemon did not send, because the application had not armed `need_kick`.
    pub kicks_suppressed: u64,
    /// Kicks that the daemon received from the application.
    pub kicks_received: u64,
    /// Counters of the port's policies, besides drops; `None` without policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PolicyStats>,
    /// Counters specific to the kind of port; `None` for a kind without such counters.
    #[serde(flatten)]
    pub of_kind: Option<KindStats>,
    /// Latencies of the port's frames, if any were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl PortDetails {
    /// Returns the sum over the port's rings into the switch.
    #[must_use]
    pub fn sent(&self) -> RingStats {
        self.ingress.iter().sum()
    }

    /// Returns the sum over the port's rings out of the switch.
    #[must_use]
    pub fn got(&self) -> RingStats {
        self.egress.iter().sum()
    }

    /// Returns the number of dropped frames, for any reason, in both directions.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.in_drops.values().chain(self.out_drops.values()).sum()
    }

    /// Returns the counters specific to one kind of port; `None` if the port is of another kind, or has no such
    /// counters.
    #[must_use]
    pub fn of_kind<S: Detail<KindStats>>(&self) -> Option<&S> {
        self.of_kind.as_ref().and_then(S::of)
    }
}

/// Latencies of the frames in batches that were timed, from just before the frames leave their ring until they are
/// delivered or dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Sum of the latencies of all timed frames, in nanoseconds.
    pub sum_ns: u64,
    /// Number of frames in each range of latencies, the fastest first. Empty ranges are omitted.
    pub parts: Vec<LatencyPart>,
}

/// A range of latencies and its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyPart {
    /// Upper bound of the range, one of [`Latency::BOUNDS_NS`]; the bound before it in that list is the range's lower
    /// bound. `None`: the range is above the last bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_ns: Option<u64>,
    /// Number of frames whose latency is in this range.
    pub frames: u64,
}

impl Latency {
    /// Upper bounds of the ranges, in nanoseconds: 1, 2 and 5 times each power of ten, from 500 ns to 1 s.
    pub const BOUNDS_NS: [u64; 20] = {
        let mut bounds = [500; 20];
        let mut i = 1;
        let mut ten = 1_000;
        while i < bounds.len() {
            bounds[i] = ten * [5, 1, 2][i % 3];
            if i % 3 == 0 {
                ten *= 10;
            }
            i += 1;
        }
        bounds
    };

    /// Returns the number of timed frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.parts.iter().map(|part| part.frames).sum()
    }
}

/// Totals of a ring since its port was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingStats {
    /// Number of frames that have passed through the ring.
    pub frames: u64,
    /// Number of bytes in the frames that have passed through the ring, without virtio-net headers.
    pub bytes: u64,
    /// Number of batches in which the frames passed through the ring.
    pub batches: u64,
}

impl<'a> Sum<&'a RingStats> for RingStats {
    fn sum<I: Iterator<Item = &'a RingStats>>(rings: I) -> RingStats {
        rings.fold(RingStats::default(), |sum, ring| RingStats {
            frames: sum.frames + ring.frames,
            bytes: sum.bytes + ring.bytes,
            batches: sum.batches + ring.batches,
        })
    }
}

/// Counters of a port's policies, besides drops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStats {
    /// Whether the loop guard currently blocks the port.
    pub blocked: bool,
    /// Number of times that the loop guard blocked the port.
    pub loops: u64,
    /// Counters of the rules for frames that the port sends, in the order of the rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_rules: Vec<RuleStats>,
    /// Counters of the rules for frames that the port receives, in the order of the rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_rules: Vec<RuleStats>,
    /// Frames in flight on the emulated link for sent frames; `None` without such a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_link: Option<u64>,
    /// Frames in flight on the emulated link for received frames; `None` without such a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_link: Option<u64>,
}

/// Counters of a filter rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// Number of frames that this rule decided.
    pub frames: u64,
}

/// How a worker has spent its time since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Number of the worker, from 0.
    pub index: u32,
    /// CPU to which the worker is pinned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Nanoseconds spent forwarding.
    pub busy_ns: u64,
    /// Nanoseconds spent polling without finding work.
    pub polled_ns: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
    /// Part of `slept_ns` during which frames waited for room at a receiver.
    #[serde(default)]
    pub waited_ns: u64,
    /// Part of `busy_ns` and `polled_ns` during which other threads ran on the worker's CPU.
    #[serde(default)]
    pub preempted_ns: u64,
    /// Number of ingresses (queues from which the switch takes frames) that the worker serves.
    pub ingresses: u64,
    /// Number of stalls: single operations of the worker that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// A region: memory with the rings and buffers of one or several ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionStats {
    /// Number of the region; each user has a region with the number 1.
    pub id: u32,
    /// User ID of the region's owner.
    pub uid: u32,
    /// Total size in bytes.
    pub bytes: u64,
    /// Number of buffers.
    pub bufs: u32,
}
