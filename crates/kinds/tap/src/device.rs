//! Opens a TAP device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::sys;

/// Bytes of virtio-net header before each frame, in both directions.
pub const HDR_LEN: usize = 12;
/// Maximum number of queues of one device (the kernel's limit).
pub const MAX_QUEUES: u32 = 256;

/// `TUN_F_*` of linux/if_tun.h: offloads that the kernel may leave to the reader of the TAP.
mod offload {
    pub const CSUM: u32 = 0x01;
    pub const TSO4: u32 = 0x02;
    pub const TSO6: u32 = 0x04;
    pub const TSO_ECN: u32 = 0x08;
    pub const USO4: u32 = 0x20;
    pub const USO6: u32 = 0x40;
}

/// Options for opening a TAP.
#[derive(Clone, Debug, Default)]
pub struct TapOptions {
    /// Name of the interface, at most 15 bytes; the kernel replaces `%d` with a number.
    pub name: String,
    /// Number of queues; 0 means 1.
    pub queues: u32,
    /// MTU in bytes; `None` keeps the kernel's 1500.
    pub mtu: Option<u32>,
    /// Ethernet address; `None` keeps the kernel's random address.
    pub mac: Option<[u8; 6]>,
    /// Whether to bring the interface up.
    pub up: bool,
    /// Whether the kernel must complete checksums and segments before it passes frames on.
    pub no_offloads: bool,
}

