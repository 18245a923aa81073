//! Counts changes made by workers, and wakes a waiter on the next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use netvale_mem::notify::Doorbell;

/// A counter of changes. It wakes only those that asked since the last wake-up.
#[derive(Debug, Default)]
pub struct Changes {
    count: AtomicU64,
    armed: AtomicBool,
    bell: OnceLock<Arc<Doorbell>>,
}

impl Changes {
    /// Records a change.
    #[cold]
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.bell.get().into_iter().for_each(|bell| bell.ring());
        }
    }

    /// Number of changes.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Rings this doorbell on the next change; the first doorbell ever passed stays. A change before this returns may
    /// not ring: check the count once more.
    pub fn arm(&self, bell: &Arc<Doorbell>) {
        self.bell.get_or_init(|| Arc::clone(bell));
        self.armed.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each change counts; only the first one after arming rings.
    #[test]
    fn rings_once() {
        let changes = Changes::default();
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
