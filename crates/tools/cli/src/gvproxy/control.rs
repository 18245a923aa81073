//! The control socket of the gateway.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use netvale_gateway::control::call::{ControlCallError, GatewayControl};
use netvale_gateway::control::message::ControlRequest;
use netvale_gateway::dns::zones::DnsZone;
use serde::Deserialize;
use serde_json::Value;

/// A lease of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct GatewayLease {
    pub ip: String,
    pub mac: String,
}

#[derive(Deserialize)]
struct LeasesAnswer {
    leases: Vec<GatewayLease>,
}

/// The gateway, which is asked one request at a time, each on a connection of its own.
#[derive(Debug)]
pub(super) struct GvControl {
    path: PathBuf,
    turn: Mutex<()>,
}

impl GvControl {
    /// Names the gateway with this control socket.
    pub(super) fn new(path: PathBuf) -> GvControl {
        GvControl { path, turn: Mutex::new(()) }
    }

    /// Publishes a port.
    pub(super) fn publish(&self, rule: String) -> Result<(), ControlCallError> {
        self.ask(&ControlRequest::Publish { rule }).map(drop)
    }

    /// Ends a published port.
    pub(super) fn unpublish(&self, rule: String) -> Result<(), ControlCallError> {
        self.ask(&ControlRequest::Unpublish { rule }).map(drop)
    }

    /// Returns the leases.
    pub(super) fn leases(&self) -> Result<Vec<GatewayLease>, ControlCallError> {
        let answer = self.ask(&ControlRequest::Leases)?;
        let parsed: Result<LeasesAnswer, _> = serde_json::from_value(answer);
        let broken =
            |why: serde_json::Error| ControlCallError::Broken { path: self.path.clone(), why: why.to_string() };
        parsed.map(|answer| answer.leases).map_err(broken)
    }

    /// Adds a zone of names, or replaces the one of the same name.
    pub(super) fn set_names(&self, zone: DnsZone) -> Result<(), ControlCallError> {
        self.ask(&ControlRequest::SetNames { zone }).map(drop)
    }

    fn ask(&self, request: &ControlRequest) -> Result<Value, ControlCallError> {
        // The gateway has few clients at a time.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        GatewayControl::connect(&self.path)?.ask(request)
    }
}
