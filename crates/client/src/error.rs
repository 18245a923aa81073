//! What can go wrong for a client.

use std::path::PathBuf;

use netvale_control::attach::BadMessage;
use netvale_portspec::ParseError;
use thiserror::Error;

/// Why a port cannot be opened or used.
#[derive(Debug, Error)]
pub enum Error {
    /// A PCI function cannot be had.
    #[error(transparent)]
    Pci(#[from] netvale_pci::PciError),
    /// A ptnet device of this virtual machine cannot be had.
    #[error(transparent)]
    Passthrough(#[from] netvale_guest::passthrough::PassthroughError),
    /// The name is not in netmap's grammar.
    #[error("not a port name\n{0}")]
    Name(#[from] ParseError),
    /// No daemon listens.
    #[error("no netvale daemon at {path}: {source}; start one with 'netvale up --run-dir {dir}'")]
    NoDaemon {
        /// Socket.
        path: PathBuf,
        /// Directory of the socket.
        dir: String,
        /// What connect(2) said.
        source: std::io::Error,
    },
    /// The daemon said no.
    #[error("{text}")]
    Refused {
        /// An errno as netmap gives it.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// The daemon said no to the offsets that were asked for.
    #[error("{text}")]
    Offsets {
        /// An errno as netmap gives it.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// The daemon said no to the file that the region was to lie in.
    #[error("{text}")]
    File {
        /// The errno.
        errno: i32,
        /// The daemon's reason and advice.
        text: String,
    },
    /// What came back is not an answer.
    #[error("the daemon's answer cannot be used: {0}")]
    Protocol(#[from] BadMessage),
    /// An answer whose parts do not fit each other.
    #[error("the daemon's answer cannot be used: {0}")]
    Inconsistent(&'static str),
    /// A device of this virtual machine, or what the host says of it, that is of no use.
    #[error("{0}")]
    Device(&'static str),
    /// The daemon closed the connection.
    #[error("the daemon closed the port: it was detached, or the daemon ended")]
    Closed,
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// An interface, or a queue of it, cannot be had by this program.
    #[error(transparent)]
    Nic(#[from] netvale_afxdp::NicError),
    /// A region could not be made.
    #[error(transparent)]
    Region(#[from] netvale_mem::RegionError),
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
        move |e| Error::System { what, source: e.into() }
    }
}
