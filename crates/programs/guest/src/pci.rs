//! A ptnet device of this virtual machine, without netvale's driver: the program maps the device's registers and
//! memory.
//!
//! If the device is bound to vfio-pci, which needs an IOMMU, it signals the program by interrupts. If the device is
//! bound to no driver, it is mapped through sysfs, and a waiting program polls it every [`crate::bus::LOOK`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_abi::ptnet::published::{PTNET_DEVICE, VENDOR};
use netvale_mem::Mapping;
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use netvale_pci::PciFunction;

use crate::GuestError;
use crate::bus::{id, mapped, ticking};
use crate::ptnet::{BareGuest, header};
use crate::published::{self, PublishedDevice};

/// PCI ID of QEMU's ivshmem.
const ID: (u16, u16) = (0x1af4, 0x1110);
/// Word index of the doorbell register.
const DOORBELL: usize = 3;
/// Mapped size of the registers in bytes.
const REGISTERS: usize = 4096;
/// BAR numbers of the registers and of the memory.
const BARS: (u32, u32) = (0, 2);

/// A ptnet device that was found on the PCI bus.
pub enum FoundDevice {
    /// netvale's device, whose rings have not been started yet.
    Ptnet(BareGuest),
    /// netmap's own device, whose rings are running.
    Published(Box<PublishedDevice>),
}

/// Opens the device at the PCI address `address` (`0000:00:05.0`). netmap's own device is started, with `hdr_len` bytes
/// of virtio-net header before each frame.
///
/// # Errors
/// [`GuestError::Pci`] or [`GuestError::System`] if a step fails; [`GuestError::Device`] if the device is not a ptnet
/// device.
pub fn open(address: &str, hdr_len: u32) -> Result<FoundDevice, GuestError> {
    if !address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.') {
        return Err(GuestError::Device("expected a PCI address such as 0000:00:05.0"));
    }
    let folder = PathBuf::from("/sys/bus/pci/devices").join(address);
    let id = id(&folder);
    let is_published = id == Some((VENDOR, PTNET_DEVICE));
    if id != Some(ID) && !is_published {
        return Err(GuestError::Device(
            "no ptnet device: 'lspci -d 1af4:1110' and 'lspci -d 1b36:000d' list ptnet devices",
        ));
    }
    let driver = folder.join("driver").read_link().ok();
    if is_published && driver.is_none() {
        return published::open(&folder, hdr_len).map(|device| FoundDevice::Published(Box::new(device)));
    }
    match driver.as_ref().and_then(|d| d.file_name()).map(|name| name.to_string_lossy().into_owned()) {
        None => polled(&folder).map(FoundDevice::Ptnet),
        Some(name) if name == "vfio-pci" => interrupting(address).map(FoundDevice::Ptnet),
        Some(_) => Err(GuestError::Device(
            "the device has a kernel driver: open its network interface (netmap:eth0), or unbind the driver",
        )),
    }
}

/// Opens a device without a driver, through sysfs.
fn polled(folder: &Path) -> Result<BareGuest, GuestError> {
    std::fs::write(folder.join("enable"), "1").map_err(GuestError::system("enable the device"))?;
    let registers = mapped(folder, BARS.0, Some(REGISTERS))?;
    let memory = mapped(folder, BARS.1, None)?;
    let (_, count) = header(&memory)?;
    let vectors = (0..count).map(|_| ticking()).collect::<rustix::io::Result<Vec<_>>>();
    let vectors = vectors.map_err(GuestError::system("make a timer"))?;
    guest(Arc::new(()), &registers, memory, vectors)
}

/// Opens a device that is bound to vfio-pci.
fn interrupting(address: &str) -> Result<BareGuest, GuestError> {
    let function = PciFunction::open(address)?;
    function.enable()?;
    let registers = Arc::new(function.memory(BARS.0)?);
    let memory = Arc::new(function.memory(BARS.1)?);
    let (_, count) = header(&memory)?;
    let vectors = (0..count).map(|_| Doorbell::new()).collect::<rustix::io::Result<Vec<_>>>();
    let vectors = vectors.map_err(GuestError::system("make an eventfd"))?;
    function.interrupts(&vectors.iter().collect::<Vec<_>>())?;
    guest(Arc::new(function), &registers, memory, vectors)
}

fn guest(
    keep: Arc<dyn std::any::Any + Send + Sync>,
    registers: &Arc<Mapping>,
    map: Arc<Mapping>,
    vectors: Vec<Doorbell>,
) -> Result<BareGuest, GuestError> {
    let registers = Words::new(registers, 0, DOORBELL + 1).ok_or(GuestError::Device("the device has no registers"))?;
    let (header, count) = header(&map)?;
    // The upper half of the written value is the number of the ivshmem peer, 0 for the host; the lower half is the
    // vector.
    let bell = |vector| Doorbell::register(registers.clone(), DOORBELL, vector);
    let doorbells = (0..count as u32).map(bell).collect::<rustix::io::Result<Vec<_>>>();
    let doorbells = doorbells.map_err(GuestError::system("make a doorbell"))?;
    Ok(BareGuest { keep, map, header, doorbells, vectors })
}
