//! A port's rings in a region, and the `netmap_if`s of its applications.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use netvale_abi::{NETMAP_API, NetmapIf};

use super::{PortShape, Region, RegionError, RingRanges};
use crate::layout::RESERVED_BUFS;
use crate::side::RingSide;

/// The rings of one port. Dropping this returns rings and buffers to the region.
#[derive(Debug)]
pub struct PortMem {
    pub(super) region: Arc<Region>,
    pub(super) shape: PortShape,
    /// Number of host tx rings and number of host rx rings. Host rings are the last rings of each direction.
    pub(super) host: (u32, u32),
    pub(super) ids: Range<u32>,
    /// Tx rings in order.
    pub tx: Vec<RingSide>,
    /// Rx rings in order.
    pub rx: Vec<RingSide>,
}

impl PortMem {
    /// The region of the rings.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Number and size of the rings.
    pub fn shape(&self) -> PortShape {
        self.shape
    }

    /// Number of host tx rings and number of host rx rings. Host rings are the last rings of each direction.
    pub fn host_rings(&self) -> (u32, u32) {
        self.host
    }

    /// Index of the port's first entry in the region's CSB arrays. Tx rings come first, then rx rings.
    pub fn csb_first(&self) -> u32 {
        self.ids.start
    }

    /// Creates the rings, and gives a buffer to each slot of the rings in `used`.
    pub(super) fn with_fresh_rings(mut self, used: &RingRanges) -> Result<PortMem, RegionError> {
        let shape = self.shape;
        for (k, id) in (0..).zip(self.ids.clone()) {
            let is_rx = k >= shape.tx_rings;
            let (slots, used) = if is_rx { (shape.rx_slots, &used.rx) } else { (shape.tx_slots, &used.tx) };
            let index = if is_rx { k - shape.tx_rings } else { k };
            let side = self.region.fresh_ring(id, slots, index as u16, is_rx, used.contains(&index))?;
            if is_rx { self.rx.push(side) } else { self.tx.push(side) }
        }
        Ok(self)
    }

    /// Re-initialises the rings for a new application, while the application of `other`, in the same region, continues.
    /// After this call, no buffer is in slots of both ports. The rings keep their own buffers, each in one slot, and
    /// get further buffers only if those run out, as the application of `other` may hold buffers outside its rings.
    pub fn renew_beside(&self, other: &PortMem) {
        let num = self.region.layout.sizes.bufs.num;
        let sides = |mem: &PortMem| -> Vec<RingSide> { mem.tx.iter().chain(&mem.rx).cloned().collect() };
        let named = |side: &RingSide| -> Vec<u32> {
            (0..side.ring.num_slots()).map(|i| side.ring.slot_word(i).buf_idx).collect()
        };
        let mut taken: BTreeSet<u32> = sides(other).iter().flat_map(named).collect();
        let ours: Vec<u32> = sides(self).iter().flat_map(named).collect();
        let fits = |buf: &u32| (RESERVED_BUFS..num).contains(buf);
        let kept = ours.into_iter().filter(fits).chain(RESERVED_BUFS..num);
        let mut bufs = kept.filter(|&buf| taken.insert(buf));
        for (k, side) in sides(self).iter().enumerate() {
            let rx = k >= self.tx.len();
            let (index, tail) = if rx { (k - self.tx.len(), 0) } else { (k, side.ring.num_slots() - 1) };
            side.ring.init_header(index as u16, rx, tail);
            // Uses buffer 0 if no buffer is left: there are enough buffers for the slots, unless extra buffers were
            // swapped in and lost.
            (0..side.ring.num_slots()).for_each(|i| side.ring.set_slot_word(i, bufs.next().unwrap_or(0), 0, 0));
            side.csb.reset(tail);
        }
    }

    /// Re-initialises rings that have no buffers, and gives each of their slots a buffer.
    ///
    /// # Errors
    /// [`RegionError::Exhausted`] if the region has too few buffers.
    pub fn furnish(self: &Arc<Self>, rings: RingRanges) -> Result<FurnishedRings, RegionError> {
        let mem = Arc::clone(self);
        self.region.touch(move || mem.furnish_here(rings))?
    }

