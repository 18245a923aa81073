//! The devices that netmap published, in a virtual machine, driven in the same order as by netmap's own drivers.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::published;
use crate::common::up;

use guest::{Guest, Nic, begin};
use machines::{no_complaints, port};
use published::{FIND, driver, echo};
use up::until;

/// Script that finds the devices, and runs the driver on them without and with a header, and again through vfio if the
/// machine has an IOMMU.
const DRIVE: &str = "
if grep -q intel_iommu /proc/cmdline; then
    echo vfio-pci >/sys/bus/pci/devices/$at/driver_override
    echo $at >/sys/bus/pci/drivers_probe
    for header in 0 12; do published vfio $at $memory $header || exit 1; done
    exit
fi
for header in 0 12; do published sysfs $at $memory $header || exit 1; done
";

/// Runs the driver in a guest on a port with these options. Returns its output; `None` if guests cannot run here.
fn drive(options: &str, iommu: bool) -> Option<String> {
    let (_one, image, up) = begin(&[])?;
    let socket = port(&up, "two", options);
    let _echo = echo(up.dir(), "vale0:echo");
    let program = driver(up.dir());
    let more = ["-device", "intel-iommu,intremap=on,caching-mode=on"].map(String::from);
    let mut nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    if iommu {
        nic = Nic { more: &more, machine: ",kernel-irqchip=split", kernel: " intel_iommu=on", ..nic };
    }
    let shown = Guest::start_with(image, &format!("{FIND}{DRIVE}"), 2, &nic, &[(&program, "/bin/published")]).end();
    no_complaints(&shown);
    until("the port is free", || up.notes("vale0:two").contains("waits for a virtual machine"));
    Some(shown)
}

/// Objective: when their driver is loaded, opened, closed, opened again and loaded again, with a header and without,
/// the devices carry frames of one slot and of several in both directions, with the status blocks at physical
/// addresses.
#[test]
fn in_the_drivers_order() {
    let Some(shown) = drive("--vfio-user --vnet-hdr --slots 64", false) else { return };
    for header in [0, 12] {
        assert!(shown.contains(&format!("exchanged with a header of {header}, 1 rings, polling")), "{shown}");
    }
}

/// Objective: behind an IOMMU, the published devices carry frames on two queues, and their interrupts wake the driver.
#[test]
fn interrupts_wake_a_guest_behind_an_iommu() {
    let Some(shown) = drive("--vfio-user --vnet-hdr --rings 2", true) else { return };
    for header in [0, 12] {
        assert!(shown.contains(&format!("exchanged with a header of {header}, 2 rings, interrupted")), "{shown}");
    }
}
