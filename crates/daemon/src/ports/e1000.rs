//! `e1000:/PATH`: an Intel 82540EM network card, for a guest's own driver.

use std::sync::atomic::Ordering;

use netvale_control::options::kind;
use netvale_control::types::{E1000Info, Mac, PortInfo, PortKind};
use netvale_e1000::device::Card;
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::port::{E1000Options, E1000Port, PortState, Queues};
use netvale_port::service::AskedToPause;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::handed::domain_of_site;
use super::kind::Asked;
use super::notes::machine_notes;
use super::plug::{NewPort, plug};
use super::site::site;
use crate::daemon::{Attached, Daemon, Peers};
use crate::handover::items::{State, from_said};
use crate::permission::unreached;
use crate::refusal::{Refusal, refuse};

/// A card behind a port.
struct CardPort(E1000Port);

impl Attached for CardPort {
    fn kind(&self) -> PortKind {
        PortKind::E1000
    }

    fn describe(&self, port: &mut PortInfo) {
        port.e1000 = Some(info(&self.0));
    }

    fn peers(&self) -> Option<Peers> {
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

    fn hand_over(&self) -> std::io::Result<Option<State>> {
        let (state, fds, paused) = self.0.hand_over()?;
        Ok(Some(State::of(state, fds)?.pausing(paused)))
    }

    fn keeps(&self) -> std::io::Result<Option<State>> {
        let Some((state, fds)) = self.0.kept()? else { return Ok(None) };
        State::of(state, fds).map(Some)
    }

    fn is_stored(&self) {
        self.0.is_stored();
    }

    /// Each register access counts as a kick received, each interrupt as a kick sent.
    fn kicks(&self) -> Option<(u64, u64)> {
        let i = info(&self.0);
        Some((i.interrupts, i.register_reads + i.register_writes))
    }
}

/// Attaches a card.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::E1000(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::E1000>()?;
    let mac = o.mac().unwrap_or_else(|| Mac::of_name(b'e', &asked.at.full())).0;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let domain = domain_of_site(d, asked.caller, &site);
    let card = Card { mac, subsystem: SUBSYSTEM, forced_interval: o.itr() };
    let options = E1000Options { site, card, news: d.news_if_kept() };
    let (e1000, (egress, ingress)) = match asked.continued() {
        Some(state) => go_on(d, &options, state)?,
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

/// Continues a card of another process.
fn go_on(d: &mut Daemon, options: &E1000Options, state: State) -> Result<(E1000Port, Queues), Refusal> {
    let said: PortState = from_said(state.said)?;
    let (port, queues, paused) =
        E1000Port::continued(options, said, state.fds).or_else(|why| refuse(Errno::INVAL, why))?;
    d.held.push(Box::new(paused));
    Ok((port, queues))
}

/// The details that `netvale vm` reads.
fn info(port: &E1000Port) -> E1000Info {
    let (o, crossings) = (port.options(), port.crossings());
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
