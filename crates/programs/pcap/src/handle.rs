//! netvale's own `pcap_t`: a handle through which a libpcap program uses a port as an interface.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_char, c_int};
use netvale::{Error, OutgoingRing, Port, interface};
use netvale_mem::notify::Doorbell;
use netvale_mem::spin::{Spin, poll_for};
use netvale_portspec::Directions;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::again;
use crate::sys::{self, BpfInsn, ERRBUF_SIZE, Pcap};

/// First field of every netvale handle. The `pcap_t` of the system's libpcap begins with a function's address, which
/// never has this value.
pub const MAGIC: u64 = 0xf00d_4e56_7063_6170;

/// A handle of this library, to which the program's `pcap_t` points. The program's callbacks may use the handle, so no
/// part of it is borrowed while they run.
#[repr(C)]
pub struct Handle {
    magic: u64,
    /// Text of the last error.
    errbuf: UnsafeCell<[c_char; ERRBUF_SIZE]>,
    /// Name of the port.
    pub name: String,
    /// Snapshot length: the maximum number of captured bytes per frame.
    pub snaplen: Cell<c_int>,
    /// Maximum wait of a read in milliseconds; 0 for no limit.
    pub timeout: Cell<c_int>,
    /// Whether time stamps are in nanoseconds.
    pub nano: Cell<bool>,
    /// Whether reads and sends return immediately if they would have to wait.
    pub nonblock: Cell<bool>,
    /// The flag that `pcap_breakloop` sets, possibly in a signal handler or another thread.
    breaking: AtomicBool,
    /// The eventfd that ends a wait for frames; -1 before activation.
    breaker: AtomicI32,
    /// Number of frames that passed the filter.
    pub received: Cell<u64>,
    /// The header to which `pcap_next_ex` points its caller.
    pub header: UnsafeCell<sys::PktHdr>,
    /// The filter's instructions; empty without a filter.
    pub filter: UnsafeCell<Vec<BpfInsn>>,
    /// A handle of the system's libpcap with netvale's link type and snapshot length, for the system's functions that
    /// need a handle. Null before activation.
    pub dead: Cell<*mut Pcap>,
    /// The open port.
    pub active: UnsafeCell<Option<ActivePort>>,
}

/// An open port.
pub struct ActivePort {
    /// The port from which frames are received, or a monitor of it.
    pub port: ManuallyDrop<Port>,
    /// Name of the monitor of the port's received frames; `None` if the port is itself a monitor or receives nothing.
    copies: Option<String>,
    /// Whether frames come from this monitor, because the program already had the port open.
    is_copy: bool,
    /// The sender. If the port's sending direction can be opened separately, it is opened when the first frame is sent:
    /// a program that only listens leaves the sending direction to other users, such as its own packet sockets.
    pub sender: Arc<OutgoingRing>,
    /// Index of the next ring to read.
    pub ring: usize,
    /// Number of slots of the ring `ring` that hold the frame which the program may still read.
    pub held: u32,
    /// Number of slots released since the last sync.
    pub unsynced: u32,
    /// Real time of the last sync that found frames: seconds, and microseconds or nanoseconds.
    pub now: (i64, i64),
    /// Buffer for frames that span several slots.
    pub whole: Vec<u8>,
    /// State of the adaptive polling for frames.
    spin: Spin,
    /// The epoll set that becomes readable when there is something to read. It contains the rings' wake-ups, the
    /// connection, `always` and `breaker`.
    epoll: OwnedFd,
    /// An eventfd that keeps `epoll` readable while unread frames are left.
    always: Doorbell,
    is_always: bool,
    /// The eventfd with which `pcap_breakloop` ends a wait.
    breaker: Doorbell,
    /// Whether the program requested the descriptor for poll(2) and select(2).
    pub selectable: bool,
    /// Whether the descriptor for poll(2) becomes writable, too, when there is room to send.
    shows_room: bool,
}

