//! Switches by name: made when they are first used, gone with their last port, aged together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_switch::{Fdb, Switch};

/// A switch and the user whose port was the first on it.
struct Known {
    switch: Arc<Switch>,
    owner: u32,
}

/// All switches.
pub struct Switches {
    by_name: BTreeMap<String, Known>,
    table_entries: usize,
    tick: Duration,
    next_tick: Instant,
}

impl Switches {
    /// None yet; each will have so many entries in its table, which are forgotten after `ageing`.
    pub fn new(table_entries: usize, ageing: Duration) -> Switches {
        let tick = Fdb::tick_length(ageing);
        Switches { by_name: BTreeMap::new(), table_entries, tick, next_tick: Instant::now() + tick }
    }

    /// The switch of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Switch>> {
        self.by_name.get(name).map(|known| &known.switch)
    }

    /// The user it belongs to.
    pub fn owner(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).map(|known| known.owner)
    }

    /// The switch of that name; made for that user when it is not there.
    pub fn get_or_make(&mut self, name: &str, owner: u32) -> Arc<Switch> {
        let make = || Known { switch: Switch::with_table_size(name, self.table_entries), owner };
        Arc::clone(&self.by_name.entry(name.to_owned()).or_insert_with(make).switch)
    }

    /// How many belong to that user.
    pub fn count_of(&self, owner: u32) -> usize {
        self.by_name.values().filter(|known| known.owner == owner).count()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Switch>> {
        self.by_name.values().map(|known| &known.switch)
    }

    /// A switch without ports goes.
    pub fn drop_if_empty(&mut self, switch: &Switch) {
        if switch.ports().is_empty() {
            // A monitor may outlive its switch for a moment, in which there is another one of that name.
            self.by_name.retain(|_, known| !std::ptr::eq(Arc::as_ptr(&known.switch), switch));
        }
    }

    /// How long a tick of the forwarding tables' ageing is.
    pub fn tick_length(&self) -> Duration {
        self.tick
    }

    /// Ageing of the forwarding tables. Returns when to call it again.
    pub fn tick(&mut self, now: Instant) -> Duration {
        if now >= self.next_tick {
            self.by_name.values().for_each(|known| known.switch.fdb().advance());
            self.next_tick = now + self.tick;
        }
        self.next_tick.saturating_duration_since(now)
    }
}
