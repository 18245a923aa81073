//! All counters at one moment: the source of `netvale top` and of the metrics.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use super::{Drops, PortKind, PortState, SwitchInfo};
use crate::kinds::{Detail, KindStats};

/// Parameters of `stats.all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllStatsParams {
    /// Only ports with names after this one, and nothing else: [`AllStats::next`] of the previous answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Reply of `stats.all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllStats {
    /// Time of reading the counters: nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// The daemon's release.
    pub version: String,
    /// Switches, by name.
    #[serde(default)]
    pub switches: Vec<SwitchStats>,
    /// Ports, by name.
    pub ports: Vec<PortDetails>,
    /// The last of these ports, if there are more: `after` of the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Workers, by number.
    #[serde(default)]
    pub workers: Vec<WorkerStats>,
    /// Regions in use.
    #[serde(default)]
    pub regions: Vec<RegionStats>,
    /// Number of refused requests and connections: the caller's own, or all for root and the daemon's own user.
    #[serde(default)]
    pub refused: u64,
    /// Number of programs that lost their port; 0 for callers other than root and the daemon's own user.
    #[serde(default)]
    pub evicted: u64,
    /// Number of stalls of the main thread: actions that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStats {
    /// Its entry in `switch.list`.
    #[serde(flatten)]
    pub info: SwitchInfo,
    /// Multicast counters, if it snoops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastStats>,
}

/// Messages about multicast groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastStats {
    /// Member ports, counted for each group.
    pub memberships: u64,
    /// Messages that join or leave groups.
    pub reports: u64,
    /// Queries from others.
    pub queries: u64,
    /// Joins beyond the limits.
    pub refused_joins: u64,
    /// Unreadable messages.
    pub malformed: u64,
    /// Messages dropped because too many waited.
    pub lost: u64,
}

/// A port's counters, since it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDetails {
    /// Full name, e.g. `vale0:a`.
    pub name: String,
    /// Its switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The kind of port.
    pub kind: PortKind,
    /// Whether it is open.
    pub state: PortState,
    /// Number of its rings' region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u32>,
    /// Its rings into the switch.
    #[serde(rename = "in")]
    pub ingress: Vec<RingStats>,
    /// Its rings out of the switch.
    #[serde(rename = "out")]
    pub egress: Vec<RingStats>,
    /// Frames sent by it and dropped, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub in_drops: Drops,
    /// Frames for it and dropped, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub out_drops: Drops,
    /// Frames for it without a receiver, not counted among drops.
    #[serde(default)]
    pub idle: u64,
    /// Kicks the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks the daemon saved because the application did not ask for them.
    pub kicks_suppressed: u64,
    /// Kicks the daemon got from the application.
    pub kicks_received: u64,
    /// Counters of its policies, besides drops; `None` without policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PolicyStats>,
    /// Counters that only ports of its kind have.
    #[serde(flatten)]
    pub of_kind: Option<KindStats>,
    /// Latencies of its frames, if any were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl PortDetails {
    /// The sum over its rings into the switch.
    #[must_use]
    pub fn sent(&self) -> RingStats {
        self.ingress.iter().sum()
    }

    /// The sum over its rings out of the switch.
    #[must_use]
    pub fn got(&self) -> RingStats {
        self.egress.iter().sum()
    }

    /// Frames dropped, for any reason, in both directions.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.in_drops.values().chain(self.out_drops.values()).sum()
    }

    /// The counters of one kind of port, if it is of that kind.
    #[must_use]
    pub fn of_kind<S: Detail<KindStats>>(&self) -> Option<&S> {
        self.of_kind.as_ref().and_then(S::of)
    }
}

/// Latencies of frames in timed batches, from before they are taken out of their ring until they are delivered or
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Sum of these latencies, in nanoseconds.
    pub sum_ns: u64,
    /// Number of frames by latency, the fastest first. Empty parts are left out.
    pub parts: Vec<LatencyPart>,
}

/// Frames of similar latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyPart {
    /// One of [`Latency::BOUNDS_NS`]: the frames took at most this long, and longer than the previous bound. `None`:
    /// longer than the last bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_ns: Option<u64>,
    /// Frames.
    pub frames: u64,
}

impl Latency {
    /// The bounds of parts, in nanoseconds: 1, 2 and 5 of each power of ten from 500 ns to 1 s.
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

    /// Number of timed frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.parts.iter().map(|part| part.frames).sum()
    }
}

/// Totals of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingStats {
    /// Frames.
    pub frames: u64,
    /// Their bytes, without any virtio-net header.
    pub bytes: u64,
    /// Number of batches.
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
    /// Whether the loop guard is blocking it now.
    pub blocked: bool,
    /// Number of blocks.
    pub loops: u64,
    /// Rules for frames that it sends, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_rules: Vec<RuleStats>,
    /// Rules for frames that it gets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_rules: Vec<RuleStats>,
    /// Frames in flight on the link for its sent frames, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_link: Option<u64>,
    /// Frames in flight on the link for its received frames, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_link: Option<u64>,
}

/// A rule of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// Number of frames that it decided.
    pub frames: u64,
}

/// A worker's use of time since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Number, from 0.
    pub index: u32,
    /// CPU it is pinned to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Nanoseconds spent forwarding.
    pub busy_ns: u64,
    /// Nanoseconds spent polling without finding work.
    pub polled_ns: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
    /// Part of the time asleep during which frames waited for room at a receiver.
    #[serde(default)]
    pub waited_ns: u64,
    /// Part of the time forwarding and polling during which other threads had its CPU.
    #[serde(default)]
    pub preempted_ns: u64,
    /// Number of ingresses it owns.
    pub ingresses: u64,
    /// Number of stalls: parts of its work that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// A region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionStats {
    /// Number; each user has a region of number 1.
    pub id: u32,
    /// Its user.
    pub uid: u32,
    /// Total size in bytes.
    pub bytes: u64,
    /// Number of buffers.
    pub bufs: u32,
}
