//! Packet sockets that send on a port.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::c_int;
use netvale::{OutgoingRing, SendError, interface};
use netvale_portspec::{Directions, PortSpec};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{self, Timeout};

use super::{filter, port_at};
use crate::marks::FdMarks;

/// Maximum wait for room in a full ring, after which a send fails with `ENOBUFS`. A switch empties a ring within this
/// time; a pipe's other end may never read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The sockets that are bound to a port (by descriptor number), and the ports that are open for sending (by interface
/// index).
#[derive(Default)]
struct PacketSockets {
    bound: BTreeMap<c_int, (i32, Arc<OutgoingRing>)>,
    senders: BTreeMap<i32, Arc<OutgoingRing>>,
}

static SOCKETS: Mutex<Option<PacketSockets>> = Mutex::new(None);
/// The bound descriptors, one bit each. `write` and similar functions check this set, not the locked table, since a
/// signal handler may call these functions while the interrupted thread holds the lock.
static BOUND: FdMarks = FdMarks::new();
/// Number of bound sockets. While it is zero, look-ups are skipped.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with_sockets<T>(f: impl FnOnce(&mut PacketSockets) -> T) -> T {
    let mut guard: MutexGuard<'_, _> = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    f(guard.get_or_insert_default())
}

/// Records whether a descriptor is bound.
fn mark(number: c_int, on: bool) {
    if !BOUND.fits(number) {
        return;
    }
    match (BOUND.set(number, on), on) {
        (false, true) => drop(COUNT.fetch_add(1, Ordering::AcqRel)),
        (true, false) => drop(COUNT.fetch_sub(1, Ordering::AcqRel)),
        _ => {}
    }
}

impl PacketSockets {
    fn sender(&mut self, index: i32) -> Option<Arc<OutgoingRing>> {
        if let Some(known) = self.senders.get(&index) {
            return Some(Arc::clone(known));
        }
        let spec = port_at(index)?.1;
        let sender = Arc::new(OutgoingRing::late(&sending(&spec)).inspect_err(crate::say).ok()?);
        self.senders.insert(index, Arc::clone(&sender));
        Some(sender)
    }
}

/// Returns the name that opens the port only for sending: another user of the port, such as this program's libpcap, may
/// be reading the frames that the port receives.
fn sending(spec: &PortSpec) -> String {
    interface::one_way(spec, Directions::Tx).as_ref().unwrap_or(spec).to_string()
}

/// Opens the port with this index for sending, with the program's current credentials: the program may drop its
/// privileges before it sends.
pub fn named(index: i32) {
    with_sockets(|s| drop(s.sender(index)));
}

/// Implements bind(2) of a packet socket to interface `index`; returns `None` if the index is not assigned to a port.
pub fn bind(fd: BorrowedFd<'_>, number: c_int, index: i32) -> Option<Result<(), Errno>> {
    port_at(index)?;
    if !BOUND.fits(number) {
        return Some(Err(Errno::MFILE));
    }
    Some(take_over(fd).and_then(|()| {
        crate::table::claim();
        let sender = |s: &mut PacketSockets| {
            let sender = s.sender(index)?;
            s.bound.insert(number, (index, sender));
            Some(())
        };
        // If the port cannot be opened, e.g. because no daemon runs, the interface counts as absent.
        with_sockets(sender).ok_or(Errno::NODEV)?;
        mark(number, true);
        Ok(())
    }))
}

/// Prepares a raw packet socket for a port, so that the kernel delivers no more frames to the socket.
fn take_over(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if rustix::net::sockopt::socket_type(fd)? != SocketType::RAW {
        return Err(Errno::OPNOTSUPP);
    }
    if filter::is_mapped(fd) {
        return Err(no_rings());
    }
    filter::deafen(fd)
}

/// Prints why rings in memory cannot be used with a port, and returns the error.
pub fn no_rings() -> Errno {
    netvale_control::note!(
        "netvale: a packet socket with rings in memory (PACKET_TX_RING, PACKET_RX_RING) cannot be bound to a port; \
         use send(2) or a similar call: see the program's options"
    );
    Errno::OPNOTSUPP
}

