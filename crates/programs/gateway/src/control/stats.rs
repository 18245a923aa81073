//! A gateway's counters, as its control socket reports them ([`GatewayStats`]).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::dns::QueryCounts;
use crate::flows::REASONS;

/// The key under which unknown reasons are counted: those of a later release, or invented ones.
const OTHER: &str = "other";

/// The answer to [`ControlRequest::Stats`](super::message::ControlRequest::Stats). Counters start at 0 when the gateway
/// starts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayStats {
    /// TCP connections in use.
    pub tcp: u64,
    /// UDP ports in use.
    pub udp: u64,
    /// Ping identifiers in use.
    pub pings: u64,
    /// DNS questions that wait for a name server's answer.
    pub questions: u64,
    /// Addresses that guests have resolved from names.
    pub resolved: u64,
    /// DHCP leases that have not expired.
    pub leases: u64,
    /// Flows that were opened.
    pub opened: u64,
    /// Flows that were refused or could not be opened.
    pub refused: u64,
    /// The refused flows by the reason in the flow log: one of [`REASONS`], or `other`.
    #[serde(deserialize_with = "reasons")]
    pub reasons: BTreeMap<String, u64>,
    /// Flows that were closed.
    pub closed: u64,
    /// Bytes of payload from guests.
    pub sent: u64,
    /// Bytes of payload to guests.
    pub received: u64,
    /// DNS queries of guests by outcome.
    pub queries: QueryCounts,
    /// Datagrams that were dropped because of guests' limits.
    pub dropped: u64,
    /// How often a connection had to wait because of its guest's rate limit.
    pub waits: u64,
    /// Frames for guests that were dropped, because the gateway's port had no room.
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
