//! The subset of linux/vfio.h that this crate uses: one container, with one group, with one device.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

/// Returns the code of vfio's ioctl request `n`: `_IO(';', 100 + n)`.
const fn request(n: libc::Ioctl) -> libc::Ioctl {
    (b';' as libc::Ioctl) << 8 | (100 + n)
}

const SET_IOMMU: libc::Ioctl = request(2);
const GROUP_GET_STATUS: libc::Ioctl = request(3);
const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
const DEVICE_GET_REGION_INFO: libc::Ioctl = request(8);
const DEVICE_GET_IRQ_INFO: libc::Ioctl = request(9);
const DEVICE_SET_IRQS: libc::Ioctl = request(10);
const DEVICE_RESET: libc::Ioctl = request(11);
const IOMMU_MAP_DMA: libc::Ioctl = request(13);

/// The ioctl requests that this crate makes, for system call filters.
pub const IOCTLS: [u32; 9] = [
    SET_IOMMU as u32,
    GROUP_GET_STATUS as u32,
    GROUP_SET_CONTAINER as u32,
    GROUP_GET_DEVICE_FD as u32,
    DEVICE_GET_REGION_INFO as u32,
    DEVICE_GET_IRQ_INFO as u32,
    DEVICE_SET_IRQS as u32,
    DEVICE_RESET as u32,
    IOMMU_MAP_DMA as u32,
];

