//! What hostile users do with what is theirs, where more than one of tests, soak and measurements does it.
//!
//! | module | what it is |
//! |---|---|
//! | [`bells`] | wake-ups that block, or that very many descriptors watch |
//! | [`filters`] | rules and sockets that take long to judge a frame |
//! | [`front_end`] | a vhost-user front end whose virtqueues are written by hand |
//! | [`holes`] | memory that is being taken away, very slowly |
//!
//! All of it ends when it is dropped.

pub mod bells;
pub mod filters;
pub mod front_end;
pub mod holes;

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// What a thread of that user's gets done, seen from outside. The other threads of this process stay whose they are.
///
/// # Panics
/// This process is not root's, and cannot be that user; `act` panics.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_res_gid(group, group, group).expect("only root becomes another user");
        set_thread_res_uid(user, user, user).expect("only root becomes another user");
        act()
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
