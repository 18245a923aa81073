//! ptnet devices of the virtual machine that we run in, as long as programs have them open.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::rings::guest::GuestPort;

/// All that are open, by interface.
#[derive(Default)]
pub struct Guests(BTreeMap<String, Weak<GuestPort>>);

impl Guests {
    /// The device of that interface, if it is open.
    pub fn get(&self, ifname: &str) -> Option<Arc<GuestPort>> {
        self.0.get(ifname).and_then(Weak::upgrade)
    }

    /// A device was opened.
    pub fn insert(&mut self, ifname: &str, port: &Arc<GuestPort>) {
        self.0.insert(ifname.to_owned(), Arc::downgrade(port));
    }

    /// Those that are open.
    pub fn iter(&self) -> impl Iterator<Item = Arc<GuestPort>> {
        self.0.values().filter_map(Weak::upgrade)
    }
}
