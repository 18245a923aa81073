//! Persistent ports: where the record of each one is, under its own name or under its name on a switch.

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

    /// The switch without ports that it is on while it is on no other.
    pub fn nowhere(&self) -> &Arc<Switch> {
        &self.nowhere
    }
}

/// The name by which programs know a persistent port, wherever it is.
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

    /// Whether there is a persistent port of that bare name.
    pub fn contains(&self, port: &str) -> bool {
        self.0.contains_key(port)
    }

    /// Number of persistent ports.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds a port that is on no switch.
    pub fn add(&mut self, port: &str, uid: u32, nowhere: Arc<Switch>) {
        self.0.insert(port.to_owned(), PersistentPort { uid, place: own_name(port), nowhere, joint: None });
    }

    /// Removes a port.
    pub fn remove(&mut self, port: &str) {
        self.0.remove(port);
    }

    /// Removes the port whose record was `place`, if there is one.
    pub fn remove_at(&mut self, place: &str) {
        self.0.retain(|_, known| known.place != place);
    }

    /// The name of a port's record: a persistent port's changes when it is put on a switch.
    pub fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let known = name.strip_prefix("netmap:").and_then(|port| self.0.get(port));
        known.map_or(name, |known| &known.place)
    }

    /// The name of a persistent port's record, by its bare name.
    pub fn own_place(&self, port: &str) -> Option<String> {
        self.0.get(port).map(|known| known.place.clone())
    }

    /// The bare name of the persistent port whose record is `place`.
    pub fn at(&self, place: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| known.place == place).map(|(port, _)| port.as_str())
    }

    /// The name that an attachment uses for the port whose record is `place`.
    pub fn lasting_name(&self, place: &str) -> String {
        self.at(place).map_or_else(|| place.to_owned(), own_name)
    }

    /// Renames a port's record to `to`. Returns its former name.
    pub fn rename(&mut self, port: &str, to: &str) -> Option<String> {
        let known = self.0.get_mut(port)?;
        Some(std::mem::replace(&mut known.place, to.to_owned()))
    }

    /// The port on a second switch, of the port whose record is `place`.
    pub fn joint_of(&self, place: &str) -> Option<&str> {
        self.0.values().find(|known| known.place == place)?.joint.as_deref()
    }

    /// Whether the port whose record is `place` joins two switches: it is in use then, even if no program has it open.
    pub fn is_joined(&self, place: &str) -> bool {
        self.joint_of(place).is_some()
    }

    /// Sets the port on a second switch; `None` when the port leaves it.
    pub fn set_joint(&mut self, port: &str, joint: Option<String>) {
        if let Some(known) = self.0.get_mut(port) {
            known.joint = joint;
        }
    }
}
