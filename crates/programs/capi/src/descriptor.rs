//! The state that this library keeps for a program's descriptor of `/dev/netmap` ([`Descriptor`]).
//!
//! The descriptor itself is a connection to the daemon, so it refers to the same port after dup, fork and exec, and in
//! a process that receives it over a socket.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM, c_int};
use netvale::raw::AttachedRings;
use netvale::{RxRing, TxRing};
use netvale_abi::nmreq::{NR_DO_RX_POLL, NR_NO_TX_POLL};
use netvale_control::attach::{AttachReply, Role};
use netvale_mem::RingMem;
use netvale_mem::appl::SyncResult;

use crate::csb::UserCsb;
use crate::loop_state::LoopState;
use crate::starving::FullRing;

/// The operations common to rings of both directions.
pub trait DirectedRing {
    /// See [`TxRing::sync_header`].
    fn sync_header(&mut self) -> SyncResult;
    /// See [`TxRing::ask_kick`].
    fn ask_kick(&self);
    /// See [`TxRing::disarm`].
    fn disarm(&self);
    /// See [`TxRing::wake_fd`].
    fn wake(&self) -> c_int;
    /// Returns the ring's slots and header.
    fn mem(&self) -> &RingMem;
}

macro_rules! ring {
    ($t:ty, |$ring:ident| $sync:expr) => {
        impl DirectedRing for $t {
            fn sync_header(&mut self) -> SyncResult {
                let $ring = self;
                $sync
            }
            fn ask_kick(&self) {
                self.ask_kick();
            }
            fn disarm(&self) {
                self.disarm();
            }
            fn wake(&self) -> c_int {
                self.wake_fd().as_raw_fd()
            }
            fn mem(&self) -> &RingMem {
                self.mem()
            }
        }
    };
}
ring!(TxRing, |ring| ring.sync_header(crate::indirect::fetch));
ring!(RxRing, |ring| ring.sync_header());

/// A ring of a registered port, which the program's threads share.
pub struct BoundRing<R> {
    ring: Mutex<SharedRing<R>>,
    header: RingMem,
    wake: c_int,
    full: FullRing,
}

struct SharedRing<R> {
    ring: R,
    /// Number of threads that sleep on the ring, plus one if `resting`.
    sleepers: u32,
    /// Whether an event loop of the program waits for the ring without calling this library.
    resting: bool,
}

impl<R: DirectedRing> BoundRing<R> {
    fn new(ring: R) -> Self {
        let header = ring.mem().clone();
        let wake = ring.wake();
        BoundRing {
            ring: Mutex::new(SharedRing { ring, sleepers: 0, resting: false }),
            header,
            wake,
            full: FullRing::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedRing<R>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs, unless another thread is syncing the ring (netmap skips a busy ring, too). Returns true if the ring had
    /// invalid indices or cannot be synced.
    #[inline]
    pub fn sync(&self) -> bool {
        match self.ring.try_lock() {
            Ok(mut shared) => matches!(shared.ring.sync_header(), SyncResult::Reinit | SyncResult::Refused),
            Err(_) => false,
        }
    }

    /// Syncs a tx ring. Also detects a thread that spins on a full ring, which may keep the daemon's worker from its
    /// CPU.
    #[inline]
    fn sync_tx(&self) -> bool {
        let bad = self.sync();
        let (head, _, tail) = self.header.indices();
        if head == tail {
            self.full.found(tail);
        }
        bad
    }

    /// Returns whether `tail` has moved past `cur`.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let (_, cur, tail) = self.header.indices();
        cur != tail
    }

    /// Returns the ring's header and slots.
    pub fn header(&self) -> &RingMem {
        &self.header
    }

    fn go_to_sleep(&self) {
        let mut shared = self.lock();
        shared.sleepers += 1;
        shared.ring.ask_kick();
    }

    fn wake_up(&self) {
        self.lock().wake_up();
    }

    fn rest(&self) {
        let mut shared = self.lock();
        shared.stir();
        shared.sleepers += 1;
        shared.resting = true;
        shared.ring.ask_kick();
    }

    fn stir(&self) {
        self.lock().stir();
    }
}

impl<R: DirectedRing> SharedRing<R> {
    fn wake_up(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.ring.disarm();
        }
    }

