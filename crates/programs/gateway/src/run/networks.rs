//! The networks of private ports, which are added and removed together with their ports.

use std::io;

use super::Gateway;
use crate::guests::NetworkId;
use crate::poller::{WatchMode, WatchedThing};
use crate::ports::{PortChange, PortNames, PortWatch};

impl Gateway {
    /// Makes the gateway follow the changes of the switch's ports: it learns the ports' names, and ends the flows of
    /// removed ports.
    ///
    /// # Errors
    /// The connection cannot be watched.
    pub fn follow_ports(&mut self, watch: PortWatch) -> io::Result<()> {
        self.core.poller.add(&watch, WatchedThing::Ports, WatchMode::Readable)?;
        self.ports = Some(watch);
        Ok(())
    }

    pub(super) fn hear_ports(&mut self) {
        let Some(watch) = &mut self.ports else { return };
        match watch.read() {
            Ok(changes) => changes.into_iter().for_each(|change| self.take_change(change)),
            Err(error) => {
                tracing::warn!("the daemon no longer reports ports ({error}): they have no names until a restart");
                if self.core.rates.rules().name_ports() {
                    tracing::warn!("each private port now has the strictest of the limits with @PORT");
                }
                self.ports = None;
                // A port that is assigned a VLAN after this must not be mistaken for the VLAN's previous port.
                let networks = self.core.flows.ports.networks();
                networks.into_iter().for_each(|network| self.forget(network));
                self.core.flows.ports = PortNames::default();
                self.refresh_rates();
            }
        }
    }

    pub(super) fn take_change(&mut self, change: PortChange) {
        if let Some(network) = change.network {
            // A guest that was restored from a snapshot waits for router advertisements without soliciting them.
            self.core.networks.insert(network);
        }
        // The flows end before the change is applied, so that the flow log can still name their port.
        if let Some(network) = self.core.flows.ports.left_by(&change) {
            self.forget(network);
        }
        self.core.flows.ports.apply(change);
        self.refresh_rates();
    }

    /// Looks up the limits of guests again, by the current names of their ports.
    fn refresh_rates(&mut self) {
        let core = &mut self.core;
        let released = core.rates.refresh(&core.flows.ports, core.now);
        self.tcp.grant(core, released);
    }

    /// Ends the flows of a network that has no port any more, and forgets the network's guests: another port may get
    /// the same VLAN.
    fn forget(&mut self, network: NetworkId) {
        let core = &mut self.core;
        self.tcp.end_network(core, network);
        self.udp.end_network(core, network);
        self.echo.end_network(core, network);
        self.publisher.forget(core, network);
        self.names.forget(core, network);
        core.resolved.forget(network);
        self.reassembly.forget(network);
        core.neighbours.forget(network);
        core.networks.remove(network);
        core.rates.forget(network);
        self.dhcp.iter_mut().for_each(|dhcp| dhcp.forget(network));
        self.dhcp6.iter_mut().for_each(|dhcp6| dhcp6.forget(network));
        self.adverts.iter_mut().for_each(|adverts| adverts.forget(network));
    }
}
