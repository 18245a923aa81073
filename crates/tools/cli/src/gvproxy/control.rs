//! The control socket of the gateway.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use netvale_gateway::control::call::{ControlCallError, GatewayControl};
use netvale_gateway::control::message::ControlRequest;
use serde::Deserialize;
use serde_json::Value;

/// A guest's addresses, as the gateway has leased them by DHCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct GatewayLease {
    pub ip: String,
    pub mac: String,
}

#[derive(Deserialize)]
struct LeasesAnswer {
    leases: Vec<GatewayLease>,
}

/// A client of the gateway. It sends one request at a time, and uses a new connection for each.
#[derive(Debug)]
pub(super) struct GvControl {
    path: PathBuf,
    turn: Mutex<()>,
}

impl GvControl {
    /// Creates a client for the gateway's control socket at `path`, without connecting yet.
    pub(super) fn new(path: PathBuf) -> GvControl {
        GvControl { path, turn: Mutex::new(()) }
    }

    /// Returns the guests' DHCP leases.
    pub(super) fn leases(&self) -> Result<Vec<GatewayLease>, ControlCallError> {
        let answer = self.ask(&ControlRequest::Leases)?;
        let parsed: Result<LeasesAnswer, _> = serde_json::from_value(answer);
        let broken =
            |why: serde_json::Error| ControlCallError::Broken { path: self.path.clone(), why: why.to_string() };
        parsed.map(|answer| answer.leases).map_err(broken)
    }

    /// Sends a request, and returns the answer.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) fn ask(&self, request: &ControlRequest) -> Result<Value, ControlCallError> {
        // Requests are sent one at a time, because the gateway accepts few control connections.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        GatewayControl::connect(&self.path)?.ask(request)
    }
}
