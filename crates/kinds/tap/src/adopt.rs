//! Takes over queues opened by another program. Descriptors may be anything; those that cannot serve a port are
//! *unfit*.
//!
//! The kernel alone answers the first queries about a descriptor: a file system in user space would pass them to
//! another program, which may delay its answer. Once the descriptor is known as an open TUN device, its driver answers.
//! All settings that frames depend on are made anew. One setting cannot be checked: packets without the driver's own
//! header (`IFF_NO_PI`), because another flag of the same value hides it. If an interface has that header, its owner
//! loses its frames.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::device::{HDR_LEN, MAX_QUEUES, TapError, set_offloads};
use crate::sys;

/// Major and minor number of /dev/net/tun.
const TUN: (u32, u32) = (10, 200);
/// `IFF_PERSIST` and `IFF_DETACH_QUEUE` of linux/if_tun.h.
const PERSISTENT: u16 = 0x0800;
pub(crate) const DETACHED: u16 = 0x0400;
const NAPI_FRAGS: u16 = 0x0020;

/// The reason why a descriptor is unfit as a queue of a TAP.
#[derive(Debug, Error)]
pub enum Unfit {
    /// Zero queues, or more than an interface has.
    #[error("{0} descriptors came; a TAP has 1 to {MAX_QUEUES}")]
    Number(usize),
    /// The descriptor names a file without opening it.
    #[error("it is not open for reading and writing")]
    NotOpen,
    /// Reading it could block.
    #[error("it is blocking: open it with O_NONBLOCK")]
    Blocking,
    /// Not a character device with TUN's number.
    #[error("it is no TUN device")]
    NotTun,
    /// The interface was not created, or is deleted.
    #[error("there is no interface behind it")]
    NoInterface,
    /// It carries packets without Ethernet headers.
    #[error("{0} is a TUN, and not a TAP")]
    NotTap(String),
    /// The interface has an unsupported mode.
    #[error("{0} {1}")]
    Mode(String, &'static str),
    /// The descriptors are of several interfaces.
    #[error("{0} and {1} are different interfaces")]
    Apart(String, String),
    /// The kernel refuses a query or a setting.
    #[error("{0}")]
    Kernel(#[from] Errno),
    /// The kernel refuses a setting of the interface.
    #[error(transparent)]
    Setting(#[from] TapError),
}

/// An interface with queues from another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its name, in its own network namespace.
    pub name: String,
    /// The inode of that namespace, if the kernel reports it (Linux 5.2).
    pub netns: Option<u64>,
    /// Whether the kernel also leaves UDP segmentation to the receiver.
    pub has_uso: bool,
}

/// Checks that descriptors are queues of one TAP, and makes the settings that frames depend on.
///
/// # Errors
/// [`Unfit`] for the first that is not. Settings may have been made on those before it.
pub fn adopt(queues: &[OwnedFd]) -> Result<Adopted, Unfit> {
    if queues.is_empty() || queues.len() > MAX_QUEUES as usize {
        return Err(Unfit::Number(queues.len()));
    }
    let mut found: Option<Adopted> = None;
    for queue in queues {
        let one = look(queue)?;
        let has_uso = set(queue, &one.name)?;
        match &mut found {
            None => found = Some(Adopted { has_uso, ..one }),
            Some(first) if (&first.name, first.netns) != (&one.name, one.netns) => {
                return Err(Unfit::Apart(first.name.clone(), one.name));
            }
            Some(first) => first.has_uso &= has_uso,
        }
    }
    found.ok_or(Unfit::Number(0))
}

/// Identifies a descriptor.
fn look(queue: &OwnedFd) -> Result<Adopted, Unfit> {
    let (name, flags) = is_queue(queue)?;
    if flags & NAPI_FRAGS != 0 {
        return Err(Unfit::Mode(name, "takes frames in fragments (IFF_NAPI_FRAGS)"));
    }
    if flags & PERSISTENT != 0 {
        return Err(Unfit::Mode(name, "is persistent: it would outlive its port"));
    }
    if flags & DETACHED != 0 {
        return Err(Unfit::Mode(name, "has this queue detached"));
    }
    // Linux before 5.2 lacks this query.
    let netns = sys::namespace_of(queue).and_then(rustix::fs::fstat).map(|stat| stat.st_ino).ok();
    Ok(Adopted { name, netns, has_uso: false })
}

/// Checks that a descriptor is a queue of a TAP with virtio-net headers and never blocks. Returns the interface's name
/// and flags.
pub(crate) fn is_queue(queue: &OwnedFd) -> Result<(String, u16), Unfit> {
    let mode = rustix::fs::fcntl_getfl(queue)?;
    if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE != OFlags::RDWR {
        return Err(Unfit::NotOpen);
    }
    if !is_tun(queue)? {
        return Err(Unfit::NotTun);
    }
    if !mode.contains(OFlags::NONBLOCK) {
        return Err(Unfit::Blocking);
    }
    let (name, flags) = match sys::get_iff(queue) {
        Err(Errno::BADFD) => return Err(Unfit::NoInterface),
        got => got?,
    };
    let has = |flag: libc::c_int| flags & flag as u16 != 0;
    if !has(libc::IFF_TAP) {
        return Err(Unfit::NotTap(name));
    }
    if !has(libc::IFF_VNET_HDR) {
        return Err(Unfit::Mode(name, "has no virtio-net header (IFF_VNET_HDR)"));
    }
    Ok((name, flags))
}

/// Whether the kernel opened it as a TUN device. No file system is asked: the kernel's copy of the inode shows what it
/// opened, and cannot change.
fn is_tun(fd: &OwnedFd) -> Result<bool, Unfit> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)?;
    let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::CharacterDevice;
    Ok(is_device && (stat.stx_rdev_major, stat.stx_rdev_minor) == TUN)
}

/// Makes the settings that frames depend on, whatever they were. Returns whether UDP segmentation is left to the
/// receiver.
fn set(queue: impl AsFd, name: &str) -> Result<bool, Unfit> {
    let queue = queue.as_fd();
    sys::set_little_endian(queue)?;
    sys::set_vnet_hdr_size(queue, HDR_LEN as i32)?;
    Ok(set_offloads(queue, name, false)?)
}