/// Returns the netvale handle behind a `pcap_t`; `None` for a handle of the system's libpcap.
#[inline]
pub fn ours<'a>(p: *mut Pcap) -> Option<&'a Handle> {
    // SAFETY: at least 8 bytes of any pcap_t are readable; if they are the magic number, the pcap_t is a Handle, which
    // lives until `pcap_close`.
    unsafe { (!p.is_null() && p.cast::<u64>().read() == MAGIC).then(|| &*p.cast::<Handle>()) }
}

impl Handle {
    /// Creates a handle that is not activated.
    pub fn new(name: &str) -> Box<Handle> {
        Box::new(Handle {
            magic: MAGIC,
            errbuf: UnsafeCell::new([0; ERRBUF_SIZE]),
            name: name.to_owned(),
            snaplen: Cell::new(262_144),
            timeout: Cell::new(0),
            nano: Cell::new(false),
            nonblock: Cell::new(false),
            breaking: AtomicBool::new(false),
            breaker: AtomicI32::new(-1),
            received: Cell::new(0),
            header: UnsafeCell::new(sys::PktHdr { ts: libc::timeval { tv_sec: 0, tv_usec: 0 }, caplen: 0, len: 0 }),
            filter: UnsafeCell::new(Vec::new()),
            dead: Cell::new(std::ptr::null_mut()),
            active: UnsafeCell::new(None),
        })
    }

    /// Returns the address of the last error's text.
    pub fn errbuf(&self) -> *mut c_char {
        self.errbuf.get().cast()
    }

    /// Records an error. Returns `code`.
    pub fn fail(&self, code: c_int, text: &str) -> c_int {
        // SAFETY: the buffer has room for ERRBUF_SIZE bytes.
        unsafe { put_text(self.errbuf(), text) };
        code
    }

    /// Returns the open port; `None` before activation. The borrow must end before a callback of the program runs.
    ///
    /// # Safety
    /// No other borrow of the port is alive.
    #[expect(clippy::mut_from_ref, reason = "the cell is what makes callbacks possible that use the handle")]
    pub unsafe fn active(&self) -> Option<&mut ActivePort> {
        // SAFETY: the caller's contract; only one thread at a time uses a handle, as libpcap requires.
        unsafe { (*self.active.get()).as_mut() }
    }

    /// Returns whether the handle is activated.
    pub fn is_active(&self) -> bool {
        // SAFETY: the borrow ends within this statement.
        unsafe { self.active() }.is_some()
    }

