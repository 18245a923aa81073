//! Sizes of a port on an interface, and of the region that a user's interfaces share.

use netvale_mem::layout::{DEFAULT_BUF_SIZE, PoolSize, RegionSizes};
use netvale_mem::{PortShape, Region};

/// Default number of slots of a ring, as many drivers have.
pub const SLOTS: u32 = 1024;
/// Number of interfaces like the first for which the shared region has room. Forwarding without a copy requires a
/// region that both interfaces share.
const ROOM: u32 = 4;

/// The rings and buffers that a port needs in a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionNeeds {
    /// The rings of the port.
    pub shape: PortShape,
    /// Numbers of tx and of rx rings that are host rings.
    pub host: (u32, u32),
    /// Numbers of tx and of rx rings that need buffers.
    pub used: (u32, u32),
    /// Buffer size in bytes; 0 for the default.
    pub buf_size: u32,
    /// Number of extra buffers.
    pub extra_bufs: u32,
}

/// The shape of a port on an interface with this many queues and the host rings `host`; 0 slots mean the default.
pub fn shape(queues: u32, host: PortShape) -> PortShape {
    let or = |asked: u32| if asked == 0 { SLOTS } else { asked };
    PortShape {
        tx_rings: queues + host.tx_rings,
        rx_rings: queues + host.rx_rings,
        tx_slots: or(host.tx_slots),
        rx_slots: or(host.rx_slots),
    }
}

/// Number of entries of each of a socket's rings: the slots of the port's longer ring, rounded up to a power of two.
pub fn entries(shape: PortShape) -> u32 {
    shape.tx_slots.max(shape.rx_slots).next_power_of_two()
}

impl RegionNeeds {
    fn rings(&self) -> u32 {
        self.shape.tx_rings.saturating_add(self.shape.rx_rings)
    }

    fn slots(&self) -> u32 {
        self.shape.tx_slots.max(self.shape.rx_slots)
    }

    fn bufs(&self) -> u32 {
        let of = |rings: u32, slots: u32| rings.saturating_mul(slots);
        of(self.used.0, self.shape.tx_slots)
            .saturating_add(of(self.used.1, self.shape.rx_slots))
            .saturating_add(self.extra_bufs)
    }

    /// Whether the buffers have the default size, as in the shared region.
    pub fn is_usual(&self) -> bool {
        matches!(self.buf_size, 0 | DEFAULT_BUF_SIZE)
    }

    /// Whether a region has room for the port.
    pub fn fit(&self, region: &Region) -> bool {
        let (ifs, rings, bufs) = region.free();
        let layout = region.layout();
        ifs > 0
            && rings >= self.rings()
            && bufs >= self.bufs()
            && layout.max_slots() >= self.slots()
            && layout.max_port_rings() >= self.rings().saturating_add(2)
            && (self.buf_size == 0 || self.buf_size == layout.sizes.bufs.size)
    }

    /// Sizes of the shared region if this interface is the first: room for all its rings, and for further interfaces
    /// like it with one host ring in each direction.
    pub fn common(&self) -> RegionSizes {
        let others = self.rings().saturating_sub(self.host.0.saturating_add(self.host.1)).saturating_add(2);
        let rings = self.rings().saturating_add(others.saturating_mul(ROOM - 1));
        let slots = self.slots();
        let least = RegionSizes::COMMON;
        let fits = RegionSizes::for_port(rings, slots, DEFAULT_BUF_SIZE, 0, self.extra_bufs);
        let larger = |least: PoolSize, fits: PoolSize| PoolSize {
            num: least.num.max(fits.num),
            size: least.size.max(fits.size),
        };
        RegionSizes {
            ifs: larger(least.ifs, PoolSize { num: 0, ..fits.ifs }),
            rings: larger(least.rings, fits.rings),
            bufs: larger(least.bufs, PoolSize { num: fits.bufs.num, size: 0 }),
        }
    }

    /// Sizes of a region for this interface only.
    pub fn region(&self) -> RegionSizes {
        let buf_size = if self.buf_size == 0 { DEFAULT_BUF_SIZE } else { self.buf_size };
        RegionSizes::for_port(self.rings(), self.slots(), buf_size, ROOM, self.extra_bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the shared region has room for four interfaces like the first, of any size; only rings in use need
    /// buffers.
    #[test]
    fn the_region_has_room_for_four_like_interfaces() {
        for (queues, slots) in [(1, 0), (1, 4096), (8, 0), (30, 512)] {
            let shape = shape(queues, PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots });
            let used = (shape.tx_rings, shape.rx_rings);
            let needs = RegionNeeds { shape, host: (1, 1), used, buf_size: 0, extra_bufs: 0 };
            let region = Region::private(needs.common()).unwrap();
            let ports: Vec<_> = (0..ROOM).map(|_| (needs.fit(&region), region.port(shape).unwrap())).collect();
            assert!(ports.iter().all(|(fit, _)| *fit), "{queues} queues");
            let one = RegionNeeds { used: (1, 0), ..needs };
            assert!(one.bufs() < needs.bufs());
        }
    }
}
