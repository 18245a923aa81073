//! Traces that connections have asked for: one each, which ends with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_switch::Switch;
use netvale_switch::trace::Trace;

use crate::caller::Caller;

/// A trace of ports of a switch.
pub struct Session {
    /// Who reads it.
    pub caller: Caller,
    /// What workers write.
    pub trace: Arc<Trace>,
    /// The switch.
    pub switch: Arc<Switch>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.switch.end_trace(&self.trace);
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
