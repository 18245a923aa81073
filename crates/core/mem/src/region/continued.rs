//! Regions and ports that a successor process continues, with the memory and the descriptors of its predecessor.
//!
//! The contents and indices of rings are in the memory itself. Applications can write them, so each use checks them.
//! The host's private data is a [`RegionState`].

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use netvale_fdio::state::Fd;
use rustix::io::Errno;

use super::{ClientFileParts, PortMem, PortShape, Region, RegionError};
use crate::holes::may_be_mapped;
use crate::layout::{Layout, RESERVED_BUFS, RegionSizes};
use crate::mapping::Mapping;
use crate::pool::Pool;

/// The state with which a successor process continues a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    /// Sizes of the region's pools.
    pub sizes: RegionSizes,
    /// Whether the region uses huge pages.
    pub huge: bool,
    /// Offset and length in bytes of the region's part of a client's file; `None` if the pools are not in a client's
    /// file.
    pub file: Option<(u64, u64)>,
    /// The used buffers. `None` if they are unknown: each buffer then counts as used until its port is gone.
    pub used_bufs: Option<Vec<Range<u32>>>,
    /// The region's memory: one file, or the client's file and the memfd with the CSB arrays.
    pub memory: Vec<Fd>,
}

impl Region {
    /// Saves the state with which a successor process continues the region.
    ///
    /// # Errors
    /// The system error if the process is out of descriptors.
    pub fn save(&self) -> std::io::Result<RegionState> {
        let pools_len = |apart: &ClientFileParts| (apart.offset, self.layout.csb_atok);
        let files = self.fd.iter().chain(self.apart.as_ref().map(|apart| &apart.csb));
        Ok(RegionState {
            sizes: self.layout.sizes,
            huge: self.huge,
            file: self.apart.as_ref().map(pools_len),
            used_bufs: Some(self.pools().bufs.used()),
            memory: Fd::copies_of(files)?,
        })
    }

