//! Ports that are Intel 82540EM network cards, for any guest's own driver.

use std::path::Path;
use std::sync::atomic::Ordering;

use netvale_control::types::{E1000Info, Mac, PortKind, PortOptions};
use netvale_e1000::device::Card;
use netvale_e1000::driver::Wish;
use netvale_e1000::driver::port::DriverPort;
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::port::{E1000Options, E1000Port};

use crate::devices::{Device, machine_notes};
use crate::refusal::Refusal;
use crate::state::{Caller, NewPort, State};
use crate::vhosts::may_take_devices;

impl State {
    /// Attaches an e1000.
    pub(crate) fn attach_e1000(
        &mut self,
        (switch, port): (&str, &str),
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        self.may_name(Path::new(path), caller)?;
        let mac = o.mac.unwrap_or_else(|| Mac::of_name(b'e', &format!("{switch}:{port}"))).0;
        let card = Card { mac, subsystem: SUBSYSTEM, forced_interval: o.itr };
        let (e1000, (egress, ingress)) = E1000Port::new(&E1000Options { path: path.into(), card })
            .map_err(|e| self.unreached(e.errno(), e.to_string()))?;
        let device = Device { kind: PortKind::E1000, e1000: Some(e1000), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, vec![egress], vec![ingress], new).map(|_| ())
    }

    /// Attaches a driver of an e1000 on the bus.
    pub(crate) fn attach_e1000_pci(
        &mut self,
        (switch, port): (&str, &str),
        address: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        may_take_devices(caller)?;
        let usual = Wish::default();
        let wish = Wish { slots: if o.slots == 0 { usual.slots } else { o.slots }, ..usual };
        let (driver, (egress, ingress)) =
            DriverPort::new(address, wish).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let device = Device { kind: PortKind::E1000, e1000_driver: Some(driver), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, vec![egress], vec![ingress], new).map(|_| ())
    }
}

/// What `netvale vm` goes by.
pub fn info(port: &E1000Port) -> E1000Info {
    let (o, crossings) = (port.options(), port.crossings());
    let [register_reads, register_writes, interrupts] =
        [&crossings.reads, &crossings.writes, &*crossings.interrupts].map(|n| n.load(Ordering::Relaxed));
    E1000Info { path: o.path.display().to_string(), mac: Mac(o.card.mac), register_reads, register_writes, interrupts }
}

/// Sentences for `netvale show`, of a driver.
pub fn driver_notes(port: &DriverPort) -> Vec<String> {
    let state = port.state();
    let card = state.now;
    let now = if card.running {
        let link = if card.link_down { "down" } else { "up" };
        let how = if card.has_block { "a status block" } else { "registers" };
        format!("card {} runs with {how}, link {link}", Mac(card.mac))
    } else {
        "no card".to_owned()
    };
    let last = state.last_error.map(|why| format!("the last one was given up: {why}"));
    std::iter::once(now).chain(last).collect()
}

/// Sentences for `netvale show`.
pub fn notes(port: &E1000Port) -> Vec<String> {
    let state = port.state();
    let link = if port.is_linked() { "up" } else { "down" };
    let i = info(port);
    let crossings = format!(
        "registers read {} times and written {} times, {} interrupts",
        i.register_reads, i.register_writes, i.interrupts
    );
    let now = state.connected.then(|| format!("link {link}; {crossings}"));
    machine_notes(now, state.connections, state.last_error)
}
