//! A gateway's counters, as its control socket reports them ([`GatewayStats`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dns::QueryCounts;

/// The answer to [`ControlRequest::Stats`](super::message::ControlRequest::Stats). Counters begin at 0 with the
/// gateway.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStats {
    /// TCP connections in use.
    pub tcp: u64,
    /// UDP ports in use.
    pub udp: u64,
    /// Ping identifiers in use.
    pub pings: u64,
    /// Questions at name servers.
    pub questions: u64,
    /// Addresses of names that guests have got.
    pub resolved: u64,
    /// DHCP leases that have not expired.
    pub leases: u64,
    /// Flows that were opened.
    pub opened: u64,
    /// Flows that were refused or could not be opened.
    pub refused: u64,
    /// The refused flows by the reason in the record.
    pub reasons: BTreeMap<String, u64>,
    /// Flows that were closed.
    pub closed: u64,
    /// Bytes of payload from guests.
    pub sent: u64,
    /// Bytes of payload to guests.
    pub received: u64,
    /// DNS queries of guests by outcome.
    pub queries: QueryCounts,
    /// Datagrams that guests' limits have not let pass.
    pub dropped: u64,
    /// How often a connection has waited for its guest's rate.
    pub waits: u64,
    /// Frames for guests that were dropped, because the gateway's port had no room.
    pub lost_frames: u64,
}
