//! Arm, re-check, sleep, kick: the protocol that prevents lost wake-ups.
//!
//! Two sides share a flag (`need_kick`, written by the side that sleeps) and *news* (`head` or `hwtail`, written by the
//! side that wakes the other). They follow this protocol:
//!
//! ```text
//!   sleeper                          waker
//!   need_kick = 1        (arm)       news = …             (publish)
//!   full fence                       full fence
//!   news? then need_kick = 0, work   need_kick? then ring the doorbell
//!   sleep on the doorbell
//! ```
//!
//! With a full fence on both sides, at least one side sees what the other side wrote, so no wake-up is lost.
//! `tests/it/loom.rs` checks every interleaving of these functions.

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

/// Requests a kick. The caller must look for news once more before it sleeps.
#[inline]
pub fn arm(need_kick: &AtomicU32) {
    need_kick.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Withdraws the request for a kick, as the caller is awake.
#[inline]
pub fn disarm(need_kick: &AtomicU32) {
    need_kick.store(0, Ordering::Relaxed);
}

/// Returns whether the other side requests a kick. The caller must have published its news.
#[inline]
pub fn wanted(need_kick: &AtomicU32) -> bool {
    full_fence();
    wanted_now(need_kick)
}

/// The fence between publishing news and [`wanted_now`], for a caller that publishes in many places and then checks
/// many flags.
#[inline]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Like [`wanted`], but without the fence: the caller must have called [`full_fence`].
#[inline]
pub fn wanted_now(need_kick: &AtomicU32) -> bool {
    need_kick.load(Ordering::Relaxed) != 0
}

/// Counts of one ring's kicks, kept by one side. One thread writes them at a time; any thread may read them.
#[derive(Debug, Default)]
pub struct KickCounts {
    sent: AtomicU64,
    suppressed: AtomicU64,
    received: AtomicU64,
}

impl KickCounts {
    /// Counts one publication, with a kick (`sent`) or without.
    #[inline]
    pub fn count(&self, sent: bool) {
        let c = if sent { &self.sent } else { &self.suppressed };
        // With one writer at a time, no read-modify-write instruction is needed.
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

/// A doorbell, rung if the other side set its `need_kick`: an eventfd, or a register of a device.
///
/// All signals to and from peers are doorbells, whether a protocol calls them kicks, interrupts or notifications. A
/// doorbell that a peer can access ([`Doorbell::shared`], [`Doorbell::given`]) holds the [`Fault`] of the peer that is
/// to blame if the doorbell blocks.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    /// The fault of the peer that can access the doorbell, if any.
    fault: Option<Fault>,
    #[cfg(not(loom))]
    register: Option<DoorbellRegister>,
}

/// A register that ringing the doorbell writes, and the value written.
#[cfg(not(loom))]
#[derive(Debug)]
enum DoorbellRegister {
    /// A word of mapped memory.
    Mapped { words: crate::words::Words, index: usize, value: u32 },
    /// A register at an offset of a file; ringing writes zero.
    File { file: OwnedFd, at: u64 },
}

#[cfg(not(loom))]
impl DoorbellRegister {
    #[cold]
    fn ring(&self) {
        match self {
            DoorbellRegister::Mapped { words, index, value } => words.store(*index, *value),
            DoorbellRegister::File { file, at } => {
                // An error means that the device is gone and needs no kick.
                let _ = rustix::io::pwrite(file, &0u32.to_le_bytes(), *at);
            }
        }
    }

    fn try_clone(&self) -> std::io::Result<Self> {
        Ok(match self {
            DoorbellRegister::Mapped { words, index, value } => {
                DoorbellRegister::Mapped { words: words.clone(), index: *index, value: *value }
            }
            DoorbellRegister::File { file, at } => DoorbellRegister::File { file: file.try_clone()?, at: *at },
        })
    }
}

impl Doorbell {
    /// Creates a doorbell that no peer, or only a trusted peer, can access.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> rustix::io::Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Doorbell::from_fd)
    }

    /// Creates a doorbell of which a peer gets a copy; `fault` belongs to that peer.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn shared(fault: &Fault) -> rustix::io::Result<Self> {
        Ok(Doorbell { fault: Some(fault.clone()), ..Doorbell::new()? })
    }

    /// Takes over a peer's doorbell.
    ///
    /// # Errors
    /// `EINVAL` if the descriptor is not an eventfd: a write to another file could block this thread unnoticed, or have
    /// side effects.
    pub fn given(fd: OwnedFd, fault: &Fault) -> rustix::io::Result<Self> {
        if name_of(&fd)? != "anon_inode:[eventfd]" {
            return Err(Errno::INVAL);
        }
        Self::mistrusted(fd, fault)
    }

    /// Like [`Doorbell::given`], for a doorbell that this process rings but never waits on. Besides an eventfd, the
    /// doorbell may be a UNIX socket, which User-Mode Linux passes.
    ///
    /// # Errors
    /// `EINVAL` if the descriptor is neither an eventfd nor a UNIX socket.
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

    /// Takes over a trusted peer's doorbell.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Doorbell {
            fd,
            fault: None,
            #[cfg(not(loom))]
            register: None,
        }
    }

    /// Creates a doorbell that is a device's register: ringing it writes `value` to word `index`. The doorbell's
    /// descriptor never becomes readable.
    ///
    /// # Errors
    /// The error of eventfd(2).
    #[cfg(not(loom))]
    pub fn register(words: crate::words::Words, index: usize, value: u32) -> rustix::io::Result<Self> {
        Ok(Doorbell { register: Some(DoorbellRegister::Mapped { words, index, value }), ..Doorbell::new()? })
    }

    /// Creates a doorbell that is a device's register in a file: ringing it writes 32 zero bits at offset `at`. The
    /// doorbell's descriptor never becomes readable.
    ///
    /// # Errors
    /// The error of eventfd(2).
    #[cfg(not(loom))]
    pub fn file(file: OwnedFd, at: u64) -> rustix::io::Result<Self> {
        Ok(Doorbell { register: Some(DoorbellRegister::File { file, at }), ..Doorbell::new()? })
    }

    /// Redirects this doorbell to the eventfd `to`, for ringing and waiting; the descriptor's number stays the same. A
    /// thread that rings meanwhile rings either the old or the new eventfd.
    ///
    /// # Errors
    /// The error of dup3(2).
    #[allow(unsafe_code)]
    pub fn lead_to(&self, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: the second owner of the descriptor exists only during the call, and is never dropped. dup3 replaces
        // the file behind the number in one step, so the number is valid all the time.
        let mut number = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) });
        rustix::io::dup3(to, &mut number, rustix::io::DupFlags::CLOEXEC)
    }

    /// Returns the doorbell's descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Rings the doorbell. Ignores errors: if the counter is full, because the peer never reads it, a wake-up is
    /// pending already.
    pub fn ring(&self) {
        #[cfg(not(loom))]
        if let Some(r) = &self.register {
            return r.ring();
        }
        // An error has no remedy.
        let _ = self.bounded(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes()));
    }

    /// Clears pending signals, so that the next wait sleeps. Returns whether any signal was pending.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        self.bounded(|| rustix::io::read(&self.fd, &mut count)) == Ok(8)
    }

    /// Makes a call on the eventfd, unless such a call on a doorbell of this peer or its group has blocked or taken too
    /// long before ([`crate::calls`]).
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
            register: self.register.as_ref().map(DoorbellRegister::try_clone).transpose()?,
        })
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the kernel's name of a descriptor's file, which begins with a slash if the file has a path.
fn name_of(fd: &OwnedFd) -> rustix::io::Result<String> {
    /// The folder `/proc/self/fd`, kept open because opening it takes longer than a read in it. After a fork, the
    /// process id shows that the folder is the parent's.
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

/// Sleeps for `time`, or until `stop` becomes readable. Returns whether `stop` is readable.
pub fn nap(stop: BorrowedFd<'_>, time: Duration) -> bool {
    let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    let mut one = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    matches!(poll(&mut one, Some(&limit)), Ok(n) if n > 0)
}
