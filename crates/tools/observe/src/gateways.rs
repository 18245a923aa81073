//! The gateways whose control sockets are in the run directory: each is asked for its counters and its flows, within a
//! limit of time for all together, so that one which hangs delays nobody for longer.

use std::path::PathBuf;
use std::time::Duration;

use netvale_gateway::control::message::ControlRequest;
use netvale_gateway::control::stats::GatewayStats;
use netvale_gateway::control::survey;
use serde_json::{Value, json};

/// How long all gateways together have to answer.
pub const LIMIT: Duration = Duration::from_millis(250);

/// A gateway and its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedGateway {
    /// Name of the gateway's port: `vale0:gateway`.
    pub port: String,
    /// The counters; `None` if the gateway has not answered in time.
    pub stats: Option<GatewayStats>,
}

impl ObservedGateway {
    /// Returns the name of the gateway's switch.
    #[must_use]
    pub fn switch(&self) -> &str {
        self.port.split(':').next().unwrap_or_default()
    }
}

/// Maximum number of open flows that are listed for each gateway.
const LISTED: usize = 200;

/// Returns each gateway with a control socket in one of some directories, with open flows: `{"port":…,"flows":[…],
/// "more":N}`, or only `port` if it has not answered in time.
#[must_use]
pub fn flows(folders: &[PathBuf]) -> Vec<Value> {
    let answers = survey::survey(folders, &ControlRequest::Flows { most: Some(LISTED) }, LIMIT);
    let listed = |one: survey::SurveyedGateway| match one.answer {
        Some(answer) => json!({"port": one.port, "flows": answer.get("flows"), "more": answer.get("more")}),
        None => json!({"port": one.port}),
    };
    answers.into_iter().map(listed).collect()
}

/// Returns the counters of all gateways with a control socket in one of some directories.
#[must_use]
pub fn observe(folders: &[PathBuf]) -> Vec<ObservedGateway> {
    let answers = survey::survey(folders, &ControlRequest::Stats, LIMIT);
    let observed = |one: survey::SurveyedGateway| ObservedGateway {
        port: one.port,
        stats: one.answer.and_then(|answer| serde_json::from_value(answer).ok()),
    };
    answers.into_iter().map(observed).collect()
}
