//! `null:[NAME]`: a port that discards and counts every frame, to measure the forwarding path up to the port.

use std::sync::Arc;

use netvale_control::types::PortKind;
use netvale_fdio::state::State;
use netvale_port::null::NullEgress;

use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::ParkedPort;
use crate::refusal::Refusal;

/// Backend of a null port.
struct NullPort;

impl PortBackend for NullPort {
    fn kind(&self) -> PortKind {
        PortKind::Null
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        Ok(Some(State::of(&())?.into()))
    }
}

/// Attaches a null port, which has one egress and no ingress.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let queues = (vec![Arc::new(NullEgress::default()) as _], Vec::new());
    plug(d, &asked.at, queues, NewPort::new(NullPort, asked))
}