/// `VFIO_TYPE1v2_IOMMU`.
const TYPE1V2: u32 = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`: no function of the group is bound to a kernel driver other than vfio's.
const VIABLE: u32 = 1;
/// `VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE`.
const READ_WRITE: u32 = 3;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
const RING: u32 = 1 << 2 | 1 << 5;
/// Maximum number of vectors in one `VFIO_DEVICE_SET_IRQS` request.
const MAX_IRQS: usize = 64;

#[repr(C)]
#[derive(Default)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct VfioRegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

#[repr(C)]
#[derive(Default)]
struct IrqInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    fds: [i32; MAX_IRQS],
}

#[repr(C)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// The failed step, as it reads after "cannot", and the kernel's error.
pub type VfioStepError = (&'static str, Errno);

/// An open vfio device. Fields are dropped in this order, as the kernel requires.
pub struct VfioDevice {
    device: File,
    _group: File,
    container: File,
}

/// Returns a structure's size, for its member `argsz`.
fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

/// Makes an ioctl request whose argument is a structure.
///
/// # Safety
/// `T` is the kernel's structure for `code`, and its pointers are valid.
unsafe fn call<T>(fd: &File, code: libc::Ioctl, arg: *mut T) -> Result<i32, Errno> {
    // SAFETY: the caller promises that `arg` is the structure for `code`.
    let n = unsafe { libc::ioctl(fd.as_raw_fd(), code, arg) };
    if n < 0 { Err(last()) } else { Ok(n) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn open(path: &str) -> Result<File, Errno> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

impl VfioDevice {
    /// Opens the device at `address`, a member of `group`.
    pub fn open(group: &str, address: &str) -> Result<VfioDevice, VfioStepError> {
        let container = open("/dev/vfio/vfio").map_err(|e| ("open /dev/vfio/vfio", e))?;
        let group = open(&format!("/dev/vfio/{group}")).map_err(|e| ("open its group in /dev/vfio", e))?;
        let mut status = GroupStatus { argsz: argsz::<GroupStatus>(), flags: 0 };
        // SAFETY: the request takes this structure, which holds no pointers.
        unsafe { call(&group, GROUP_GET_STATUS, &raw mut status) }.map_err(|e| ("read its group's status", e))?;
        if status.flags & VIABLE == 0 {
            return Err(("use it while kernel drivers use other functions of its IOMMU group", Errno::BUSY));
        }
        let mut fd = container.as_raw_fd();
        // SAFETY: the request takes a pointer to a descriptor.
        unsafe { call(&group, GROUP_SET_CONTAINER, &raw mut fd) }.map_err(|e| ("put its group in a container", e))?;
        // SAFETY: the request takes a number as its argument instead of a pointer.
        unsafe { call(&container, SET_IOMMU, TYPE1V2 as usize as *mut u8) }.map_err(|e| ("use the IOMMU", e))?;
        let name = CString::new(address).map_err(|_| ("pass its address", Errno::INVAL))?;
        // SAFETY: the request only reads the string, which ends in 0.
        let fd = unsafe { call(&group, GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut()) };
        let fd = fd.map_err(|e| ("open it", e))?;
        // SAFETY: a new descriptor that nothing else owns.
        let device = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(VfioDevice { device, _group: group, container })
    }

    fn region(&self, index: u32) -> Result<VfioRegionInfo, Errno> {
        let mut info = VfioRegionInfo { argsz: argsz::<VfioRegionInfo>(), index, ..VfioRegionInfo::default() };
        // SAFETY: the request takes this structure, which holds no pointers.
        unsafe { call(&self.device, DEVICE_GET_REGION_INFO, &raw mut info) }?;
        Ok(info)
    }

    /// Returns a region's offset in the device's file, and its size, in bytes.
    pub fn place(&self, index: u32) -> Result<(u64, u64), Errno> {
        self.region(index).map(|info| (info.offset, info.size))
    }

    /// Fills `into` from offset `at` of a region; fills it with ones if the read fails.
    pub fn read(&self, index: u32, into: &mut [u8], at: u64) {
        let done = self.region(index).is_ok_and(|info| self.device.read_exact_at(into, info.offset + at).is_ok());
        if !done {
            into.fill(u8::MAX);
        }
    }

    /// Writes at offset `at` of a region.
    pub fn write(&self, index: u32, bytes: &[u8], at: u64) -> Result<(), Errno> {
        let info = self.region(index)?;
        let done = self.device.write_all_at(bytes, info.offset + at);
        done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }

    /// Returns the number of vectors of the interrupt kind `index` (`VFIO_PCI_*_IRQ_INDEX`); 0 if the kernel refuses.
    pub fn irqs(&self, index: u32) -> u32 {
        let mut info = IrqInfo { argsz: argsz::<IrqInfo>(), index, ..IrqInfo::default() };
        // SAFETY: the request takes this structure, which holds no pointers.
        let asked = unsafe { call(&self.device, DEVICE_GET_IRQ_INFO, &raw mut info) };
        asked.map_or(0, |_| info.count)
    }

    /// Connects vector `i` of the interrupt kind `index` to `fds[i]`, an eventfd.
    pub fn ring(&self, index: u32, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        if fds.is_empty() || fds.len() > MAX_IRQS {
            return Err(Errno::INVAL);
        }
        let mut set = IrqSet {
            argsz: argsz::<IrqSet>(),
            flags: RING,
            index,
            start: 0,
            count: fds.len() as u32,
            fds: [-1; MAX_IRQS],
        };
        for (place, fd) in set.fds.iter_mut().zip(fds) {
            *place = fd.as_raw_fd();
        }
        // SAFETY: the request takes this structure, which ends with at least `count` descriptors.
        unsafe { call(&self.device, DEVICE_SET_IRQS, &raw mut set) }.map(|_| ())
    }

    /// Gives the device DMA access to `size` bytes of memory, at I/O virtual address `iova`.
    ///
    /// # Safety
    /// The memory stays mapped while the device is open, and is used only as bytes that others write.
    pub unsafe fn map(&self, at: *mut u8, size: usize, iova: u64) -> Result<(), Errno> {
        let mut map = DmaMap { argsz: argsz::<DmaMap>(), flags: READ_WRITE, vaddr: at as u64, iova, size: size as u64 };
        // SAFETY: the request takes this structure; the caller promises that the memory remains valid.
        unsafe { call(&self.container, IOMMU_MAP_DMA, &raw mut map) }.map(|_| ())
    }

    /// Resets the device, if it supports a reset.
    pub fn reset(&self) {
        // SAFETY: the request takes no argument. It fails for a device without a function-level reset, for which the
        // kernel tries a bus reset on close.
        let _ = unsafe { call(&self.device, DEVICE_RESET, std::ptr::null_mut::<u8>()) };
    }
}

impl AsFd for VfioDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
