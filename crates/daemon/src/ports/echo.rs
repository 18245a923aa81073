//! `echo:[NAME]`: a port that returns every frame with its source and destination addresses swapped, for tests and
//! round-trip measurements.

use std::sync::Arc;

use netvale_control::options::kind;
use netvale_control::types::PortKind;
use netvale_fdio::state::{Fd, State};
use netvale_mem::Region;
use netvale_port::echo::{EchoError, echo, restore};
use serde::{Deserialize, Serialize};

use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::ParkedPort;
use crate::refusal::Refusal;
use crate::rings::sizes::DEFAULT_SLOTS;

/// Backend of an echo port: a ring whose frames return to the switch.
struct EchoPort {
    slots: u32,
    region: Arc<Region>,
}

/// The state from which a successor restores the port.
#[derive(Serialize, Deserialize)]
struct EchoState {
    slots: u32,
    /// Memory of the ring.
    memory: Vec<Fd>,
}

impl PortBackend for EchoPort {
    fn kind(&self) -> PortKind {
        PortKind::Echo
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("frames on their way back wait in a ring of {} slots", self.slots)]
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let state = EchoState { slots: self.slots, memory: self.region.save()?.memory };
        Ok(Some(State::of(&state)?.into()))
    }
}

/// Attaches or restores an echo port. The switch takes the frames that it has delivered to the port's ring from the
/// same ring again.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let (slots, ends) = match asked.continued() {
        Some(state) => {
            let EchoState { slots, memory } = state.read()?;
            (slots, restore(slots, memory))
        }
        None => {
            let asked = asked.options::<kind::Echo>()?.slots();
            let slots = if asked == 0 { DEFAULT_SLOTS } else { asked };
            (slots, echo(slots))
        }
    };
    let (egress, ingress) = ends.map_err(refusal)?;
    let region = ingress.region();
    let queues = (vec![egress as _], vec![Box::new(ingress) as _]);
    plug(d, &asked.at, queues, NewPort::new(EchoPort { slots, region }, asked))
}

fn refusal(e: EchoError) -> Refusal {
    match e {
        EchoError::Region(e) => e.into(),
        EchoError::Doorbell(e) => e.into(),
    }
}