/// An error in opening a TAP.
#[derive(Debug, Error)]
pub enum TapError {
    /// The TUN device node is missing.
    #[error("cannot open /dev/net/tun: {0}; the kernel needs CONFIG_TUN, a container needs the device")]
    NoTun(Errno),
    /// The permission to create the interface is missing.
    #[error(
        "cannot create the interface {0} without CAP_NET_ADMIN: run the daemon as root, or in a user and \
         network namespace of its own"
    )]
    Permission(String),
    /// Another program has the interface open.
    #[error("the interface {0} is in use by another program: choose another name")]
    Busy(String),
    /// The interface exists and has only one queue.
    #[error(
        "the interface {0} was created without multi_queue: request one ring, or create the interface with multi_queue"
    )]
    OneQueue(String),
    /// An interface of another kind has this name.
    #[error("the interface {0} exists and is {1}: choose another name, or remove it (ip link del {0})")]
    OtherKind(String, &'static str),
    /// Too many queues.
    #[error("{0} queues requested: expected 1 to {MAX_QUEUES}")]
    Queues(u32),
    /// Another step failed.
    #[error("interface {name}: cannot {what}: {source}")]
    Step {
        /// Name of the interface.
        name: String,
        /// The failed step, as a verb phrase.
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

/// An open TAP. The interface is removed when its queues are closed.
#[derive(Debug)]
pub struct Tap {
    name: String,
    queues: Vec<OwnedFd>,
    uso: bool,
}

impl Tap {
    /// Opens a non-blocking TAP with virtio-net headers and, unless `no_offloads` is set, with checksum and
    /// segmentation offloads.
    ///
    /// # Errors
    /// [`TapError`] if a step fails.
    pub fn open(options: &TapOptions) -> Result<Tap, TapError> {
        let count = options.queues.max(1);
        if count > MAX_QUEUES {
            return Err(TapError::Queues(count));
        }
        let mut name = options.name.clone();
        let mut queues = Vec::new();
        let mut uso = true;
        for _ in 0..count {
            let (fd, actual) = open_queue(&name, count > 1)?;
            uso &= set_offloads(fd.as_fd(), &actual, options.no_offloads)?;
            name = actual;
            queues.push(fd);
        }
        let tap = Tap { name, queues, uso };
        tap.configure(options)?;
        Ok(tap)
    }

    /// Wraps the queues of an interface that is already configured.
    pub(crate) fn of(name: String, queues: Vec<OwnedFd>, uso: bool) -> Tap {
        Tap { name, queues, uso }
    }

    /// Installs a program that chooses the queue of each frame sent by the stack, in place of the kernel's flow table.
    ///
    /// # Errors
    /// [`TapError`] if the kernel refuses.
    pub fn steer(&self, program: &OwnedFd) -> Result<(), TapError> {
        let failed = |source| TapError::Step { name: self.name.clone(), what: "choose queues", source };
        self.queues.first().map_or(Ok(()), |queue| sys::set_steering(queue, program).map_err(failed))
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// [`TapError`] if the kernel refuses.
    pub fn bring_up(&self) -> Result<(), TapError> {
        self.configure(&TapOptions { up: true, ..TapOptions::default() })
    }

    /// Sets the MTU of an open TAP, which may be in use.
    ///
    /// # Errors
    /// [`TapError`] if the kernel refuses.
    pub fn set_mtu(name: &str, mtu: u32) -> Result<(), TapError> {
        let tap = Tap { name: name.to_owned(), queues: Vec::new(), uso: false };
        tap.configure(&TapOptions { mtu: Some(mtu), up: false, ..TapOptions::default() })
    }

    fn configure(&self, options: &TapOptions) -> Result<(), TapError> {
        let step = |what| move |source| TapError::Step { name: self.name.clone(), what, source };
        if let (Some(mac), Some(queue)) = (options.mac, self.queues.first()) {
            sys::set_address(queue, &self.name, mac).map_err(step("set the Ethernet address"))?;
        }
        if options.mtu.is_none() && !options.up {
            return Ok(());
        }
        let socket = sys::socket().map_err(step("make a socket"))?;
        if let Some(mtu) = options.mtu {
            sys::set_mtu(&socket, &self.name, mtu).map_err(step("set the MTU"))?;
        }
        if options.up {
            sys::set_up(&socket, &self.name).map_err(step("be brought up"))?;
        }
        Ok(())
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the kernel leaves UDP segmentation to the reader of the TAP (USO), as it does TCP segmentation.
    pub fn has_uso(&self) -> bool {
        self.uso
    }

    /// Returns the interface's queues.
    pub fn into_queues(self) -> Vec<OwnedFd> {
        self.queues
    }
}

fn open_queue(name: &str, several: bool) -> Result<(OwnedFd, String), TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(TapError::NoTun)?;
    let mode = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | if several { libc::IFF_MULTI_QUEUE } else { 0 };
    let actual = sys::set_iff(&fd, name, mode).or_else(|e| match e {
        Errno::PERM | Errno::ACCESS => Err(TapError::Permission(name.to_owned())),
        Errno::BUSY => Err(TapError::Busy(name.to_owned())),
        Errno::INVAL if sys::is_there(name) => take(&fd, name, mode),
        source => Err(TapError::Step { name: name.to_owned(), what: "be created", source }),
    })?;
    Ok((fd, actual))
}

/// Opens an existing interface for which the kernel refuses `mode`. A multi-queue TAP is accepted if one queue was
/// requested; for any other interface, the error names the reason.
fn take(fd: &OwnedFd, name: &str, mode: i32) -> Result<String, TapError> {
    let several = mode & libc::IFF_MULTI_QUEUE != 0;
    match sys::set_iff(fd, name, mode ^ libc::IFF_MULTI_QUEUE) {
        Ok(_) if several => Err(TapError::OneQueue(name.to_owned())),
        Ok(actual) => Ok(actual),
        Err(Errno::BUSY) => Err(TapError::Busy(name.to_owned())),
        Err(_) => {
            let tun = mode & !libc::IFF_TAP | libc::IFF_TUN;
            let is_tun = [tun, tun ^ libc::IFF_MULTI_QUEUE].iter().any(|mode| {
                let taken = sys::set_iff(fd, name, *mode);
                taken.is_ok() || taken == Err(Errno::BUSY)
            });
            Err(TapError::OtherKind(name.to_owned(), if is_tun { "a TUN" } else { "not a TAP" }))
        }
    }
}

/// Requests every offload that this kernel has, or no offloads if `none`. Returns whether UDP segmentation (Linux 6.2)
/// is among them.
pub(crate) fn set_offloads(fd: BorrowedFd<'_>, name: &str, none: bool) -> Result<bool, TapError> {
    let step = |what| move |source| TapError::Step { name: name.to_owned(), what, source };
    sys::set_vnet_hdr_size(fd, HDR_LEN as i32).map_err(step("set the header's size"))?;
    // If this fails, the kernel's smaller default remains.
    let _ = sys::set_send_buffer(fd, i32::MAX);
    if none {
        return sys::set_offload(fd, 0).map(|()| false).map_err(step("set offloads"));
    }
    let tcp = offload::CSUM | offload::TSO4 | offload::TSO6 | offload::TSO_ECN;
    if sys::set_offload(fd, tcp | offload::USO4 | offload::USO6).is_ok() {
        return Ok(true);
    }
    sys::set_offload(fd, tcp).map_err(step("set offloads"))?;
    Ok(false)
}
