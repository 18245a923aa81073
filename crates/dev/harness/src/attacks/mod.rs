//! Misuse by hostile users of their own resources, shared by tests, the soak and measurements.
//!
//! | module | what it is |
//! |---|---|
//! | [`bells`] | doorbells that block, or that have very many watchers |
//! | [`filters`] | rules and socket filters that take long for each frame |
//! | [`front_end`] | a vhost-user front end whose virtqueues are written by hand |
//! | [`holes`] | memory that is removed very slowly |
//!
//! All of these end when dropped.

pub mod bells;
pub mod filters;
pub mod front_end;
pub mod holes;

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// Runs `act` on a thread with the credentials of the user `uid`, both for the daemon and for the kernel. The other
/// threads of this process keep their credentials.
///
/// # Panics
/// This process is not root and cannot become the user, or `act` panics.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let user = Uid::from_raw(uid);
        let group = Gid::from_raw(uid);
        set_thread_res_gid(group, group, group).expect("only root can become another user");
        set_thread_res_uid(user, user, user).expect("only root can become another user");
        act()
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
