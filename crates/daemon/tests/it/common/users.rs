//! Acting as other users.
#![allow(unsafe_code)]

pub use netvale_harness::attacks::as_user;

/// Switches all threads of this process to that user.
pub fn become_user(uid: u32) {
    // SAFETY: no memory is involved.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) | libc::setresgid(uid, uid, uid) | libc::setresuid(uid, uid, uid)
    };
    assert_eq!(done, 0, "cannot become user {uid}");
}