    /// Restores the region of a predecessor process. The caller must then continue the region's ports and applications
    /// ([`Region::continue_port`], [`PortMem::continue_binding`]).
    ///
    /// # Errors
    /// [`RegionError`] if the memory does not match the state.
    pub fn restore(state: RegionState) -> Result<Arc<Region>, RegionError> {
        let layout = match state.file {
            None => Layout::new(state.sizes)?,
            Some((_, room)) => Layout::in_room(state.sizes, room)?,
        };
        let memory = |source| RegionError::Memory { bytes: layout.total, source };
        let wrong = || memory(Errno::INVAL);
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| memory(Errno::NOMEM));
        let mut files = state.memory.into_iter().map(|file| file.take().map_err(|_| memory(Errno::MFILE)));
        let mut next = || files.next().ok_or_else(wrong)?;
        let fd = Arc::new(next()?);
        if !may_be_mapped(&fd) {
            return Err(RegionError::Slow);
        }
        let fd = Arc::into_inner(fd).ok_or_else(wrong)?;
        let (map, apart) = match state.file {
            None => (Mapping::map(fd.as_fd(), size(layout.total)?).map_err(memory)?, None),
            Some((offset, room)) => {
                let csb = next()?;
                let csb_len = size(layout.total - room)?;
                drop(Mapping::map(csb.as_fd(), csb_len).map_err(memory)?);
                let map = Mapping::joined(fd.as_fd(), offset, size(room)?, csb.as_fd(), csb_len).map_err(memory)?;
                (map, Some(ClientFileParts { offset, csb }))
            }
        };
        let this = Self::with(Arc::new(map.watched()), Some(fd), apart, layout, state.huge);
        let all = RESERVED_BUFS..layout.sizes.bufs.num;
        let used = state.used_bufs.as_deref().unwrap_or(std::slice::from_ref(&all));
        this.pools().bufs = Pool::with_used(layout.sizes.bufs.num, RESERVED_BUFS, used);
        Ok(this)
    }

    /// Takes over a port of a predecessor process; the port's first ring is ring object `first`. The last `host_tx` tx
    /// and `host_rx` rx rings are host rings. The rings' contents stay unchanged.
    ///
    /// # Errors
    /// [`RegionError`] if the region has no such rings, or another port owns one of them.
    pub fn continue_port(
        self: &Arc<Self>,
        shape: PortShape,
        host_tx: u32,
        host_rx: u32,
        first: u32,
    ) -> Result<PortMem, RegionError> {
        self.check_slots(shape.tx_slots)?;
        self.check_slots(shape.rx_slots)?;
        let count = shape.tx_rings.saturating_add(shape.rx_rings);
        let none = |free| RegionError::Exhausted { what: "rings", asked: count, free };
        let end = first.checked_add(count).ok_or(none(0))?;
        if host_tx > shape.tx_rings || host_rx > shape.rx_rings {
            return Err(none(0));
        }
        let host = (host_tx, host_rx);
        let mut mem = PortMem { region: Arc::clone(self), shape, host, ids: first..first, tx: vec![], rx: vec![] };
        for (k, id) in (0..).zip(first..end) {
            let mut pools = self.pools();
            if !pools.rings.take_this(id) {
                return Err(none(pools.rings.free()));
            }
            drop(pools);
            mem.ids.end = id + 1;
            let is_rx = k >= shape.tx_rings;
            let side = self.ring_of(id, if is_rx { shape.rx_slots } else { shape.tx_slots })?;
            if is_rx { mem.rx.push(side) } else { mem.tx.push(side) }
        }
        Ok(mem)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mapping::PageKind;

    fn region() -> Arc<Region> {
        Region::shared("test", RegionSizes::for_port(2, 8, 64, 0, 4), PageKind::Ordinary).unwrap()
    }

    const SHAPE: PortShape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: 8, rx_slots: 8 };

    /// Objective: in a continued region, a port keeps its slots, indices and extra buffers; they are not handed out
    /// again, and all are free once the port is gone.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn a_port_continues_with_its_slots_and_buffers() {
        let before = region();
        let port = Arc::new(before.port(SHAPE).unwrap());
        let binding = port.bind("a", 0..1, 0..1, 3).unwrap();
        port.tx[0].csb.publish_head(5, 5);
        port.tx[0].csb.publish_tail(2, 1);
        let words: Vec<_> = (0..8).map(|i| port.rx[0].ring.slot_word(i)).collect();
        let state = before.save().unwrap();
        let free = before.free();
        std::mem::forget((port, binding));

        let after = Region::restore(state).unwrap();
        let port = after.continue_port(SHAPE, 0, 0, 0).unwrap();
        assert!(after.continue_port(SHAPE, 0, 0, 1).is_err(), "one of its rings is taken");
        let binding = port.continue_binding(0, 3).unwrap();
        assert!(port.continue_binding(0, 0).is_err());
        assert_eq!((after.free(), binding.nifp()), (free, before.layout().if_at(0)));
        assert_eq!((port.tx[0].csb.head(), port.tx[0].csb.hwcur(), port.tx[0].csb.hwtail()), (5, 2, 1));
        assert!((0..8).all(|i| port.rx[0].ring.slot_word(i) == words[i as usize]));
        drop((binding, port));
        assert_eq!(after.free(), region().free());
    }

    /// Objective: while the used buffers are unknown, no buffer is handed out until a port returns its buffers.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn no_unknown_buffer_is_handed_out() {
        let before = region();
        std::mem::forget(before.port(SHAPE).unwrap());
        let state = before.save().unwrap();
        let after = Region::restore(RegionState { used_bufs: None, ..state }).unwrap();
        let port = after.continue_port(SHAPE, 0, 0, 0).unwrap();
        assert_eq!(after.free().2, 0);
        assert!(after.port(SHAPE).is_err());
        drop(port);
        assert_eq!(after.free().2, 16);
        assert!(after.port(SHAPE).is_ok());
    }

    /// Objective: memory that does not match the state, and rings and shapes that the region does not have, are
    /// refused.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn forged_memory_or_state_is_refused() {
        let state = region().save().unwrap();
        let larger = RegionState { sizes: RegionSizes::for_port(64, 1024, 2048, 0, 0), ..state.clone() };
        assert!(Region::restore(larger).is_err());
        assert!(Region::restore(RegionState { memory: Vec::new(), ..state.clone() }).is_err());
        let in_file = RegionState { file: Some((0, 4096)), ..state.clone() };
        assert!(Region::restore(in_file).is_err());
        let unsealed = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
        assert!(Region::restore(RegionState { memory: vec![unsealed.into()], ..state.clone() }).is_err());
        let after = Region::restore(state.clone()).unwrap();
        let port = |shape, host: (u32, u32), first| after.continue_port(shape, host.0, host.1, first).is_ok();
        assert!(!port(SHAPE, (0, 0), u32::MAX) && !port(SHAPE, (0, 0), 1) && !port(SHAPE, (2, 0), 0));
        assert!(!port(PortShape { tx_slots: 4096, ..SHAPE }, (0, 0), 0));
        let used = RegionState { used_bufs: Some(vec![0..u32::MAX, Range { start: 7, end: 3 }]), ..state };
        assert_eq!(Region::restore(used).unwrap().free().2, 0);
        assert!(port(SHAPE, (0, 0), 0), "what was refused is free");
    }
}
