//! All counters at one moment.

use serde::{Deserialize, Serialize};

use super::PortKind;

/// Reply of `stats`: what `netvale top` shows, in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// When the counters were read: nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// Ports, by name.
    pub ports: Vec<PortStats>,
    /// Workers, by index.
    pub workers: Vec<WorkerStats>,
}

/// Counters of a port, summed over its rings, since it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Full name, e.g. `vale0:a`.
    pub name: String,
    /// Its switch; a pipe has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// What it is.
    pub kind: PortKind,
    /// Frames the port sent into the switch.
    pub in_frames: u64,
    /// Bytes of those.
    pub in_bytes: u64,
    /// Frames the switch delivered to the port.
    pub out_frames: u64,
    /// Bytes of those.
    pub out_bytes: u64,
    /// Frames dropped, for whatever reason, in both directions.
    pub drops: u64,
    /// Kicks the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks the daemon saved because the application did not ask for them.
    pub kicks_suppressed: u64,
    /// Kicks the daemon got from the application.
    pub kicks_received: u64,
}

/// What a worker did with its time since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Number, from 0.
    pub index: u32,
    /// CPU it is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Nanoseconds forwarding.
    pub busy_ns: u64,
    /// Nanoseconds looking without finding.
    pub polled_ns: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
    /// Ingresses it owns.
    pub ingresses: u64,
}