    /// Activates the handle by opening its port. Returns 0 or libpcap's error code.
    pub fn activate(&self) -> c_int {
        if self.is_active() {
            return self.fail(sys::ERROR_ACTIVATED, "already activated");
        }
        let snaplen = if self.snaplen.get() <= 0 { 262_144 } else { self.snaplen.get().min(262_144) };
        self.snaplen.set(snaplen);
        match ActivePort::open(&self.name) {
            Ok(active) => {
                let precision = if self.nano.get() { sys::PRECISION_NANO } else { sys::PRECISION_MICRO };
                // SAFETY: the call creates a handle from numbers.
                self.dead.set(unsafe { sys::open_dead(sys::DLT_EN10MB, snaplen, precision.cast_unsigned()) });
                self.breaker.store(active.breaker.as_fd().as_raw_fd(), Ordering::Relaxed);
                // SAFETY: no borrow is alive.
                unsafe { *self.active.get() = Some(active) };
                0
            }
            Err(e) => self.fail(code_of(&e), &format!("{}: {e}", self.name)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.dead.get().is_null() {
            // SAFETY: the handle was created by `open_dead` and is closed only once.
            unsafe { sys::close(self.dead.get()) };
        }
    }
}

fn code_of(e: &Error) -> c_int {
    match e {
        Error::NoDaemon(why) if matches!(why.errno(), Some(libc::EACCES | libc::EPERM)) => sys::ERROR_PERM_DENIED,
        Error::NoDaemon(_) => sys::ERROR_NO_SUCH_DEVICE,
        Error::Refused { errno, .. } if *errno == libc::ENXIO => sys::ERROR_NO_SUCH_DEVICE,
        Error::Refused { errno, .. } if *errno == libc::EACCES => sys::ERROR_PERM_DENIED,
        _ => sys::ERROR,
    }
}

/// Writes `text` as a C string, truncated to the size of libpcap's error buffers.
///
/// # Safety
/// `into` is null or has room for `ERRBUF_SIZE` bytes.
pub unsafe fn put_text(into: *mut c_char, text: &str) {
    if into.is_null() {
        return;
    }
    // libpcap's errors are one line, so lines are joined.
    let line: String = text.lines().collect::<Vec<_>>().join(" ").chars().take(ERRBUF_SIZE - 1).collect();
    let mut end = line.len().min(ERRBUF_SIZE - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    if let Ok(c) = CString::new(&line[..end]) {
        let bytes = c.as_bytes_with_nul();
        // SAFETY: at most ERRBUF_SIZE bytes, the NUL included.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), bytes.len()) };
    }
}

/// The result of a wait for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Frames are available.
    Frames,
    /// The time limit passed.
    TimedOut,
    /// A signal arrived.
    Interrupted,
    /// The port was detached.
    Closed,
}

/// The epoll data of `breaker`.
const BROKEN_OFF: u64 = 2;
/// Maximum time for which a read polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

impl ActivePort {
    fn open(name: &str) -> Result<ActivePort, Error> {
        let spec = netvale::interface(name).ok_or(Error::Inconsistent("not a port name"))?;
        let way = |way| interface::one_way(&spec, way).map(|s| s.to_string());
        let copies = again::copies_of(&spec);
        let mut ports = again::ports();
        let name = way(Directions::Rx).unwrap_or_else(|| spec.to_string());
        let (mut port, is_copy) = again::open(&ports, &name, copies.as_deref())?;
        let sender = match (again::sender(&ports, copies.as_deref()), way(Directions::Tx)) {
            (Some(sender), _) => sender,
            (None, Some(name)) => Arc::new(OutgoingRing::late(&name)?),
            (None, None) => Arc::new(OutgoingRing::of(&mut port)?),
        };
        let system = |e: Errno| Error::System { what: "create a descriptor to poll", source: e.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let always = Doorbell::new().map_err(system)?;
        let add = |fd: BorrowedFd<'_>, data| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN).map_err(system)
        };
        let breaker = Doorbell::new().map_err(system)?;
        add(always.as_fd(), 0)?;
        add(breaker.as_fd(), BROKEN_OFF)?;
        for ring in port.rx() {
            add(ring.wake_fd(), 0)?;
        }
        if let Some(connection) = port.connection() {
            add(connection, 1)?;
        }
        if let Some(copies) = &copies {
            again::enter(&mut ports, copies, is_copy, &sender);
        }
        Ok(ActivePort {
            port: ManuallyDrop::new(port),
            copies,
            is_copy,
            sender,
            ring: 0,
            held: 0,
            unsynced: 0,
            now: (0, 0),
            whole: Vec::new(),
            spin: Spin::default(),
            epoll,
            always,
            is_always: false,
            breaker,
            selectable: false,
            shows_room: false,
        })
    }

    /// Returns the descriptor for poll(2) and select(2), whose readiness is kept up to date from then on.
    pub fn selectable(&mut self) -> c_int {
        self.selectable = true;
        self.settle();
        let fd = self.epoll.as_raw_fd();
        if !self.shows_room {
            self.shows_room = crate::output::show(fd, &self.sender);
        }
        fd
    }

    /// Returns whether the program has made the descriptor for poll(2) and select(2) non-blocking by fcntl(2).
    pub fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.epoll).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Syncs the rx rings. Returns whether frames are available.
    pub fn look(&mut self) -> bool {
        self.unsynced = 0;
        if let Some(copies) = self.copies.as_ref().filter(|_| self.is_copy) {
            again::drain(copies);
        }
        self.port.rx().iter_mut().fold(false, |any, ring| {
            let _ = ring.sync();
            any | (ring.space() > 0)
        })
    }

    /// Waits for frames until `until`, or without limit if `until` is `None`.
    pub fn wait(&mut self, until: Option<Instant>) -> WaitResult {
        let start = Instant::now();
        self.spin.set_most(until.map_or(SPIN, |u| SPIN.min(u.saturating_duration_since(start))));
        if self.look() || poll_for(self, |active| &mut active.spin, ActivePort::look) {
            return WaitResult::Frames;
        }
        let ready = self.port.rx().iter_mut().fold(false, |any, ring| ring.arm() | any);
        let waited = if ready { WaitResult::Frames } else { self.sleep(until) };
        self.port.rx().iter().for_each(|ring| ring.disarm());
        if waited == WaitResult::TimedOut && self.look() { WaitResult::Frames } else { waited }
    }

    fn sleep(&mut self, until: Option<Instant>) -> WaitResult {
        use rustix::event::Timespec;
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        let left = left.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 8];
        match epoll::wait(&self.epoll, &mut events[..], left.as_ref()) {
            Ok(([], _)) => WaitResult::TimedOut,
            Ok((events, _)) if events.iter().any(|e| e.data.u64() == BROKEN_OFF) => {
                self.breaker.drain();
                WaitResult::Interrupted
            }
            Ok((events, _)) if events.iter().all(|e| e.data.u64() == 1) => WaitResult::Closed,
            Ok(_) => WaitResult::Frames,
            Err(Errno::INTR) => WaitResult::Interrupted,
            Err(_) => WaitResult::Closed,
        }
    }

