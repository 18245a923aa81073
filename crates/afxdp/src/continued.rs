//! What another process of the daemon had open is continued. It is looked at and not changed: that process may go on
//! with it.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, sockopt};
use thiserror::Error;

/// What came is not what is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotContinued(pub &'static str);

/// Takes the next of some descriptors.
///
/// # Errors
/// [`NotContinued`] if there is none.
pub fn next(fds: &mut impl Iterator<Item = OwnedFd>) -> Result<OwnedFd, NotContinued> {
    fds.next().ok_or(NotContinued("descriptors are missing"))
}

/// Checks that it is a socket of that family.
///
/// # Errors
/// [`NotContinued`] if not.
pub fn is_socket(fd: &OwnedFd, family: AddressFamily) -> Result<(), NotContinued> {
    let is_it = sockopt::socket_domain(fd) == Ok(family);
    is_it.then_some(()).ok_or(NotContinued("a descriptor is no such socket"))
}
