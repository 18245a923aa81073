//! Takes over a TAP's queues that another program opened. The program may pass any descriptors; a descriptor that
//! cannot serve a port is *unfit*.
//!
//! The kernel alone answers the first queries about a descriptor: a file system in user space would pass them to its
//! program, which could delay the answer. Once the descriptor is known to be an open TUN device, the TUN driver
//! answers. All settings that affect the format of frames are made anew. One setting cannot be checked: the absence of
//! the driver's own header (`IFF_NO_PI`), because another flag has the same value and hides it. If the owner of an
//! interface left this header on, the interface's frames are lost.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::device::{HDR_LEN, MAX_QUEUES, TapError, set_offloads};
use crate::sys;

/// Major and minor number of /dev/net/tun.
const TUN: (u32, u32) = (10, 200);
/// `IFF_PERSIST` of linux/if_tun.h.
const PERSISTENT: u16 = 0x0800;
/// `IFF_DETACH_QUEUE`.
pub(crate) const DETACHED: u16 = 0x0400;
/// `IFF_NAPI_FRAGS`.
const NAPI_FRAGS: u16 = 0x0020;

/// The reason why a descriptor is unfit as a queue of a TAP.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// There are no queues, or more queues than an interface can have.
    #[error("{0} descriptors received: expected 1 to {MAX_QUEUES} queues of a TAP")]
    Number(usize),
    /// The descriptor was opened with `O_PATH`, or not for reading and writing.
    #[error("expected a descriptor open for reading and writing")]
    NotOpen,
    /// Reading from the descriptor could block.
    #[error("the descriptor is blocking: open it with O_NONBLOCK")]
    Blocking,
    /// The descriptor is not a character device with TUN's number.
    #[error("expected an open /dev/net/tun")]
    NotTun,
    /// The TUN device has no interface: none was created, or it was deleted.
    #[error("the TUN device has no interface")]
    NoInterface,
    /// The interface carries packets without Ethernet headers.
    #[error("{0} is a TUN: expected a TAP")]
    NotTap(String),
    /// The interface has an unsupported mode.
    #[error("{0} {1}")]
    Mode(String, &'static str),
    /// The descriptors belong to several interfaces.
    #[error("expected queues of one interface, found {0} and {1}")]
    Apart(String, String),
    /// A query about a descriptor, or the setting of a queue's byte order or header size, failed.
    #[error("{0}")]
    Kernel(#[from] Errno),
    /// The setting of a queue's offloads failed; the error names the interface.
    #[error(transparent)]
    Setting(#[from] TapError),
}

/// An interface with queues from another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedInterface {
    /// Name of the interface in its own network namespace.
    pub name: String,
    /// Inode of that namespace, if the kernel reports it (Linux 5.2).
    pub netns: Option<u64>,
    /// Whether the kernel leaves UDP segmentation to the reader of the TAP (USO), as it does TCP segmentation.
    pub has_uso: bool,
}

/// Checks that descriptors are queues of one TAP, and sets what determines the format of frames: byte order, size of
/// the virtio-net header, offloads.
///
/// # Errors
/// [`AdoptError`] for the first unfit descriptor. The settings may already have been made on the descriptors before it.
pub fn adopt(queues: &[OwnedFd]) -> Result<AdoptedInterface, AdoptError> {
    if queues.is_empty() || queues.len() > MAX_QUEUES as usize {
        return Err(AdoptError::Number(queues.len()));
    }
    let mut found: Option<AdoptedInterface> = None;
    for queue in queues {
        let one = look(queue)?;
        let has_uso = set(queue, &one.name)?;
        match &mut found {
            None => found = Some(AdoptedInterface { has_uso, ..one }),
            Some(first) if (&first.name, first.netns) != (&one.name, one.netns) => {
                return Err(AdoptError::Apart(first.name.clone(), one.name));
            }
            Some(first) => first.has_uso &= has_uso,
        }
    }
    found.ok_or(AdoptError::Number(0))
}

/// Checks that a descriptor is a usable queue of a TAP, and returns the TAP's interface. The caller must determine
/// `has_uso`, which is false here.
fn look(queue: &OwnedFd) -> Result<AdoptedInterface, AdoptError> {
    let (name, flags) = is_queue(queue)?;
    if flags & NAPI_FRAGS != 0 {
        return Err(AdoptError::Mode(name, "takes frames in fragments (IFF_NAPI_FRAGS)"));
    }
    if flags & PERSISTENT != 0 {
        return Err(AdoptError::Mode(name, "is persistent: it would outlive its port"));
    }
    if flags & DETACHED != 0 {
        return Err(AdoptError::Mode(name, "has this queue detached"));
    }
    // Linux before 5.2 lacks this request.
    let netns = sys::namespace_of(queue).and_then(rustix::fs::fstat).map(|stat| stat.st_ino).ok();
    Ok(AdoptedInterface { name, netns, has_uso: false })
}

/// Checks that a descriptor is a non-blocking queue of a TAP with virtio-net headers. Returns the name and the flags of
/// the interface.
pub(crate) fn is_queue(queue: &OwnedFd) -> Result<(String, u16), AdoptError> {
    let mode = rustix::fs::fcntl_getfl(queue)?;
    if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE != OFlags::RDWR {
        return Err(AdoptError::NotOpen);
    }
    if !is_tun(queue)? {
        return Err(AdoptError::NotTun);
    }
    if !mode.contains(OFlags::NONBLOCK) {
        return Err(AdoptError::Blocking);
    }
    let (name, flags) = match sys::get_iff(queue) {
        Err(Errno::BADFD) => return Err(AdoptError::NoInterface),
        got => got?,
    };
    let has = |flag: libc::c_int| flags & flag as u16 != 0;
    if !has(libc::IFF_TAP) {
        return Err(AdoptError::NotTap(name));
    }
    if !has(libc::IFF_VNET_HDR) {
        return Err(AdoptError::Mode(name, "has no virtio-net header (IFF_VNET_HDR)"));
    }
    Ok((name, flags))
}

/// Returns whether the kernel opened the descriptor as a TUN device. No file system is involved: the kernel's copy of
/// the inode shows what was opened, and cannot change.
fn is_tun(fd: &OwnedFd) -> Result<bool, AdoptError> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)?;
    let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::CharacterDevice;
    Ok(is_device && (stat.stx_rdev_major, stat.stx_rdev_minor) == TUN)
}

/// Sets what determines the format of frames, regardless of previous settings. Returns whether the kernel leaves UDP
/// segmentation to the reader.
fn set(queue: impl AsFd, name: &str) -> Result<bool, AdoptError> {
    let queue = queue.as_fd();
    sys::set_little_endian(queue)?;
    sys::set_vnet_hdr_size(queue, HDR_LEN as i32)?;
    Ok(set_offloads(queue, name, false)?)
}
