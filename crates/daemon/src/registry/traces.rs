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
    /// The switch of the traced ports; `None` until it exists.
    pub switch: Option<Arc<Switch>>,
    /// Requested ports that do not exist yet, by full name, and the name of the switch if all of its ports are traced.
    /// New ports are compared with these names.
    pub later: Vec<String>,
    /// Names of the switch's ports as the reader may see them. As numbers are reused, each name has the time at which
    /// its port's number became free.
    pub names: VecDeque<NamedPort>,
}

/// A port's name, and the time at which the port lost its number.
pub struct NamedPort {
    /// Number on the switch.
    pub id: PortId,
    /// Time at which the port's number became free, in the clock of the records; `None` while the port has the number.
    pub until: Option<u64>,
    /// Full name; for another user's port, a text that does not reveal the name.
    pub name: String,
}

/// Maximum number of names in a trace: enough for all ports of a switch and for some former ports.
const NAMES: usize = MAX_PORTS + 1024;

/// A port that was just created on a switch.
pub struct NewOnSwitch<'a> {
    /// The switch.
    pub switch: &'a Arc<Switch>,
    /// Number of the port on the switch.
    pub id: PortId,
    /// Name of the port on the switch.
    pub port: &'a str,
    /// Returns whether a caller controls the objects of the new port's owner.
    pub is_controlled_by: &'a dyn Fn(Caller) -> bool,
}

impl TraceSession {
    /// Returns the name of the port that had number `id` at time `at`.
    #[must_use]
    pub fn name(&self, id: PortId, at: u64) -> &str {
        // A port's first frames may precede the record that the port was added, but no frame follows the record that it
        // was removed.
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

    /// Records a new port. Traces the port if the reader has requested that.
    fn meet(&mut self, new: &NewOnSwitch<'_>) {
        let full = format!("{}:{}", new.switch.name(), new.port);
        let is_meant = self.later.iter().any(|name| *name == full || name == new.switch.name());
        let is_own = (new.is_controlled_by)(self.caller);
        let follows = is_meant && is_own;
        if follows && !self.is_of(new.switch) {
            // The former switch may have had the same name as the new switch.
            self.leave();
            // Unread records of the former switch still refer to the names of its ports.
            self.end_names(|_| true);
            self.switch = Some(Arc::clone(new.switch));
        }
        if self.is_of(new.switch) {
            self.note(new.id, full, is_own);
        }
        if follows {
            // A failure means that the port has already been removed and sends no frames, so there is nothing to trace.
            let _ = new.switch.trace(new.port, &self.trace);
        }
    }

    /// Records that a port was removed.
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
    /// Returns the number of traces in total, and the number of traces of the caller's user. The trace of the caller's
    /// own connection is not counted.
    #[must_use]
    pub fn counts_beside(&self, caller: Caller) -> (usize, usize) {
        let others = || self.sessions.values().filter(|one| one.caller.client != caller.client);
        (others().count(), others().filter(|one| one.caller.uid == caller.uid).count())
    }

    /// Starts a trace, which replaces the former trace of its connection.
    pub fn begin(&mut self, session: TraceSession) {
        self.sessions.insert(session.caller.client, session);
    }

    /// Traces a new port of a switch for the readers who requested that port and control the objects of its owner.
    pub fn meet(&mut self, new: &NewOnSwitch<'_>) {
        self.sessions.values_mut().for_each(|session| session.meet(new));
    }

    /// Records that a port was removed. This must be called when none of the port's frames are in flight.
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
