//! The error of the client library.

use std::time::Duration;

use netvale_control::attach::BadMessage;
use netvale_control::client::ClientError;
use netvale_portspec::ParseError;
use thiserror::Error;

/// An error in opening or using a port.
#[derive(Debug, Error)]
pub enum Error {
    /// A PCI function cannot be opened.
    #[error(transparent)]
    Pci(#[from] netvale_pci::PciError),
    /// A ptnet device of this virtual machine cannot be opened.
    #[error(transparent)]
    Passthrough(#[from] netvale_guest::passthrough::PassthroughError),
    /// The name does not follow netmap's grammar.
    #[error("invalid port name\n{0}")]
    Name(#[from] ParseError),
    /// No daemon listens, or this user may not connect to it.
    #[error(transparent)]
    NoDaemon(ClientError),
    /// The daemon refused the request for a reason that no other variant states.
    #[error("{text}")]
    Refused {
        /// The errno, as netmap returns it.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// The daemon refused the requested offsets.
    #[error("{text}")]
    Offsets {
        /// The errno, as netmap returns it.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// The daemon refused the file for the region.
    #[error("{text}")]
    File {
        /// The errno.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// The daemon's answer is malformed.
    #[error("the daemon's answer cannot be used: {0}")]
    Protocol(#[from] BadMessage),
    /// The parts of an answer contradict each other.
    #[error("the daemon's answer cannot be used: {0}")]
    Inconsistent(&'static str),
    /// A device of this virtual machine, or the host's description of it, is unusable.
    #[error("{0}")]
    Device(&'static str),
    /// The daemon closed the connection.
    #[error("the daemon closed the port: it was detached, or the daemon ended")]
    Closed,
    /// The daemon did not answer in time.
    #[error("the daemon did not answer within {0:?}: see the daemon's log; if the daemon hangs, restart it")]
    Timeout(Duration),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed step.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// This program cannot itself open an interface or one of the interface's queues.
    #[error(transparent)]
    Nic(#[from] netvale_afxdp::NicError),
    /// A region could not be created.
    #[error(transparent)]
    Region(#[from] netvale_mem::RegionError),
}

impl Error {
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> Error {
        move |e| Error::System { what, source: e.into() }
    }
}
