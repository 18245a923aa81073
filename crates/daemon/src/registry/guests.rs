//! Open ptnet devices of the virtual machine that the daemon runs in.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::rings::guest::GuestPort;

/// All open ptnet devices, by interface name.
#[derive(Default)]
pub struct Guests(BTreeMap<String, Weak<GuestPort>>);

impl Guests {
    /// Returns the open device of an interface; `None` if no program has opened it.
    pub fn get(&self, ifname: &str) -> Option<Arc<GuestPort>> {
        self.0.get(ifname).and_then(Weak::upgrade)
    }

    /// Adds an open device.
    pub fn insert(&mut self, ifname: &str, port: &Arc<GuestPort>) {
        self.0.insert(ifname.to_owned(), Arc::downgrade(port));
    }

    /// Iterates over the open devices.
    pub fn iter(&self) -> impl Iterator<Item = Arc<GuestPort>> {
        self.0.values().filter_map(Weak::upgrade)
    }
}
