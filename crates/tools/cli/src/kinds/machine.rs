//! Virtual machines: programs that run them, and what is printed for them.

use super::Installed;

/// The machine that a port is for.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// The program that runs it.
    pub vmm: Vmm,
    /// Its memory, as in QEMU's -m.
    pub memory: &'a str,
    /// The QEMU of this host.
    pub installed: Installed,
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

/// What attaches a guest, and what its owner should know besides.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// The arguments.
    pub text: String,
    /// The notes.
    pub notes: Vec<String>,
}

impl From<String> for Printed {
    fn from(text: String) -> Printed {
        Printed { text, notes: Vec::new() }
    }
}
