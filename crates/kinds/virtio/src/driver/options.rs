//! The features that a driver requests.

use crate::features::{
    CSUM, EVENT_IDX, GUEST_CSUM, GUEST_ECN, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_ECN, HOST_TSO4,
    HOST_TSO6, HOST_USO, IN_ORDER, MQ, MRG_RXBUF, RING_PACKED, VERSION_1,
};

/// The features that a driver requests; the device may offer fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Number of queue pairs.
    pub pairs: u16,
    /// Number of entries of each queue, a power of two.
    pub size: u16,
    /// Whether to use the packed ring layout.
    pub packed: bool,
    /// Whether a frame may span several receive buffers.
    pub mergeable: bool,
    /// Whether to leave checksums pending, and to send and receive unsegmented frames.
    pub offloads: bool,
    /// Whether notifications use the event index.
    pub event_idx: bool,
    /// Whether the device must use buffers in the order of posting.
    pub in_order: bool,
    /// Whether to read several ring entries at a time, if the other features allow it.
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
    /// Returns the feature bits of the request.
    pub fn features(&self) -> u64 {
        const OFFLOADS: u64 = CSUM | GUEST_CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
        const WHOLE: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
        let on = |cond: bool, bits: u64| if cond { bits } else { 0 };
        VERSION_1
            | on(self.packed, RING_PACKED)
            | on(self.in_order, IN_ORDER)
            | on(self.mergeable, MRG_RXBUF)
            | on(self.offloads, OFFLOADS)
            // Without mergeable buffers, every receive buffer would need room for a 64 KiB segment.
            | on(self.offloads && self.mergeable, WHOLE)
            | on(self.event_idx, EVENT_IDX)
            | on(self.pairs > 1, MQ)
    }
}
