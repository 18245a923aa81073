//! The reasons why a client's connection ends.

use std::time::Duration;

use netvale_mem::lent::InUse;
use rustix::io::Errno;
use thiserror::Error;

use crate::wire::{HEADER, MAX_FDS, MAX_MESSAGE};

/// Maximum time to wait for the rest of a message, or for room in the socket when an answer is sent.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// A protocol violation, which ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClientViolation {
    /// The first message was not a version request.
    #[error("the first message is command {0}: expected a version request")]
    NotAVersion(u16),
    /// The client's version is not supported.
    #[error("protocol version {0}: expected version 0")]
    Version(u16),
    /// The client sent a reply, although it was sent no request.
    #[error("unexpected reply (command {0})")]
    Reply(u16),
    /// The message is too short for its command.
    #[error("message of command {0} is truncated")]
    Short(u16),
}

/// The reason for a connection's end.
#[derive(Debug, Error)]
pub enum ConnectionEnd {
    /// The client hung up.
    #[error("the client hung up")]
    Closed,
    /// The descriptor `stop` of [`crate::serve::serve`] became readable.
    #[error("the service stopped")]
    Stopped,
    /// The client violated the protocol.
    #[error(transparent)]
    Refused(#[from] ClientViolation),
    /// The length in a message's header is out of range.
    #[error("invalid message length {0}: expected {HEADER} to {MAX_MESSAGE} bytes")]
    Length(u32),
    /// More than [`MAX_FDS`] descriptors arrived with unparsed messages.
    #[error("the client sent a message with more than {MAX_FDS} descriptors")]
    Descriptors,
    /// For [`TIMEOUT`], the client neither completed a message that it had begun nor made room for an answer.
    #[error("the client stalled: no progress for {0} s", TIMEOUT.as_secs())]
    Stalled,
    /// A worker thread did not return one of the device's queues in time.
    #[error("a queue of the device is still in use: {0}")]
    Device(#[from] InUse),
    /// A system call failed.
    #[error("the connection failed: {0}")]
    System(#[from] Errno),
}

impl ConnectionEnd {
    /// Returns the reason in words; `None` if the client hung up or the service stopped.
    pub fn reason(&self) -> Option<String> {
        (!matches!(self, ConnectionEnd::Closed | ConnectionEnd::Stopped)).then(|| self.to_string())
    }
}
