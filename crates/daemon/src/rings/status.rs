//! Descriptions of a region and of a ring for `netvale show`.

use netvale_control::types::{Drops, RegionInfo, RingInfo};
use netvale_mem::Region;
use netvale_mem::region::RingSide;
use netvale_port::RingCounters;

/// Describes a region.
pub(crate) fn region_info(region: &Region, id: u32) -> RegionInfo {
    let layout = region.layout();
    let bufs = region.layout().sizes.bufs;
    RegionInfo { id, bytes: layout.total, buf_size: bufs.size, bufs: bufs.num, huge: region.is_huge() }
}

/// Returns the counters of a ring.
pub(crate) fn counted(c: &RingCounters) -> RingInfo {
    let drops: Drops = c.all_drops().map(|(why, n)| (why.name().to_owned(), n)).collect();
    RingInfo { frames: c.frames(), bytes: c.bytes(), drops, idle: c.idle(), ..RingInfo::default() }
}

/// Adds the ring's indices to `info`; omits them if reading the ring's memory blocks.
pub(crate) fn with_indices(info: RingInfo, side: &RingSide, region: &Region) -> RingInfo {
    let known = info.clone();
    let side = side.clone();
    region.touch(move || read_indices(info, &side)).unwrap_or(known)
}

/// Adds the ring's indices to `info`. Blocks as long as reading the ring's memory blocks.
pub(crate) fn read_indices(info: RingInfo, side: &RingSide) -> RingInfo {
    RingInfo {
        slots: side.ring.num_slots(),
        head: side.csb.head(),
        cur: side.csb.cur(),
        tail: side.ring.indices().2,
        hwcur: side.csb.hwcur(),
        hwtail: side.csb.hwtail(),
        ..info
    }
}
