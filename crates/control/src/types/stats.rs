//! All counters at one moment.

use serde::{Deserialize, Serialize};

use super::PortKind;

/// Reply of `stats`: the counters that `netvale top` shows, in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// Time of reading the counters: nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// Ports, by name.
    pub ports: Vec<PortStats>,
    /// Workers, by number.
    pub workers: Vec<WorkerStats>,
    /// Number of requests and connections that were refused: the caller's own, or all for root and the daemon's own
    /// user.
    #[serde(default)]
    pub refused: u64,
    /// How often the main thread was held up: it did something that took longer than 100 ms.
    #[serde(default)]
    pub stalls: u64,
}

/// Counters of a port, summed over its rings, since it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Full name, e.g. `vale0:a`.
    pub name: String,
    /// Its switch; none for a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The kind of port.
    pub kind: PortKind,
    /// Frames the port sent into the switch.
    pub in_frames: u64,
    /// Number of their bytes.
    pub in_bytes: u64,
    /// Frames the switch delivered to the port.
    pub out_frames: u64,
    /// Number of their bytes.
    pub out_bytes: u64,
    /// Frames dropped, for any reason, in both directions.
    pub drops: u64,
    /// Kicks the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks the daemon saved because the application did not ask for them.
    pub kicks_suppressed: u64,
    /// Kicks the daemon got from the application.
    pub kicks_received: u64,
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
