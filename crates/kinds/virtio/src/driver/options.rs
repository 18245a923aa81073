//! What a driver asks for.

use crate::features::{
    CSUM, EVENT_IDX, GUEST_CSUM, GUEST_ECN, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_ECN, HOST_TSO4,
    HOST_TSO6, HOST_USO, IN_ORDER, MQ, MRG_RXBUF, RING_PACKED, VERSION_1,
};

/// What the driver asks for; the device may have less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Queue pairs.
    pub pairs: u16,
    /// Entries of each queue, a power of two.
    pub size: u16,
    /// The packed layout.
    pub packed: bool,
    /// A frame may take several receive buffers.
    pub mergeable: bool,
    /// Frames are left without checksums, and whole segments.
    pub offloads: bool,
    /// Notifications by event index.
    pub event_idx: bool,
    /// The device uses buffers in the order in which they are posted.
    pub in_order: bool,
    /// Several entries of a ring are looked at together, where the rest allows it.
    pub vector: bool,
}

impl Default for DriverOptions {
    fn default() -> Self {
        DriverOptions {
            pairs: 1,
            size: 256,
            packed: false,
            mergeable: true,
            offloads: true,
            event_idx: true,
            in_order: false,
            vector: false,
        }
    }
}

impl DriverOptions {
    /// The features that say so.
    pub fn features(&self) -> u64 {
        const OFFLOADS: u64 = CSUM | GUEST_CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
        const WHOLE: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
        let on = |cond: bool, bits: u64| if cond { bits } else { 0 };
        VERSION_1
            | on(self.packed, RING_PACKED)
            | on(self.in_order, IN_ORDER)
            | on(self.mergeable, MRG_RXBUF)
            | on(self.offloads, OFFLOADS)
            // Without mergeable buffers, a segment of 64 KiB would need buffers of that size.
            | on(self.offloads && self.mergeable, WHOLE)
            | on(self.event_idx, EVENT_IDX)
            | on(self.pairs > 1, MQ)
    }
}
