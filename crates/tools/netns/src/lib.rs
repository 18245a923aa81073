//! Network namespaces, which a client enters with its own privileges: it creates a TAP, moves it into the namespace,
//! and sets addresses and routes. The daemon itself enters no namespace.
//!
//! A TAP is created outside its target namespace. The descriptors of a TAP's queues keep the namespace alive in which
//! they were opened; if this were the namespace of a container, the namespace could not end with the container.
//!
//! A network namespace may belong to a user namespace below the caller's, as in a container of an unprivileged user.
//! The process then first enters that user namespace, which the kernel permits only to a single-threaded process.
#![allow(unsafe_code)]

pub mod netlink;

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use netvale_tap::{Tap, TapError, TapOptions};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use thiserror::Error;

use crate::netlink::NamespaceSocket;

/// `NS_GET_USERNS` of linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
/// The name of a TAP before it is moved. The kernel replaces `%d` by a number.
const INTERIM: &str = "nvtap%d";
/// Maximum time to wait for a name that another interface has. After a port is detached, the daemon removes the port's
/// interface on a separate thread, so the name may still be taken for some milliseconds.
const REMOVAL: Duration = Duration::from_secs(1);
/// Time between two attempts to use the name.
const RETRY: Duration = Duration::from_millis(50);

/// The reason why a namespace cannot be used.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The namespace's file, or the process, does not exist or cannot be opened.
    #[error("cannot find the network namespace {place}: {source}")]
    Open {
        /// The path or process.
        place: String,
        /// The kernel's error.
        source: Errno,
    },
    /// The network namespace cannot be entered.
    #[error("cannot enter the network namespace {place}: {source}{}", hint(*.source))]
    Enter {
        /// The path of the namespace's file.
        place: String,
        /// The kernel's error.
        source: Errno,
    },
    /// The TAP cannot be moved to the namespace.
    #[error("cannot move the TAP to the network namespace {place} as {name}: {source}{}", hint(*.source))]
    Move {
        /// The path of the namespace's file.
        place: String,
        /// The TAP's name in that namespace.
        name: String,
        /// The kernel's error.
        source: Errno,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The TAP cannot be created.
    #[error(transparent)]
    Tap(#[from] TapError),
}

fn hint(source: Errno) -> &'static str {
    match source {
        Errno::INVAL | Errno::NOTTY => "; it is another kind of namespace or file",
        Errno::PERM => "; try as root, or as the user who created the namespace",
        Errno::EXIST => "; an interface of that name already exists there",
        _ => "",
    }
}

/// An open network namespace, which the descriptor keeps alive.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
    place: String,
}

impl Namespace {
    /// Opens a namespace by path, such as `/run/netns/web`, or by the ID of a process in it.
    ///
    /// # Errors
    /// [`NetnsError::Open`] if the namespace does not exist or cannot be opened.
    pub fn open(place: &str) -> Result<Namespace, NetnsError> {
        let is_number = !place.is_empty() && place.bytes().all(|b| b.is_ascii_digit());
        let place = if is_number { format!("/proc/{place}/ns/net") } else { place.to_owned() };
        // Without `NONBLOCK`, the opening of a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::open(&place, flags, Mode::empty()) {
            Ok(file) => Ok(Namespace { file, place }),
            Err(source) => Err(NetnsError::Open { place, source }),
        }
    }

    /// Returns the path of the namespace's file.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns whether the calling thread is in the namespace.
    pub fn is_own(&self) -> bool {
        let inode = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let own = rustix::fs::stat("/proc/thread-self/ns/net").map(inode);
        own.is_ok() && own == rustix::fs::fstat(&self.file).map(inode)
    }

    /// Moves the calling thread into the namespace permanently.
    fn enter(&self) -> Result<(), NetnsError> {
        let entered = move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network));
        entered.map_err(|source| NetnsError::Enter { place: self.place.clone(), source })
    }

    /// Moves the process into the user namespace that owns the network namespace. The process must have a single
    /// thread.
    fn enter_owner(&self) -> rustix::io::Result<()> {
        let owner = self.owner()?;
        match move_into_link_name_space(owner.as_fd(), Some(LinkNameSpaceType::User)) {
            // `EINVAL` means that the process is already in that user namespace. What it lacks is the privilege.
            Err(Errno::INVAL) => Err(Errno::PERM),
            done => done,
        }
    }

    /// Returns the user namespace that owns the network namespace. Fails with `EPERM` if the owner is neither the
    /// caller's user namespace nor one below it.
    fn owner(&self) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the request takes no argument, and fails for a file other than a namespace.
        let fd = unsafe { libc::ioctl(self.file.as_raw_fd(), NS_GET_USERNS) };
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM));
        }
        // SAFETY: the request made this descriptor, and no other code has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Runs `work` in the namespace, on a separate thread. Returns the result of `work`.
    ///
    /// # Errors
    /// [`NetnsError`] if the namespace cannot be entered; in this case, `work` is not run.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let there = || self.enter().map(|()| work());
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, there).map_err(NetnsError::Thread)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Creates a TAP and moves it into the namespace, under the name in the options. The caller needs the privilege to
/// configure networks in its own and in the target namespace. If the name is taken, waits up to one second until it is
/// free.
///
/// # Errors
/// [`NetnsError`] if the TAP cannot be created or moved.
pub fn make_tap(namespace: &Namespace, options: &TapOptions) -> Result<Tap, NetnsError> {
    let until = Instant::now() + REMOVAL;
    loop {
        match make_tap_once(namespace, options) {
            Err(NetnsError::Move { source: Errno::EXIST, .. }) if Instant::now() < until => std::thread::sleep(RETRY),
            done => return done,
        }
    }
}

/// Creates a TAP and moves it. If the name is taken, this fails; since the kernel has then moved the TAP without
/// renaming it, a new attempt needs a new TAP.
fn make_tap_once(namespace: &Namespace, options: &TapOptions) -> Result<Tap, NetnsError> {
    let tap = Tap::open(&TapOptions { name: INTERIM.into(), up: false, ..options.clone() })?;
    let moved = NamespaceSocket::open().and_then(|mut netlink| {
        let link = netlink.link(tap.name())?;
        netlink.hand_to(link.index, namespace.file.as_fd(), &options.name)
    });
    let place = namespace.place.clone();
    let name = options.name.clone();
    moved.map(|()| tap).map_err(|source| NetnsError::Move { place, name, source })
}

/// Like [`make_tap`], but usable without the privilege to configure networks. If this process lacks the privilege, it
/// permanently enters the user namespace that owns the network namespace, creates another network namespace there, and
/// creates the TAP in it. The process must have a single thread.
///
/// # Errors
/// The same as those of [`make_tap`].
pub fn make_tap_of_user(namespace: &Namespace, options: &TapOptions) -> Result<Tap, NetnsError> {
    match make_tap(namespace, options) {
        Err(NetnsError::Tap(TapError::Permission(_)) | NetnsError::Move { source: Errno::PERM, .. }) => {}
        done => return done,
    }
    let entered = namespace.enter_owner().and_then(|()| {
        // SAFETY: the flag creates only a new network namespace; threads continue to share their descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
    });
    entered.map_err(|source| NetnsError::Enter { place: namespace.place.clone(), source })?;
    make_tap(namespace, options)
}
