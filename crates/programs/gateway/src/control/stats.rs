//! A gateway's counters, as its control socket reports them ([`GatewayStats`]).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::dns::QueryCounts;
use crate::flows::REASONS;

/// The key under which unknown reasons are counted. A gateway of a later release, or a malicious gateway, may report
/// unknown reasons.
const OTHER: &str = "other";

/// The answer to [`ControlRequest::Stats`](super::message::ControlRequest::Stats). Counters start at 0 when the gateway
/// starts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStats {
    /// Number of open TCP connections.
    pub tcp: u64,
    /// Number of UDP ports in use.
    pub udp: u64,
    /// Number of ping identifiers in use.
    pub pings: u64,
    /// Number of DNS questions that wait for a name server's answer.
    pub questions: u64,
    /// Number of addresses that guests have resolved from names.
    pub resolved: u64,
    /// Number of DHCP leases that have not expired.
    pub leases: u64,
    /// Number of flows that were opened.
    pub opened: u64,
    /// Number of flows that were refused or could not be opened.
    pub refused: u64,
    /// The refused flows by the reason in the flow log: one of [`REASONS`], or `other`.
    #[serde(deserialize_with = "reasons")]
    pub reasons: BTreeMap<String, u64>,
    /// Number of flows that were closed.
    pub closed: u64,
    /// Number of payload bytes from guests.
    pub sent: u64,
    /// Number of payload bytes to guests.
    pub received: u64,
    /// Numbers of guests' DNS queries by outcome.
    pub queries: QueryCounts,
    /// Number of datagrams that were dropped because of guests' limits.
    pub dropped: u64,
    /// Number of times that a connection had to wait because of its guest's rate limit.
    pub waits: u64,
    /// Number of frames for guests that were dropped because the gateway's port had no room.
    pub lost_frames: u64,
}

/// Reads the counts of refused flows by reason. Unknown reasons share one entry, so that the map cannot grow without
/// limit.
fn reasons<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    struct ReasonsVisitor;
    impl<'de> Visitor<'de> for ReasonsVisitor {
        type Value = BTreeMap<String, u64>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("numbers of flows by reason")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut reasons = BTreeMap::<String, u64>::new();
            while let Some((reason, count)) = map.next_entry::<String, u64>()? {
                let known = REASONS.into_iter().find(|known| *known == reason).unwrap_or(OTHER);
                let sum = reasons.entry(known.to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
            Ok(reasons)
        }
    }
    deserializer.deserialize_map(ReasonsVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_reasons_are_counted_together() {
        let mut sent = json!({"reasons": {"policy": 5, "x\u{1b}": u64::MAX, "other": 2}, "tcp": 3, "later": [1]});
        let stats: GatewayStats = serde_json::from_value(sent.clone()).unwrap();
        let reasons = [("other".to_owned(), u64::MAX), ("policy".to_owned(), 5)];
        assert_eq!((stats.reasons, stats.tcp), (BTreeMap::from(reasons), 3));
        for wrong in [json!(null), json!([]), json!({"policy": -1}), json!({"policy": {}})] {
            sent["reasons"] = wrong;
            assert!(serde_json::from_value::<GatewayStats>(sent.clone()).is_err(), "{sent}");
        }
    }
}
