//! `e1000-pci:ADDRESS`: a port that drives an e1000 on the PCI bus.

use netvale_control::options::kind;
use netvale_control::types::{Mac, PortKind};
use netvale_e1000::driver::CardDriverOptions;
use netvale_e1000::driver::port::DriverPort;
use netvale_portspec::AttachSpec;

use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use crate::daemon::{Daemon, PortBackend, PortPeers};
use crate::refusal::Refusal;

/// Backend of a port that drives an e1000 on the PCI bus.
struct E1000DriverPort(DriverPort);

impl PortBackend for E1000DriverPort {
    fn kind(&self) -> PortKind {
        PortKind::E1000
    }

    fn peers(&self) -> Option<PortPeers> {
        Some(self.0.state().into())
    }

    fn link(&self) -> Option<bool> {
        let device = self.0.state().now;
        Some(device.running && !device.link_down)
    }

    fn notes(&self) -> Vec<String> {
        let state = self.0.state();
        let card = state.now;
        let now = if card.running {
            let link = if card.link_down { "down" } else { "up" };
            let how = if card.has_block { "a status block" } else { "registers" };
            format!("card {} runs with {how}, link {link}", Mac(card.mac))
        } else {
            "no card".to_owned()
        };
        let last = state.last_error.map(|why| format!("the last card failed: {why}"));
        std::iter::once(now).chain(last).collect()
    }
}

/// Attaches a port that drives the card at a PCI address.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::E1000Pci(address) = asked.spec else { return Err(asked.mistaken()) };
    let usual = CardDriverOptions::default();
    let slots = match asked.options::<kind::E1000Pci>()?.slots() {
        0 => usual.slots,
        slots => slots,
    };
    let (driver, (egress, ingress)) = DriverPort::new(&address.to_string(), CardDriverOptions { slots, ..usual })
        .map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    driver.on_peer(d.on_news());
    plug(d, &asked.at, (vec![egress], vec![ingress]), NewPort::new(E1000DriverPort(driver), asked))
}
