//! Ports of any kind by full name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netvale_control::types::{AttachParams, Drops, Policies};
use netvale_policy::vlan::VlanId;
use netvale_port::handed_over::HandOverQueue;
use netvale_port::link::Link;
use netvale_port::{Egress, RingCounters};
use netvale_switch::{PortId, Switch};

use crate::caller::Caller;
use crate::registry::looks::PortLook;
use crate::worker::TaskId;

/// A port's full name: switch and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// The switch, e.g. `vale0`.
    pub switch: String,
    /// The port's name on the switch, e.g. `a`.
    pub port: String,
}

impl SwitchPort {
    /// Creates the name from the names of the switch and the port.
    pub fn new(switch: impl ToString, port: impl ToString) -> SwitchPort {
        SwitchPort { switch: switch.to_string(), port: port.to_string() }
    }

    /// Returns the full name, e.g. `vale0:a`.
    pub fn full(&self) -> String {
        format!("{}:{}", self.switch, self.port)
    }
}

/// Attach parameters of a port, and where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredPort {
    /// The switch, specification and options, as requested.
    pub params: AttachParams,
    /// Whether the parameters come from the configuration file.
    pub from_file: bool,
}

/// A link of a port, which delays or loses frames.
pub struct PortLink {
    /// The queue that delays frames.
    pub link: Arc<Link>,
    /// The task that delivers frames from the queue.
    pub task: TaskId,
}

/// A port; `B` is the type of its backend.
pub struct PortRecord<B: ?Sized> {
    /// The port's switch; `None` for a port on no switch, e.g. a port that a virtual machine uses directly.
    pub switch: Option<Arc<Switch>>,
    /// Number of the port on its switch; `None` for a monitor.
    pub id: Option<PortId>,
    /// The backend.
    pub behind: Box<B>,
    /// The owning user, and the connection and process that created the port.
    pub owner: Caller,
    /// Attach parameters; `None` if a program created the port by opening it, or if it was created together with
    /// another port.
    pub declared: Option<DeclaredPort>,
    /// Whether the port remains if no program holds its rings.
    pub persistent: bool,
    /// Whether the port could receive frames at the last check.
    pub is_received: bool,
    /// The port's state at the last poll for events.
    pub look: PortLook,
    /// Whether the port is lossless: when its queue is full, senders wait instead of losing frames.
    pub lossless: bool,
    /// The port's policies.
    pub policies: Policies,
    /// Whether root or the daemon's own user has changed the policies of the port. If so, the port's owner may not
    /// change them.
    pub policies_are_set: bool,
    /// Whether the port keeps its workers awake (netmap's polling).
    pub polled: bool,
    /// Emulated links: the link for frames that the port sends, then the link for frames that it receives.
    pub links: [Option<PortLink>; 2],
    /// Egresses to which the switch, or the port's receiving link, delivers.
    pub egresses: Vec<Arc<dyn Egress>>,
    /// Tasks on the worker of the port's user. They deliver the frames that other workers have queued.
    pub handed: Vec<TaskId>,
    /// Tasks that forward frames from the ingresses.
    pub placed: Vec<TaskId>,
    /// Counters of the ingresses.
    pub ingress: Vec<Arc<RingCounters>>,
    /// Counters of the egresses.
    pub egress: Vec<Arc<RingCounters>>,
}

impl<B: ?Sized> PortRecord<B> {
    /// Creates the record of a port that is on no switch, and that has no queues, options or tasks.
    pub fn new(behind: Box<B>, owner: Caller) -> PortRecord<B> {
        PortRecord {
            switch: None,
            id: None,
            behind,
            owner,
            declared: None,
            persistent: true,
            is_received: true,
            look: PortLook::default(),
            lossless: false,
            policies: Policies::default(),
            policies_are_set: false,
            links: [None, None],
            egresses: Vec::new(),
            polled: false,
            handed: Vec::new(),
            placed: Vec::new(),
            ingress: Vec::new(),
            egress: Vec::new(),
        }
    }

