//! Needs of a kind of port: the *calls* and files that the sandbox has to permit for it, with the required value of
//! each *argument*.

use std::path::PathBuf;

pub use netvale_confine::calls::{Argument, Calls, int};

/// Needs of a kind of port beyond those of every daemon. The sandbox permits the needs of all kinds from the start,
/// because a port may be attached at any time.
pub struct KernelNeeds {
    /// System calls with any arguments.
    pub any: &'static [i64],
    /// System calls with restricted arguments.
    pub calls: &'static [Calls],
    /// System calls with a list of permitted values for one `int`: the call, the argument's index, the values.
    pub values: &'static [(i64, u8, &'static [u32])],
    /// Returns the devices to open, and the folders of such devices.
    pub devices: fn() -> Vec<PathBuf>,
    /// Folders to list.
    pub listed: &'static [&'static str],
    /// Files to read.
    pub read: &'static [&'static str],
    /// Folders with peers' sockets, to connect to.
    pub sockets: &'static [&'static str],
}

impl KernelNeeds {
    /// No needs.
    pub const NOTHING: KernelNeeds =
        KernelNeeds { any: &[], calls: &[], values: &[], devices: Vec::new, listed: &[], read: &[], sockets: &[] };
}
