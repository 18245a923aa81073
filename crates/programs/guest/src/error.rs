//! The error in opening a device.

use thiserror::Error;

/// The reason why a device cannot be opened.
#[derive(Debug, Error)]
pub enum GuestError {
    /// A PCI function cannot be opened.
    #[error(transparent)]
    Pci(#[from] netvale_pci::PciError),
    /// The host refused to start the device.
    #[error("{text}")]
    Refused {
        /// The errno.
        errno: i32,
        /// The reason, and what to do.
        text: String,
    },
    /// A device, or the host's description of it, is unusable.
    #[error("{0}")]
    Device(&'static str),
    /// The host closed the connection.
    #[error("the host closed the port")]
    Closed,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed step.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl GuestError {
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> GuestError {
        move |e| GuestError::System { what, source: e.into() }
    }

    /// Checks the errno with which the host has answered the command to start the rings; 0 for success.
    pub(crate) fn check_start(errno: u32) -> Result<(), GuestError> {
        let text = "the host did not start the rings".into();
        if errno == 0 { Ok(()) } else { Err(GuestError::Refused { errno: errno.cast_signed(), text }) }
    }
}
