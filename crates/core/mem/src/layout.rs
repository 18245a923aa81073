//! The layout of a region: pure arithmetic that touches no memory.
//!
//! Sizes come from programs. No sum here can overflow: `check` first limits each pool to the maximum size of a region,
//! so that pools and CSB arrays together stay far below 2⁶⁴. Offsets of objects that do not exist saturate at the
//! largest number, which is in no mapping.

use thiserror::Error;

/// Default distance between buffers in bytes: 33 cache lines.
///
/// The first lines of buffers that are 2,048 bytes apart fall into few cache sets: with buffers 2,112 bytes apart, one
/// core copies 7 times as many 64-byte frames over 1,024 buffers (`netvale-bench copy`).
pub const DEFAULT_BUF_SIZE: u32 = 2112;
/// Smallest and largest buffer size that netmap allows, in bytes.
pub const BUF_SIZE_RANGE: std::ops::RangeInclusive<u32> = 64..=65_536;
/// Smallest and largest number of slots in a ring.
pub const RING_SLOTS_RANGE: std::ops::RangeInclusive<u32> = 2..=16_384;
/// Number of buffers at the start of the pool that the ABI reserves: indices 0 and 1.
pub const RESERVED_BUFS: u32 = 2;

const LINE: u64 = 64;
const PAGE: u64 = 4096;
const CSB_ENTRY: u64 = 64;
/// Size of `struct netmap_if` before its ring offsets, in bytes.
const IF_HEADER: u64 = 56;
const RING_HEADER: u64 = 256;
/// Alignment of `struct netmap_ring`: netmap's `NM_CACHE_ALIGN`.
const RING_ALIGN: u64 = 128;
const SLOT: u64 = 16;
/// Maximum size of a region in bytes: limits the address space that a request can take.
const MAX_REGION: u64 = 1 << 36;

/// Number and size of the objects of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Number of objects.
    pub num: u32,
    /// Size of an object in bytes.
    pub size: u32,
}

/// Number and size of the objects in a region's pools, which determine its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSizes {
    /// `netmap_if` objects: one for each program that has rings of a port open.
    pub ifs: PoolSize,
    /// `netmap_ring` objects: header and slots.
    pub rings: PoolSize,
    /// Packet buffers, including the two reserved buffers.
    pub bufs: PoolSize,
}

/// The reason why no region can have the given sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The buffer size is not a multiple of 64 in 64..=65,536.
    #[error("invalid buffer size {0}: expected a multiple of 64 from 64 to 65536, e.g. 2112")]
    BufSize(u32),
    /// A pool has no objects, or its objects are too small or not whole cache lines.
    #[error("the {0} pool is empty, or its objects are too small or not whole cache lines")]
    Pool(&'static str),
    /// The caller's memory is too small, or is not whole pages.
    #[error("the region needs {needed} bytes in whole pages, but has {room}: request fewer or smaller buffers")]
    Room {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        room: u64,
    },
    /// The region exceeds the maximum size.
    #[error("the region would take {0} bytes, more than {MAX_REGION}: request fewer or smaller buffers")]
    TooLarge(u64),
}

impl RegionSizes {
    /// Minimum sizes of the region that network interfaces share: netmap's defaults, but with netvale's buffer size,
    /// and with fewer buffers, as an AF_XDP socket locks all pages of its region.
    pub const COMMON: RegionSizes = RegionSizes {
        ifs: PoolSize { num: 100, size: 1024 },
        rings: PoolSize { num: 200, size: 9 * PAGE as u32 },
        bufs: PoolSize { num: 24 * 1024 + RESERVED_BUFS, size: DEFAULT_BUF_SIZE },
    };

    /// Returns sizes for a private region whose largest port has `rings` rings of `slots` slots each, with room for
    /// `pipes` pipes of the same ring size and `extra` extra buffers.
    pub fn for_port(rings: u32, slots: u32, buf_size: u32, pipes: u32, extra: u32) -> Self {
        // Each pipe adds two ends; each end has one tx ring and one rx ring.
        let ring_num = rings.saturating_add(pipes.saturating_mul(4));
        let bufs = ring_num.saturating_mul(slots).saturating_add(extra).saturating_add(RESERVED_BUFS);
        // One offset for each ring (at least four), and for two host rings.
        let if_bytes = lines(IF_HEADER + 8 * (u64::from(rings.max(4)) + 2));
        RegionSizes {
            // One object for a program on each ring, and some for programs that share the port.
            ifs: PoolSize { num: rings.saturating_add(8).saturating_add(pipes.saturating_mul(2)), size: if_bytes },
            rings: PoolSize { num: ring_num, size: ring_bytes(slots) },
            bufs: PoolSize { num: bufs, size: buf_size },
        }
    }
}

