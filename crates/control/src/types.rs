//! The parameters (`…Params`) and results of the control protocol's methods.
//!
//! Directions are the switch's: *in* is what a port sends into the switch, *out* is what the switch delivers to it.
//! Counters are cumulative since the port was attached (a worker's: since it started); the reader computes rates.
//! Unknown fields in parameters are refused; readers skip unknown fields in replies.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

mod check;
mod config;
mod events;
mod port;
mod stats;
mod trace;

pub use crate::kinds::*;
pub use crate::mac::{BadMac, Mac};
pub use crate::options::{Misfit, Policies, PortOptions};
pub use config::{Action, Applied, ApplyParams, Change, Exported};
pub use events::{Event, EventName, NOTIFICATION, SubscribeParams, Subscribed};
pub use port::{
    AttachParams, DetachParams, Direction, Evicted, ListParams, Owner, PortInfo, PortKind, PortState, RegionInfo,
    RingInfo, RuleInfo, SetParams, ShowParams,
};
pub use stats::{
    AllStats, AllStatsParams, Latency, LatencyPart, MulticastStats, PolicyStats, PortDetails, RegionStats, RingStats,
    RuleStats, SwitchStats, WorkerStats,
};
pub use trace::{TraceBeginParams, TraceBegun, TraceRead, TraceStep, TracedFrame, TracedRule};

/// Drops by reason: the name as `netvale show` prints it (`no-room`, `bad-buffer`, …), and the number of frames.
pub type Drops = BTreeMap<String, u64>;

/// Name and version of the program that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// `netvale`.
    pub name: String,
    /// Release, e.g. `0.1.0`.
    pub version: String,
    /// netmap's API version (`NETMAP_API`), 14.
    pub api: u32,
    /// The daemon's process, as it is numbered where the daemon runs. Daemons older than this do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl Version {
    /// The version of this release, and this process.
    pub fn current() -> Self {
        Version {
            name: "netvale".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            api: netvale_abi::NETMAP_API,
            pid: Some(std::process::id()),
        }
    }
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchInfo {
    /// Name, e.g. `vale0`.
    pub name: String,
    /// Number of ports on it, without monitors.
    pub ports: u32,
    /// Number of addresses in its forwarding table.
    pub addresses: u64,
    /// Number of addresses that the table has room for.
    pub table_size: u64,
    /// Number of frames whose source was not learned: it is another user's address, or one more than their user may
    /// have.
    #[serde(default)]
    pub refused_addresses: u64,
}

/// Parameters of `switch.table` and `switch.groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableParams {
    /// Name of the switch, e.g. `vale0`.
    pub switch: String,
}

/// An entry of a switch's forwarding table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// Ethernet address.
    pub mac: Mac,
    /// Its VLAN, on a switch that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Full name of the port it was learned on, e.g. `vale0:a`.
    pub port: String,
    /// Seconds since a frame from it was last seen, in steps of the table's ageing.
    pub age_seconds: u64,
    /// Behind a tunnel: the other host's endpoint, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vtep: Option<IpAddr>,
    /// Behind a tunnel: whether a control plane has said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
    /// How often it has moved, as its control plane counts, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
}

/// What a switch knows of multicast groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsInfo {
    /// Whether it snoops at all.
    pub snooping: bool,
    /// Ports that want groups.
    pub groups: Vec<GroupEntry>,
    /// Who queries and where routers are, by VLAN and family.
    pub domains: Vec<MulticastDomain>,
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

/// A port that wants a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// The group.
    pub group: IpAddr,
    /// Its VLAN, on a switch that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Full name of the port.
    pub port: String,
    /// Seconds until it is forgotten unless it is reported again.
    pub expires_seconds: u64,
}

/// Multicast of one family in one VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastDomain {
    /// The VLAN, on a switch that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Whether groups are kept apart; they are not as long as nobody queries.
    pub active: bool,
    /// Who queries, if it is not this switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub querier: Option<IpAddr>,
    /// Whether this switch queries.
    pub queries: bool,
    /// Full names of ports behind which routers are.
    pub routers: Vec<String>,
}

/// Parameters of the methods that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// The reply of methods that only confirm success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
