//! PCI functions driven from user space through vfio: configuration space, registers, memory for DMA, interrupts.
//!
//! The kernel's IOMMU confines the function to the memory given to it. When the function's file is closed, for any
//! reason, the function returns to a clean state. A device's driver adds only what is specific to the device.
#![allow(unsafe_code)]

mod bar;
mod vfio;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use netvale_mem::Mapping;
use netvale_mem::notify::Doorbell;
use rustix::io::Errno;
use thiserror::Error;

pub use bar::MappedBar;
pub use vfio::IOCTLS;
use vfio::VfioDevice;

/// Region number of configuration space (linux/vfio.h, `VFIO_PCI_CONFIG_REGION_INDEX`).
const CONFIG: u32 = 7;
/// `VFIO_PCI_MSI_IRQ_INDEX`.
const MSI: u32 = 1;
/// `VFIO_PCI_MSIX_IRQ_INDEX`.
const MSIX: u32 = 2;
/// `VFIO_PCI_REQ_IRQ_INDEX`: the kernel demands the function's release.
const REQUEST: u32 = 4;
/// Status register, bit 4: the function has a capability list (PCI 3.0 §6.2.3).
const HAS_CAPABILITIES: u16 = 1 << 4;
/// Maximum number of capabilities: they begin at multiples of 4 in the 192 bytes after the header. A longer list is
/// circular.
const MOST_CAPABILITIES: usize = 48;

/// An error in opening or driving a PCI function.
#[derive(Debug, Error)]
pub enum PciError {
    /// No function has this address.
    #[error("PCI function {0} does not exist: 'ls /sys/bus/pci/devices' shows the functions")]
    NoFunction(String),
    /// The function is bound to another driver.
    #[error(
        "{address}: expected vfio-pci, found {driver}: 'echo vfio-pci >/sys/bus/pci/devices/{address}/driver_override; \
         echo {address} >/sys/bus/pci/devices/{address}/driver/unbind; echo {address} >/sys/bus/pci/drivers_probe'"
    )]
    Driver {
        /// Address of the function.
        address: String,
        /// The driver as the message names it: `the driver e1000`, or `no driver`.
        driver: String,
    },
    /// The function has no IOMMU group, so nothing would confine its DMA.
    #[error(
        "{0} has no IOMMU group: enable the IOMMU in the firmware and, on Intel, with the kernel option \
         intel_iommu=on; a guest needs a virtual IOMMU"
    )]
    NoIommu(String),
    /// The kernel refused a step of opening or driving the function.
    #[error("{address}: cannot {what}: {source}")]
    System {
        /// Address of the function.
        address: String,
        /// The failed step, as it reads after "cannot".
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// The function has no such BAR, or the requested part is empty or exceeds the BAR.
    #[error("{address} has no register at {at:#x} of BAR {bar}")]
    NoRegister {
        /// Address of the function.
        address: String,
        /// Number of the BAR.
        bar: u32,
        /// Offset in the BAR in bytes.
        at: u64,
    },
}

impl PciError {
    /// Returns the errno that is closest to this error.
    pub fn errno(&self) -> Errno {
        match self {
            PciError::NoFunction(_) => Errno::NODEV,
            PciError::Driver { .. } => Errno::BUSY,
            PciError::NoIommu(_) => Errno::OPNOTSUPP,
            PciError::System { source, .. } => *source,
            PciError::NoRegister { .. } => Errno::NXIO,
        }
    }
}

/// A PCI function that this process drives. Memory given to the function stays mapped until the function is closed.
pub struct PciFunction {
    address: String,
    device: VfioDevice,
    /// Memory that the function may access by DMA; it is unmapped only after the function is closed.
    memory: Vec<Arc<Mapping>>,
}

/// An entry of the capability list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Capability ID.
    pub id: u8,
    /// Offset of the capability in configuration space, in bytes.
    pub at: u64,
}

impl PciFunction {
    /// Opens the function at `address` (`0000:00:04.0`), which must be bound to vfio-pci.
    ///
    /// # Errors
    /// [`PciError`] if the function does not exist, is not bound to vfio-pci or has no IOMMU group, or the kernel
    /// refuses.
    pub fn open(address: &str) -> Result<PciFunction, PciError> {
        let group = group_of(Path::new("/sys/bus/pci/devices"), address)?;
        let address = address.to_owned();
        match VfioDevice::open(&group, &address) {
            Ok(device) => Ok(PciFunction { address, device, memory: Vec::new() }),
            Err((what, source)) => Err(PciError::System { address, what, source }),
        }
    }

