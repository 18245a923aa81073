//! The features that a driver requests.

use crate::features::{
    CSUM, EVENT_IDX, GUEST_CSUM, GUEST_ECN, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_ECN, HOST_TSO4,
    HOST_TSO6, HOST_USO, IN_ORDER, MQ, MRG_RXBUF, RING_PACKED, VERSION_1,
};

/// A driver's request; the device may offer less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Queue pairs.
    pub pairs: u16,
    /// Entries of each queue, a power of two.
    pub size: u16,
    /// Packed ring layout.
    pub packed: bool,
    /// Allows a frame several receive buffers.
    pub mergeable: bool,
    /// Leaves out checksums, and sends and receives unsegmented frames.
    pub offloads: bool,
    /// Notifications by event index.
    pub event_idx: bool,
    /// The device uses buffers in the order of posting.
    pub in_order: bool,
    /// Reads several ring entries together, if the other features allow it.
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
    /// The feature bits of the request.
    pub fn features(&self) -> u64 {
        const OFFLOADS: u64 = CSUM | GUEST_CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
        const WHOLE: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
        let on = |cond: bool, bits: u64| if cond { bits } else { 0 };
        VERSION_1
            | on(self.packed, RING_PACKED)
            | on(self.in_order, IN_ORDER)
            | on(self.mergeable, MRG_RXBUF)
            | on(self.offloads, OFFLOADS)
            // Without mergeable buffers, a 64 KiB segment would need buffers of that size.
            | on(self.offloads && self.mergeable, WHOLE)
            | on(self.event_idx, EVENT_IDX)
            | on(self.pairs > 1, MQ)
    }
}
