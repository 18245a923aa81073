//! Ports opened at their first use.

use std::os::fd::OwnedFd;

use crate::connect::connect_to;
use crate::{Error, Options, Port};

/// A port that is opened at its first use, but with the credentials that the program had when it created this value:
/// many programs drop privileges before they send.
pub struct LatePort {
    name: String,
    state: LateState,
}

enum LateState {
    /// Connected, not yet open. The daemon has the program's credentials.
    Named(OwnedFd),
    Open(Box<Port>),
    /// The open failed.
    Failed,
}

impl LatePort {
    /// Connects to the daemon.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no daemon listens.
    pub fn new(name: &str) -> Result<LatePort, Error> {
        Ok(LatePort { name: name.to_owned(), state: LateState::Named(connect_to(None)?) })
    }

    /// Returns the port if it is open.
    pub fn opened(&mut self) -> Option<&mut Port> {
        if let LateState::Open(port) = &mut self.state { Some(port) } else { None }
    }

    /// Returns the port, and opens it if necessary.
    ///
    /// # Errors
    /// The errors of [`Port::open`]; [`Error::Closed`] if the open failed before.
    pub fn open(&mut self) -> Result<&mut Port, Error> {
        if let LateState::Named(_) = self.state
            && let LateState::Named(conn) = std::mem::replace(&mut self.state, LateState::Failed)
        {
            self.state = LateState::Open(Box::new(Port::open_on(conn, &self.name, &Options::default())?));
        }
        match &mut self.state {
            LateState::Open(port) => Ok(port),
            _ => Err(Error::Closed),
        }
    }
}
