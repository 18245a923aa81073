//! What a kind of port needs of the kernel: *calls*, and what each *argument* of theirs must be.

use std::path::PathBuf;

/// An argument of which the bits of `mask` are those of `value`.
#[derive(Clone, Copy, PartialEq)]
pub struct Argument {
    /// Which, from 0.
    pub index: u8,
    /// The bits that are compared.
    pub mask: u64,
    /// What they are.
    pub value: u64,
}

/// An `int`: of its register, the kernel reads 32 bits.
pub const fn int(index: u8, value: libc::c_int) -> Argument {
    Argument { index, mask: u32::MAX as u64, value: value.cast_unsigned() as u64 }
}

/// None of these bits.
pub(super) const fn without(index: u8, bits: u64) -> Argument {
    Argument { index, mask: bits, value: 0 }
}

/// No pointer.
pub(super) const fn null(index: u8) -> Argument {
    without(index, u64::MAX)
}

/// A system call, and what its arguments must be: all of one line. Without a line, they may be anything.
pub type Calls = (i64, &'static [&'static [Argument]]);

/// What a kind of port needs of the kernel, besides what every daemon does. All kinds' is allowed from the start: a
/// port may be attached at any time.
pub struct KernelNeeds {
    /// System calls whatever their arguments.
    pub any: &'static [i64],
    /// System calls with some arguments only.
    pub calls: &'static [Calls],
    /// System calls of which an `int` has one of these values: the call, and the argument's index.
    pub values: &'static [(i64, u8, &'static [u32])],
    /// Devices that are opened, and folders of devices.
    pub devices: fn() -> Vec<PathBuf>,
    /// Folders that are listed.
    pub listed: &'static [&'static str],
    /// Files that are read.
    pub read: &'static [&'static str],
    /// Folders with sockets of peers.
    pub sockets: &'static [&'static str],
}

impl KernelNeeds {
    /// Nothing.
    pub const NOTHING: KernelNeeds =
        KernelNeeds { any: &[], calls: &[], values: &[], devices: Vec::new, listed: &[], read: &[], sockets: &[] };
}
