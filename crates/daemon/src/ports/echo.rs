//! `echo:[NAME]`: sends every frame back with source and destination address swapped, for tests and round trips.

use netvale_control::options::kind;
use netvale_control::types::PortKind;
use netvale_port::echo::{EchoError, echo};

use super::kind::Asked;
use super::plug::{NewPort, plug};
use crate::daemon::{Attached, Daemon};
use crate::refusal::Refusal;
use crate::rings::sizes::DEFAULT_SLOTS;

/// The ring behind an echo port, which leads back to the switch.
struct EchoPort {
    slots: u32,
}

impl Attached for EchoPort {
    fn kind(&self) -> PortKind {
        PortKind::Echo
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("frames on their way back wait in a ring of {} slots", self.slots)]
    }
}

/// Attaches an echo port, with a ring of the requested number of slots.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let slots = match asked.options::<kind::Echo>()?.slots() {
        0 => DEFAULT_SLOTS,
        slots => slots,
    };
    let (egress, ingress) = echo(slots).map_err(refusal)?;
    let queues = (vec![egress as _], vec![Box::new(ingress) as _]);
    plug(d, &asked.at, queues, NewPort::new(EchoPort { slots }, asked))
}

fn refusal(e: EchoError) -> Refusal {
    match e {
        EchoError::Region(e) => e.into(),
        EchoError::Doorbell(e) => e.into(),
    }
}
