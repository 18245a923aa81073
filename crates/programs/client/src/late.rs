//! Ports opened at their first use.

use std::os::fd::OwnedFd;

use crate::connect::connect_to;
use crate::{Error, Options, Port};

/// A port that is opened at its first use, but with the program's rights at the time it was named: many programs give
/// up their rights before they send.
pub struct LatePort {
    name: String,
    state: State,
}

enum State {
    /// Connected, not yet open: the daemon knows the caller's credentials.
    Named(OwnedFd),
    Open(Box<Port>),
    /// The port could not be opened.
    Failed,
}

impl LatePort {
    /// Connects to the daemon.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no daemon listens.
    pub fn new(name: &str) -> Result<LatePort, Error> {
        Ok(LatePort { name: name.to_owned(), state: State::Named(connect_to(None)?) })
    }

    /// The port, if already open.
    pub fn opened(&mut self) -> Option<&mut Port> {
        if let State::Open(port) = &mut self.state { Some(port) } else { None }
    }

    /// The port, opened now if necessary.
    ///
    /// # Errors
    /// Like [`Port::open`]; [`Error::Closed`] if that failed before.
    pub fn open(&mut self) -> Result<&mut Port, Error> {
        if let State::Named(_) = self.state
            && let State::Named(conn) = std::mem::replace(&mut self.state, State::Failed)
        {
            self.state = State::Open(Box::new(Port::open_on(conn, &self.name, &Options::default())?));
        }
        match &mut self.state {
            State::Open(port) => Ok(port),
            _ => Err(Error::Closed),
        }
    }
}
