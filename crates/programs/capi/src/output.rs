//! Descriptors that frames are sent on but that are not netmap descriptors: POLLOUT on them is the library's, all else
//! the kernel's.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{POLLOUT, POLLWRBAND, POLLWRNORM, c_int, c_short};
use netvale::Outgoing;

use crate::packet::socket;

/// The bits of poll's events for room.
pub const ROOM: c_short = POLLOUT | POLLWRNORM | POLLWRBAND;

/// A queue to send frames on.
pub trait Room: Send + Sync {
    /// Whether there is room, or an error that sending would report; checked afresh.
    fn has_room(&self) -> bool;
    /// A number that changes when there is room again.
    fn news(&self) -> u64;
    /// Asks to be woken through the returned descriptors; check once more before sleeping.
    fn go_to_sleep(&self) -> Vec<c_int>;
    /// Withdraws [`Room::go_to_sleep`].
    fn wake_up(&self);
}

impl Room for Outgoing {
    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn news(&self) -> u64 {
        self.news()
    }

    fn go_to_sleep(&self) -> Vec<c_int> {
        // The descriptors stay open as long as self.
        self.go_to_sleep().iter().flat_map(|wakes| wakes.fds()).map(|fd| fd.as_raw_fd()).collect()
    }

    fn wake_up(&self) {
        self.wake_up();
    }
}

static OUTPUTS: Mutex<BTreeMap<c_int, Arc<dyn Room>>> = Mutex::new(BTreeMap::new());
/// Number of outputs; at zero, lookups are skipped.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any such descriptor exists.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0 || socket::any()
}

/// The queue that `fd` sends to, if registered.
pub fn get(fd: c_int) -> Option<Arc<dyn Room>> {
    if !any() {
        return None;
    }
    let outputs = || OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned();
    socket::sender(fd).map(|sender| sender as Arc<dyn Room>).or_else(outputs)
}

/// Registers the queue that `fd` sends to; `None` removes it.
pub fn watch(fd: c_int, room: Option<Arc<dyn Room>>) {
    let old = {
        let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        let old = match room {
            Some(room) => outputs.insert(fd, room),
            None => outputs.remove(&fd),
        };
        COUNT.store(outputs.len(), Ordering::Release);
        old
    };
    // Not under the lock: dropping the old queue may close descriptors.
    drop(old);
}