/// Returns the size in bytes of a ring object with `slots` slots, a whole number of cache lines; saturates for more
/// slots than a ring can have.
pub const fn ring_bytes(slots: u32) -> u32 {
    lines(RING_HEADER + SLOT * slots as u64)
}

/// Rounds `bytes` (below 2⁶³) up to whole cache lines; saturates at the largest object size.
const fn lines(bytes: u64) -> u32 {
    let bytes = bytes.next_multiple_of(LINE);
    let most = u32::MAX as u64 / LINE * LINE;
    if bytes > most { most as u32 } else { bytes as u32 }
}

/// Offsets of all parts of a region, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of entries in each CSB array: one per ring object.
    pub csb_entries: u32,
    /// Offset of the first `nm_csb_atok` in bytes.
    pub csb_atok: u64,
    /// Offset of the first `nm_csb_ktoa` in bytes.
    pub csb_ktoa: u64,
    /// Offset of the `netmap_if` pool in bytes.
    pub if_pool: u64,
    /// Offset of the `netmap_ring` pool in bytes.
    pub ring_pool: u64,
    /// Offset of the buffer pool in bytes.
    pub buf_pool: u64,
    /// Total size in bytes, a whole number of pages.
    pub total: u64,
    /// Sizes of the pools.
    pub sizes: RegionSizes,
}

impl Layout {
    /// Lays out a region whose pools are in `room` bytes, a whole number of pages, with the CSB arrays after the pools.
    ///
    /// # Errors
    /// Like [`Layout::new`]; also if the pools do not fit into `room`.
    pub fn in_room(sizes: RegionSizes, room: u64) -> Result<Self, LayoutError> {
        let pools = Layout::new(sizes)?;
        if pools.csb_atok > room || !room.is_multiple_of(PAGE) {
            return Err(LayoutError::Room { needed: pools.csb_atok, room });
        }
        if room > MAX_REGION {
            return Err(LayoutError::TooLarge(room));
        }
        let more = room - pools.csb_atok;
        Layout { csb_atok: room, csb_ktoa: pools.csb_ktoa + more, total: pools.total + more, ..pools }.bounded()
    }

    /// Lays out a region: netmap's pools, then the CSB arrays.
    ///
    /// # Errors
    /// [`LayoutError`] if a size is invalid; sizes are never rounded silently.
    pub fn new(sizes: RegionSizes) -> Result<Self, LayoutError> {
        check(&sizes)?;
        let mut this = Layout::pools(sizes, 0);
        this.csb_atok = (this.buf_pool + bytes(sizes.bufs)).next_multiple_of(PAGE);
        this.csb_ktoa = this.csb_atok + this.csb_bytes();
        this.total = (this.csb_ktoa + this.csb_bytes()).next_multiple_of(PAGE);
        this.bounded()
    }

    /// Lays out a region as a device's memory: a page for the device's header, the CSB arrays, then netmap's pools. The
    /// total size is a power of two, as PCI devices require; the memory gained by rounding up holds more buffers.
    ///
    /// # Errors
    /// Like [`Layout::new`].
    pub fn device(mut sizes: RegionSizes) -> Result<Self, LayoutError> {
        check(&sizes)?;
        let csb_atok = PAGE;
        let csb_ktoa = csb_atok + u64::from(sizes.rings.num) * CSB_ENTRY;
        let netmap = (csb_ktoa + u64::from(sizes.rings.num) * CSB_ENTRY).next_multiple_of(PAGE);
        let buf_pool = Layout::pools(sizes, netmap).buf_pool;
        let total = (buf_pool + bytes(sizes.bufs)).next_power_of_two();
        let bufs = total.saturating_sub(buf_pool) / u64::from(sizes.bufs.size);
        sizes.bufs.num = u32::try_from(bufs).unwrap_or(sizes.bufs.num);
        Layout { csb_atok, csb_ktoa, total, ..Layout::pools(sizes, netmap) }.bounded()
    }