    /// Ends the wait that `rest` has begun; does nothing if there is no such wait.
    fn stir(&mut self) {
        if std::mem::take(&mut self.resting) {
            self.wake_up();
        }
    }
}

/// A registered port.
pub struct BoundPort {
    /// Bound tx rings.
    pub tx: Vec<BoundRing<TxRing>>,
    /// Bound rx rings.
    pub rx: Vec<BoundRing<RxRing>>,
    /// The daemon's reply.
    pub reply: AttachReply,
    /// The memfd of the port's memory region, which the program maps with mmap(2).
    pub region: OwnedFd,
    /// `nr_flags` of the registration.
    pub flags: u64,
    /// The program's CSB entries; empty unless the port is in CSB mode.
    pub csb: OnceLock<UserCsb>,
    /// Time of the last report that the daemon has closed the connection.
    told_end: Mutex<Option<Instant>>,
    _map: Arc<netvale_mem::Mapping>,
}

/// Minimum time between two reports of poll(2) that the daemon has closed the connection: a program that ignores the
/// report would otherwise poll without pause.
const TOLD_EVERY: Duration = Duration::from_secs(1);

impl BoundPort {
    /// Creates a registered port from the rings that the daemon has attached.
    pub fn new(attached: AttachedRings, flags: u64) -> Self {
        BoundPort {
            tx: attached.tx.into_iter().map(BoundRing::new).collect(),
            rx: attached.rx.into_iter().map(BoundRing::new).collect(),
            reply: attached.reply,
            region: attached.region,
            flags,
            csb: OnceLock::new(),
            told_end: Mutex::default(),
            _map: attached.map,
        }
    }

    /// Returns whether the rings are synced through the CSB only.
    #[inline]
    pub fn is_csb(&self) -> bool {
        self.csb.get().is_some()
    }

    /// Syncs the tx rings. Returns true if any ring had invalid indices or cannot be synced.
    #[inline]
    pub fn sync_tx(&self) -> bool {
        self.tx.iter().fold(false, |bad, r| r.sync_tx() | bad)
    }

    /// Syncs the rx rings. Returns true if any ring had invalid indices or cannot be synced.
    #[inline]
    pub fn sync_rx(&self) -> bool {
        self.rx.iter().fold(false, |bad, r| r.sync() | bad)
    }

    /// Implements poll(2): syncs as netmap does, and returns the ready events among `events`.
    pub fn poll(&self, events: i16) -> i16 {
        if self.is_csb() {
            return POLLERR;
        }
        let (want_tx, want_rx) = wants(events);
        let mut bad = false;
        if want_tx != 0 || self.flags & NR_NO_TX_POLL == 0 {
            bad |= self.sync_tx();
        }
        if want_rx != 0 || self.flags & NR_DO_RX_POLL != 0 {
            bad |= self.sync_rx();
        }
        let mut found = if bad { POLLERR } else { 0 };
        if want_tx != 0 && self.tx.iter().any(BoundRing::is_ready) {
            found |= want_tx;
        }
        if want_rx != 0 && self.rx.iter().any(BoundRing::is_ready) {
            found |= want_rx;
        }
        found
    }

    fn lanes_for(&self, events: i16) -> (&[BoundRing<TxRing>], &[BoundRing<RxRing>]) {
        let (want_tx, want_rx) = wants(events);
        (if want_tx != 0 { &self.tx } else { &[] }, if want_rx != 0 { &self.rx } else { &[] })
    }

    /// Requests wake-ups for `events`. The caller must poll once more before it sleeps.
    pub fn go_to_sleep(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(BoundRing::go_to_sleep);
        rx.iter().for_each(BoundRing::go_to_sleep);
    }

    /// Withdraws the request of [`Self::go_to_sleep`].
    pub fn wake_up(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(BoundRing::wake_up);
        rx.iter().for_each(BoundRing::wake_up);
    }

    /// Requests wake-ups for an event loop of the program that waits without calling this library, until the next call
    /// of this function or of [`Self::stir`]. The caller must poll once more before it sleeps.
    pub fn rest(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(BoundRing::rest);
        rx.iter().for_each(BoundRing::rest);
    }

