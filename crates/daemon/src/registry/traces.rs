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
    /// The switch; `None` until there is one.
    pub switch: Option<Arc<Switch>>,
    /// Names of ports or of the switch, of which ports that come later are traced, too.
    pub later: Vec<String>,
}

impl Session {
    /// Traces a port that is new on its switch. Another switch of the same name may have been there before.
    fn follow(&mut self, switch: &Arc<Switch>, port: &str) {
        if !self.switch.as_ref().is_some_and(|known| Arc::ptr_eq(known, switch)) {
            self.leave();
            self.switch = Some(Arc::clone(switch));
        }
        // One that is gone again sends nothing.
        let _ = switch.trace(port, &self.trace);
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
    pub fn follow(&mut self, switch: &Arc<Switch>, port: &str, is_controlled_by: impl Fn(Caller) -> bool) {
        let full = format!("{}:{port}", switch.name());
        let is_meant = |name: &String| *name == full || name == switch.name();
        for session in self.sessions.values_mut() {
            if session.later.iter().any(is_meant) && is_controlled_by(session.caller) {
                session.follow(switch, port);
            }
        }
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
