//! Descriptors other than netmap's through which frames are sent, such as packet sockets. For such descriptors, this
//! library reports POLLOUT, and the kernel reports all other events.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{POLLOUT, POLLWRBAND, POLLWRNORM, c_int, c_short};
use netvale::OutgoingRing;

use crate::packet::socket;

/// The events of poll(2) that report room to send.
pub const ROOM: c_short = POLLOUT | POLLWRNORM | POLLWRBAND;

/// A queue on which frames are sent.
pub trait SendQueue: Send + Sync {
    /// Returns whether a send would not have to wait: there is room, or the send would fail for another reason.
    fn has_room(&self) -> bool;
    /// Returns a number that changes whenever a full queue gets room.
    fn news(&self) -> u64;
    /// Requests a wake-up through the returned descriptors. The caller must check for room once more before it sleeps.
    fn go_to_sleep(&self) -> Vec<c_int>;
    /// Withdraws the request of [`SendQueue::go_to_sleep`].
    fn wake_up(&self);
}

impl SendQueue for OutgoingRing {
    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn news(&self) -> u64 {
        self.news()
    }

    fn go_to_sleep(&self) -> Vec<c_int> {
        // The descriptors stay open as long as `self` exists.
        self.go_to_sleep().iter().flat_map(|wakes| wakes.fds()).map(|fd| fd.as_raw_fd()).collect()
    }

    fn wake_up(&self) {
        self.wake_up();
    }
}

static OUTPUTS: Mutex<BTreeMap<c_int, Arc<dyn SendQueue>>> = Mutex::new(BTreeMap::new());
/// Number of descriptors with a registered queue. While it is zero, look-ups are skipped.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the library reports POLLOUT on any descriptor.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0 || socket::any()
}

/// Returns the queue for frames that are sent through `fd`; `None` if `fd` has no such queue.
pub fn get(fd: c_int) -> Option<Arc<dyn SendQueue>> {
    if !any() {
        return None;
    }
    let outputs = || OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned();
    socket::sender(fd).map(|sender| sender as Arc<dyn SendQueue>).or_else(outputs)
}

/// Registers the queue for frames that are sent through `fd`; if `room` is `None`, removes the registered queue.
pub fn watch(fd: c_int, room: Option<Arc<dyn SendQueue>>) {
    let old = {
        let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let old = match room {
            Some(room) => outputs.insert(fd, room),
            None => outputs.remove(&fd),
        };
        COUNT.store(outputs.len(), Ordering::Release);
        old
    };
    // The old queue is dropped after the lock is released, as dropping it may close descriptors.
    drop(old);
}
