//! Traces that connections have asked for: one each, which ends with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netvale_switch::trace::{Trace, now};
use netvale_switch::{PortId, Switch};

use crate::caller::Caller;

/// A trace of ports of a switch.
pub struct Session {
    /// Who reads it.
    pub caller: Caller,
    /// What workers write.
    pub trace: Arc<Trace>,
    /// The switch; `None` until there is one.
    pub switch: Option<Arc<Switch>>,
    /// Names of ports or of the switch, of which ports that come later are traced, too.
    pub later: Vec<String>,
    /// What the switch's ports are called for the reader, and how long they were: numbers are given again.
    pub names: VecDeque<Named>,
}

/// A port's name.
pub struct Named {
    /// Its number on the switch.
    pub id: PortId,
    /// The time until which it had that number, as records have it; `None` while it has.
    pub until: Option<u64>,
    /// Its full name, or that it is another user's.
    pub name: String,
}

/// Names that are remembered: of all ports that can be there, and of some that were.
const NAMES: usize = 1024;

/// A port that has come to a switch.
pub struct NewOnSwitch<'a> {
    /// The switch.
    pub switch: &'a Arc<Switch>,
    /// Its number there.
    pub id: PortId,
    /// Its name there.
    pub port: &'a str,
    /// Who controls what is its owner's.
    pub is_controlled_by: &'a dyn Fn(Caller) -> bool,
}

impl Session {
    /// The name that a port had at that time.
    #[must_use]
    pub fn name(&self, id: PortId, at: u64) -> &str {
        // A port's first frames may be there before it is known to be, but none after it is known to be gone.
        let had = |known: &&Named| known.id == id && known.until.is_none_or(|until| at <= until);
        self.names.iter().find(had).map_or("a port that is gone", |known| &known.name)
    }

    /// Notes a port's name for the reader, who is not told those of others' ports.
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

    /// Takes note of a port that has come, and traces it if it is one that was waited for.
    fn meet(&mut self, new: &NewOnSwitch<'_>) {
        let full = format!("{}:{}", new.switch.name(), new.port);
        let is_meant = self.later.iter().any(|name| *name == full || name == new.switch.name());
        let is_own = (new.is_controlled_by)(self.caller);
        let follows = is_meant && is_own;
        if follows && !self.is_of(new.switch) {
            // Another switch of the same name may have been there before.
            self.leave();
            // What is still to be read of its ports keeps their names.
            self.end_names(|_| true);
            self.switch = Some(Arc::clone(new.switch));
        }
        if self.is_of(new.switch) {
            self.note(new.id, full, is_own);
        }
        if follows {
            // One that is gone again sends nothing.
            let _ = new.switch.trace(new.port, &self.trace);
        }
    }

    /// Takes note of a port that is gone.
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
    /// Number of traces beside that of the caller's connection, and how many of them are the same user's.
    #[must_use]
    pub fn counts_beside(&self, caller: Caller) -> (usize, usize) {
        let others = || self.sessions.values().filter(|one| one.caller.client != caller.client);
        (others().count(), others().filter(|one| one.caller.uid == caller.uid).count())
    }

    /// Begins one; the connection's last one ends.
    pub fn begin(&mut self, session: Session) {
        self.sessions.insert(session.caller.client, session);
    }

    /// A port has come to a switch: it is traced by those who wait for it and control what is its owner's.
    pub fn meet(&mut self, new: &NewOnSwitch<'_>) {
        self.sessions.values_mut().for_each(|session| session.meet(new));
    }

    /// A port is gone from a switch, and none of its frames are under way.
    pub fn part(&mut self, switch: &Arc<Switch>, id: PortId) {
        self.sessions.values_mut().for_each(|session| session.part(switch, id));
    }

    /// That of a connection.
    #[must_use]
    pub fn of(&self, client: u64) -> Option<&Session> {
        self.sessions.get(&client)
    }

    /// Ends that of a connection that is gone.
    pub fn forget(&mut self, client: u64) {
        self.sessions.remove(&client);
    }
}
