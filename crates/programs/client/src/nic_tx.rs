//! A tx ring of a network interface.

use std::time::Duration;

use netvale_afxdp::through::ThroughTx;
use netvale_mem::appl::AppRing;

/// A tx ring, and the interface's queue to which its frames go.
#[derive(Debug)]
pub(crate) struct NicTx {
    pub(crate) ring: AppRing,
    pub(crate) through: ThroughTx,
}

/// Maximum time for which a dropped ring waits until the kernel has room for its last frames.
const FAREWELL: Duration = Duration::from_millis(100);

impl Drop for NicTx {
    fn drop(&mut self) {
        self.through.flush(FAREWELL);
    }
}

// These functions are not inlined, to keep their callers short: switch and pipe rings, whose syncs are much shorter,
// have the same callers.
impl NicTx {
    #[inline(never)]
    pub(crate) fn sync(&mut self) {
        let _ = self.ring.sync();
        self.look();
    }

    /// Passes the filled slots to the kernel, and frees the slots whose frames the kernel has sent.
    #[inline(never)]
    pub(crate) fn look(&mut self) {
        self.through.pass();
        let _ = self.ring.refresh();
    }
}
