//! Why a connection ended.

use std::time::Duration;

use netvale_mem::lent::InUse;
use rustix::io::Errno;
use thiserror::Error;

use crate::session::Refused;
use crate::wire::{HEADER, MAX_FDS, MAX_MESSAGE};

/// The longest wait for the rest of a message, or for room for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum Ended {
    /// The client hung up.
    #[error("the client hung up")]
    Closed,
    /// `stop` became readable.
    #[error("the service stopped")]
    Stopped,
    /// The client broke the protocol.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A header says an impossible length.
    #[error("invalid message length {0}: must be {HEADER} to {MAX_MESSAGE} bytes")]
    Length(u32),
    /// Too many descriptors came.
    #[error("a message with more than {MAX_FDS} descriptors")]
    Descriptors,
    /// A message was begun and not finished, or an answer was not taken.
    #[error("the client stalled: no progress for {0} s", TIMEOUT.as_secs())]
    Stalled,
    /// The device no longer works.
    #[error("a queue of the device: {0}")]
    Device(#[from] InUse),
    /// A system call failed.
    #[error("the connection: {0}")]
    System(#[from] Errno),
}

impl Ended {
    /// The reason, unless the client hung up or the service stopped.
    pub fn reason(&self) -> Option<String> {
        (!matches!(self, Ended::Closed | Ended::Stopped)).then(|| self.to_string())
    }
}
