//! The far end of an egress's ring, which reads it: frames that one switch delivers to the ring are the input of
//! another switch.

use std::sync::Arc;

use netvale_mem::lease::BadHead;
use netvale_mem::notify;
use netvale_mem::region::RingSide;

use crate::ring_in::Intake;
use crate::ring_out::RingEgress;

/// The application's side of an rx ring, operated by the daemon itself instead of an application.
///
/// The ring's fill level comes from the egress's own memory, not from the status block, which other processes may map.
pub struct FarEnd {
    ring: Arc<RingEgress>,
    at: u32,
}

impl FarEnd {
    /// Creates the far end of `ring`. Frames that are already in the ring are skipped.
    pub fn new(ring: Arc<RingEgress>) -> Self {
        let at = ring.host().hwtail();
        let this = FarEnd { ring, at };
        this.side().csb.publish_head(at, at);
        this
    }

    /// Restores another process's far end of `ring` at the position in the status block. Only for rings that no process
    /// other than a daemon can write.
    pub(crate) fn continued(ring: Arc<RingEgress>) -> Self {
        let side = ring.host().side();
        let at = side.csb.head().min(side.ring.num_slots() - 1);
        FarEnd { ring, at }
    }
}

impl Intake for FarEnd {
    #[inline]
    fn side(&self) -> &RingSide {
        self.ring.host().side()
    }

    #[inline]
    fn hwcur(&self) -> u32 {
        self.at
    }

    #[inline]
    fn head(&mut self) -> Result<u32, BadHead> {
        // Overwrites a `head` that another process may have written: a wrong `head` would stop the egress permanently.
        self.side().csb.publish_head(self.at, self.at);
        Ok(self.ring.host().hwtail())
    }

    #[inline]
    fn complete(&mut self, to: u32) {
        self.at = to;
        // The egress needs no wake-up: it reads `head` when it needs room.
        self.side().csb.publish_head(to, to);
    }

    fn arm(&self) -> bool {
        let need_kick = self.side().csb.appl_need_kick();
        notify::arm(need_kick);
        let news = self.ring.host().hwtail() != self.at;
        if news {
            notify::disarm(need_kick);
        }
        news
    }

    fn disarm(&self) {
        notify::disarm(self.side().csb.appl_need_kick());
    }

    fn count_kick(&self) {}
}
