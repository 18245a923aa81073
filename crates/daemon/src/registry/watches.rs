//! Watches: the target of each monitor.

use std::collections::BTreeMap;

use netvale_switch::MonitorRings;

/// The target of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitoredPort {
    /// A port of a switch, by its full name.
    Port(String),
    /// The wire side of an interface on a switch, by the full name of the interface's port. Frames that the port sends
    /// are frames that the interface has received.
    Wire(String),
    /// An end of a pipe.
    Pipe(String, usize),
    /// An interface that programs have opened.
    Nic(String),
}

impl MonitoredPort {
    /// Whether a monitor of `self` ends when `other` is removed: `other` is the same target, or the switch port of the
    /// monitored wire side.
    fn is(&self, other: &MonitoredPort) -> bool {
        self == other || matches!((self, other), (MonitoredPort::Wire(own), MonitoredPort::Port(full)) if own == full)
    }
}

/// A monitor's target, and the rings to which copies are delivered.
#[derive(Clone)]
pub struct WatchRecord {
    /// The monitored port.
    pub what: MonitoredPort,
    /// Whether the monitor gets copies of received frames when the program releases the frames' slots, rather than when
    /// the frames pass.
    pub released: bool,
    /// The rings for copies of sent frames.
    pub sent: MonitorRings,
    /// The rings for copies of received frames.
    pub received: MonitorRings,
    /// The connection that opened the monitor.
    pub client: u64,
    /// The user of that connection.
    pub uid: u32,
}

/// All monitors, by full name.
#[derive(Default)]
pub struct Watches(BTreeMap<String, WatchRecord>);

impl Watches {
    /// Adds a monitor.
    pub fn insert(&mut self, monitor: &str, watching: WatchRecord) {
        self.0.insert(monitor.to_owned(), watching);
    }

    /// Removes a monitor. Returns its target.
    pub fn remove(&mut self, monitor: &str) -> Option<WatchRecord> {
        self.0.remove(monitor)
    }

    /// Iterates over the monitors whose target is exactly `what`.
    pub fn of<'a>(&'a self, what: &'a MonitoredPort) -> impl Iterator<Item = (&'a str, &'a WatchRecord)> {
        self.0.iter().filter(move |(_, w)| w.what == *what).map(|(monitor, w)| (monitor.as_str(), w))
    }

    /// Iterates over the connections whose monitors end when `gone` is removed.
    pub fn clients_of<'a>(&'a self, gone: &'a MonitoredPort) -> impl Iterator<Item = u64> + 'a {
        self.0.values().filter(move |w| w.what.is(gone)).map(|w| w.client)
    }
}
