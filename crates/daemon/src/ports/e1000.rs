//! `e1000:/PATH`: a port that emulates an Intel 82540EM network card, which a guest drives with its own driver.

use std::sync::atomic::Ordering;

use netvale_control::options::kind;
use netvale_control::types::{E1000Info, Mac, PortInfo, PortKind};
use netvale_e1000::device::Card;
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::port::{E1000Options, E1000Port};
use netvale_fdio::state::State;
use netvale_port::service::AskedToPause;
use netvale_portspec::AttachSpec;

use super::handed::domain_of_site;
use super::kind::AdmittedRequest;
use super::notes::machine_notes;
use super::plug::{NewPort, plug};
use super::site::site;
use crate::daemon::{Daemon, PortBackend, PortPeers};
use crate::handover::items::ParkedPort;
use crate::permission::unreached;
use crate::refusal::Refusal;

/// Backend of a port that emulates a network card.
struct CardPort(E1000Port);

impl PortBackend for CardPort {
    fn kind(&self) -> PortKind {
        PortKind::E1000
    }

    fn describe(&self, port: &mut PortInfo) {
        port.detail = Some(info(&self.0).into());
    }

    fn peers(&self) -> Option<PortPeers> {
        Some(self.0.state().into())
    }

    fn link(&self) -> Option<bool> {
        self.0.is_linked_now()
    }

    fn notes(&self) -> Vec<String> {
        let state = self.0.state();
        let link = if self.0.is_linked() { "up" } else { "down" };
        let i = info(&self.0);
        let crossings = format!(
            "registers read {} times and written {} times, {} interrupts",
            i.register_reads, i.register_writes, i.interrupts
        );
        let now = state.connected.then(|| format!("link {link}; {crossings}"));
        machine_notes(now, state.connections, state.last_error)
    }

    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        vec![self.0.ask_to_pause()]
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(Some(State::of(&self.0.save())?))
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let (state, paused) = self.0.save_parked()?;
        ParkedPort::of(&state, [paused]).map(Some)
    }

    /// Counts interrupts as kicks sent, and register accesses as kicks received.
    fn kicks(&self) -> Option<(u64, u64)> {
        let i = info(&self.0);
        Some((i.interrupts, i.register_reads + i.register_writes))
    }
}

/// Attaches a port that emulates a network card, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::E1000(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::E1000>()?;
    let mac = o.mac().unwrap_or_else(|| Mac::of_name(b'e', &asked.at.full())).0;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let domain = domain_of_site(d, asked.caller, &site);
    let card = Card { mac, subsystem: SUBSYSTEM, forced_interval: o.itr() };
    let options = E1000Options { site, card };
    let (e1000, (egress, ingress)) = match asked.continued() {
        Some(state) => {
            let (port, queues, paused) = E1000Port::restore(&options, state.read()?)?;
            d.held.push(Box::new(paused));
            (port, queues)
        }
        None => E1000Port::new(&options).map_err(|e| unreached(&d.config, e.errno(), e.to_string()))?,
    };
    e1000.on_peer(d.on_news());
    plug(
        d,
        &asked.at,
        (vec![egress], vec![ingress]),
        NewPort::new(CardPort(e1000), asked).in_domain(domain).with_gro(o.gro()),
    )
}

/// Returns details of the card for `netvale vm`.
fn info(port: &E1000Port) -> E1000Info {
    let o = port.options();
    let crossings = port.crossings();
    let [register_reads, register_writes, interrupts] =
        [&crossings.reads, &crossings.writes, &*crossings.interrupts].map(|n| n.load(Ordering::Relaxed));
    E1000Info {
        path: o.site.path().display().to_string(),
        mac: Mac(o.card.mac),
        register_reads,
        register_writes,
        interrupts,
    }
}