    /// Returns the function's PCI address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Reads `N` bytes at offset `at` of configuration space; all ones if the kernel refuses.
    fn config<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.device.read(CONFIG, &mut bytes, at);
        bytes
    }

    /// Reads one byte at offset `at` of configuration space; all ones if the kernel refuses.
    pub fn config8(&self, at: u64) -> u8 {
        u8::from_le_bytes(self.config(at))
    }

    /// Reads two bytes at offset `at` of configuration space; all ones if the kernel refuses.
    pub fn config16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.config(at))
    }

    /// Reads four bytes at offset `at` of configuration space; all ones if the kernel refuses.
    pub fn config32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.config(at))
    }

    /// Returns vendor ID and device ID.
    pub fn id(&self) -> (u16, u16) {
        (self.config16(0), self.config16(2))
    }

    /// Returns the capability list (PCI 3.0 §6.7).
    pub fn capabilities(&self) -> Vec<Capability> {
        capabilities_of(|at| self.config8(at))
    }

    /// Enables the function's memory registers and its bus mastering (command register, bits 1 and 2; PCI 3.0 §6.2.2).
    ///
    /// # Errors
    /// [`PciError`] if the kernel refuses the write.
    pub fn enable(&self) -> Result<(), PciError> {
        let command = self.config16(4) | 0b110;
        let done = self.device.write(CONFIG, &command.to_le_bytes(), 4);
        done.map_err(|source| self.failed("enable it", source))
    }

    /// Maps `len` bytes of registers at offset `from` of a base address register.
    ///
    /// # Errors
    /// [`PciError`] if the function has no such registers, or the kernel refuses to map them.
    pub fn bar(&self, bar: u32, from: u64, len: u64) -> Result<MappedBar, PciError> {
        let place = if bar < 6 { self.device.place(bar) } else { Err(Errno::INVAL) };
        let (start, size) = place.unwrap_or_default();
        if len == 0 || from.checked_add(len).is_none_or(|end| end > size) {
            return Err(PciError::NoRegister { address: self.address.clone(), bar, at: from });
        }
        MappedBar::map(self.device.as_fd(), start + from, len)
            .map_err(|source| self.failed("map its registers", source))
    }

    /// Maps a whole base address register that contains memory, which the device or another process may write at any
    /// time.
    ///
    /// # Errors
    /// [`PciError`] if the function has no such BAR, or the kernel refuses to map it.
    pub fn memory(&self, bar: u32) -> Result<Mapping, PciError> {
        let (start, size) = if bar < 6 { self.device.place(bar).unwrap_or_default() } else { (0, 0) };
        let none = || PciError::NoRegister { address: self.address.clone(), bar, at: 0 };
        let len = usize::try_from(size).ok().filter(|&len| len > 0).ok_or_else(none)?;
        Mapping::of_function(self.device.as_fd(), start, len).map_err(|source| self.failed("map its memory", source))
    }

    /// Gives the function DMA access to `memory`, at I/O virtual address `iova`.
    ///
    /// # Errors
    /// [`PciError`] if the kernel refuses; `ENOMEM` if the memory cannot be locked.
    pub fn give(&mut self, memory: &Arc<Mapping>, iova: u64) -> Result<(), PciError> {
        let at = memory.start().as_ptr();
        // SAFETY: the mapping is kept until the function is closed, and used only as memory that others write.
        let done = unsafe { self.device.map(at, memory.len(), iova) };
        done.map_err(|source| self.failed("give it access to memory ('ulimit -l' limits locked memory)", source))?;
        self.memory.push(Arc::clone(memory));
        Ok(())
    }

    /// Connects MSI-X vectors: vector `i` rings `bells[i]`.
    ///
    /// # Errors
    /// [`PciError`] if the kernel refuses, e.g. because the function has fewer interrupts.
    pub fn interrupts(&self, bells: &[&Doorbell]) -> Result<(), PciError> {
        self.ring(MSIX, bells, "connect its interrupts")
    }

    /// Connects the MSI interrupt of a function without MSI-X to `bell`.
    ///
    /// # Errors
    /// [`PciError`] if the kernel refuses, e.g. because the function has no such interrupt.
    pub fn message(&self, bell: &Doorbell) -> Result<(), PciError> {
        self.ring(MSI, &[bell], "connect its interrupt")
    }

    /// Makes the kernel ring `bell` when it demands the function's release, because the function is being unbound or
    /// unplugged.
    ///
    /// # Errors
    /// [`PciError`] if the kernel refuses.
    pub fn when_wanted_back(&self, bell: &Doorbell) -> Result<(), PciError> {
        self.ring(REQUEST, &[bell], "connect its release request")
    }

    fn ring(&self, index: u32, bells: &[&Doorbell], what: &'static str) -> Result<(), PciError> {
        let fds: Vec<BorrowedFd<'_>> = bells.iter().map(|bell| bell.as_fd()).collect();
        self.device.ring(index, &fds).map_err(|source| self.failed(what, source))
    }

    /// Returns the number of MSI-X vectors; 0 if the function has none.
    pub fn interrupt_count(&self) -> u32 {
        self.device.irqs(MSIX)
    }

    fn failed(&self, what: &'static str, source: Errno) -> PciError {
        PciError::System { address: self.address.clone(), what, source }
    }
}

