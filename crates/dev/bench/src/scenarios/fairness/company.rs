//! The program that runs beside the bystander, the measured pair of ports.

use netvale_harness::attacks::as_user;

use super::*;

/// Uid of the untrusted user as whom attackers run.
const STRANGER: u32 = 70_001;

/// Runs `act` as another user, because the daemon permits root and its own user more than others. If this process may
/// not change its user, runs it as is. Returns the result of `act`.
pub fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return act();
    }
    as_user(STRANGER, act)
}

/// A program beside the bystander. The program gets a turn in each of the bystander's rounds, and must not block during
/// its turn.
pub type Company = Box<dyn FnMut() -> Result<()> + Send>;
