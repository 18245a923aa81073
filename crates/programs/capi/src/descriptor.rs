//! An open `/dev/netmap`: this process's state behind one of the program's descriptors.
//!
//! The descriptor itself is a connection to the daemon, so it means the same after dup, fork, exec and in a process
//! that received it over a socket.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM, c_int};
use netvale::raw::Attached;
use netvale::{RxRing, TxRing};
use netvale_abi::nmreq::{NR_DO_RX_POLL, NR_NO_TX_POLL};
use netvale_control::attach::{AttachReply, Role};
use netvale_mem::RingMem;
use netvale_mem::appl::Sync as Synced;

use crate::csb::UserCsb;
use crate::loop_state::LoopState;
use crate::starving::Full;

/// The operations that a ring of either direction supports here.
pub trait Ring {
    /// See [`TxRing::sync_header`].
    fn sync_header(&mut self) -> Synced;
    /// See [`TxRing::ask_kick`].
    fn ask_kick(&self);
    /// See [`TxRing::disarm`].
    fn disarm(&self);
    /// See [`TxRing::wake_fd`].
    fn wake(&self) -> c_int;
    /// Slots and header.
    fn mem(&self) -> &RingMem;
}

macro_rules! ring {
    ($t:ty, |$ring:ident| $sync:expr) => {
        impl Ring for $t {
            fn sync_header(&mut self) -> Synced {
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

/// A bound ring, shared by the program's threads.
pub struct Lane<R> {
    ring: Mutex<Shared<R>>,
    header: RingMem,
    wake: c_int,
    full: Full,
}

struct Shared<R> {
    ring: R,
    /// Threads asleep on the ring, plus a waiting loop that is not interposed.
    sleepers: u32,
    /// Whether such a loop waits.
    resting: bool,
}

impl<R: Ring> Lane<R> {
    fn new(ring: R) -> Self {
        let header = ring.mem().clone();
        let wake = ring.wake();
        Lane { ring: Mutex::new(Shared { ring, sleepers: 0, resting: false }), header, wake, full: Full::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared<R>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs, unless another thread is syncing (netmap skips a busy ring too). Returns whether the ring was bad or
    /// takes nothing.
    #[inline]
    pub fn sync(&self) -> bool {
        match self.ring.try_lock() {
            Ok(mut shared) => matches!(shared.ring.sync_header(), Synced::Reinit | Synced::Refused),
            Err(_) => false,
        }
    }

    /// Syncs a tx ring. A caller that keeps finding it full may itself be starving the worker.
    #[inline]
    fn sync_tx(&self) -> bool {
        let bad = self.sync();
        let (head, _, tail) = self.header.indices();
        if head == tail {
            self.full.found(tail);
        }
        bad
    }

    /// Whether `tail` has moved past `cur`.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let (_, cur, tail) = self.header.indices();
        cur != tail
    }

    /// The ring's header and slots.
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

impl<R: Ring> Shared<R> {
    fn wake_up(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.ring.disarm();
        }
    }

    /// Ends the wait of the loop that is not interposed, if any.
    fn stir(&mut self) {
        if std::mem::take(&mut self.resting) {
            self.wake_up();
        }
    }
}

/// A registered port.
pub struct Bound {
    /// Rings to send on.
    pub tx: Vec<Lane<TxRing>>,
    /// Rings to receive on.
    pub rx: Vec<Lane<RxRing>>,
    /// The daemon's reply.
    pub reply: AttachReply,
    /// The region's memfd, for mmap.
    pub region: OwnedFd,
    /// `nr_flags` of the registration.
    pub flags: u64,
    /// The program's entries, in CSB mode.
    pub csb: OnceLock<UserCsb>,
    /// Time of the last report that the daemon has closed the connection.
    told_end: Mutex<Option<Instant>>,
    _map: Arc<netvale_mem::Mapping>,
}

/// Interval of that report: a program that ignores it would poll without pause.
const TOLD_EVERY: Duration = Duration::from_secs(1);

impl Bound {
    /// Takes over an attachment.
    pub fn new(attached: Attached, flags: u64) -> Self {
        Bound {
            tx: attached.tx.into_iter().map(Lane::new).collect(),
            rx: attached.rx.into_iter().map(Lane::new).collect(),
            reply: attached.reply,
            region: attached.region,
            flags,
            csb: OnceLock::new(),
            told_end: Mutex::default(),
            _map: attached.map,
        }
    }

    /// Whether the rings are synced through the CSB only.
    #[inline]
    pub fn is_csb(&self) -> bool {
        self.csb.get().is_some()
    }

    /// Syncs the tx rings. Returns whether one was bad.
    #[inline]
    pub fn sync_tx(&self) -> bool {
        self.tx.iter().fold(false, |bad, r| r.sync_tx() | bad)
    }

    /// Syncs the rx rings. Returns whether one was bad.
    #[inline]
    pub fn sync_rx(&self) -> bool {
        self.rx.iter().fold(false, |bad, r| r.sync() | bad)
    }

    /// Implements poll(2): syncs as netmap's does, and returns those of `events` that are ready.
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
        if want_tx != 0 && self.tx.iter().any(Lane::is_ready) {
            found |= want_tx;
        }
        if want_rx != 0 && self.rx.iter().any(Lane::is_ready) {
            found |= want_rx;
        }
        found
    }

    fn lanes_for(&self, events: i16) -> (&[Lane<TxRing>], &[Lane<RxRing>]) {
        let (want_tx, want_rx) = wants(events);
        (if want_tx != 0 { &self.tx } else { &[] }, if want_rx != 0 { &self.rx } else { &[] })
    }

    /// Asks for wake-ups for `events`; poll once more before sleeping.
    pub fn go_to_sleep(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(Lane::go_to_sleep);
        rx.iter().for_each(Lane::go_to_sleep);
    }

    /// Withdraws [`Self::go_to_sleep`].
    pub fn wake_up(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(Lane::wake_up);
        rx.iter().for_each(Lane::wake_up);
    }

    /// Asks for wake-ups until the next call, or until [`Self::stir`]; poll once more before sleeping.
    pub fn rest(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(Lane::rest);
        rx.iter().for_each(Lane::rest);
    }

    /// Withdraws [`Self::rest`].
    pub fn stir(&self, events: i16) {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().for_each(Lane::stir);
        rx.iter().for_each(Lane::stir);
    }

    /// The descriptors that become readable on a wake-up.
    pub fn wake_fds(&self, events: i16) -> impl Iterator<Item = c_int> + '_ {
        let (tx, rx) = self.lanes_for(events);
        tx.iter().map(|r| r.wake).chain(rx.iter().map(|r| r.wake))
    }

    /// Time until the next report that the daemon has closed the connection.
    pub fn until_end_is_told(&self) -> Duration {
        let told = *self.told_end.lock().unwrap_or_else(PoisonError::into_inner);
        told.map_or(Duration::ZERO, |at| TOLD_EVERY.saturating_sub(at.elapsed()))
    }

    /// Records such a report. A monitor's end is reported every time, as netmap does.
    pub fn end_is_told(&self) {
        if self.reply.role != Role::Monitor {
            *self.told_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// The result of poll(2) once the daemon has closed the connection: `POLLERR` for a monitor, whose port is gone (as
    /// in netmap), `POLLHUP` for any other port.
    pub fn hung_up(&self) -> i16 {
        if self.reply.role == Role::Monitor { POLLERR } else { POLLHUP }
    }

    /// A number that changes with each update of a ring: for edge-triggered epoll.
    pub fn news(&self) -> u64 {
        let tails = self.tx.iter().map(|r| r.header.indices().2).chain(self.rx.iter().map(|r| r.header.indices().2));
        tails.fold(1469598103934665603, |sum, tail| (sum ^ u64::from(tail)).wrapping_mul(1099511628211))
    }
}

/// The bits of `events` for sending, and those for receiving.
fn wants(events: i16) -> (i16, i16) {
    (events & (POLLOUT | POLLWRNORM), events & (POLLIN | POLLRDNORM))
}

/// An open `/dev/netmap`.
#[derive(Default)]
pub struct Descriptor {
    bound: ArcSwapOption<Bound>,
    /// Held during a registration: one at a time.
    pub registering: Mutex<()>,
    /// Descriptor numbers of this process that refer to it.
    numbers: AtomicUsize,
    closed: AtomicBool,
    /// The loop that syncs in the kernel's place.
    pub kloop: LoopState,
}

impl Descriptor {
    /// The registered port.
    #[inline]
    pub fn bound(&self) -> Option<Arc<Bound>> {
        self.bound.load_full()
    }

    /// Calls `f` with the registered port, without keeping it.
    #[inline]
    pub fn with<T>(&self, f: impl FnOnce(&Bound) -> T) -> Option<T> {
        self.bound.load().as_ref().map(|b| f(b))
    }

    /// Records the registered port.
    pub fn bind(&self, bound: Bound) {
        self.bound.store(Some(Arc::new(bound)));
    }

    /// Implements poll(2).
    pub fn poll(&self, events: i16) -> i16 {
        if self.closed.load(Ordering::Relaxed) {
            return POLLNVAL;
        }
        self.with(|b| b.poll(events)).unwrap_or(POLLERR)
    }

    /// Counts one more descriptor number.
    pub fn count_up(&self) {
        self.numbers.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops one descriptor number. The last one wakes waiters.
    pub fn count_down(&self) {
        if self.numbers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.closed.store(true, Ordering::Release);
            self.kloop.stop();
            self.with(|b| b.wake_fds(POLLIN | POLLOUT).for_each(ring));
        }
    }
}

/// Rings one of the library's eventfds, as the daemon would.
#[allow(unsafe_code)]
fn ring(fd: c_int) {
    // SAFETY: the number belongs to a lane of a live `Bound`, which owns the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}
