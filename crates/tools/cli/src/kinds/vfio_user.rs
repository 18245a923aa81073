//! Arguments common to all kinds of ports that QEMU attaches as vfio-user devices.

use super::{GuestArguments, GuestMachine, Vmm};
use crate::CliError;

/// Returns the arguments that attach vfio-user devices to a virtual machine, whose memory must be shared, as for vhost
/// ports.
pub(super) fn arguments(
    sockets: &[&str],
    machine: GuestMachine<'_>,
    otherwise: &str,
) -> Result<GuestArguments, CliError> {
    let GuestMachine { vmm, memory, installed } = machine;
    let all = |of: &dyn Fn(&str) -> String| sockets.iter().map(|path| of(path)).collect::<Vec<_>>().join(" ");
    match vmm {
        Vmm::Qemu => {
            let device = |path: &str| {
                format!(r#"-device {{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}}}}"#)
            };
            let shared = format!("-object memory-backend-memfd,id=mem,size={memory},share=on");
            let text = format!("{shared} -machine memory-backend=mem -m {memory} {}", all(&device));
            Ok(GuestArguments { text, notes: installed.lacks_vfio_user().into_iter().collect() })
        }
        Vmm::CloudHypervisor => {
            let device = |path: &str| format!("--user-device socket={path}");
            Ok(format!("--memory size={memory},shared=on {}", all(&device)).into())
        }
        Vmm::Libvirt | Vmm::Uml => {
            Err(CliError::usage("a vfio-user port needs QEMU 10.1 or newer, or cloud-hypervisor".to_owned(), otherwise))
        }
    }
}