    fn furnish_here(self: &Arc<Self>, rings: RingRanges) -> Result<FurnishedRings, RegionError> {
        let PortShape { tx_slots, rx_slots, .. } = self.shape;
        let furnished = FurnishedRings::of(self, rings);
        for i in furnished.rings.tx.clone() {
            self.region.fresh_ring(self.ids.start + i, tx_slots, i as u16, false, true)?;
        }
        for i in furnished.rings.rx.clone() {
            self.region.fresh_ring(self.ids.start + self.shape.tx_rings + i, rx_slots, i as u16, true, true)?;
        }
        Ok(furnished)
    }

    /// Re-initialises tx ring `i`, whose slots keep their buffers.
    ///
    /// # Errors
    /// [`RegionError::Slow`] if touching the memory takes too long.
    pub fn renew_tx(&self, i: u32) -> Result<(), RegionError> {
        let Some(side) = self.tx.get(i as usize).cloned() else { return Ok(()) };
        self.region.touch(move || {
            let tail = side.ring.num_slots() - 1;
            side.ring.init_header(i as u16, false, tail);
            side.csb.reset(tail);
        })
    }

    /// Creates a `netmap_if` with the offsets of the rings in `tx` and `rx` for one application, and up to `extra`
    /// extra buffers. Other rings have offset 0.
    ///
    /// # Errors
    /// [`RegionError::Exhausted`] if the region has no free `netmap_if`, or its `netmap_if`s are too small.
    pub fn bind(
        self: &Arc<Self>,
        name: &str,
        tx: Range<u32>,
        rx: Range<u32>,
        extra: u32,
    ) -> Result<Binding, RegionError> {
        let mem = Arc::clone(self);
        let name = name.to_owned();
        self.region.touch(move || mem.bind_here(&name, RingRanges { tx, rx }, extra))?
    }

    fn bind_here(&self, name: &str, RingRanges { tx, rx }: RingRanges, extra: u32) -> Result<Binding, RegionError> {
        let region = &self.region;
        let entries = self.shape.tx_rings + self.shape.rx_rings + 2;
        let most = region.layout.max_port_rings();
        if entries > most {
            return Err(RegionError::Exhausted { what: "ring offsets in a netmap_if", asked: entries, free: most });
        }
        let index = region.pools().ifs.take().ok_or(RegionError::Exhausted { what: "netmap_if", asked: 1, free: 0 })?;
        let (head, extra_bufs) = region.take_extra_bufs(extra);
        let at = region.layout.if_at(index);
        let binding = Binding { region: Arc::clone(region), index, nifp: at, extra_bufs };
        region.store_name(at, name);
        let field = |o: usize, v: u32| region.store_u32(at + o as u64, v);
        field(offset_of!(NetmapIf, ni_version), NETMAP_API);
        field(offset_of!(NetmapIf, ni_flags), 0);
        field(offset_of!(NetmapIf, ni_tx_rings), self.shape.tx_rings - self.host.0);
        field(offset_of!(NetmapIf, ni_rx_rings), self.shape.rx_rings - self.host.1);
        field(offset_of!(NetmapIf, ni_bufs_head), head);
        // netmap reports at least one host ring in each direction; a host ring that does not exist has offset 0, "not
        // bound".
        field(offset_of!(NetmapIf, ni_host_tx_rings), self.host.0.max(1));
        field(offset_of!(NetmapIf, ni_host_rx_rings), self.host.1.max(1));
        let missing = |host: u32| if host == 0 { Some(0) } else { None };
        let bound = |rings: &[RingSide], i: u32, range: &Range<u32>| match rings.get(i as usize) {
            Some(side) if range.contains(&i) => side.ring.place().ring.wrapping_sub(at),
            _ => 0,
        };
        let n_tx = self.shape.tx_rings;
        let n_rx = self.shape.rx_rings;
        let tx_offsets = (0..n_tx).map(|i| bound(&self.tx, i, &tx));
        let rx_offsets = (0..n_rx).map(|i| bound(&self.rx, i, &rx));
        let all = tx_offsets.chain(missing(self.host.0)).chain(rx_offsets).chain(missing(self.host.1));
        for (k, v) in all.enumerate() {
            region.store_u64(at + (size_of::<NetmapIf>() + 8 * k) as u64, v);
        }
        Ok(binding)
    }

