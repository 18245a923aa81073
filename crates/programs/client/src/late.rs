//! Ports opened at their first use.

use std::os::fd::OwnedFd;

use crate::connect::connect_to;
use crate::{Error, Options, Port};

/// A port that is opened at its first use. It is opened with the credentials that the program had when it created this
/// value, as many programs drop privileges before they send.
pub struct LatePort {
    name: String,
    state: LateState,
}

enum LateState {
    /// The connection to the daemon is made, which gives the daemon the program's credentials, but the port is not open
    /// yet.
    Named(OwnedFd),
    Open(Box<Port>),
    /// Opening the port has failed.
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

    /// Returns the port if it is open, otherwise `None`.
    pub fn opened(&mut self) -> Option<&mut Port> {
        if let LateState::Open(port) = &mut self.state { Some(port) } else { None }
    }

    /// Returns the port, and opens it if necessary.
    ///
    /// # Errors
    /// The errors of [`Port::open`]; [`Error::Closed`] if an earlier attempt to open it failed.
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
