//! Descriptors that frames are sent on and that are no netmap descriptors: POLLOUT on them is ours, all else the
//! kernel's.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{POLLOUT, POLLWRBAND, POLLWRNORM, c_int, c_short};
use netvale::Outgoing;

use crate::packet::socket;

/// The bits of poll's events that are about room.
pub const ROOM: c_short = POLLOUT | POLLWRNORM | POLLWRBAND;

/// A queue that frames are sent to.
pub trait Room: Send + Sync {
    /// Whether there is room, or an error that sending would tell; looks afresh.
    fn has_room(&self) -> bool;
    /// A number that changes when there is room again.
    fn news(&self) -> u64;
    /// Asks to be woken, by these descriptors; look once more before sleeping.
    fn go_to_sleep(&self) -> Vec<c_int>;
    /// Takes that back.
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
        // Open as long as self.
        self.go_to_sleep().iter().flat_map(|wakes| wakes.fds()).map(|fd| fd.as_raw_fd()).collect()
    }

    fn wake_up(&self) {
        self.wake_up();
    }
}

static OUTPUTS: Mutex<BTreeMap<c_int, Arc<dyn Room>>> = Mutex::new(BTreeMap::new());
/// Entries of it: nothing is looked up while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are such descriptors.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0 || socket::any()
}

/// The queue that `fd` sends to, if it is registered.
pub fn get(fd: c_int) -> Option<Arc<dyn Room>> {
    if !any() {
        return None;
    }
    let outputs = || OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned();
    socket::sender(fd).map(|sender| sender as Arc<dyn Room>).or_else(outputs)
}

/// Notes where `fd` sends; none: it does not any more.
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
    // Not under the lock: what it lets go of may close descriptors.
    drop(old);
}