    /// Lays out a region in the order of [`Layout::new`], with a size that is a power of two: memory for a PCI device's
    /// BAR.
    ///
    /// # Errors
    /// Like [`Layout::new`].
    pub fn bar(sizes: RegionSizes) -> Result<Self, LayoutError> {
        let this = Layout::new(sizes)?;
        Layout { total: this.total.next_power_of_two(), ..this }.bounded()
    }

    /// Lays out the pools one after the other from `start` on.
    fn pools(sizes: RegionSizes, start: u64) -> Layout {
        let ring_pool = start + bytes(sizes.ifs).next_multiple_of(RING_ALIGN);
        let buf_pool = (ring_pool + bytes(sizes.rings)).next_multiple_of(RING_ALIGN);
        let csb_entries = sizes.rings.num;
        Layout { csb_entries, csb_atok: 0, csb_ktoa: 0, if_pool: start, ring_pool, buf_pool, total: 0, sizes }
    }

    fn csb_bytes(&self) -> u64 {
        u64::from(self.csb_entries) * CSB_ENTRY
    }

    fn bounded(self) -> Result<Self, LayoutError> {
        if self.total > MAX_REGION { Err(LayoutError::TooLarge(self.total)) } else { Ok(self) }
    }

    /// Offset of `netmap_if` object `i` in bytes.
    pub fn if_at(&self, i: u32) -> u64 {
        self.if_pool.saturating_add(bytes(PoolSize { num: i, ..self.sizes.ifs }))
    }

    /// Offset of `netmap_ring` object `i` in bytes.
    pub fn ring_at(&self, i: u32) -> u64 {
        self.ring_pool.saturating_add(bytes(PoolSize { num: i, ..self.sizes.rings }))
    }

    /// Offset of buffer `i` in bytes.
    pub fn buf_at(&self, i: u32) -> u64 {
        self.buf_pool.saturating_add(bytes(PoolSize { num: i, ..self.sizes.bufs }))
    }

    /// Offset of the application's half of CSB entry `i` in bytes.
    pub fn atok_at(&self, i: u32) -> u64 {
        self.csb_atok + u64::from(i) * CSB_ENTRY
    }

    /// Offset of the host's half of CSB entry `i` in bytes.
    pub fn ktoa_at(&self, i: u32) -> u64 {
        self.csb_ktoa + u64::from(i) * CSB_ENTRY
    }

    /// Maximum number of slots in a ring of this region.
    pub fn max_slots(&self) -> u32 {
        ((u64::from(self.sizes.rings.size) - RING_HEADER) / SLOT) as u32
    }

    /// Maximum number of rings of a port in this region, in both directions together, including host rings.
    pub fn max_port_rings(&self) -> u32 {
        (self.sizes.ifs.size - IF_HEADER as u32) / 8
    }
}

/// Size of a pool in bytes: the product of two 32-bit numbers fits into 64 bits.
fn bytes(pool: PoolSize) -> u64 {
    u64::from(pool.num) * u64::from(pool.size)
}

fn check(sizes: &RegionSizes) -> Result<(), LayoutError> {
    if !BUF_SIZE_RANGE.contains(&sizes.bufs.size) || !sizes.bufs.size.is_multiple_of(64) {
        return Err(LayoutError::BufSize(sizes.bufs.size));
    }
    let line =
        |p: PoolSize, least: u64| p.num > 0 && u64::from(p.size) >= least && u64::from(p.size).is_multiple_of(LINE);
    if !line(sizes.ifs, 64) {
        return Err(LayoutError::Pool("netmap_if"));
    }
    if !line(sizes.rings, RING_HEADER + 2 * SLOT) {
        return Err(LayoutError::Pool("ring"));
    }
    if sizes.bufs.num <= RESERVED_BUFS {
        return Err(LayoutError::Pool("buffer"));
    }
    match [sizes.ifs, sizes.rings, sizes.bufs].map(bytes).into_iter().max() {
        Some(largest) if largest > MAX_REGION => Err(LayoutError::TooLarge(largest)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
