//! The parameters (`…Params`) and results of the control protocol's methods.
//!
//! Directions are the switch's: *in* is from a port into the switch, *out* is from the switch to the port. A port's
//! counters are cumulative since the port was attached, a worker's counters since the worker started; the reader
//! computes rates. The daemon refuses unknown fields in parameters; clients skip unknown fields in replies.

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
pub use config::{ApplyParams, ApplyResult, ConfigAction, ConfigChange, ExportReply};
pub use events::{Event, EventName, NOTIFICATION, SubscribeParams, SubscribeReply};
pub use port::{
    AttachParams, DetachParams, Direction, EvictionInfo, ListParams, Owner, PortInfo, PortKind, PortState, RegionInfo,
    RingInfo, RuleInfo, SetParams, ShowParams,
};
pub use stats::{
    AllStats, AllStatsParams, Latency, LatencyPart, MulticastStats, PolicyStats, PortDetails, RegionStats, RingStats,
    RuleStats, SwitchStats, WorkerStats,
};
pub use trace::{TraceBeginParams, TraceBeginReply, TraceRead, TraceStep, TracedFrame, TracedRule};

/// Drops by reason: the name as `netvale show` prints it (`no-room`, `bad-buffer`, …), and the number of frames.
pub type Drops = BTreeMap<String, u64>;

/// Name and version of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Name of the program: `netvale`.
    pub name: String,
    /// Release, e.g. `0.1.0`.
    pub version: String,
    /// netmap's API version (`NETMAP_API`), 14.
    pub api: u32,
    /// The daemon's process ID in its own PID namespace. `None` from a daemon that is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl Version {
    /// Returns the version of this release, with this process's ID.
    pub fn current() -> Self {
        Version {
            name: "netvale".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            api: netvale_abi::NETMAP_API,
            pid: Some(std::process::id()),
        }
    }
}

/// Name, size and counters of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchInfo {
    /// Name, e.g. `vale0`.
    pub name: String,
    /// Number of the switch's ports, without monitors.
    pub ports: u32,
    /// Number of addresses in the switch's forwarding table.
    pub addresses: u64,
    /// Capacity of the table, in addresses.
    pub table_size: u64,
    /// Number of frames whose source was not learned, because the address belongs to another user, or the user of the
    /// sending port has reached the limit of addresses.
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
    /// VLAN of the address; `None` on a switch without VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Full name of the port on which the address was learned, e.g. `vale0:a`.
    pub port: String,
    /// Seconds since the last frame from this address, in steps of the interval at which the table ages entries.
    pub age_seconds: u64,
    /// For an address behind a tunnel: the remote endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vtep: Option<IpAddr>,
    /// For an address behind a tunnel: whether a control plane provided the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
    /// Number of the address's moves, as counted by the control plane, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
}

/// A switch's multicast groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsInfo {
    /// Whether the switch snoops IGMP and MLD messages.
    pub snooping: bool,
    /// Member ports of groups.
    pub groups: Vec<GroupEntry>,
    /// Queriers and routers, by VLAN and family.
    pub domains: Vec<MulticastDomain>,
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

/// A member port of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// Address of the group.
    pub group: IpAddr,
    /// VLAN of the group; `None` on a switch without VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Full name of the member port.
    pub port: String,
    /// Seconds until the membership expires, unless another report renews it.
    pub expires_seconds: u64,
}

/// Multicast state of one address family in one VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastDomain {
    /// The VLAN; `None` on a switch without VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Whether multicast frames are forwarded to group members only; false without a querier, when multicast frames are
    /// flooded.
    pub active: bool,
    /// Address of the querier; `None` if there is no querier, or if this switch is the querier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub querier: Option<IpAddr>,
    /// Whether this switch is the querier.
    pub queries: bool,
    /// Full names of ports with routers behind them.
    pub routers: Vec<String>,
}

/// The parameters of methods without parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// The reply of methods that only confirm success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {}
