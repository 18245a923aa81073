//! The caller of a request.

/// A connection, with the credentials of its peer as reported by the kernel (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Number of the connection.
    pub client: u64,
    pub uid: u32,
    pub pid: i32,
}

impl Caller {
    /// Returns a caller that stands for the daemon itself, for the ports of its configuration.
    pub fn daemon() -> Caller {
        let uid = rustix::process::getuid().as_raw();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Caller { client: 0, uid, pid }
    }
}

/// Whether the user is root or the user as which the daemon runs.
pub fn is_trusted_user(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
