//! Arguments for ptnet devices.

use netvale_control::types::PtnetInfo;

use super::{FOR_ANY_MACHINE, GuestArguments, GuestMachine, Vmm, vfio_user};
use crate::CliError;

/// Returns the arguments that attach a ptnet port to a virtual machine.
pub(super) fn arguments(p: &PtnetInfo, machine: GuestMachine<'_>) -> Result<GuestArguments, CliError> {
    let path = &p.path;
    let vectors = p.vectors;
    if let Some(second) = &p.memory {
        let other = "attach the port without --vfio-user";
        return vfio_user::arguments(&[second, path], machine, other);
    }
    match machine.vmm {
        Vmm::Qemu => {
            let device = format!("ivshmem-doorbell,chardev=nv0,vectors={vectors}");
            Ok(format!("-chardev socket,id=nv0,path={path} -device {device}").into())
        }
        Vmm::Libvirt => Ok(format!(
            "<!-- in <devices> -->
<shmem name='netvale'>
  <model type='ivshmem-doorbell'/>
  <server path='{path}'/>
  <msi vectors='{vectors}'/>
</shmem>"
        )
        .into()),
        Vmm::CloudHypervisor | Vmm::Uml => Err(CliError::usage(
            "a ptnet port needs QEMU's ivshmem-doorbell, which this VMM lacks".to_owned(),
            format!("attach it to a vhost port: {FOR_ANY_MACHINE}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::installed::sample;
    use super::*;

    /// Objective: a ptnet device gets the vectors that it needs; for a QEMU that has no vfio-user devices, there is a
    /// note.
    #[test]
    fn a_ptnet_device_has_all_its_vectors() {
        let info = PtnetInfo { path: "/run/s".into(), vectors: 5, ..PtnetInfo::default() };
        let printed = |vmm, info: &PtnetInfo, version| {
            arguments(info, GuestMachine { vmm, memory: "1G", installed: sample(version, false) }).ok()
        };
        let text = |vmm, info: &PtnetInfo| printed(vmm, info, (7, 2)).map(|printed| printed.text);
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.contains("path=/run/s") && t.ends_with("vectors=5")));
        assert!(text(Vmm::Libvirt, &info).is_some_and(|t| t.contains("<msi vectors='5'/>")));
        assert_eq!(text(Vmm::Uml, &info), None);
        let info = PtnetInfo { memory: Some("/run/s.mem".into()), ..info };
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.matches("vfio-user-pci").count() == 2));
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.contains("share=on")));
        assert!(text(Vmm::CloudHypervisor, &info).is_some_and(|t| t.contains("socket=/run/s.mem")));
        let notes = |version| printed(Vmm::Qemu, &info, version).map(|printed| printed.notes.len());
        assert_eq!((notes((7, 2)), notes((10, 1))), (Some(1), Some(0)));
    }
}
