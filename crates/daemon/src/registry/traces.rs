//! Traces of connections: at most one each, which ends with its connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netvale_switch::trace::{Trace, now};
use netvale_switch::{PortId, Switch};

use crate::caller::Caller;

/// A trace of a switch's ports.
pub struct Session {
    /// Its reader.
    pub caller: Caller,
    /// Its records, written by workers.
    pub trace: Arc<Trace>,
    /// The switch; `None` until it exists.
    pub switch: Option<Arc<Switch>>,
    /// Names to trace once such a port appears: of a port, or of the switch for all its ports.
    pub later: Vec<String>,
    /// Names of the switch's ports for the reader, with their end times: numbers are reused.
    pub names: VecDeque<Named>,
}

/// A port's name.
pub struct Named {
    /// Its number on the switch.
    pub id: PortId,
    /// End of its use of that number, in the clock of records; `None` while in use.
    pub until: Option<u64>,
    /// Its full name, or a placeholder for another user's port.
    pub name: String,
}

/// Maximum number of names: all ports possible, and some former ones.
const NAMES: usize = 1024;

/// A port new on a switch.
pub struct NewOnSwitch<'a> {
    /// The switch.
    pub switch: &'a Arc<Switch>,
    /// Its number there.
    pub id: PortId,
    /// Its name there.
    pub port: &'a str,
    /// Whether a caller controls its owner's objects.
    pub is_controlled_by: &'a dyn Fn(Caller) -> bool,
}

impl Session {
    /// The port's name at that time.
    #[must_use]
    pub fn name(&self, id: PortId, at: u64) -> &str {
        // A port's first frames may precede the note of its arrival; none follow the note of its departure.
        let had = |known: &&Named| known.id == id && known.until.is_none_or(|until| at <= until);
        self.names.iter().find(had).map_or("a port that is gone", |known| &known.name)
    }

    /// Notes a port's name for the reader; hides other users' names.
    pub fn note(&mut self, id: PortId, full: String, is_own: bool) {
        let name = if is_own { full } else { "another user's port".to_owned() };
        if self.names.len() >= NAMES {
            self.names.pop_front();
        }
        self.names.push_back(Named { id, until: None, name });
    }

    fn is_of(&self, switch: &Arc<Switch>) -> bool {
        self.switch.as_ref().is_some_and(|known| Arc::ptr_eq(known, switch))
    }

    /// Notes a new port, and traces it if the reader asked for it.
    fn meet(&mut self, new: &NewOnSwitch<'_>) {
        let full = format!("{}:{}", new.switch.name(), new.port);
        let is_meant = self.later.iter().any(|name| *name == full || name == new.switch.name());
        let is_own = (new.is_controlled_by)(self.caller);
        let follows = is_meant && is_own;
        if follows && !self.is_of(new.switch) {
            // The former switch may have had the same name.
            self.leave();
            // Unread records of its ports keep their names.
            self.end_names(|_| true);
            self.switch = Some(Arc::clone(new.switch));
        }
        if self.is_of(new.switch) {
            self.note(new.id, full, is_own);
        }
        if follows {
            // A port that is gone again sends nothing.
            let _ = new.switch.trace(new.port, &self.trace);
        }
    }

    /// Notes the departure of a port.
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

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Traces by connection.
#[derive(Default)]
pub struct Traces {
    sessions: BTreeMap<u64, Session>,
}

impl Traces {
    /// Number of other traces besides that of the caller's connection, in total and of the same user.
    #[must_use]
    pub fn counts_beside(&self, caller: Caller) -> (usize, usize) {
        let others = || self.sessions.values().filter(|one| one.caller.client != caller.client);
        (others().count(), others().filter(|one| one.caller.uid == caller.uid).count())
    }

    /// Starts a trace; replaces the connection's former one.
    pub fn begin(&mut self, session: Session) {
        self.sessions.insert(session.caller.client, session);
    }

    /// Traces a new port of a switch for those who asked for it and control its owner's objects.
    pub fn meet(&mut self, new: &NewOnSwitch<'_>) {
        self.sessions.values_mut().for_each(|session| session.meet(new));
    }

    /// Notes a port that is gone, with none of its frames in flight.
    pub fn part(&mut self, switch: &Arc<Switch>, id: PortId) {
        self.sessions.values_mut().for_each(|session| session.part(switch, id));
    }

    /// The trace of a connection.
    #[must_use]
    pub fn of(&self, client: u64) -> Option<&Session> {
        self.sessions.get(&client)
    }

    /// Ends the trace of a closed connection.
    pub fn forget(&mut self, client: u64) {
        self.sessions.remove(&client);
    }
}
