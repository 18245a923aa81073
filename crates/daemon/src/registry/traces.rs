//! Traces of frames, by connection. A connection has at most one trace, which ends with the connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netvale_switch::trace::{Trace, now};
use netvale_switch::{MAX_PORTS, PortId, Switch};

use crate::caller::Caller;

/// A trace of a switch's ports.
pub struct TraceSession {
    /// The caller who reads the trace.
    pub caller: Caller,
    /// The records, which workers write.
    pub trace: Arc<Trace>,
    /// The switch; `None` until it exists.
    pub switch: Option<Arc<Switch>>,
    /// Requested ports that do not exist yet, by full name, and the switch's name if all of its ports are traced. New
    /// ports are compared with these names.
    pub later: Vec<String>,
    /// Names of the switch's ports as shown to the reader, each with the time at which its number became free, because
    /// numbers are reused.
    pub names: VecDeque<NamedPort>,
}

/// A port's name, and the time until which the port had its number.
pub struct NamedPort {
    /// Number on the switch.
    pub id: PortId,
    /// Time at which the port's number became free, in the clock of the records; `None` while the port has the number.
    pub until: Option<u64>,
    /// Full name, or a placeholder for another user's port.
    pub name: String,
}

/// Maximum number of names in a trace: enough for all ports of a switch and some former ones.
const NAMES: usize = MAX_PORTS + 1024;

/// A new port on a switch.
pub struct NewOnSwitch<'a> {
    /// The switch.
    pub switch: &'a Arc<Switch>,
    /// Number of the port on the switch.
    pub id: PortId,
    /// Name of the port on the switch.
    pub port: &'a str,
    /// Returns whether a caller controls the objects of the port's owner.
    pub is_controlled_by: &'a dyn Fn(Caller) -> bool,
}

impl TraceSession {
    /// Returns the name of the port that had number `id` at time `at`.
    #[must_use]
    pub fn name(&self, id: PortId, at: u64) -> &str {
        // A port's first frames may precede the record of its arrival; no frames follow the record of its departure.
        let had = |known: &&NamedPort| known.id == id && known.until.is_none_or(|until| at <= until);
        self.names.iter().find(had).map_or("a former port", |known| &known.name)
    }

    /// Records a port's name for the reader, and hides other users' names.
    pub fn note(&mut self, id: PortId, full: String, is_own: bool) {
        let name = if is_own { full } else { "another user's port".to_owned() };
        if self.names.len() >= NAMES {
            self.names.pop_front();
        }
        self.names.push_back(NamedPort { id, until: None, name });
    }

    fn is_of(&self, switch: &Arc<Switch>) -> bool {
        self.switch.as_ref().is_some_and(|known| Arc::ptr_eq(known, switch))
    }

    /// Records a new port, and traces it if the reader requested that.
    fn meet(&mut self, new: &NewOnSwitch<'_>) {
        let full = format!("{}:{}", new.switch.name(), new.port);
        let is_meant = self.later.iter().any(|name| *name == full || name == new.switch.name());
        let is_own = (new.is_controlled_by)(self.caller);
        let follows = is_meant && is_own;
        if follows && !self.is_of(new.switch) {
            // The former switch may have had the same name.
            self.leave();
            // Records of the former switch that are still unread keep the names of their ports.
            self.end_names(|_| true);
            self.switch = Some(Arc::clone(new.switch));
        }
        if self.is_of(new.switch) {
            self.note(new.id, full, is_own);
        }
        if follows {
            // A failure means that the port has already been removed, and sends no frames to trace.
            let _ = new.switch.trace(new.port, &self.trace);
        }
    }

    /// Records the departure of a port.
    fn part(&mut self, switch: &Arc<Switch>, id: PortId) {
        if self.is_of(switch) {
            self.end_names(|known| known == id);
        }
    }

    fn end_names(&mut self, is_gone: impl Fn(PortId) -> bool) {
        let its = self.names.iter_mut().filter(|known| is_gone(known.id));
        its.for_each(|known| known.until = known.until.or_else(|| Some(now())));
    }

    fn leave(&self) {
        if let Some(switch) = &self.switch {
            switch.end_trace(&self.trace);
        }
    }
}

impl Drop for TraceSession {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Traces by connection.
#[derive(Default)]
pub struct Traces {
    sessions: BTreeMap<u64, TraceSession>,
}

impl Traces {
    /// Returns the number of traces except that of the caller's connection: in total, and of the same user.
    #[must_use]
    pub fn counts_beside(&self, caller: Caller) -> (usize, usize) {
        let others = || self.sessions.values().filter(|one| one.caller.client != caller.client);
        (others().count(), others().filter(|one| one.caller.uid == caller.uid).count())
    }

    /// Starts a trace; replaces the connection's former one.
    pub fn begin(&mut self, session: TraceSession) {
        self.sessions.insert(session.caller.client, session);
    }

    /// Traces a new port of a switch for readers who requested it and control its owner's objects.
    pub fn meet(&mut self, new: &NewOnSwitch<'_>) {
        self.sessions.values_mut().for_each(|session| session.meet(new));
    }

    /// Records that a port is gone. Call this when none of its frames are in flight.
    pub fn part(&mut self, switch: &Arc<Switch>, id: PortId) {
        self.sessions.values_mut().for_each(|session| session.part(switch, id));
    }

    /// Returns the trace of a connection; `None` if it has none.
    #[must_use]
    pub fn of(&self, client: u64) -> Option<&TraceSession> {
        self.sessions.get(&client)
    }

    /// Ends the trace of a closed connection.
    pub fn forget(&mut self, client: u64) {
        self.sessions.remove(&client);
    }
}
