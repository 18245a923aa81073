//! A probe for fuzzers, which counts the reads of shared memory and changes the memory between the reads, as a peer can
//! do at any time.
//!
//! Built only for fuzzing (`--cfg fuzzing`). Code calls [`read`] before it reads a word that a peer can write.

use std::cell::{Cell, RefCell};

/// The fuzzer's action before a read; its argument is the number of the read since [`watch`].
type ReadHook = Box<dyn FnMut(u64)>;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
    static PEER: RefCell<Option<ReadHook>> = const { RefCell::new(None) };
}

/// Announces that this thread is about to read a word that a peer can write.
#[inline]
pub fn read() {
    let n = READS.get();
    READS.set(n + 1);
    PEER.with(|peer| {
        // The peer's own accesses do not count as reads.
        if let Ok(mut peer) = peer.try_borrow_mut()
            && let Some(act) = peer.as_mut()
        {
            act(n);
            READS.set(n + 1);
        }
    });
}

/// Number of reads by this thread since the last [`watch`].
pub fn reads() -> u64 {
    READS.get()
}

/// Restarts the count at zero. Before each of this thread's reads, `peer` is called with the number of the read.
pub fn watch(peer: impl FnMut(u64) + 'static) {
    READS.set(0);
    PEER.set(Some(Box::new(peer)));
}

/// Restarts the count at zero, and removes the peer that [`watch`] set.
pub fn unwatch() {
    READS.set(0);
    PEER.set(None);
}
