//! What another process of the daemon had open is continued. It is looked at and not changed: that process may go on
//! with it.

use std::os::fd::OwnedFd;

use netvale_fdio::state::BadState;
use rustix::net::{AddressFamily, sockopt};

/// Checks that it is a socket of that family.
///
/// # Errors
/// [`BadState`] if not.
pub fn is_socket(fd: &OwnedFd, family: AddressFamily) -> Result<(), BadState> {
    let is_it = sockopt::socket_domain(fd) == Ok(family);
    is_it.then_some(()).ok_or_else(|| BadState::new("a descriptor is no such socket"))
}
