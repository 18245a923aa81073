//! Pipes by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::rings::pipe::PipeRecord;

/// All pipes, by the name of the pipe without the suffix that selects an end, e.g. `netmap:p{1`.
#[derive(Default)]
pub struct Pipes {
    all: BTreeMap<String, PipeRecord>,
    touched: BTreeSet<String>,
}

impl Pipes {
    /// Returns the name of the pipe to which the end named `end` belongs, e.g. `netmap:p{1` for `netmap:p}1`.
    pub fn name(end: &str) -> String {
        end.replace('}', "{")
    }

    /// Returns the pipe of that name.
    pub fn get(&self, name: &str) -> Option<&PipeRecord> {
        self.all.get(name)
    }

    /// Returns the pipe of that name, mutable. After that, the pipe counts as changed since the last save.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut PipeRecord> {
        let found = self.all.get_mut(name);
        if found.is_some() {
            self.touched.insert(name.to_owned());
        }
        found
    }

    /// Returns the pipe to which the end named `end` belongs.
    pub fn with_end(&self, end: &str) -> Option<&PipeRecord> {
        self.all.get(&Pipes::name(end))
    }

    /// Whether any pipe's memory is in the region with this number.
    pub fn uses(&self, mem_id: u32) -> bool {
        self.all.values().any(|pipe| pipe.mem_id == mem_id)
    }

    /// Adds a pipe.
    pub fn insert(&mut self, name: String, pipe: PipeRecord) {
        self.touched.insert(name.clone());
        self.all.insert(name, pipe);
    }

    /// Removes a pipe. Returns its record; `None` if there is no such pipe.
    pub fn remove(&mut self, name: &str) -> Option<PipeRecord> {
        let gone = self.all.remove(name)?;
        self.touched.insert(name.to_owned());
        Some(gone)
    }

    /// Takes the names of pipes added, removed, or possibly changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Iterates over all pipes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PipeRecord)> {
        self.all.iter().map(|(name, pipe)| (name.as_str(), pipe))
    }
}