    /// Returns the port's policies. For a private port, omits the VLAN that the daemon has picked.
    pub fn given_policies(&self) -> Policies {
        let policies = self.policies.clone();
        if self.picked_vlan().is_some() { Policies { access: None, ..policies } } else { policies }
    }

    /// Returns the VLAN that the daemon has picked for a private port; `None` if the port is not private, or if its
    /// owner has chosen the VLAN.
    pub fn picked_vlan(&self) -> Option<VlanId> {
        let chosen = self.declared.as_ref().and_then(|declared| declared.params.options.policies.access);
        self.policies.access.filter(|_| self.policies.private == Some(true) && chosen.is_none())
    }

    /// Records whether the port can receive frames. When the port can no longer receive, the switch forgets the
    /// addresses that it learned behind the port, so that stations can move to another port before their addresses
    /// expire.
    pub fn note_received(&mut self, is_received: bool) {
        if std::mem::replace(&mut self.is_received, is_received)
            && !is_received
            && let Some((switch, id)) = self.switch.as_ref().zip(self.id)
        {
            switch.forget_learned(id);
        }
    }

    /// Iterates over all tasks of the port.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let links = self.links.iter().flatten().map(|known| known.task);
        self.placed.iter().chain(&self.handed).copied().chain(links)
    }

    /// Returns the memory in bytes of the port's links, and of the queues in which other workers hand frames to the
    /// worker of the port's user.
    pub fn link_bytes(&self) -> u64 {
        let links: u64 = self.links.iter().flatten().map(|known| known.link.memory()).sum();
        links + self.handed.len() as u64 * HandOverQueue::memory()
    }

    /// Returns the number of dropped frames of all rings, by reason.
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
pub struct PortRegistry<B: ?Sized> {
    all: BTreeMap<String, PortRecord<B>>,
    touched: BTreeSet<String>,
}

impl<B: ?Sized> Default for PortRegistry<B> {
    fn default() -> Self {
        PortRegistry { all: BTreeMap::new(), touched: BTreeSet::new() }
    }
}

impl<B: ?Sized> PortRegistry<B> {
    /// Returns the port of that full name.
    pub fn get(&self, full: &str) -> Option<&PortRecord<B>> {
        self.all.get(full)
    }

    /// Returns the port of that full name, mutable. After that, the port counts as changed since the last save.
    pub fn get_mut(&mut self, full: &str) -> Option<&mut PortRecord<B>> {
        let found = self.all.get_mut(full);
        if found.is_some() {
            self.touched.insert(full.to_owned());
        }
        found
    }

    /// Whether a port of that full name exists.
    pub fn contains(&self, full: &str) -> bool {
        self.all.contains_key(full)
    }

    /// Adds a port. Returns the former port of that name; `None` if there was none.
    pub fn insert(&mut self, full: &str, record: PortRecord<B>) -> Option<PortRecord<B>> {
        self.touched.insert(full.to_owned());
        self.all.insert(full.to_owned(), record)
    }

    /// Removes a port. Returns its record; `None` if there is no such port.
    pub fn remove(&mut self, full: &str) -> Option<PortRecord<B>> {
        let gone = self.all.remove(full)?;
        self.touched.insert(full.to_owned());
        Some(gone)
    }

    /// Renames a port.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(record) = self.remove(from) {
            self.insert(to, record);
        }
    }

    /// Iterates over all ports, mutable. Only fields that are not saved may be changed, because the ports do not count
    /// as changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut PortRecord<B>)> {
        self.all.iter_mut().map(|(full, record)| (full.as_str(), record))
    }

    /// Takes the names of ports added, removed, or possibly changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Iterates over all ports, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PortRecord<B>)> {
        self.all.iter().map(|(full, record)| (full.as_str(), record))
    }
}
