//! Who asks.

/// A connection and the credentials that the kernel vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The connection.
    pub client: u64,
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: i32,
}

impl Caller {
    /// The daemon itself, for the ports of its configuration.
    pub fn daemon() -> Caller {
        let (uid, pid) = (rustix::process::getuid().as_raw(), rustix::process::getpid().as_raw_nonzero().get());
        Caller { client: 0, uid, pid }
    }
}
