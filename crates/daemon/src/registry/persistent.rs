//! Persistent ports: where the record of each is, under its own name or under the one it has on its switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_switch::Switch;

/// A persistent port.
pub struct PersistentPort {
    /// The user it belongs to.
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

    /// What it is on while it is on no switch.
    pub fn nowhere(&self) -> &Arc<Switch> {
        &self.nowhere
    }
}

/// The name under which programs know a persistent port, wherever it is.
pub fn own_name(port: &str) -> String {
    format!("netmap:{port}")
}

/// All of them, by bare name.
#[derive(Default)]
pub struct PersistentPorts(BTreeMap<String, PersistentPort>);

impl PersistentPorts {
    /// The port of that bare name.
    pub fn get(&self, port: &str) -> Option<&PersistentPort> {
        self.0.get(port)
    }

    /// Whether there is one.
    pub fn contains(&self, port: &str) -> bool {
        self.0.contains_key(port)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Enters a port that is on no switch.
    pub fn add(&mut self, port: &str, uid: u32, nowhere: Arc<Switch>) {
        self.0.insert(port.to_owned(), PersistentPort { uid, place: own_name(port), nowhere, joint: None });
    }

    /// A port is gone.
    pub fn remove(&mut self, port: &str) {
        self.0.remove(port);
    }

    /// The record `place` is gone, and a port that had it.
    pub fn remove_at(&mut self, place: &str) {
        self.0.retain(|_, known| known.place != place);
    }

    /// The name of a port's record: a persistent port's moves when it comes to a switch.
    pub fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let known = name.strip_prefix("netmap:").and_then(|port| self.0.get(port));
        known.map_or(name, |known| &known.place)
    }

    /// Where the record of a persistent port is, by its bare name.
    pub fn own_place(&self, port: &str) -> Option<String> {
        self.0.get(port).map(|known| known.place.clone())
    }

    /// The persistent port whose record is `place`.
    pub fn at(&self, place: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| known.place == place).map(|(port, _)| port.as_str())
    }

    /// What an attachment calls the port whose record is `place`.
    pub fn lasting_name(&self, place: &str) -> String {
        self.at(place).map_or_else(|| place.to_owned(), own_name)
    }

    /// A port's record is `to` now. Returns where it was.
    pub fn rename(&mut self, port: &str, to: &str) -> Option<String> {
        let known = self.0.get_mut(port)?;
        Some(std::mem::replace(&mut known.place, to.to_owned()))
    }

    /// Its port on a second switch, of the one whose record is `place`.
    pub fn joint_of(&self, place: &str) -> Option<&str> {
        self.0.values().find(|known| known.place == place)?.joint.as_deref()
    }

    /// Whether the port whose record is `place` joins two switches: it is in use then, though no program has it.
    pub fn is_joined(&self, place: &str) -> bool {
        self.joint_of(place).is_some()
    }

    /// A port comes to a second switch, or leaves it.
    pub fn set_joint(&mut self, port: &str, joint: Option<String>) {
        if let Some(known) = self.0.get_mut(port) {
            known.joint = joint;
        }
    }
}
