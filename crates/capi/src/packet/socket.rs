//! Packet sockets that send on a port.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::c_int;
use netvale::{LatePort, interface};
use netvale_portspec::{Directions, PortSpec};
use rustix::io::Errno;
use rustix::net::SocketType;

use super::port_at;
use crate::open::errno_of;

/// How long a full ring is waited for before the socket's queue counts as full.
const PATIENCE: Duration = Duration::from_secs(1);

/// A port that packet sockets send on.
type Sender = Mutex<LatePort>;

/// Sockets bound to a port, and the ports that are open.
#[derive(Default)]
struct Sockets {
    bound: BTreeMap<c_int, (i32, Arc<Sender>)>,
    senders: BTreeMap<i32, Arc<Sender>>,
}

static SOCKETS: Mutex<Option<Sockets>> = Mutex::new(None);
/// Bound sockets: nothing at all is looked up while there are none.
static BOUND: AtomicUsize = AtomicUsize::new(0);

/// Runs `f` on the sockets, and counts them after it.
fn with_sockets<T>(f: impl FnOnce(&mut Sockets) -> T) -> T {
    let mut guard: MutexGuard<'_, _> = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = guard.get_or_insert_default();
    let result = f(sockets);
    BOUND.store(sockets.bound.len(), Ordering::Release);
    result
}

impl Sockets {
    fn sender(&mut self, index: i32) -> Option<Arc<Sender>> {
        if let Some(known) = self.senders.get(&index) {
            return Some(Arc::clone(known));
        }
        let spec = port_at(index)?.1;
        let sender = LatePort::new(&sending(&spec)).inspect_err(crate::say).ok()?;
        let sender = Arc::new(Mutex::new(sender));
        self.senders.insert(index, Arc::clone(&sender));
        Some(sender)
    }
}

/// The port, to send on: what it receives may be somebody else's, such as this program's libpcap.
fn sending(spec: &PortSpec) -> String {
    interface::one_way(spec, Directions::Tx).as_ref().unwrap_or(spec).to_string()
}

/// Somebody is interested in the port: whoever it is now will be the one who sends, whatever rights are given up until then.
pub fn named(index: i32) {
    with_sockets(|s| drop(s.sender(index)));
}

/// bind(2) of a packet socket to `index`; none when that is not a port's.
pub fn bind(fd: BorrowedFd<'_>, number: c_int, index: i32) -> Option<Result<(), Errno>> {
    port_at(index)?;
    Some(take_over(fd).map(|()| {
        crate::table::claim();
        with_sockets(|s| {
            let sender = s.sender(index)?;
            s.bound.insert(number, (index, sender))
        });
    }))
}

/// From now on the kernel delivers nothing to the socket.
fn take_over(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if rustix::net::sockopt::socket_type(fd)? != SocketType::RAW {
        return Err(Errno::OPNOTSUPP);
    }
    crate::interpose::packets::deafen(fd)
}

/// Whether a socket is bound to a port.
#[inline]
pub fn is_bound(number: c_int) -> bool {
    BOUND.load(Ordering::Acquire) != 0 && with_sockets(|s| s.bound.contains_key(&number))
}

/// Sends a frame from a socket bound to a port, or to the port with that index.
///
/// # Errors
/// `ENXIO` for neither, the daemon's refusal, `EMSGSIZE`, `ENOBUFS` when the ring stays full.
pub fn send(number: c_int, index: Option<i32>, frame: &[u8]) -> Result<usize, Errno> {
    let sender = with_sockets(|s| match index {
        Some(index) => s.sender(index),
        None => s.bound.get(&number).map(|(_, sender)| Arc::clone(sender)),
    });
    let sender = sender.ok_or(Errno::NXIO)?;
    if frame.is_empty() {
        return Err(Errno::INVAL);
    }
    if frame.len() > usize::from(u16::MAX) {
        return Err(Errno::MSGSIZE);
    }
    let mut late = sender.lock().unwrap_or_else(PoisonError::into_inner);
    let port = late.open().inspect_err(crate::say).map_err(|e| errno_of(&e))?;
    let ring = port.tx().first_mut().ok_or(Errno::OPNOTSUPP)?;
    if ring.send_now(frame, PATIENCE) { Ok(frame.len()) } else { Err(Errno::NOBUFS) }
}

/// `number` is about to be closed or overwritten.
pub fn closed(number: c_int) {
    if BOUND.load(Ordering::Acquire) == 0 || !crate::table::is_owner() {
        return;
    }
    let gone = with_sockets(|s| {
        let (index, _) = s.bound.remove(&number)?;
        let is_last = !s.bound.values().any(|(i, _)| *i == index);
        is_last.then(|| s.senders.remove(&index)).flatten()
    });
    // Closing the port closes descriptors, which comes back to this function: not under the lock.
    drop(gone);
}

/// `new`, which was closed before, was made a duplicate of `old`.
pub fn duplicated(old: c_int, new: c_int) {
    if BOUND.load(Ordering::Acquire) == 0 {
        return;
    }
    with_sockets(|s| s.bound.get(&old).cloned().and_then(|entry| s.bound.insert(new, entry)));
}
