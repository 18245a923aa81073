//! How large a port is: what was asked for, what is usual, what is possible.

use netvale_control::attach::{AttachRequest, MAX_RINGS, Pools};
use netvale_mem::PortShape;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, PoolSize, RegionSizes};
use netvale_portspec::Conf;
use rustix::io::Errno;

use crate::open::refuse;
use crate::refusal::Refusal;

/// Slots of a ring unless asked otherwise: small enough that a busy ring's buffers stay in the processor's second-level cache.
pub const DEFAULT_SLOTS: u32 = 512;
/// Pipes a new region has room for unless asked otherwise.
const DEFAULT_PIPES: u32 = 4;
/// Most rings of a VALE port in one direction (netmap's limit).
const MAX_VALE_RINGS: u32 = 16;
/// Most bytes of a ring object in a region a client lays out (netmap's limit).
const MAX_RING_BYTES: u32 = 32 * 4096;

fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Sizes asked for, with defaults filled in and limits checked.
pub(crate) struct Sizes {
    pub(crate) shape: PortShape,
    buf_size: u32,
    pipes: u32,
    extra: u32,
    /// The client lays the region out itself.
    pools: Option<RegionSizes>,
}

/// A client's own numbers for the pools of a region. [`Region`] judges the rest.
fn own_pools(pools: &Pools) -> Result<RegionSizes, Refusal> {
    let pool = |(num, size): (u32, u32)| PoolSize { num, size };
    if pools.rings.1 > MAX_RING_BYTES {
        return refuse(Errno::INVAL, format!("a ring of the region takes at most {MAX_RING_BYTES} bytes"));
    }
    Ok(RegionSizes { ifs: pool(pools.ifs), rings: pool(pools.rings), bufs: pool(pools.bufs) })
}

impl Sizes {
    pub(crate) fn new(request: &AttachRequest, conf: &Conf) -> Result<Sizes, Refusal> {
        let rings = |conf: u16, asked: u32| or(u32::from(conf), or(asked, 1));
        let shape = PortShape {
            tx_rings: rings(conf.tx_rings, request.tx_rings),
            rx_rings: rings(conf.rx_rings, request.rx_rings),
            tx_slots: or(conf.tx_slots, or(request.tx_slots, DEFAULT_SLOTS)),
            rx_slots: or(conf.rx_slots, or(request.rx_slots, DEFAULT_SLOTS)),
        };
        if shape.tx_rings.max(shape.rx_rings) > MAX_VALE_RINGS || shape.tx_rings + shape.rx_rings > MAX_RINGS as u32 {
            return refuse(Errno::INVAL, format!("a port has at most {MAX_VALE_RINGS} rings each way"));
        }
        if request.extra_bufs > 1 << 20 || request.pipes > 256 {
            return refuse(Errno::INVAL, "at most 1048576 extra buffers and 256 pipes are possible in one region");
        }
        let buf_size = or(request.buf_size, DEFAULT_BUF_SIZE);
        let pools = (request.pools != Pools::default()).then(|| own_pools(&request.pools)).transpose()?;
        Ok(Sizes { shape, buf_size, pipes: or(request.pipes, DEFAULT_PIPES), extra: request.extra_bufs, pools })
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
