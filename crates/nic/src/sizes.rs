//! How large a port on an interface is, and the region that a user's interfaces share.

use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::{PortShape, Region};

/// Slots of a ring unless asked otherwise: a driver's usual number.
pub const SLOTS: u32 = 1024;
/// Ports of the same size that find room in a region made for one: what is to be forwarded without a copy lies in one region.
const ROOM: u32 = 4;

/// What a port takes of a region.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Its rings.
    pub shape: PortShape,
    /// Bytes a buffer; 0 for the usual.
    pub buf_size: u32,
    /// Extra buffers.
    pub extra_bufs: u32,
}

/// Rings of an interface with so many queues, and host rings; 0 slots are the usual number.
pub fn shape(queues: u32, host: u32, (tx_slots, rx_slots): (u32, u32)) -> PortShape {
    let or = |asked: u32| if asked == 0 { SLOTS } else { asked };
    let rings = queues + host;
    PortShape { tx_rings: rings, rx_rings: rings, tx_slots: or(tx_slots), rx_slots: or(rx_slots) }
}

/// Entries of a socket's rings for slots that a region has granted.
pub fn entries(shape: PortShape) -> u32 {
    shape.tx_slots.max(shape.rx_slots).next_power_of_two()
}

impl Needs {
    fn rings(&self) -> u32 {
        self.shape.tx_rings.saturating_add(self.shape.rx_rings)
    }

    fn slots(&self) -> u32 {
        self.shape.tx_slots.max(self.shape.rx_slots)
    }

    /// Whether a region has room for it.
    pub fn fit(&self, region: &Region) -> bool {
        let ((ifs, rings, bufs), layout) = (region.free(), region.layout());
        ifs > 0
            && rings >= self.rings()
            && bufs >= self.rings().saturating_mul(self.slots()).saturating_add(self.extra_bufs)
            && layout.max_slots() >= self.slots()
            && layout.max_port_rings() >= self.rings().saturating_add(2)
            && (self.buf_size == 0 || self.buf_size == layout.sizes.bufs.size)
    }

    /// A region for it and others like it.
    pub fn region(&self) -> RegionSizes {
        let buf_size = if self.buf_size == 0 { DEFAULT_BUF_SIZE } else { self.buf_size };
        RegionSizes::for_port(self.rings().saturating_mul(ROOM), self.slots(), buf_size, ROOM, self.extra_bufs)
    }
}
