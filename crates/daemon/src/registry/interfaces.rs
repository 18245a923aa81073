//! Network interfaces in use, each of which is opened only once; the TAPs that replace their host stacks; and the rings
//! that programs have opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use netvale_afxdp::{Nic, NicError};
use netvale_nic::stack::Stack;

use crate::rings::nic::NicPort;

/// Interfaces in use.
#[derive(Default)]
pub struct Interfaces {
    open: BTreeMap<String, Weak<Nic>>,
    stacks: BTreeMap<String, Weak<Stack>>,
    ports: BTreeMap<u64, NicPort>,
}

impl Interfaces {
    /// Returns the interface of that name. Opens the interface if it is not in use yet. An earlier interface of that
    /// name, which the kernel has removed, is ignored.
    ///
    /// # Errors
    /// [`NicError`] if it does not exist or cannot be opened.
    pub fn nic(&mut self, name: &str) -> Result<Arc<Nic>, NicError> {
        if let Some(nic) = self.known(name).filter(|nic| nic.gone().is_none()) {
            return Ok(nic);
        }
        let nic = Nic::open(name)?;
        nic.lost_tags().into_iter().for_each(|why| tracing::warn!("{name}: {why}"));
        self.add(&nic);
        Ok(nic)
    }

    /// Returns the interface of that name; `None` if it is not in use.
    pub fn known(&self, name: &str) -> Option<Arc<Nic>> {
        self.open.get(name).and_then(Weak::upgrade)
    }

    /// Adds an open interface.
    pub fn add(&mut self, nic: &Arc<Nic>) {
        self.open.insert(nic.interface().name.clone(), Arc::downgrade(nic));
    }

    /// Iterates over all interfaces in use.
    pub fn in_use(&self) -> impl Iterator<Item = Arc<Nic>> {
        self.open.values().filter_map(Weak::upgrade)
    }

    /// Marks all interfaces as this process's own. This must be called when the predecessor no longer uses them.
    pub fn own(&self) {
        self.in_use().for_each(|nic| nic.own());
        self.stacks.values().filter_map(Weak::upgrade).for_each(|stack| stack.diversion().own());
    }

    /// Returns the TAP that replaces an interface's host stack; `None` if there is none.
    pub fn stack(&self, name: &str) -> Option<Arc<Stack>> {
        self.stacks.get(name).and_then(Weak::upgrade)
    }

    /// Adds a TAP that replaces an interface's host stack.
    pub fn add_stack(&mut self, name: &str, stack: &Arc<Stack>) {
        self.stacks.insert(name.to_owned(), Arc::downgrade(stack));
    }

    /// Returns the rings that a connection has opened.
    pub fn port(&self, client: u64) -> Option<&NicPort> {
        self.ports.get(&client)
    }

    /// Adds the rings that a connection has opened.
    pub fn insert(&mut self, client: u64, port: NicPort) {
        self.ports.insert(client, port);
    }

    /// Removes and returns the rings that a connection has opened; `None` if it has none.
    pub fn remove(&mut self, client: u64) -> Option<NicPort> {
        self.ports.remove(&client)
    }

    /// Iterates over all open rings, by connection.
    pub fn ports(&self) -> impl Iterator<Item = (u64, &NicPort)> {
        self.ports.iter().map(|(client, port)| (*client, port))
    }

    /// Iterates over the open rings of one interface. Skips the rings of an earlier interface of that name, which the
    /// kernel has removed.
    pub fn ports_on<'a>(&'a self, ifname: &str) -> impl Iterator<Item = (u64, &'a NicPort)> + use<'a> {
        let known = self.known(ifname);
        self.ports().filter(move |(_, port)| known.as_ref().is_some_and(|nic| Arc::ptr_eq(nic, &port.nic)))
    }

    /// If connections have opened the interface, returns the rings of one of them. Further rings of the interface must
    /// be opened with the same parameters.
    pub fn port_on(&self, ifname: &str) -> Option<&NicPort> {
        self.ports_on(ifname).next().map(|(_, port)| port)
    }
}
