//! Counts changes made by workers, and wakes a waiter on the next change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use netvale_mem::notify::Doorbell;

/// A counter of changes. A change rings the doorbell only if [`ChangeCount::arm`] was called since the last ring.
#[derive(Debug, Default)]
pub struct ChangeCount {
    count: AtomicU64,
    armed: AtomicBool,
    bell: OnceLock<Arc<Doorbell>>,
}

impl ChangeCount {
    /// Records a change.
    #[cold]
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.bell.get().into_iter().for_each(|bell| bell.ring());
        }
    }

    /// Number of changes so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Arms the counter: the next change rings `bell`. All later calls use the doorbell of the first call. A change
    /// during this call may not ring, so read the count once more after the call.
    pub fn arm(&self, bell: &Arc<Doorbell>) {
        self.bell.get_or_init(|| Arc::clone(bell));
        self.armed.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each change counts; only the first change after arming rings.
    #[test]
    fn an_armed_bell_rings_once() {
        let changes = ChangeCount::default();
        let bell = Arc::new(Doorbell::new().unwrap());
        changes.note();
        changes.arm(&bell);
        assert!(!bell.drain());
        changes.note();
        assert!(bell.drain());
        changes.note();
        assert_eq!((bell.drain(), changes.count()), (false, 3));
    }
}
