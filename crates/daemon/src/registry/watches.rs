//! What each monitor watches.

use std::collections::BTreeMap;

use netvale_switch::MonitorRings;

/// The thing that a monitor watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A port of a switch, by its full name.
    Port(String),
    /// An interface on a switch, by its port's full name: frames that the port sends were received by the interface.
    Wire(String),
    /// An end of a pipe.
    Pipe(String, usize),
    /// An interface that programs have open.
    Nic(String),
}

impl Watched {
    /// Whether `other` is the same thing, or the same port by another name.
    fn is(&self, other: &Watched) -> bool {
        self == other || matches!((self, other), (Watched::Wire(own), Watched::Port(full)) if own == full)
    }
}

/// What a monitor watches, and where the copies go.
#[derive(Clone)]
pub struct Watching {
    /// The thing it watches.
    pub what: Watched,
    /// Whether it sees received frames when their slots are given back.
    pub released: bool,
    /// The rings for copies of sent frames.
    pub sent: MonitorRings,
    /// The rings for copies of received frames.
    pub received: MonitorRings,
    /// The connection that has the monitor open.
    pub client: u64,
    /// The user whose connection it is.
    pub uid: u32,
}

/// All monitors, by full name.
#[derive(Default)]
pub struct Watches(BTreeMap<String, Watching>);

impl Watches {
    /// Adds a monitor.
    pub fn insert(&mut self, monitor: &str, watching: Watching) {
        self.0.insert(monitor.to_owned(), watching);
    }

    /// Removes a monitor. Returns what it watched.
    pub fn remove(&mut self, monitor: &str) -> Option<Watching> {
        self.0.remove(monitor)
    }

    /// The monitors of exactly that thing.
    pub fn of<'a>(&'a self, what: &'a Watched) -> impl Iterator<Item = (&'a str, &'a Watching)> {
        self.0.iter().filter(move |(_, w)| w.what == *what).map(|(monitor, w)| (monitor.as_str(), w))
    }

    /// The connections whose monitors end when `gone` is gone.
    pub fn clients_of<'a>(&'a self, gone: &'a Watched) -> impl Iterator<Item = u64> + 'a {
        self.0.values().filter(move |w| w.what.is(gone)).map(|w| w.client)
    }
}
