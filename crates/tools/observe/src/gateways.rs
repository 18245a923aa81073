//! A client of the gateways whose control sockets are in the run directory: it requests their counters and open flows.
//! Limits on time and size apply to all gateways together, even if a gateway hangs or sends endless data.

use std::path::PathBuf;
use std::time::Duration;

use netvale_gateway::control::listed::{FlowList, MAX_LISTED};
use netvale_gateway::control::message::ControlRequest;
use netvale_gateway::control::stats::GatewayStats;
use netvale_gateway::control::survey::{self, SurveyLimits};
use serde::Serialize;

/// Maximum time to wait for the answers of all gateways together.
pub const LIMIT: Duration = Duration::from_millis(250);
/// Limits for answers with counters. Such an answer has about 600 bytes.
const OF_STATS: SurveyLimits = SurveyLimits { time: LIMIT, answer: 64 << 10, all: 1 << 20 };
/// Limits for answers with flows. An answer with 200 flows that have the longest names has about 110 KiB.
const OF_FLOWS: SurveyLimits = SurveyLimits { time: LIMIT, answer: 256 << 10, all: 8 << 20 };

/// A gateway and its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedGateway {
    /// Full name of the gateway's port, such as `vale0:gateway`.
    pub port: String,
    /// The counters; `None` if the gateway has not answered within the limits.
    pub stats: Option<GatewayStats>,
}

impl ObservedGateway {
    /// Returns the name of the gateway's switch.
    #[must_use]
    pub fn switch(&self) -> &str {
        self.port.split(':').next().unwrap_or_default()
    }
}

/// A gateway and its open flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayFlows {
    /// Full name of the gateway's port.
    pub port: String,
    /// The list, which is serialized as the keys `flows` and `more`. `None` if the gateway has not answered within the
    /// limits; these keys are then omitted.
    #[serde(flatten)]
    pub list: Option<FlowList>,
}

/// Returns each gateway with a control socket in one of the `folders`, with its open flows.
#[must_use]
pub fn flows(folders: &[PathBuf]) -> Vec<GatewayFlows> {
    let answers = survey::survey(folders, &ControlRequest::Flows { most: Some(MAX_LISTED) }, &OF_FLOWS);
    answers.into_iter().map(|one| GatewayFlows { port: one.port, list: one.answer }).collect()
}

/// Returns each gateway with a control socket in one of the `folders`, with its counters.
#[must_use]
pub fn observe(folders: &[PathBuf]) -> Vec<ObservedGateway> {
    let answers = survey::survey(folders, &ControlRequest::Stats, &OF_STATS);
    answers.into_iter().map(|one| ObservedGateway { port: one.port, stats: one.answer }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use serde_json::{Value, json};

    use super::*;

    /// Objective: a gateway cannot make the reader store more than it requested: unknown fields are dropped, unknown
    /// reasons are merged into one, and an answer that is too long or of another type is discarded.
    #[test]
    fn counters_are_kept_only_as_far_as_they_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let reasons = |count: usize| -> BTreeMap<_, _> { (0..count).map(|at| (format!("reason-{at}"), 1)).collect() };
        let sent: [(&str, Value); 4] = [
            ("vale0:a", json!({"reasons": reasons(2000), "later": vec![json!({}); 4000], "tcp": 3})),
            ("vale0:b", json!({"reasons": reasons(20_000)})),
            ("vale0:c", json!({"tcp": -1})),
            ("vale0:d", json!("later".repeat(1 << 20))),
        ];
        let gateways = sent.map(|(port, stats)| {
            let listener = UnixListener::bind(folder.path().join(format!("gateway-{port}.sock"))).unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 64]).unwrap();
                // The write may fail, since the reader stops reading at its limit.
                let _ = writeln!(stream, "{}", json!({"ok": stats}));
            })
        });
        let observed = observe(&[folder.path().to_owned()]);
        let known = GatewayStats { tcp: 3, reasons: [("other".to_owned(), 2000)].into(), ..GatewayStats::default() };
        let kept: Vec<_> = observed.into_iter().map(|one| one.stats).collect();
        assert_eq!(kept, [Some(known), None, None, None]);
        gateways.into_iter().for_each(|gateway| gateway.join().unwrap());
    }
}
