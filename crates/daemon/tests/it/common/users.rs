//! What other users do.
#![allow(unsafe_code)]

/// All threads of this process are that user's from now on.
pub fn become_user(uid: u32) {
    // SAFETY: no memory is involved.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) | libc::setresgid(uid, uid, uid) | libc::setresuid(uid, uid, uid)
    };
    assert_eq!(done, 0, "cannot become user {uid}");
}

/// What a thread of that user's gets done, seen from outside.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // SAFETY: no memory is involved. The system call, unlike the C library's function of that name, changes this thread alone.
        let done = unsafe {
            libc::syscall(libc::SYS_setresgid, uid, uid, uid) | libc::syscall(libc::SYS_setresuid, uid, uid, uid)
        };
        assert_eq!(done, 0, "cannot become user {uid}");
        act()
    };
    std::thread::scope(|s| s.spawn(run).join().unwrap())
}
