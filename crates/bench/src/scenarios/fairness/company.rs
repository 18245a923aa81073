//! Who is beside a bystander.

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::error::Result;

/// Whom attackers are, who should not be trusted.
const STRANGER: u32 = 70_001;

/// What another user gets done, as the daemon sees it: root and its own user may do what others may not. If this process
/// cannot be another user, its own.
pub fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return act();
    }
    let (user, group) = (Uid::from_raw(STRANGER), Gid::from_raw(STRANGER));
    let act = move || {
        // Of this thread alone. Root's own requests, if it fails: the figures say so.
        let _ = set_thread_res_gid(group, group, group).and_then(|()| set_thread_res_uid(user, user, user));
        act()
    };
    std::thread::scope(|scope| match scope.spawn(act).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Somebody beside the bystander, who has a turn in each of its rounds.
pub trait Company: Send {
    /// Does what it does, without waiting.
    ///
    /// # Errors
    /// It cannot go on.
    fn turn(&mut self) -> Result<()>;
}
