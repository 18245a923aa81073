//! The PVP test with a booted guest: DPDK's testpmd in the guest drives the virtio-net device of a vhost port.
//!
//! Debian's kernel has no VFIO without an IOMMU. The device is therefore driven through `uio_pci_generic`, which maps
//! its registers into programs; DPDK then needs physical addresses, and therefore hugepages. The machine is emulated in
//! software: rates compare the devices and their features, not processors.

use super::roles::BURST;
use super::*;
use crate::peers::newer_dpdk;
use crate::sys::machine::{GuestProgram, Image, LIMIT, Machine, MachineSpec};

/// The guest's memory in MiB.
const MEMORY: u32 = 512;
/// Number of the guest's 2 MiB pages for DPDK.
const PAGES: u32 = 64;
/// The image's folder of kernel modules that map devices into programs.
const MODULES: &str = "uio";
/// Drivers that testpmd loads as plugins: the device's driver, and the driver of its buffer pools.
const PLUGINS: [&str; 2] = ["librte_net_virtio.so", "librte_mempool_ring.so"];
/// Paths of [`PLUGINS`] in the guest, as used by [`script`].
const PLACES: [&str; 2] = ["/dpdk/librte_net_virtio.so", "/dpdk/librte_mempool_ring.so"];

const MODULE: &[Need] = &[Need::Found(|| Image::find()?.modules(MODULES).map(drop))];
const NEEDS: Needs = &[testpmd::NEEDS, guest::BOOTING, MODULE];

/// The scenario: the device with merged receive buffers (`mrg_rxbuf=on`), and without.
pub const SCENARIO: Scenario = Scenario {
    name: "pvp-booted",
    about: "generator, vhost port, a booted guest (QEMU, emulated) with DPDK's testpmd (mac), and back: \
        mrg_rxbuf=on, off",
    variants: variants![SHORT => "mac mergeable", "mac non-mergeable"],
    needs: NEEDS,
    start: |case, cores| start(case, cores, true),
};

/// Returns the peer: the same test with DPDK's vhost device.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "dpdk-pvp", "testpmd with net_null and net_vhost; testpmd in the booted guest"; NEEDS,
        |case| SCENARIO.has(case), |case, cores| start(case, cores, false);
    }
}

/// A machine that is stopped by a signal, like other processes, which is safe because its program only polls. QEMU's
/// own command to stop a machine would also stop the device.
struct PollingMachine(Machine);

impl Part for PollingMachine {
    fn children(&self) -> Vec<&Child> {
        vec![self.0.child()]
    }
}

fn start(case: &Case, cores: Cores, is_ours: bool) -> Result<Session> {
    let place = Place::new(1, 0)?;
    let namespace = Netns::new()?;
    let socket = place.file("vhost.sock");
    let host = End::host(case, is_ours, &socket, cores.0, &place)?;
    let machine = boot(case, cores.1, &socket, &namespace)?;
    machine.child().expect("Press enter to exit", LIMIT)?;
    let words = format!("host on CPU {}, the machine (emulated processor and devices) on CPU {}", cores.0, cores.1);
    let session = settled(case, words, host, Rc::new(PollingMachine(machine)))?;
    Ok(session.keeping(place).keeping(namespace))
}

/// Boots a machine in which testpmd forwards.
fn boot(case: &Case, core: usize, socket: &str, namespace: &Netns) -> Result<Machine> {
    let image = Image::find()?;
    let program = "dpdk-testpmd";
    let missing = || Skip::NotInstalled { program, package: "dpdk-dev" };
    let plugins = newer_dpdk::drivers(Path::new("/")).ok_or_else(missing)?;
    let [driver, pool] = PLUGINS.map(|name| plugins.join(name));
    let [driver_place, pool_place] = PLACES;
    let testpmd = sys::find_program(program).ok_or_else(missing)?;
    let program = |from, to| GuestProgram { from, to };
    let programs =
        vec![program(testpmd, "/bin/dpdk-testpmd"), program(driver, driver_place), program(pool, pool_place)];
    let merged = if case.variant.ends_with("non-mergeable") { "off" } else { "on" };
    let chardev = format!("socket,id=c0,path={socket}");
    let device = format!("virtio-net-pci,netdev=n0,romfile=,mrg_rxbuf={merged}");
    let devices = ["-chardev", &chardev, "-netdev", "vhost-user,id=n0,chardev=c0", "-device", &device];
    let devices = devices.map(str::to_owned).to_vec();
    let modules = Some(MODULES);
    let spec = MachineSpec {
        cores: vec![core],
        script: script(),
        devices,
        memory: MEMORY,
        modules,
        programs,
        ..MachineSpec::default()
    };
    Machine::boot(&image, namespace, &spec)
}

/// Returns the script that gives the device to testpmd, which forwards until the machine ends.
fn script() -> String {
    let plugins = PLACES.map(|place| format!("-d {place}")).join(" ");
    format!(
        r#"
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor")" = 0x1af4 ] && card=$(basename "$device")
done
echo "$card" >/sys/bus/pci/drivers/virtio-pci/unbind
echo uio_pci_generic >"/sys/bus/pci/devices/$card/driver_override"
echo "$card" >/sys/bus/pci/drivers_probe
echo {PAGES} >/proc/sys/vm/nr_hugepages
mkdir -p /huge
mount -t hugetlbfs none /huge
export RUNTIME_DIRECTORY=/run
dpdk-testpmd --lcores 0@0,1@0 -m 64 --huge-dir /huge --no-telemetry --iova-mode=pa {plugins} -a "$card" -- \
    --forward-mode=mac --burst={BURST} --nb-cores=1 --total-num-mbufs=8192 --no-lsc-interrupt --no-mlockall \
    </dev/ttyS0 2>&1
"#
    )
}
