//! Reads of shared memory, for a fuzzer: it counts them, and changes the memory between them, as a peer can at any
//! time.
//!
//! Built only for fuzzing (`--cfg fuzzing`). Code that reads a word a peer can write calls [`read`] first.

use std::cell::{Cell, RefCell};

/// The action before a read, by the read's number since [`watch`].
type Peer = Box<dyn FnMut(u64)>;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
    static PEER: RefCell<Option<Peer>> = const { RefCell::new(None) };
}

/// Announces this thread's read of a word that a peer can write.
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

/// Counts from zero; before each of this thread's reads, calls `peer` with the read's number.
pub fn watch(peer: impl FnMut(u64) + 'static) {
    READS.set(0);
    PEER.set(Some(Box::new(peer)));
}

/// Counts from zero, without a peer.
pub fn unwatch() {
    READS.set(0);
    PEER.set(None);
}