    /// Makes the descriptor for poll(2) and select(2) readable if and only if unread frames are left. Called before
    /// control returns to the program.
    pub fn settle(&mut self) {
        if !self.selectable {
            return;
        }
        let mut left = self.held == 0 && self.port.rx().iter().any(|ring| ring.space() > 0);
        if self.held > 0 {
            left = self.port.rx().get(self.ring).is_some_and(|r| r.space() > self.held);
        }
        if !left {
            self.port.rx().iter().for_each(|ring| ring.disarm());
            left = self.port.rx().iter_mut().fold(false, |any, ring| ring.arm() | any) && self.has_more_than_held();
        }
        if left != self.is_always {
            self.is_always = left;
            if left {
                self.always.ring();
            } else {
                let _ = self.always.drain();
            }
        }
    }

    fn has_more_than_held(&mut self) -> bool {
        let at = self.ring;
        let held = self.held;
        self.port.rx().iter().enumerate().any(|(i, r)| r.space() > if i == at { held } else { 0 })
    }
}

impl Drop for ActivePort {
    fn drop(&mut self) {
        if self.shows_room {
            crate::output::hide(self.epoll.as_raw_fd());
        }
        // SAFETY: the value is being dropped, so the field is not used afterwards.
        let port = unsafe { ManuallyDrop::take(&mut self.port) };
        if let Some(copies) = &self.copies {
            again::leave(copies, port, self.is_copy);
        }
    }
}

/// Returns the flag that `pcap_breakloop` sets, and clears it.
pub fn take_break(h: &Handle) -> bool {
    h.breaking.swap(false, Ordering::Relaxed)
}

/// Returns whether the flag of `pcap_breakloop` is set.
pub fn is_breaking(h: &Handle) -> bool {
    h.breaking.load(Ordering::Relaxed)
}

/// Ends a loop, even one that waits in another thread. May be called from a signal handler.
pub fn break_off(h: &Handle) {
    h.breaking.store(true, Ordering::Relaxed);
    let breaker = h.breaker.load(Ordering::Relaxed);
    if breaker >= 0 {
        let ring = 1u64.to_ne_bytes();
        // SAFETY: the call reads eight bytes; the descriptor lives as long as the handle.
        unsafe { libc::write(breaker, ring.as_ptr().cast(), ring.len()) };
    }
}