/// Returns whether a socket is bound to a port.
#[inline]
pub fn is_bound(number: c_int) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && BOUND.has(number)
}

/// Returns whether any socket is bound to a port.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Returns the queue on which a socket bound to a port sends; `None` for other sockets.
pub fn sender(number: c_int) -> Option<Arc<OutgoingRing>> {
    if !is_bound(number) {
        return None;
    }
    with_sockets(|s| s.bound.get(&number).map(|(_, sender)| Arc::clone(sender)))
}

/// Sends a frame on the port with interface index `index` or, if that is `None`, on the port to which the socket is
/// bound. `flags` are the flags of send(2). Returns the number of sent bytes.
///
/// # Errors
/// `ENXIO` if there is no such port, or the daemon refuses it; `EMSGSIZE` if the frame is too long; `EAGAIN` if there
/// is no room on a non-blocking socket, or not within the socket's time limit; `ENOBUFS` if the ring stays full for
/// [`TIMEOUT`]; `ENETDOWN` if the port or the daemon is gone.
pub fn send(number: c_int, index: Option<i32>, frame: &[u8], flags: c_int) -> Result<usize, Errno> {
    let sender = match index {
        Some(index) => with_sockets(|s| s.sender(index)),
        None => sender(number),
    };
    let sender = sender.ok_or(Errno::NXIO)?;
    let mut sent = sender.send(frame, Duration::ZERO);
    if matches!(sent, Err(SendError::NoRoom)) && flags & libc::MSG_DONTWAIT == 0 {
        let (limit, full) = send_timeout(number);
        sent = sender.send(frame, limit);
        if matches!(sent, Err(SendError::NoRoom)) {
            return Err(full);
        }
    }
    match sent {
        Ok(()) => Ok(frame.len()),
        Err(e) => {
            if let SendError::Open(why) = &e {
                crate::say(why);
            }
            Err(e.errno())
        }
    }
}

/// Returns how long a send may wait for room, and the error that the send returns if there is no room within this time.
fn send_timeout(number: c_int) -> (Duration, Errno) {
    let Some(fd) = crate::borrow(number) else { return (Duration::ZERO, Errno::AGAIN) };
    if rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK)) {
        return (Duration::ZERO, Errno::AGAIN);
    }
    match sockopt::socket_timeout(fd, Timeout::Send) {
        Ok(Some(limit)) if limit <= TIMEOUT => (limit, Errno::AGAIN),
        _ => (TIMEOUT, Errno::NOBUFS),
    }
}

/// Warns, once, that a socket bound to a port receives nothing.
pub fn listened(number: c_int) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if is_bound(number) && !TOLD.swap(true, Ordering::Relaxed) {
        let name = with_sockets(|s| s.bound.get(&number).and_then(|(index, _)| port_at(*index))).map(|(name, _)| name);
        let name = name.unwrap_or_default();
        netvale_control::note!(
            "netvale: this packet socket is bound to port {name}; it can send, \
             but receives nothing: receive through libpcap or /dev/netmap"
        );
    }
}

/// The queue of a closed socket and, if it was the last socket bound to its port, the port's own entry. Queue and entry
/// must be dropped while no lock is held, as dropping the last reference closes the port.
pub type ClosedQueue = (Arc<OutgoingRing>, Option<Option<Arc<OutgoingRing>>>);

/// Removes `number`, which is about to be closed or overwritten. Returns the socket's queue; `None` if it was not bound
/// to a port.
pub fn closed(number: c_int) -> Option<ClosedQueue> {
    if !is_bound(number) || !crate::table::is_owner() {
        return None;
    }
    mark(number, false);
    with_sockets(|s| {
        let (index, sender) = s.bound.remove(&number)?;
        let is_last = !s.bound.values().any(|(i, _)| *i == index);
        Some((sender, is_last.then(|| s.senders.remove(&index))))
    })
}

/// Records that `new` is now a duplicate of `old`. The caller must have removed the descriptor that `new` referred to
/// before.
pub fn duplicated(old: c_int, new: c_int) {
    if is_bound(old) {
        with_sockets(|s| s.bound.get(&old).cloned().and_then(|entry| s.bound.insert(new, entry)));
        mark(new, true);
    }
}
