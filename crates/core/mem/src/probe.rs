//! Reads of shared memory, as a fuzzer sees them: it counts them, and changes the memory between two of them, as a peer
//! can at any time.
//!
//! There is none of this in a build that is not for fuzzing (`--cfg fuzzing`). The code that reads a word a peer can
//! write calls [`read`] before.

use std::cell::{Cell, RefCell};

/// What happens before a read, by its number since [`watch`].
type Peer = Box<dyn FnMut(u64)>;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
    static PEER: RefCell<Option<Peer>> = const { RefCell::new(None) };
}

/// A word that a peer can write is about to be read by this thread.
#[inline]
pub fn read() {
    let n = READS.get();
    READS.set(n + 1);
    PEER.with(|peer| {
        // The peer's own accesses are not counted as reads of others.
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

/// Counts from zero; before each of this thread's reads, `peer` acts. It is told the read's number.
pub fn watch(peer: impl FnMut(u64) + 'static) {
    READS.set(0);
    PEER.set(Some(Box::new(peer)));
}

/// Counts from zero; nobody acts.
pub fn unwatch() {
    READS.set(0);
    PEER.set(None);
}