    /// Takes over the `netmap_if` of an application that a predecessor process served: the object `index`, with
    /// `extra_bufs` extra buffers.
    ///
    /// # Errors
    /// [`RegionError::Exhausted`] if there is no such object, or another application uses it.
    pub fn continue_binding(&self, index: u32, extra_bufs: u32) -> Result<Binding, RegionError> {
        let mut pools = self.region.pools();
        if !pools.ifs.take_this(index) {
            return Err(RegionError::Exhausted { what: "netmap_if", asked: 1, free: pools.ifs.free() });
        }
        drop(pools);
        let nifp = self.region.layout.if_at(index);
        Ok(Binding { region: Arc::clone(&self.region), index, nifp, extra_bufs })
    }
}

/// Rings of a port that have buffers in their slots. Dropping this returns the buffers to the region.
#[derive(Debug)]
pub struct FurnishedRings {
    mem: Arc<PortMem>,
    rings: RingRanges,
}

impl FurnishedRings {
    /// Takes over rings that already have buffers.
    pub fn of(mem: &Arc<PortMem>, rings: RingRanges) -> FurnishedRings {
        FurnishedRings { mem: Arc::clone(mem), rings }
    }

    /// The port that has these rings.
    pub fn mem(&self) -> &Arc<PortMem> {
        &self.mem
    }
}

impl Drop for FurnishedRings {
    fn drop(&mut self) {
        let RingRanges { tx, rx } = self.rings.clone();
        let mem = Arc::clone(&self.mem);
        let _ = self.mem.region.touch(move || {
            let tx = mem.tx.iter().skip(tx.start as usize).take(tx.len());
            for side in tx.chain(mem.rx.iter().skip(rx.start as usize).take(rx.len())) {
                give_back(&mem.region, side);
                (0..side.ring.num_slots()).for_each(|i| side.ring.set_slot_word(i, 0, 0, 0));
            }
        });
    }
}

/// Returns the buffers in a ring's slots to the region. The application can write the slots, so the pool accepts each
/// used buffer only once.
fn give_back(region: &Region, side: &RingSide) {
    let bufs: Vec<_> = (0..side.ring.num_slots()).map(|i| side.ring.slot_word(i).buf_idx).collect();
    region.give_bufs(bufs);
}

impl Drop for PortMem {
    fn drop(&mut self) {
        let sides: Vec<_> = self.tx.drain(..).chain(self.rx.drain(..)).collect();
        let region = Arc::clone(&self.region);
        let ids = self.ids.clone();
        let _ = self.region.touch(move || {
            sides.iter().for_each(|side| give_back(&region, side));
            let mut pools = region.pools();
            for id in ids {
                pools.rings.give(id);
            }
        });
    }
}

/// One application's `netmap_if`. Dropping it frees the extra buffers listed in `ni_bufs_head`.
#[derive(Debug)]
pub struct Binding {
    region: Arc<Region>,
    index: u32,
    nifp: u64,
    extra_bufs: u32,
}

impl Binding {
    /// Offset of the `netmap_if` in the region, in bytes.
    pub fn nifp(&self) -> u64 {
        self.nifp
    }

    /// Index of the `netmap_if` in the region's pool.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Number of extra buffers granted to the application.
    pub fn extra_bufs(&self) -> u32 {
        self.extra_bufs
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let region = Arc::clone(&self.region);
        let nifp = self.nifp;
        let index = self.index;
        let _ = self.region.touch(move || {
            let head = region.load_u32(nifp + offset_of!(NetmapIf, ni_bufs_head) as u64);
            region.give_extra_bufs(head);
            region.pools().ifs.give(index);
        });
    }
}
