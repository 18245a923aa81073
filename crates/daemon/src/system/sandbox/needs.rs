//! Needs of a kind of port: the *calls* and files that the sandbox has to permit for it, with the required value of
//! each *argument*.

use std::path::PathBuf;

/// A condition on an argument of a call: its bits in `mask` equal `value`.
#[derive(Clone, Copy, PartialEq)]
pub struct Argument {
    /// Index of the argument, from 0.
    pub index: u8,
    /// Bits that are compared.
    pub mask: u64,
    /// Required value of these bits.
    pub value: u64,
}

/// Returns the condition that an `int` equals `value`. The kernel reads 32 bits of the register.
pub const fn int(index: u8, value: libc::c_int) -> Argument {
    Argument { index, mask: u32::MAX as u64, value: value.cast_unsigned() as u64 }
}

/// Returns the condition that none of these bits is set.
pub(super) const fn without(index: u8, bits: u64) -> Argument {
    Argument { index, mask: bits, value: 0 }
}

/// Returns the condition that a pointer is null.
pub(super) const fn null(index: u8) -> Argument {
    without(index, u64::MAX)
}

/// A system call, with alternative lists of conditions on arguments. All conditions of a list must hold. Without lists,
/// any arguments match.
pub type Calls = (i64, &'static [&'static [Argument]]);

/// Needs of a kind of port beyond those of every daemon. The sandbox permits the needs of all kinds from the start,
/// because a port may be attached at any time.
pub struct KernelNeeds {
    /// System calls with any arguments.
    pub any: &'static [i64],
    /// System calls with restricted arguments.
    pub calls: &'static [Calls],
    /// System calls with a list of permitted values for one `int`: the call, the argument's index, the values.
    pub values: &'static [(i64, u8, &'static [u32])],
    /// Devices to open, and folders of devices.
    pub devices: fn() -> Vec<PathBuf>,
    /// Folders to list.
    pub listed: &'static [&'static str],
    /// Files to read.
    pub read: &'static [&'static str],
    /// Folders with sockets of peers.
    pub sockets: &'static [&'static str],
}

impl KernelNeeds {
    /// No needs.
    pub const NOTHING: KernelNeeds =
        KernelNeeds { any: &[], calls: &[], values: &[], devices: Vec::new, listed: &[], read: &[], sockets: &[] };
}