/// Returns the IOMMU group of the function at `address`, which must be bound to vfio-pci. `devices` is
/// `/sys/bus/pci/devices`, or a test's copy.
fn group_of(devices: &Path, address: &str) -> Result<String, PciError> {
    let folder = devices.join(address);
    if !folder.exists() {
        return Err(PciError::NoFunction(address.to_owned()));
    }
    let name_of = |link: &str| {
        let target = folder.join(link).read_link().ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    };
    let Some(group) = name_of("iommu_group") else { return Err(PciError::NoIommu(address.to_owned())) };
    match name_of("driver") {
        Some(driver) if driver == "vfio-pci" => Ok(group),
        other => {
            let driver = other.map_or_else(|| "no driver".to_owned(), |name| format!("the driver {name}"));
            Err(PciError::Driver { address: address.to_owned(), driver })
        }
    }
}

/// Returns the capability list of a configuration space; `read` returns the byte at an offset.
fn capabilities_of(read: impl Fn(u64) -> u8) -> Vec<Capability> {
    let mut found = Vec::new();
    if u16::from_le_bytes([read(6), read(7)]) & HAS_CAPABILITIES == 0 {
        return found;
    }
    let mut at = read(0x34) & !3;
    while at >= 0x40 && found.len() < MOST_CAPABILITIES {
        found.push(Capability { id: read(at.into()), at: at.into() });
        at = read(u64::from(at) + 1) & !3;
    }
    found
}

impl Drop for PciFunction {
    fn drop(&mut self) {
        // The reset stops DMA. The fields are then dropped in order: the device before the memory that it may still
        // write.
        self.device.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Objective: a function is opened only with vfio-pci and behind an IOMMU; the error names the obstacle found in
    /// sysfs.
    #[test]
    fn an_obstacle_in_sysfs_is_named() {
        let devices = tempfile::tempdir().unwrap();
        let make = |address: &str, links: &[(&str, &str)]| {
            let folder = devices.path().join(address);
            std::fs::create_dir(&folder).unwrap();
            links.iter().for_each(|(link, to)| symlink(to, folder.join(link)).unwrap());
        };
        let group = ("iommu_group", "../../../kernel/iommu_groups/17");
        make("0000:00:01.0", &[group, ("driver", "../../../bus/pci/drivers/vfio-pci")]);
        make("0000:00:02.0", &[group, ("driver", "../../../bus/pci/drivers/e1000")]);
        make("0000:00:03.0", &[group]);
        make("0000:00:04.0", &[("driver", "../../../bus/pci/drivers/vfio-pci")]);
        let asked = |address: &str| group_of(devices.path(), address);
        assert_eq!(asked("0000:00:01.0").unwrap(), "17");
        let owner = |address: &str| match asked(address) {
            Err(PciError::Driver { driver, .. }) => driver,
            other => panic!("{other:?}"),
        };
        assert_eq!((owner("0000:00:02.0"), owner("0000:00:03.0")), ("the driver e1000".into(), "no driver".into()));
        assert!(matches!(asked("0000:00:04.0"), Err(PciError::NoIommu(_))));
        assert!(matches!(asked("0000:00:05.0"), Err(PciError::NoFunction(_))));
    }

    /// Returns a configuration space whose list begins at `first` and contains capabilities of the form (offset, ID,
    /// next offset).
    fn space(first: u8, list: &[(u8, u8, u8)]) -> [u8; 256] {
        let mut space = [0xee; 256];
        space[6] = 0x10;
        space[7] = 0;
        space[0x34] = first;
        for &(at, id, next) in list {
            space[usize::from(at)] = id;
            space[usize::from(at) + 1] = next;
        }
        space
    }

    fn listed(space: [u8; 256]) -> Vec<(u8, u64)> {
        capabilities_of(|at| space[at as usize]).iter().map(|c| (c.id, c.at)).collect()
    }

    /// Objective: capabilities are found in list order, ignoring the lowest bits of pointers; an absent list is empty,
    /// and a list that points into the header or is circular is cut.
    #[test]
    fn capabilities_are_found_in_list_order() {
        assert_eq!(listed(space(0x50, &[(0x50, 5, 0x73), (0x70, 9, 0)])), [(5, 0x50), (9, 0x70)]);
        assert_eq!(listed(space(0x42, &[(0x40, 1, 0x3c)])), [(1, 0x40)]);
        assert_eq!(listed(space(0, &[])), []);
        let mut none = space(0x50, &[(0x50, 5, 0)]);
        none[6] = 0;
        assert_eq!(listed(none), []);
        assert_eq!(listed(space(0x40, &[(0x40, 1, 0x60), (0x60, 2, 0x40)])).len(), MOST_CAPABILITIES);
        // A removed device reads as all ones.
        assert_eq!(listed([0xff; 256]).len(), MOST_CAPABILITIES);
    }
}
