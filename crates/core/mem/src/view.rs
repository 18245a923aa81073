//! Looks up rings of a region by number, from the description of the region's layout that a client receives.

use std::sync::Arc;

use crate::csb::Csb;
use crate::mapping::Mapping;
use crate::ring::{RingMem, RingPlace};
use crate::side::RingSide;

/// Offsets (in bytes from the region's start) and sizes of a region's CSB arrays, ring pool and buffer pool. Each use
/// checks these offsets and sizes against the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLayout {
    /// Offset of the first `nm_csb_atok` in bytes.
    pub csb_atok: u64,
    /// Offset of the first `nm_csb_ktoa` in bytes.
    pub csb_ktoa: u64,
    /// Offset of the first ring object in bytes.
    pub ring_pool: u64,
    /// Size of a ring object in bytes.
    pub ring_size: u32,
    /// Offset of buffer 0 in bytes.
    pub buf_pool: u64,
    /// Number of buffers, including the two reserved buffers.
    pub num_bufs: u32,
    /// Size of a buffer in bytes.
    pub buf_size: u32,
}

impl RegionLayout {
    /// Returns a view of ring object `id`, which has `slots` slots, and of its CSB entry; `None` if any part is outside
    /// the mapping.
    pub fn ring(&self, map: &Arc<Mapping>, id: u32, slots: u32) -> Option<RingSide> {
        let nth = |first: u64, size: u64| first.checked_add(u64::from(id).checked_mul(size)?);
        let place = RingPlace {
            ring: nth(self.ring_pool, u64::from(self.ring_size))?,
            slots,
            bufs: self.buf_pool,
            num_bufs: self.num_bufs,
            buf_size: self.buf_size,
        };
        let ring = RingMem::new(map, place)?;
        let csb = Csb::new(map, nth(self.csb_atok, 64)?, nth(self.csb_ktoa, 64)?)?;
        Some(RingSide { ring, csb, csb_index: id, offsets: Arc::default() })
    }
}
