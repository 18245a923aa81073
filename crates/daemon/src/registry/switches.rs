//! Switches by name. A switch is created at its first use, and removed with its last port. The forwarding tables of all
//! switches are aged together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_switch::{Fdb, Switch, SwitchSettings};

/// A switch, and its owner: the user of its first port.
struct OwnedSwitch {
    switch: Arc<Switch>,
    owner: u32,
}

/// All switches.
pub struct Switches {
    by_name: BTreeMap<String, OwnedSwitch>,
    touched: BTreeSet<String>,
    settings: SwitchSettings,
    tick: Duration,
    next_tick: Instant,
    last_private: u16,
}

impl Switches {
    /// Creates an empty registry. New switches get `settings`; unused addresses expire after `ageing`.
    pub fn new(settings: SwitchSettings, ageing: Duration) -> Switches {
        let tick = Fdb::tick_length(ageing);
        Switches {
            by_name: BTreeMap::new(),
            touched: BTreeSet::new(),
            settings,
            tick,
            next_tick: Instant::now() + tick,
            last_private: 0,
        }
    }

    /// Returns the switch of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Switch>> {
        self.by_name.get(name).map(|known| &known.switch)
    }

    /// Returns the user ID of the switch's owner; `None` if there is no such switch.
    pub fn owner(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).map(|known| known.owner)
    }

    /// Returns the switch of that name. If it does not exist, creates it for user `owner`.
    pub fn get_or_make(&mut self, name: &str, owner: u32) -> Arc<Switch> {
        match self.get(name) {
            Some(switch) => Arc::clone(switch),
            None => self.add(Switch::with(name, self.settings), owner),
        }
    }

    /// Recreates a switch that another process saved. `flows` is the key of its flow hash; `None` for a new key.
    pub fn continue_one(&mut self, name: &str, owner: u32, flows: Option<[u64; 2]>) {
        match flows.filter(|_| self.get(name).is_none()) {
            Some(flows) => self.add(Switch::with_flows(name, self.settings, flows), owner),
            None => self.get_or_make(name, owner),
        };
    }

    fn add(&mut self, switch: Arc<Switch>, owner: u32) -> Arc<Switch> {
        self.touched.insert(switch.name().to_owned());
        self.by_name.insert(switch.name().to_owned(), OwnedSwitch { switch: Arc::clone(&switch), owner });
        switch
    }

    /// Returns the VLAN that was picked last for a private port of any switch; 0 before the first VLAN is picked.
    pub fn last_private(&self) -> u16 {
        self.last_private
    }

    /// Records the VLAN that was picked last for a private port.
    pub fn set_last_private(&mut self, vlan: u16) {
        self.last_private = vlan;
    }

    /// Returns the number of that user's switches.
    pub fn count_of(&self, owner: u32) -> usize {
        self.by_name.values().filter(|known| known.owner == owner).count()
    }

    /// Returns the number of switches.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Iterates over all switches, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Switch>> {
        self.by_name.values().map(|known| &known.switch)
    }

    /// Takes the names of switches that were created or removed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Removes a switch if it has no ports.
    pub fn drop_if_empty(&mut self, switch: &Switch) {
        if switch.ports().is_empty() {
            // Compares addresses, not names: a monitor may outlive its switch for a moment, and in that time a new
            // switch may get the same name.
            self.by_name.retain(|_, known| !std::ptr::eq(Arc::as_ptr(&known.switch), switch));
            self.touched.insert(switch.name().to_owned());
        }
    }

    /// Changes the settings of existing and later switches. Existing forwarding tables keep their size.
    pub fn treat(&mut self, settings: SwitchSettings, ageing: Duration) {
        self.by_name.values().for_each(|known| known.switch.treat(settings.sticky, settings.holds_others));
        self.settings = settings;
        let tick = Fdb::tick_length(ageing);
        self.next_tick = self.next_tick.min(Instant::now() + tick);
        self.tick = tick;
    }

    /// Returns the interval at which the forwarding tables are aged.
    pub fn tick_length(&self) -> Duration {
        self.tick
    }

    /// Ages the forwarding tables. Returns the time until the next call.
    pub fn tick(&mut self, now: Instant) -> Duration {
        if now >= self.next_tick {
            self.by_name.values().for_each(|known| known.switch.advance());
            self.next_tick = now + self.tick;
        }
        self.next_tick.saturating_duration_since(now)
    }
}
