//! Ports by full name, whatever is behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_control::types::Drops;
use netvale_port::RingCounters;
use netvale_switch::{PortId, Switch};

use crate::caller::Caller;
use crate::worker::Placed;

/// A port's name: the switch's and its own on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// The switch, e.g. `vale0`.
    pub switch: String,
    /// The port on it, e.g. `a`.
    pub port: String,
}

impl SwitchPort {
    /// From both names.
    pub fn new(switch: impl ToString, port: impl ToString) -> SwitchPort {
        SwitchPort { switch: switch.to_string(), port: port.to_string() }
    }

    /// The full name, e.g. `vale0:a`.
    pub fn full(&self) -> String {
        format!("{}:{}", self.switch, self.port)
    }
}

/// A port; `B` is what stands behind it.
pub struct PortRecord<B: ?Sized> {
    /// Its switch; none if a virtual machine has it without one.
    pub switch: Option<Arc<Switch>>,
    /// Its number there; a monitor has none.
    pub id: Option<PortId>,
    /// What stands behind it.
    pub behind: Box<B>,
    /// User it belongs to and process that made it.
    pub owner: Caller,
    /// Stays when nobody holds its rings.
    pub persistent: bool,
    /// Holds senders back.
    pub lossless: bool,
    /// Its workers are kept awake.
    pub polled: bool,
    /// Where its ingresses are.
    pub placed: Vec<Placed>,
    /// Counters of its ingresses.
    pub ingress: Vec<Arc<RingCounters>>,
    /// Counters of its egresses.
    pub egress: Vec<Arc<RingCounters>>,
}

impl<B: ?Sized> PortRecord<B> {
    /// A persistent one on no switch, whose frames nobody moves yet.
    pub fn new(behind: Box<B>, owner: Caller) -> PortRecord<B> {
        PortRecord {
            switch: None,
            id: None,
            behind,
            owner,
            persistent: true,
            lossless: false,
            polled: false,
            placed: Vec::new(),
            ingress: Vec::new(),
            egress: Vec::new(),
        }
    }

    /// Dropped frames over all its rings, by reason.
    pub fn drops(&self) -> Drops {
        let counters = self.ingress.iter().chain(&self.egress).map(AsRef::as_ref);
        let mut sum = Drops::new();
        for (why, n) in counters.flat_map(RingCounters::all_drops) {
            *sum.entry(why.name().to_owned()).or_default() += n;
        }
        sum
    }
}

/// All ports.
pub struct Ports<B: ?Sized>(BTreeMap<String, PortRecord<B>>);

impl<B: ?Sized> Default for Ports<B> {
    fn default() -> Self {
        Ports(BTreeMap::new())
    }
}

impl<B: ?Sized> Ports<B> {
    /// The port of that name.
    pub fn get(&self, full: &str) -> Option<&PortRecord<B>> {
        self.0.get(full)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, full: &str) -> Option<&mut PortRecord<B>> {
        self.0.get_mut(full)
    }

    /// Whether there is one.
    pub fn contains(&self, full: &str) -> bool {
        self.0.contains_key(full)
    }

    /// Enters a port. Returns the one that had the name before.
    pub fn insert(&mut self, full: &str, record: PortRecord<B>) -> Option<PortRecord<B>> {
        self.0.insert(full.to_owned(), record)
    }

    /// Takes a port out.
    pub fn remove(&mut self, full: &str) -> Option<PortRecord<B>> {
        self.0.remove(full)
    }

    /// A port is called something else now.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(record) = self.0.remove(from) {
            self.0.insert(to.to_owned(), record);
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PortRecord<B>)> {
        self.0.iter().map(|(full, record)| (full.as_str(), record))
    }
}
