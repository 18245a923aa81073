//! All counters at one moment: what `netvale top` shows, and what metrics are made of.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use super::{Drops, PortKind, PortState, SwitchInfo};
use crate::kinds::{Detail, KindStats};

/// Parameters of `stats.all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllStatsParams {
    /// Only ports whose names come after this one, and nothing but ports: [`AllStats::next`] of the answer before.
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
    /// Regions that are in use.
    #[serde(default)]
    pub regions: Vec<RegionStats>,
    /// Number of requests and connections that were refused: the caller's own, or all for root and the daemon's own
    /// user.
    #[serde(default)]
    pub refused: u64,
    /// Number of programs that lost their port; 0 for callers other than root and the daemon's own user.
    #[serde(default)]
    pub evicted: u64,
    /// How often the main thread was held up: it did something that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStats {
    /// What `switch.list` says of it.
    #[serde(flatten)]
    pub info: SwitchInfo,
    /// If it snoops: what it has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastStats>,
}

/// Messages about multicast groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastStats {
    /// Ports that want a group, counted for each group.
    pub memberships: u64,
    /// Messages that join or leave groups.
    pub reports: u64,
    /// Queries of others.
    pub queries: u64,
    /// Joins beyond the limits.
    pub refused_joins: u64,
    /// Messages that cannot be read.
    pub malformed: u64,
    /// Messages that came while too many waited.
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
    /// Number of the region that its rings lie in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u32>,
    /// Its rings into the switch.
    #[serde(rename = "in")]
    pub ingress: Vec<RingStats>,
    /// Its rings out of the switch.
    #[serde(rename = "out")]
    pub egress: Vec<RingStats>,
    /// Frames that it sent and that were dropped, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub in_drops: Drops,
    /// Frames for it that were dropped, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub out_drops: Drops,
    /// Frames that came for it while nobody received, which are no drops.
    #[serde(default)]
    pub idle: u64,
    /// Kicks the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks the daemon saved because the application did not ask for them.
    pub kicks_suppressed: u64,
    /// Kicks the daemon got from the application.
    pub kicks_received: u64,
    /// What its policies have counted, besides drops; none if it has no policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PolicyStats>,
    /// What ports of its kind alone have counted.
    #[serde(flatten)]
    pub of_kind: Option<KindStats>,
    /// How long frames took that it sent, if some were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl PortDetails {
    /// What passed all its rings into the switch.
    #[must_use]
    pub fn sent(&self) -> RingStats {
        self.ingress.iter().sum()
    }

    /// What passed all its rings out of the switch.
    #[must_use]
    pub fn got(&self) -> RingStats {
        self.egress.iter().sum()
    }

    /// Frames that were dropped, for any reason, in both directions.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.in_drops.values().chain(self.out_drops.values()).sum()
    }

    /// What ports of one kind alone have counted, if it is of that kind.
    #[must_use]
    pub fn of_kind<S: Detail<KindStats>>(&self) -> Option<&S> {
        self.of_kind.as_ref().and_then(S::of)
    }
}

/// How long frames took, from before they were taken out of their ring until they were delivered or dropped: of batches
/// that were timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Nanoseconds that all these frames took together.
    pub sum_ns: u64,
    /// How many took how long, the fastest first. Parts without a frame are left out.
    pub parts: Vec<LatencyPart>,
}

/// Frames that took about as long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyPart {
    /// One of [`Latency::BOUNDS_NS`]: the frames took that long or less, and longer than the bound before. None: longer
    /// than the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_ns: Option<u64>,
    /// Frames.
    pub frames: u64,
}

impl Latency {
    /// The bounds of parts, in nanoseconds: 1, 2 and 5 of each power of ten from 500 ns to 1 s.
    pub const BOUNDS_NS: [u64; 20] = {
        let mut bounds = [500; 20];
        let (mut i, mut ten) = (1, 1_000);
        while i < bounds.len() {
            bounds[i] = ten * [5, 1, 2][i % 3];
            if i % 3 == 0 {
                ten *= 10;
            }
            i += 1;
        }
        bounds
    };

    /// Frames that were timed.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.parts.iter().map(|part| part.frames).sum()
    }
}

/// What passed a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingStats {
    /// Frames.
    pub frames: u64,
    /// Their bytes, without any virtio-net header.
    pub bytes: u64,
    /// Batches in which they passed.
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

/// What a port's policies have counted, besides drops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStats {
    /// Whether the loop guard blocks it now.
    pub blocked: bool,
    /// How often it did.
    pub loops: u64,
    /// Rules for what it sends, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_rules: Vec<RuleStats>,
    /// Rules for what it gets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_rules: Vec<RuleStats>,
    /// Frames under way on the link on which it sends, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_link: Option<u64>,
    /// Frames under way on the link on which it gets frames, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_link: Option<u64>,
}

/// A rule of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    /// Whether frames that fit are dropped.
    pub drops: bool,
    /// Number of frames that it decided about.
    pub frames: u64,
}

/// How a worker spent its time since it started.
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
    /// How often it was held up: a part of its work took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// A region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionStats {
    /// Number; each user has one of number 1.
    pub id: u32,
    /// User that it belongs to.
    pub uid: u32,
    /// Total size in bytes.
    pub bytes: u64,
    /// Number of buffers.
    pub bufs: u32,
}
