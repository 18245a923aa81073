//! The caller of a request.

/// A connection, with the credentials of its other end as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Number of the connection.
    pub client: u64,
    /// User ID.
    pub uid: u32,
    /// Process ID.
    pub pid: i32,
}

impl Caller {
    /// Returns the daemon itself as the caller, for the ports of its configuration.
    pub fn daemon() -> Caller {
        let uid = rustix::process::getuid().as_raw();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Caller { client: 0, uid, pid }
    }
}

/// Whether the user is root or the daemon's own.
pub fn is_trusted_user(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
