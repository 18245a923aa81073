//! Kernel requirements of a kind of port: *calls*, with the required value of each *argument*.

use std::path::PathBuf;

/// An argument whose bits in `mask` equal `value`.
#[derive(Clone, Copy, PartialEq)]
pub struct Argument {
    /// Its index, from 0.
    pub index: u8,
    /// The compared bits.
    pub mask: u64,
    /// Their value.
    pub value: u64,
}

/// An `int`: the kernel reads 32 bits of its register.
pub const fn int(index: u8, value: libc::c_int) -> Argument {
    Argument { index, mask: u32::MAX as u64, value: value.cast_unsigned() as u64 }
}

/// None of these bits.
pub(super) const fn without(index: u8, bits: u64) -> Argument {
    Argument { index, mask: bits, value: 0 }
}

/// A null pointer.
pub(super) const fn null(index: u8) -> Argument {
    without(index, u64::MAX)
}

/// A system call, with alternative lines of arguments; all arguments of a line must match. Without lines, any arguments
/// match.
pub type Calls = (i64, &'static [&'static [Argument]]);

/// Kernel requirements of a kind of port beyond those of every daemon. Those of all kinds are permitted from the start:
/// a port may be attached at any time.
pub struct KernelNeeds {
    /// System calls with any arguments.
    pub any: &'static [i64],
    /// System calls with restricted arguments.
    pub calls: &'static [Calls],
    /// System calls with a list of values for one `int`: the call, the argument's index, the values.
    pub values: &'static [(i64, u8, &'static [u32])],
    /// Devices to open, and folders of devices.
    pub devices: fn() -> Vec<PathBuf>,
    /// Folders to list.
    pub listed: &'static [&'static str],
    /// Files to read.
    pub read: &'static [&'static str],
}

impl KernelNeeds {
    /// No requirements.
    pub const NOTHING: KernelNeeds =
        KernelNeeds { any: &[], calls: &[], values: &[], devices: Vec::new, listed: &[], read: &[] };
}
