//! Virtual machines: programs that run them, and the output for them.

use super::Installed;

/// The machine for a port.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// Its virtual machine monitor.
    pub vmm: Vmm,
    /// Its memory, in the form of QEMU's -m.
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

/// The arguments that attach a guest, and notes for its owner.
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
