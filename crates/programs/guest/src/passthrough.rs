//! A ptnet device inside a virtual machine, whose rings a program takes over from the guest's network interface.
//!
//! The guest's kernel driver (`guest/linux`) provides `/dev/nvptnetN`. Through it, a program maps the device's memory,
//! and gets a descriptor for each ring, which it writes and reads like an eventfd to notify the host and to be
//! notified. While the character device is open, the interface has no carrier.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_abi::ptnet::{self, FEATURE_VNET_HDR, HEADER_BYTES, PtnetHeader, word};
use netvale_mem::Mapping;
use netvale_mem::words::Words;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// The reason why the rings cannot be opened.
#[derive(Debug, Error)]
pub enum PassthroughError {
    /// A step failed.
    #[error("{device}: cannot {what}: {source}")]
    Step {
        /// Path of the character device.
        device: PathBuf,
        /// The failed step, as a phrase that continues "cannot …".
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// Another process has the rings open.
    #[error("{0} is open in another program: only one program at a time can use its rings")]
    Busy(PathBuf),
    /// The header that the host has written to the device's memory is malformed.
    #[error("{0}: the host's description of the device is invalid")]
    Header(PathBuf),
    /// The device does not support a virtio-net header before each frame.
    #[error("{0}: the host offers no virtio-net header: attach the port there with --vnet-hdr")]
    NoHeader(PathBuf),
}

impl PassthroughError {
    /// Returns the errno for this error.
    pub fn errno(&self) -> Errno {
        match self {
            PassthroughError::Step { source, .. } => *source,
            PassthroughError::Busy(_) => Errno::BUSY,
            PassthroughError::Header(_) => Errno::PROTO,
            PassthroughError::NoHeader(_) => Errno::IO,
        }
    }
}

/// Returns the character device of an interface, if the interface is a ptnet device.
pub fn device_of(interface: &str) -> Option<PathBuf> {
    // The name must not make the path lead out of /sys/class/net.
    if interface.contains('/') || interface.starts_with('.') {
        return None;
    }
    let faces = std::fs::read_dir(format!("/sys/class/net/{interface}/device/misc")).ok()?;
    let name =
        faces.flatten().map(|entry| entry.file_name()).find(|name| name.to_string_lossy().starts_with("nvptnet"))?;
    Some(Path::new("/dev").join(name))
}

/// Returns the character devices of all ptnet devices.
pub fn devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("nvptnet"))
        .map(|entry| entry.path())
        .collect()
}

/// A device's header as 32-bit words.
pub type DeviceHeader = [u32; size_of::<PtnetHeader>() / 4];

/// The rings of a ptnet device, which this program uses until the value is dropped.
#[derive(Debug)]
pub struct Passthrough {
    file: OwnedFd,
    bells: Vec<OwnedFd>,
    header: DeviceHeader,
}

/// The driver's `struct nvpt_start`, the argument of [`START`].
#[repr(C)]
struct StartRequest {
    features: u32,
    extra_bufs: u32,
}

/// Encodes an ioctl request as `_IOW('N', number, size)` does.
const fn iow(number: u32, size: usize) -> libc::Ioctl {
    (1 << 30 | (size as u32) << 16 | (b'N' as u32) << 8 | number) as libc::Ioctl
}

const START: libc::Ioctl = iow(1, size_of::<StartRequest>());
const RING_BELL: libc::Ioctl = iow(2, 4);

/// The ioctl requests that this module makes, for system call filters.
pub const IOCTLS: [u32; 2] = [START as u32, RING_BELL as u32];

fn ioctl<T>(fd: BorrowedFd<'_>, code: libc::Ioctl, argument: &T) -> Result<libc::c_int, Errno> {
    // SAFETY: a live descriptor; the driver reads the size encoded in the request from a structure of that size.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_ref(argument)) };
    if done < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        return Err(error.map_or(Errno::IO, Errno::from_raw_os_error));
    }
    Ok(done)
}

impl Passthrough {
    /// Takes over the rings of the character device `device`, with `hdr_len` bytes of virtio-net header before each
    /// frame.
    ///
    /// # Errors
    /// [`PassthroughError`] if a step fails.
    pub fn open(device: &Path, hdr_len: u32, extra_bufs: u32) -> Result<Passthrough, PassthroughError> {
        let step = |what| move |source| PassthroughError::Step { device: device.into(), what, source };
        let file = match rustix::fs::open(device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::BUSY) => return Err(PassthroughError::Busy(device.into())),
            other => other.map_err(step("open the device"))?,
        };
        let start = StartRequest { features: if hdr_len > 0 { FEATURE_VNET_HDR } else { 0 }, extra_bufs };
        match ioctl(file.as_fd(), START, &start) {
            Err(Errno::OPNOTSUPP) => return Err(PassthroughError::NoHeader(device.into())),
            other => other.map_err(step("start the rings"))?,
        };
        let page = Mapping::of_device(file.as_fd(), HEADER_BYTES as usize).map_err(step("map the memory"))?;
        let words = Words::new(&Arc::new(page), 0, size_of::<PtnetHeader>() / 4);
        let words = words.ok_or_else(|| PassthroughError::Header(device.into()))?;
        let header: DeviceHeader = std::array::from_fn(|i| words.load(i));
        let rings = rings_of(&header).ok_or_else(|| PassthroughError::Header(device.into()))?;
        let mut this = Passthrough { file, bells: Vec::new(), header };
        for ring in 0..rings {
            let bell = ioctl(this.file.as_fd(), RING_BELL, &ring).map_err(step("get a ring's doorbell"))?;
            // SAFETY: the driver has just created this descriptor for this call; nothing else owns it.
            this.bells.push(unsafe { OwnedFd::from_raw_fd(bell) });
        }
        Ok(this)
    }

    /// Returns a copy of the header, made just after the rings started.
    pub fn header(&self) -> &DeviceHeader {
        &self.header
    }

    /// Returns the memory's descriptor, so that it can be mapped, even by another process.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the descriptor of a ring; `ring` counts the tx rings first. Writing to the descriptor notifies the host,
    /// and the descriptor becomes readable when the host notifies the guest. `None` if there is no such ring.
    pub fn bell(&self, ring: u32) -> Option<BorrowedFd<'_>> {
        self.bells.get(ring as usize).map(AsFd::as_fd)
    }
}

/// Returns the number of tx and rx rings together; `None` if the header is invalid.
fn rings_of(header: &DeviceHeader) -> Option<u32> {
    let of = |at: usize| header.get(at).copied().filter(|n| (1..=64).contains(n));
    let known = [header[0], header[1]] == ptnet::MAGIC && header[2] == ptnet::VERSION;
    let tx = of(word(offset_of!(PtnetHeader, tx_rings)))?;
    let rx = of(word(offset_of!(PtnetHeader, rx_rings)))?;
    known.then_some(tx + rx)
}
