//! The sizes of a port's rings and region: requests, defaults and limits.

use netvale_control::attach::{AttachRequest, FLAG_NETMAP, FLAG_NULL, PoolSizes};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, PoolSize, RING_SLOTS_RANGE, RegionSizes};
use netvale_mem::{Layout, PortShape};
use netvale_portspec::Conf;
use rustix::io::Errno;

use crate::refusal::{Refusal, refuse};

/// Default number of slots in a ring. With this number, the buffers of a busy ring fit into the CPU's second-level
/// cache.
pub const DEFAULT_SLOTS: u32 = 512;
/// Default number of slots for programs with netmap's API, as in netmap.
const NETMAP_SLOTS: u32 = 1024;
/// Maximum number of slots for programs with netmap's API (netmap's limit).
const NETMAP_MAX_SLOTS: u32 = 4096;
/// Maximum number of extra buffers in a region for programs with netmap's API (netmap's limit).
const NETMAP_MAX_EXTRA: u32 = 128 * NETMAP_MAX_SLOTS;
/// Default number of pipes for which a new region has room.
const DEFAULT_PIPES: u32 = 4;
/// Maximum number of rings of a VALE port in one direction (netmap's limit).
const MAX_VALE_RINGS: u32 = 16;

fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Requested sizes, after defaults have been filled in and limits checked.
pub(crate) struct Sizes {
    pub(crate) shape: PortShape,
    buf_size: u32,
    pipes: u32,
    extra: u32,
    /// Number and size of objects in each pool of a new region; `None` if the client does not request them explicitly.
    pools: Option<RegionSizes>,
}

/// Returns the sizes that the client explicitly requests for a new region's pools; `None` if it requests none.
/// [`Layout`] checks them.
pub(crate) fn own_pools(pools: &PoolSizes) -> Option<RegionSizes> {
    let pool = |(num, size): (u32, u32)| PoolSize { num, size };
    let sizes = || RegionSizes { ifs: pool(pools.ifs), rings: pool(pools.rings), bufs: pool(pools.bufs) };
    (*pools != PoolSizes::default()).then(sizes)
}

impl Sizes {
    pub(crate) fn new(request: &AttachRequest, conf: &Conf) -> Result<Sizes, Refusal> {
        let netmap = request.flags & FLAG_NETMAP != 0;
        let usual = if netmap { NETMAP_SLOTS } else { DEFAULT_SLOTS };
        let rings = |conf: u16, asked: u32| or(u32::from(conf), or(asked, 1));
        let mut shape = PortShape {
            tx_rings: rings(conf.tx_rings, request.tx_rings),
            rx_rings: rings(conf.rx_rings, request.rx_rings),
            tx_slots: or(conf.tx_slots, or(request.tx_slots, usual)),
            rx_slots: or(conf.rx_slots, or(request.rx_slots, usual)),
        };
        // As in netmap, the numbers in a request for rings that are connected to nothing are not limited.
        if netmap && request.flags & FLAG_NULL == 0 {
            shape.tx_rings = shape.tx_rings.min(MAX_VALE_RINGS);
            shape.rx_rings = shape.rx_rings.min(MAX_VALE_RINGS);
            shape.tx_slots = shape.tx_slots.clamp(*RING_SLOTS_RANGE.start(), NETMAP_MAX_SLOTS);
            shape.rx_slots = shape.rx_slots.clamp(*RING_SLOTS_RANGE.start(), NETMAP_MAX_SLOTS);
        }
        if shape.tx_rings.max(shape.rx_rings) > MAX_VALE_RINGS {
            return refuse(
                Errno::INVAL,
                format!(
                    "{} tx and {} rx rings requested: expected at most {MAX_VALE_RINGS} in each direction",
                    shape.tx_rings, shape.rx_rings
                ),
            );
        }
        let extra = if netmap { request.extra_bufs.min(NETMAP_MAX_EXTRA) } else { request.extra_bufs };
        if extra > 1 << 20 || request.pipes > 256 {
            return refuse(
                Errno::INVAL,
                format!(
                    "{extra} extra buffers and {} pipes requested: expected at most 1048576 buffers and 256 pipes in \
                     one region",
                    request.pipes
                ),
            );
        }
        let buf_size = or(request.buf_size, DEFAULT_BUF_SIZE);
        let pools = own_pools(&request.pools);
        Ok(Sizes { shape, buf_size, pipes: or(request.pipes, DEFAULT_PIPES), extra, pools })
    }

    pub(crate) fn region(&self) -> RegionSizes {
        let s = self.shape;
        if let Some(pools) = self.pools {
            return pools;
        }
        RegionSizes::for_port(
            s.tx_rings + s.rx_rings,
            s.tx_slots.max(s.rx_slots),
            self.buf_size,
            self.pipes,
            self.extra,
        )
    }
}

/// Properties of an existing port, or of a port that could be created.
pub(crate) struct PortFacts {
    /// Number and length of the rings, including host rings.
    pub(crate) shape: PortShape,
    /// Number of host rings at the end of the tx and rx rings.
    pub(crate) host: (u32, u32),
    pub(crate) layout: Layout,
    /// Number of the region; 0 for a port that does not exist yet and will get a separate region.
    pub(crate) mem_id: u32,
}
