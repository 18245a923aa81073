//! The *touched* objects: objects whose items in the service manager's store may be outdated.

use std::collections::BTreeSet;

use super::items::{
    CAPTURES, COUNTERS, INTERFACE, OPEN_INTERFACE, client_key, pipe_key, port_key, region_key, switch_key,
};

/// The touched objects: those that changed since the last save.
#[derive(Debug, Default)]
pub struct TouchedItems {
    /// Whether all objects count as touched, not only the objects in the other fields.
    pub everything: bool,
    /// Numbers of connections.
    pub clients: BTreeSet<u64>,
    /// Full names of ports.
    pub ports: BTreeSet<String>,
    /// Names of pipes.
    pub pipes: BTreeSet<String>,
    /// Names of switches.
    pub switches: BTreeSet<String>,
    /// Numbers and owners of regions.
    pub regions: BTreeSet<(u32, u32)>,
}

impl TouchedItems {
    /// Marks all objects as touched.
    pub fn all() -> TouchedItems {
        TouchedItems { everything: true, ..TouchedItems::default() }
    }

    /// Whether a port may have changed since the last save.
    pub fn has_port(&self, full: &str) -> bool {
        self.everything || self.ports.contains(full)
    }

    /// Whether a pipe may have changed since the last save.
    pub fn has_pipe(&self, name: &str) -> bool {
        self.everything || self.pipes.contains(name)
    }

    /// Whether a switch may have changed since the last save.
    pub fn has_switch(&self, name: &str) -> bool {
        self.everything || self.switches.contains(name)
    }

    /// Whether a user's region may have changed since the last save.
    pub fn has_region(&self, id: u32, uid: u32) -> bool {
        self.everything || self.regions.contains(&(id, uid))
    }

    /// Whether a connection may have changed since the last save.
    pub fn has_client(&self, client: u64) -> bool {
        self.everything || self.clients.contains(&client)
    }

    /// Returns the keys of the touched objects; if all objects count as touched, the keys in `known` except the key of
    /// the counters. Interfaces and captures always count as touched, because they are few.
    pub fn keys<V>(&self, known: &std::collections::BTreeMap<String, V>) -> Vec<String> {
        if self.everything {
            return known.keys().filter(|key| *key != COUNTERS).cloned().collect();
        }
        let of =
            |prefix: &'static str| known.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix));
        let few = [CAPTURES, INTERFACE, OPEN_INTERFACE].into_iter().flat_map(of).map(|(key, _)| key.clone());
        let ports = self.ports.iter().map(|name| port_key(name));
        let pipes = self.pipes.iter().map(|name| pipe_key(name));
        let switches = self.switches.iter().map(|name| switch_key(name));
        let regions = self.regions.iter().map(|&(id, uid)| region_key(id, uid));
        let clients = self.clients.iter().map(|&client| client_key(client));
        few.chain(ports).chain(pipes).chain(switches).chain(regions).chain(clients).collect()
    }
}
