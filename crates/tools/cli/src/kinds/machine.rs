//! Programs that run virtual machines, and the arguments for them.

use super::VmSupport;

/// The virtual machine that a port is for.
#[derive(Clone, Copy)]
pub struct GuestMachine<'a> {
    /// The virtual machine monitor: the program that runs the machine.
    pub vmm: Vmm,
    /// The machine's memory, in the form of QEMU's -m.
    pub memory: &'a str,
    /// The installed QEMU, and whether this user may use KVM.
    pub installed: VmSupport,
}

/// Programs that run virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Vmm {
    /// QEMU's command line.
    #[default]
    Qemu,
    /// cloud-hypervisor's command line.
    CloudHypervisor,
    /// The elements of a libvirt domain.
    Libvirt,
    /// User-Mode Linux's command line.
    Uml,
}

/// Arguments that attach a guest, and notes for its owner.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GuestArguments {
    /// The arguments.
    pub text: String,
    /// The notes.
    pub notes: Vec<String>,
}

impl From<String> for GuestArguments {
    fn from(text: String) -> GuestArguments {
        GuestArguments { text, notes: Vec::new() }
    }
}
