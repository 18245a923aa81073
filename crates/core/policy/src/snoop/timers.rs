//! Sets of ports that have a property for a limited time.

use super::PortSet;

/// A set of ports, each with the time at which it expires.
#[derive(Debug, Default)]
pub(super) struct Timers {
    ends: Vec<(u16, u64)>,
}

impl Timers {
    /// Adds `port` until time `end`, or sets its new end if it is in the set. Returns whether the port is new.
    pub fn set(&mut self, port: u16, end: u64) -> bool {
        match self.ends.iter_mut().find(|(other, _)| *other == port) {
            Some(entry) => {
                entry.1 = end;
                false
            }
            None => {
                self.ends.push((port, end));
                true
            }
        }
    }

    /// Removes `port`. Returns whether the port was in the set.
    pub fn remove(&mut self, port: u16) -> bool {
        self.retain(|other, _| other != port)
    }

    /// Removes expired ports. Returns whether any port was removed.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        self.retain(|_, end| end > now_ns)
    }

    fn retain(&mut self, keep: impl Fn(u16, u64) -> bool) -> bool {
        let before = self.ends.len();
        self.ends.retain(|&(port, end)| keep(port, end));
        self.ends.len() != before
    }

    /// Time in ns at which the first port expires; `u64::MAX` if the set is empty.
    pub fn next(&self) -> u64 {
        self.ends.iter().map(|&(_, end)| end).min().unwrap_or(u64::MAX)
    }

    pub fn has(&self, port: u16) -> bool {
        self.ends.iter().any(|&(other, _)| other == port)
    }

    pub fn ports(&self) -> PortSet {
        self.ends.iter().map(|&(port, _)| port).collect()
    }
}
