//! Arm, re-check, sleep, kick: the one place where a wake-up could be lost.
//!
//! Two sides share a flag (`need_kick`, written by the side that sleeps) and some news (`head` or `hwtail`,
//! written by the side that wakes). The discipline:
//!
//! ```text
//!   sleeper                          waker
//!   need_kick = 1        (arm)       news = …             (publish)
//!   full fence                       full fence
//!   news? then need_kick = 0, go on  need_kick? then ring the doorbell
//!   sleep on the doorbell
//! ```
//!
//! With a full fence on both sides, at least one of them sees the other's write: a wake-up is never lost.
//! `tests/it/loom.rs` checks every interleaving of exactly these functions.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::process::{Pid, getpid};

use crate::calls::{marked, timed};
use crate::fault::Fault;

/// Announces that the sleeper wants a kick. It must look for news once more before it sleeps.
#[inline]
pub fn arm(need_kick: &AtomicU32) {
    need_kick.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Withdraws the request: the sleeper is awake.
#[inline]
pub fn disarm(need_kick: &AtomicU32) {
    need_kick.store(0, Ordering::Relaxed);
}

/// Returns whether the other side wants a kick; called by the waker after it published its news.
#[inline]
pub fn wanted(need_kick: &AtomicU32) -> bool {
    full_fence();
    wanted_now(need_kick)
}

/// The fence between publishing and [`wanted_now`], for a waker that publishes in many places and then checks many
/// flags.
#[inline]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Like [`wanted`], after the caller's own [`full_fence`].
#[inline]
pub fn wanted_now(need_kick: &AtomicU32) -> bool {
    need_kick.load(Ordering::Relaxed) != 0
}

/// Counts of kicks of one ring, from one side. Written by one thread at a time, read by any.
#[derive(Debug, Default)]
pub struct KickCounts {
    sent: AtomicU64,
    suppressed: AtomicU64,
    received: AtomicU64,
}

impl KickCounts {
    /// Counts one publication: with a kick sent, or without need for one.
    #[inline]
    pub fn count(&self, sent: bool) {
        let c = if sent { &self.sent } else { &self.suppressed };
        // One writer at a time: no read-modify-write instruction needed.
        c.store(c.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds another process's counts.
    pub fn add(&self, sent: u64, suppressed: u64, received: u64) {
        for (place, n) in [(&self.sent, sent), (&self.suppressed, suppressed), (&self.received, received)] {
            place.store(place.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// Counts a kick from the other side.
    pub fn count_received(&self) {
        self.received.store(self.received.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Number of kicks from the other side.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Number of kicks sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Number of publications that needed no kick.
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }
}

/// The doorbell rung when the other side armed its `need_kick`: an eventfd, or a register of a device.
///
/// All signals to and from peers go through it, whatever a protocol calls them. A doorbell that a peer can access
/// ([`Doorbell::shared`], [`Doorbell::given`]) knows which peer to blame if it blocks.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    /// The fault of the peer with access to it, if any.
    fault: Option<Fault>,
    #[cfg(not(loom))]
    register: Option<Register>,
}

/// A register to write, and the value.
#[cfg(not(loom))]
#[derive(Debug)]
enum Register {
    /// A word of mapped memory.
    Mapped { words: crate::words::Words, index: usize, value: u32 },
    /// A register behind a file: ringing writes zero at this offset.
    File { file: OwnedFd, at: u64 },
}

#[cfg(not(loom))]
impl Register {
    #[cold]
    fn ring(&self) {
        match self {
            Register::Mapped { words, index, value } => words.store(*index, *value),
            Register::File { file, at } => {
                // A device that is gone needs no ringing.
                let _ = rustix::io::pwrite(file, &0u32.to_le_bytes(), *at);
            }
        }
    }

    fn try_clone(&self) -> std::io::Result<Self> {
        Ok(match self {
            Register::Mapped { words, index, value } => {
                Register::Mapped { words: words.clone(), index: *index, value: *value }
            }
            Register::File { file, at } => Register::File { file: file.try_clone()?, at: *at },
        })
    }
}

impl Doorbell {
    /// Creates a doorbell that no peer, or only a trusted one, can access.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> rustix::io::Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Doorbell::from_fd)
    }

    /// Creates a doorbell of which a peer gets a copy.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn shared(fault: &Fault) -> rustix::io::Result<Self> {
        Ok(Doorbell { fault: Some(fault.clone()), ..Doorbell::new()? })
    }

    /// Takes over a doorbell from a peer.
    ///
    /// # Errors
    /// `EINVAL` if it is not an eventfd: writing any other file could block this thread unnoticed, or have side
    /// effects.
    pub fn given(fd: OwnedFd, fault: &Fault) -> rustix::io::Result<Self> {
        if name_of(&fd)? != "anon_inode:[eventfd]" {
            return Err(Errno::INVAL);
        }
        Self::mistrusted(fd, fault)
    }

    /// Like [`Doorbell::given`], for a doorbell that is only rung: it may also be a UNIX socket, as for User-Mode
    /// Linux.
    ///
    /// # Errors
    /// `EINVAL` if it is neither.
    pub fn given_to_ring(fd: OwnedFd, fault: &Fault) -> rustix::io::Result<Self> {
        use rustix::net::{AddressFamily, sockopt};
        let is_socket = || sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
        match name_of(&fd)?.as_str() {
            "anon_inode:[eventfd]" => {}
            name if name.starts_with("socket:[") && is_socket() => {}
            _ => return Err(Errno::INVAL),
        }
        Self::mistrusted(fd, fault)
    }

    fn mistrusted(fd: OwnedFd, fault: &Fault) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Doorbell { fault: Some(fault.clone()), ..Doorbell::from_fd(fd) })
    }

    /// Takes over a doorbell from a trusted peer.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Doorbell {
            fd,
            fault: None,
            #[cfg(not(loom))]
            register: None,
        }
    }

    /// Creates a doorbell that is a device's register: ringing it writes `value` into word `index`. Its descriptor
    /// never becomes readable.
    ///
    /// # Errors
    /// The error of eventfd(2).
    #[cfg(not(loom))]
    pub fn register(words: crate::words::Words, index: usize, value: u32) -> rustix::io::Result<Self> {
        Ok(Doorbell { register: Some(Register::Mapped { words, index, value }), ..Doorbell::new()? })
    }

    /// Creates a doorbell that is a device's register behind a file: ringing it writes 32 zero bits at `at`. Its
    /// descriptor never becomes readable.
    ///
    /// # Errors
    /// The error of eventfd(2).
    #[cfg(not(loom))]
    pub fn file(file: OwnedFd, at: u64) -> rustix::io::Result<Self> {
        Ok(Doorbell { register: Some(Register::File { file, at }), ..Doorbell::new()? })
    }

    /// Redirects this doorbell, ringing and waiting, to the eventfd `to`; the descriptor's number stays. A thread that
    /// rings at the same moment rings one or the other.
    ///
    /// # Errors
    /// The error of dup3(2).
    #[allow(unsafe_code)]
    pub fn lead_to(&self, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: a second owner of the descriptor for the length of the call, never dropped. dup3 replaces the file
        // behind the number in one step, so the number is valid all the time.
        let mut number = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) });
        rustix::io::dup3(to, &mut number, rustix::io::DupFlags::CLOEXEC)
    }

    /// Returns its descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Rings it. A full counter (a peer that never reads) is a pending wake-up already, so errors do not matter.
    pub fn ring(&self) {
        #[cfg(not(loom))]
        if let Some(r) = &self.register {
            return r.ring();
        }
        // An error has no remedy here.
        let _ = self.bounded(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes()));
    }

    /// Clears pending rings: the next wait sleeps. Returns whether one was pending.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        self.bounded(|| rustix::io::read(&self.fd, &mut count)) == Ok(8)
    }

    /// Makes a call on the eventfd, unless the peer has made such a call block or last before. Only a call that blocks
    /// is interrupted ([`crate::calls`]), and only a peer can make it block.
    #[inline]
    fn bounded(&self, call: impl FnOnce() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
        match &self.fault {
            Some(fault) => timed(fault, call),
            None => marked(call),
        }
    }

    /// Creates a second handle to the same doorbell.
    ///
    /// # Errors
    /// The error of dup(2).
    pub fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Doorbell {
            fd: self.fd.try_clone()?,
            fault: self.fault.clone(),
            #[cfg(not(loom))]
            register: self.register.as_ref().map(Register::try_clone).transpose()?,
        })
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The kernel's name of a descriptor's file: it begins with a slash if the file has a path.
fn name_of(fd: &OwnedFd) -> rustix::io::Result<String> {
    /// The folder of a process's descriptors, and that process: finding the folder takes longer than reading it.
    static FOUND: Mutex<Option<(Pid, OwnedFd)>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let own = getpid();
    let folder = match found.take().filter(|(of, _)| *of == own) {
        Some((_, folder)) => folder,
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(|_| Errno::INVAL)?
        }
    };
    let name = rustix::fs::readlinkat(&folder, DecInt::from_fd(fd), Vec::new());
    *found = Some((own, folder));
    name.ok().and_then(|name| name.into_string().ok()).ok_or(Errno::INVAL)
}

/// Sleeps for `time`, or until `stop` becomes readable. Returns whether it became readable.
pub fn nap(stop: BorrowedFd<'_>, time: Duration) -> bool {
    let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    let mut one = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    matches!(poll(&mut one, Some(&limit)), Ok(n) if n > 0)
}
