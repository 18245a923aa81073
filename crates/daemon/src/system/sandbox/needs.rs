//! Needs of a kind of port: the *calls* and files that the sandbox must permit for the kind, and the required values of
//! the calls' *arguments*.

use std::path::PathBuf;

pub use netvale_confine::calls::{Argument, Calls, int};

/// Needs of a kind of port in addition to the needs of every daemon. The sandbox permits the needs of all kinds from
/// the start, because a port may be attached at any time.
pub struct KernelNeeds {
    /// System calls with any arguments.
    pub any: &'static [i64],
    /// System calls with restricted arguments.
    pub calls: &'static [Calls],
    /// System calls with a list of permitted values for one `int` argument: the call, the index of the argument, the
    /// values.
    pub values: &'static [(i64, u8, &'static [u32])],
    /// Returns the paths of the devices to open, or of the folders with these devices.
    pub devices: fn() -> Vec<PathBuf>,
    /// Folders whose contents may be listed.
    pub listed: &'static [&'static str],
    /// Files that may be read.
    pub read: &'static [&'static str],
    /// Folders with the sockets of peers, to which the daemon may connect.
    pub sockets: &'static [&'static str],
}

impl KernelNeeds {
    /// No needs.
    pub const NOTHING: KernelNeeds =
        KernelNeeds { any: &[], calls: &[], values: &[], devices: Vec::new, listed: &[], read: &[], sockets: &[] };
}
