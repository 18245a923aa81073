//! Why a device cannot be had.

use thiserror::Error;

/// Why a device cannot be had.
#[derive(Debug, Error)]
pub enum Error {
    /// A PCI function cannot be had.
    #[error(transparent)]
    Pci(#[from] netvale_pci::PciError),
    /// The host said no.
    #[error("{text}")]
    Refused {
        /// The errno.
        errno: i32,
        /// The reason, and advice.
        text: String,
    },
    /// A device, or what the host says of it, that is of no use.
    #[error("{0}")]
    Device(&'static str),
    /// The host closed the connection.
    #[error("the host closed the port")]
    Closed,
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
        move |e| Error::System { what, source: e.into() }
    }
}
