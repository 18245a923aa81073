//! Persistent ports, each with the name of its record: its own name, or its name on a switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_switch::Switch;

/// A persistent port.
pub struct PersistentPort {
    /// The user that owns it.
    pub uid: u32,
    place: String,
    nowhere: Arc<Switch>,
    joint: Option<String>,
}

impl PersistentPort {
    /// The name of its record.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The port-less switch that it uses while attached to no other.
    pub fn nowhere(&self) -> &Arc<Switch> {
        &self.nowhere
    }
}

/// The name under which programs know a persistent port, attached or not.
pub fn own_name(port: &str) -> String {
    format!("netmap:{port}")
}

/// All persistent ports, by bare name.
#[derive(Default)]
pub struct PersistentPorts(BTreeMap<String, PersistentPort>);

impl PersistentPorts {
    /// The port of that bare name.
    pub fn get(&self, port: &str) -> Option<&PersistentPort> {
        self.0.get(port)
    }

    /// Whether a persistent port of that bare name exists.
    pub fn contains(&self, port: &str) -> bool {
        self.0.contains_key(port)
    }

    /// Number of persistent ports.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds a port on no switch.
    pub fn add(&mut self, port: &str, uid: u32, nowhere: Arc<Switch>) {
        self.0.insert(port.to_owned(), PersistentPort { uid, place: own_name(port), nowhere, joint: None });
    }

    /// Removes a port.
    pub fn remove(&mut self, port: &str) {
        self.0.remove(port);
    }

    /// Removes the port with record `place`, if there is one.
    pub fn remove_at(&mut self, place: &str) {
        self.0.retain(|_, known| known.place != place);
    }

    /// The record's name of a port, which changes when a persistent port is attached to a switch.
    pub fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let known = name.strip_prefix("netmap:").and_then(|port| self.0.get(port));
        known.map_or(name, |known| &known.place)
    }

    /// The record's name of a persistent port, by its bare name.
    pub fn own_place(&self, port: &str) -> Option<String> {
        self.0.get(port).map(|known| known.place.clone())
    }

    /// The bare name of the persistent port with record `place`.
    pub fn at(&self, place: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| known.place == place).map(|(port, _)| port.as_str())
    }

    /// The attachment's name for the port with record `place`.
    pub fn lasting_name(&self, place: &str) -> String {
        self.at(place).map_or_else(|| place.to_owned(), own_name)
    }

    /// Renames a port's record to `to`. Returns its former name.
    pub fn rename(&mut self, port: &str, to: &str) -> Option<String> {
        let known = self.0.get_mut(port)?;
        Some(std::mem::replace(&mut known.place, to.to_owned()))
    }

    /// The second-switch port of the port with record `place`.
    pub fn joint_of(&self, place: &str) -> Option<&str> {
        self.0.values().find(|known| known.place == place)?.joint.as_deref()
    }

    /// Whether the port with record `place` joins two switches: then it is in use, even if no program has it open.
    pub fn is_joined(&self, place: &str) -> bool {
        self.joint_of(place).is_some()
    }

    /// Sets its second-switch port; `None` when the port leaves that switch.
    pub fn set_joint(&mut self, port: &str, joint: Option<String>) {
        if let Some(known) = self.0.get_mut(port) {
            known.joint = joint;
        }
    }
}
