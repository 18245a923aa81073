//! Persistent ports, each with its *place*: the name of its record in the registry of ports, which is the port's own
//! name or its name on a switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_switch::Switch;

/// A persistent port.
pub struct PersistentPort {
    /// The user who owns the port.
    pub uid: u32,
    place: String,
    nowhere: Arc<Switch>,
    joint: Option<String>,
}

impl PersistentPort {
    /// Returns the name of the port's record in the registry of ports.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the private switch that has only this port. The port belongs to it while it is attached to no other
    /// switch.
    pub fn nowhere(&self) -> &Arc<Switch> {
        &self.nowhere
    }
}

/// Returns the name by which programs open a persistent port, whether or not it is attached to a switch.
pub fn own_name(port: &str) -> String {
    format!("netmap:{port}")
}

/// All persistent ports, by name without a switch.
#[derive(Default)]
pub struct PersistentPorts(BTreeMap<String, PersistentPort>);

impl PersistentPorts {
    /// Returns a persistent port by its name without a switch.
    pub fn get(&self, port: &str) -> Option<&PersistentPort> {
        self.0.get(port)
    }

    /// Whether there is a persistent port with this name without a switch.
    pub fn contains(&self, port: &str) -> bool {
        self.0.contains_key(port)
    }

    /// Returns the number of persistent ports.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds a port that is not on a switch.
    pub fn add(&mut self, port: &str, uid: u32, nowhere: Arc<Switch>) {
        self.0.insert(port.to_owned(), PersistentPort { uid, place: own_name(port), nowhere, joint: None });
    }

    /// Removes a persistent port, by its name without a switch.
    pub fn remove(&mut self, port: &str) {
        self.0.remove(port);
    }

    /// Removes the persistent port whose record has the name `place`; does nothing if there is none.
    pub fn remove_at(&mut self, place: &str) {
        self.0.retain(|_, known| known.place != place);
    }

    /// Returns the name of the record of the port `name`. If a persistent port is on a switch, `name` may be the port's
    /// own name.
    pub fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let known = name.strip_prefix("netmap:").and_then(|port| self.0.get(port));
        known.map_or(name, |known| &known.place)
    }

    /// Returns the name of the record of the persistent port `port`, a name without a switch; `None` if there is no
    /// such port.
    pub fn own_place(&self, port: &str) -> Option<String> {
        self.0.get(port).map(|known| known.place.clone())
    }

    /// Returns the name, without a switch, of the persistent port whose record has the name `place`; `None` if there is
    /// no such port.
    pub fn at(&self, place: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| known.place == place).map(|(port, _)| port.as_str())
    }

    /// Returns the name by which programs open the port whose record has the name `place`. A persistent port is opened
    /// by its own name, even if it is on a switch.
    pub fn lasting_name(&self, place: &str) -> String {
        self.at(place).map_or_else(|| place.to_owned(), own_name)
    }

    /// Records that the record of a persistent port is now named `to`. Returns the record's former name.
    pub fn rename(&mut self, port: &str, to: &str) -> Option<String> {
        let known = self.0.get_mut(port)?;
        Some(std::mem::replace(&mut known.place, to.to_owned()))
    }

    /// Returns the full name of the port that joins the port with record `place` to a second switch; `None` if that
    /// port is on at most one switch.
    pub fn joint_of(&self, place: &str) -> Option<&str> {
        self.0.values().find(|known| known.place == place)?.joint.as_deref()
    }

    /// Whether the port with record `place` joins two switches, and is thus in use even if no program has opened it.
    pub fn is_joined(&self, place: &str) -> bool {
        self.joint_of(place).is_some()
    }

    /// Sets the full name of the port that joins a port to a second switch; `None` after the port has left that switch.
    pub fn set_joint(&mut self, port: &str, joint: Option<String>) {
        if let Some(known) = self.0.get_mut(port) {
            known.joint = joint;
        }
    }
}