    /// Withdraws the request of [`Self::rest`].
    pub fn stir(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(BoundRing::stir);
        rx.iter().for_each(BoundRing::stir);
    }

    /// Returns the eventfds that become readable on a wake-up for `events`.
    pub fn wake_fds(&self, events: i16) -> impl Iterator<Item = c_int> + '_ {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().map(|r| r.wake).chain(rx.iter().map(|r| r.wake))
    }

    /// Returns the time until poll(2) may report that the daemon has closed the connection; zero if it may report this
    /// now.
    pub fn until_end_is_told(&self) -> Duration {
        let told = *self.told_end.lock().unwrap_or_else(PoisonError::into_inner);
        told.map_or(Duration::ZERO, |at| TOLD_EVERY.saturating_sub(at.elapsed()))
    }

    /// Records that poll(2) has reported that the daemon has closed the connection. For a monitor, nothing is recorded,
    /// so that its end is reported every time, as in netmap.
    pub fn end_is_told(&self) {
        if self.reply.role != Role::Monitor {
            *self.told_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// Returns the result of poll(2) once the daemon has closed the connection: `POLLERR` for a monitor, whose port is
    /// gone (as in netmap), `POLLHUP` for any other port.
    pub fn hung_up(&self) -> i16 {
        if self.reply.role == Role::Monitor { POLLERR } else { POLLHUP }
    }

    /// Returns a number that changes with each update of a ring, for edge-triggered epoll.
    pub fn news(&self) -> u64 {
        let tails = self.tx.iter().map(|r| r.header.indices().2).chain(self.rx.iter().map(|r| r.header.indices().2));
        tails.fold(1469598103934665603, |sum, tail| (sum ^ u64::from(tail)).wrapping_mul(1099511628211))
    }
}

/// Returns the bits of `events` that concern sending, and the bits that concern receiving.
fn wants(events: i16) -> (i16, i16) {
    (events & (POLLOUT | POLLWRNORM), events & (POLLIN | POLLRDNORM))
}

/// An open `/dev/netmap`.
#[derive(Default)]
pub struct Descriptor {
    bound: ArcSwapOption<BoundPort>,
    /// Held during a registration, so that only one registration is in progress at a time.
    pub registering: Mutex<()>,
    /// Number of this process's descriptor numbers that refer to this open file.
    numbers: AtomicUsize,
    closed: AtomicBool,
    /// State of the sync kloop: a loop that syncs the rings, which in netmap runs in the kernel.
    pub kloop: LoopState,
}

impl Descriptor {
    /// Returns the registered port; `None` before a registration.
    #[inline]
    pub fn bound(&self) -> Option<Arc<BoundPort>> {
        self.bound.load_full()
    }

    /// Calls `f` with the registered port and returns its result; `None` if no port is registered. This is cheaper than
    /// [`Descriptor::bound`], as no reference is counted.
    #[inline]
    pub fn with<T>(&self, f: impl FnOnce(&BoundPort) -> T) -> Option<T> {
        self.bound.load().as_ref().map(|b| f(b))
    }

    /// Records the registered port.
    pub fn bind(&self, bound: BoundPort) {
        self.bound.store(Some(Arc::new(bound)));
    }

    /// Implements poll(2).
    pub fn poll(&self, events: i16) -> i16 {
        if self.closed.load(Ordering::Relaxed) {
            return POLLNVAL;
        }
        self.with(|b| b.poll(events)).unwrap_or(POLLERR)
    }

    /// Counts another descriptor number.
    pub fn count_up(&self) {
        self.numbers.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a descriptor number from the count. Once the count is zero, the file counts as closed, and waiting
    /// threads are woken.
    pub fn count_down(&self) {
        if self.numbers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.closed.store(true, Ordering::Release);
            self.kloop.stop();
            self.with(|b| b.wake_fds(POLLIN | POLLOUT).for_each(ring));
        }
    }
}

/// Signals an eventfd of a ring, as the daemon does.
#[allow(unsafe_code)]
fn ring(fd: c_int) {
    // SAFETY: the number is an eventfd of a ring of a live `BoundPort`, which owns the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}
