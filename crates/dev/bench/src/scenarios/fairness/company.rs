//! Who is beside a bystander.

use netvale_harness::attacks::as_user;

use super::*;

/// Whom attackers are, who should not be trusted.
const STRANGER: u32 = 70_001;

/// What another user gets done, as the daemon sees it: root and its own user may do what others may not. If this
/// process cannot be another user, its own.
pub fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return act();
    }
    as_user(STRANGER, act)
}

/// Somebody beside the bystander, who has a turn in each of its rounds, and does what it does without waiting.
pub type Company = Box<dyn FnMut() -> Result<()> + Send>;
