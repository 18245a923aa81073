//! Pipes by name.

use std::collections::BTreeMap;

use crate::rings::pipe::Pipe;

/// All pipes, by name without the end, e.g. `netmap:p{1`.
#[derive(Default)]
pub struct Pipes(BTreeMap<String, Pipe>);

impl Pipes {
    /// The name of the pipe that the end `end` belongs to.
    pub fn name(end: &str) -> String {
        end.replace('}', "{")
    }

    /// Returns the pipe of that name.
    pub fn get(&self, name: &str) -> Option<&Pipe> {
        self.0.get(name)
    }

    /// Returns the pipe of that name, for changing it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Pipe> {
        self.0.get_mut(name)
    }

    /// Returns the pipe that the end `end` belongs to.
    pub fn with_end(&self, end: &str) -> Option<&Pipe> {
        self.0.get(&Pipes::name(end))
    }

    /// Whether a pipe lies in the region of that number.
    pub fn uses(&self, mem_id: u32) -> bool {
        self.0.values().any(|pipe| pipe.mem_id == mem_id)
    }

    /// Adds a pipe.
    pub fn insert(&mut self, name: String, pipe: Pipe) {
        self.0.insert(name, pipe);
    }

    /// Removes a pipe.
    pub fn remove(&mut self, name: &str) -> Option<Pipe> {
        self.0.remove(name)
    }

    /// Iterates over all pipes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Pipe)> {
        self.0.iter().map(|(name, pipe)| (name.as_str(), pipe))
    }
}
