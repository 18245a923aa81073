//! A region (memory that the rings of several ports share) and the ports allocated in it, as the host sees them. A
//! program that opens a part of a port holds ranges of the port's rings ([`RingRanges`]).
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use thiserror::Error;

use crate::holes::wait_for_holes;
use crate::layout::{Layout, LayoutError, RESERVED_BUFS, RING_SLOTS_RANGE, RegionSizes};
use crate::mapping::{Mapping, PageKind, sealed_memfd};
use crate::pool::Pool;
pub use crate::side::RingSide;
use crate::toucher::Toucher;
use crate::view::RegionLayout;

mod continued;
mod port;

pub use continued::RegionState;
pub use port::{Binding, FurnishedRings, PortMem};

/// The reason why a region, or a port in it, cannot be created.
#[derive(Debug, Error)]
pub enum RegionError {
    /// The sizes are invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The kernel refused the memory.
    #[error("cannot allocate {bytes} bytes of shared memory: {source}")]
    Memory {
        /// Bytes requested.
        bytes: u64,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// A pool of the region is exhausted.
    #[error(
        "the region has too few {what}: {asked} requested, {free} free; request fewer, or attach with a larger region"
    )]
    Exhausted {
        /// Name of the pool.
        what: &'static str,
        /// Number of objects requested.
        asked: u32,
        /// Number of free objects.
        free: u32,
    },
    /// The number of slots is out of range for this region.
    #[error("invalid ring size of {slots} slots: expected {least} to {most} in this region")]
    Slots {
        /// Number of slots requested.
        slots: u32,
        /// Minimum number of slots.
        least: u32,
        /// Maximum number of slots.
        most: u32,
    },
    /// Threads that touch the memory stall, e.g. at a hole that is being punched in its file.
    #[error(
        "threads that touch this user's memory stall: do not punch holes in the files behind it, and keep its pages \
         available"
    )]
    Slow,
}

/// Number and size of a port's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShape {
    /// Number of rings on which the application sends.
    pub tx_rings: u32,
    /// Number of rings on which the application receives.
    pub rx_rings: u32,
    /// Number of slots in each tx ring.
    pub tx_slots: u32,
    /// Number of slots in each rx ring.
    pub rx_slots: u32,
}

/// A range of a port's rings in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRanges {
    /// Range of the port's tx rings.
    pub tx: Range<u32>,
    /// Range of the port's rx rings.
    pub rx: Range<u32>,
}

impl RingRanges {
    /// No rings.
    pub const NONE: RingRanges = RingRanges { tx: 0..0, rx: 0..0 };

    /// All rings of a port.
    pub fn all(shape: PortShape) -> RingRanges {
        RingRanges { tx: 0..shape.tx_rings, rx: 0..shape.rx_rings }
    }
}

#[derive(Debug)]
struct RegionPools {
    ifs: Pool,
    rings: Pool,
    bufs: Pool,
}

/// The file offset and the separate CSB memory of a region whose pools are in a client's file.
#[derive(Debug)]
struct ClientFileParts {
    /// Offset of the pools in the file, bytes.
    offset: u64,
    /// The memfd with the CSB arrays.
    csb: OwnedFd,
}

/// Shared memory for ports, with the record of its free objects: a sealed memfd, or a part of a client's file. A region
/// is a trust domain: ports that swap buffers share a region, isolated ports do not.
#[derive(Debug)]
pub struct Region {
    /// The memfd or the client's file; `None` for private memory. This field comes first, so that it is closed before
    /// the memory is unmapped. Dropping the last reference to the pages frees them, which takes long; the mapping must
    /// be that reference, because a separate thread unmaps large mappings ([`crate::mapping::unmap_apart`]).
    fd: Option<OwnedFd>,
    map: Arc<Mapping>,
    /// Set if the pools are in a client's file.
    apart: Option<ClientFileParts>,
    layout: Layout,
    huge: bool,
    pools: Mutex<RegionPools>,
    toucher: OnceLock<Arc<Toucher>>,
}

impl Region {
    /// Creates a region on a sealed memfd that can be passed to other processes.
    ///
    /// # Errors
    /// [`RegionError::Layout`] if the sizes are invalid, [`RegionError::Memory`] if there is no memory.
    pub fn shared(name: &str, sizes: RegionSizes, pages: PageKind) -> Result<Arc<Self>, RegionError> {
        Self::on_memfd(name, Layout::new(sizes)?, pages)
    }

    /// Like [`Region::shared`], laid out as a device's memory ([`Layout::device`]).
    ///
    /// # Errors
    /// Like [`Region::shared`].
    pub fn device(name: &str, sizes: RegionSizes, pages: PageKind) -> Result<Arc<Self>, RegionError> {
        Self::on_memfd(name, Layout::device(sizes)?, pages)
    }

    /// Takes over the memory of a region with this layout ([`Layout::device`], [`Layout::bar`]) from another process.
    /// All objects except the buffers in `used_bufs` are free.
    ///
    /// # Errors
    /// [`RegionError::Memory`] if the file has another size, or could be truncated.
    pub fn adopt(fd: OwnedFd, layout: Layout, used_bufs: &[Range<u32>]) -> Result<Arc<Self>, RegionError> {
        let memory = |source| RegionError::Memory { bytes: layout.total, source };
        let size = rustix::fs::fstat(&fd).map_err(memory)?.st_size;
        if u64::try_from(size) != Ok(layout.total) {
            return Err(memory(rustix::io::Errno::INVAL));
        }
        let len = usize::try_from(layout.total).map_err(|_| memory(rustix::io::Errno::NOMEM))?;
        let map = Mapping::map(fd.as_fd(), len).map_err(memory)?;
        let this = Self::over(Arc::new(map.watched()), Some(fd), layout, false);
        this.pools().bufs = Pool::with_used(layout.sizes.bufs.num, RESERVED_BUFS, used_bufs);
        Ok(this)
    }

    /// The used buffers, as ranges of indices.
    pub fn used_bufs(&self) -> Vec<Range<u32>> {
        self.pools().bufs.used()
    }

    /// A number that changes whenever the set of used buffers changes.
    pub fn changes(&self) -> u64 {
        self.pools().bufs.changes()
    }

    /// Like [`Region::shared`], with a size that is a power of two ([`Layout::bar`]).
    ///
    /// # Errors
    /// Like [`Region::shared`].
    pub fn bar(name: &str, sizes: RegionSizes, pages: PageKind) -> Result<Arc<Self>, RegionError> {
        Self::on_memfd(name, Layout::bar(sizes)?, pages)
    }

    /// Creates a region whose pools are in `room` bytes of a client's file, at `offset`. The client may truncate the
    /// file at any time; this process survives, but the region's ports then stop working.
    ///
    /// # Errors
    /// Like [`Region::shared`]; `EINVAL` for a file that is too short or an offset that is not page-aligned.
    pub fn in_file(
        name: &str,
        sizes: RegionSizes,
        file: OwnedFd,
        offset: u64,
        room: u64,
    ) -> Result<Arc<Self>, RegionError> {
        let layout = Layout::in_room(sizes, room)?;
        let memory = |source| RegionError::Memory { bytes: layout.total, source };
        let len = usize::try_from(room);
        let csb_len = layout.total - room;
        let len = len.map_err(|_| memory(rustix::io::Errno::NOMEM))?;
        let (csb, csb_map, _) = sealed_memfd(name, csb_len, PageKind::Ordinary).map_err(memory)?;
        let map = Mapping::joined(file.as_fd(), offset, len, csb.as_fd(), csb_map.len()).map_err(memory)?;
        Ok(Self::with(Arc::new(map.watched()), Some(file), Some(ClientFileParts { offset, csb }), layout, false))
    }

    fn on_memfd(name: &str, layout: Layout, pages: PageKind) -> Result<Arc<Self>, RegionError> {
        let (fd, map, huge) = sealed_memfd(name, layout.total, pages)
            .map_err(|source| RegionError::Memory { bytes: layout.total, source })?;
        Ok(Self::over(Arc::new(map.watched()), Some(fd), layout, huge))
    }

    /// Returns a region on the same memory with all objects free, for use after the program or virtual machine that
    /// used the region was reset. Ports of the old region may still be read, but their data is meaningless.
    ///
    /// # Errors
    /// [`RegionError::Memory`] if the process is out of descriptors.
    pub fn renewed(&self) -> Result<Arc<Self>, RegionError> {
        let out = |e: std::io::Error| RegionError::Memory {
            bytes: self.layout.total,
            source: e.raw_os_error().map_or(rustix::io::Errno::MFILE, rustix::io::Errno::from_raw_os_error),
        };
        let fd = self.fd.as_ref().map(OwnedFd::try_clone).transpose().map_err(out)?;
        let renewed = Self::over(Arc::clone(&self.map), fd, self.layout, self.huge);
        self.toucher.get().into_iter().for_each(|toucher| renewed.set_toucher(toucher));
        Ok(renewed)
    }

    /// Creates a region in this process's own memory, for a switch or a pipe embedded in one program.
    ///
    /// # Errors
    /// [`RegionError::Layout`] if the sizes are invalid, [`RegionError::Memory`] if there is no memory.
    pub fn private(sizes: RegionSizes) -> Result<Arc<Self>, RegionError> {
        let layout = Layout::new(sizes)?;
        let map = Mapping::private(layout.total as usize)
            .ok_or(RegionError::Memory { bytes: layout.total, source: rustix::io::Errno::NOMEM })?;
        Ok(Self::over(Arc::new(map), None, layout, false))
    }

    fn over(map: Arc<Mapping>, fd: Option<OwnedFd>, layout: Layout, huge: bool) -> Arc<Self> {
        Self::with(map, fd, None, layout, huge)
    }

    fn with(
        map: Arc<Mapping>,
        fd: Option<OwnedFd>,
        apart: Option<ClientFileParts>,
        layout: Layout,
        huge: bool,
    ) -> Arc<Self> {
        let sizes = layout.sizes;
        let pools = RegionPools {
            ifs: Pool::new(sizes.ifs.num, 0),
            rings: Pool::new(sizes.rings.num, 0),
            bufs: Pool::new(sizes.bufs.num, RESERVED_BUFS),
        };
        Arc::new(Region { map, fd, apart, layout, huge, pools: Mutex::new(pools), toucher: OnceLock::new() })
    }

    /// Makes the thread of `toucher` access the memory when a port is created or ends, in place of the calling thread:
    /// the memory belongs to another user, who can make an access stall. Threads that move frames still access the
    /// memory themselves.
    pub fn set_toucher(&self, toucher: &Arc<Toucher>) {
        self.toucher.get_or_init(|| Arc::clone(toucher));
    }

    /// Runs an action that accesses the memory: in the thread of [`Region::set_toucher`], if a toucher is set.
    ///
    /// # Errors
    /// [`RegionError::Slow`] if the action takes too long. The action still runs to its end, and its result is dropped.
    pub fn touch<R: Send + 'static>(&self, what: impl FnOnce() -> R + Send + 'static) -> Result<R, RegionError> {
        match self.toucher.get() {
            Some(toucher) => toucher.touch(what).ok_or(RegionError::Slow),
            None => Ok(what()),
        }
    }

    /// The memfd or the client's file, which the host sends to clients; `None` for a private region.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// For a region in a client's file: the offset of the pools in the file, and the memfd with the CSB arrays;
    /// otherwise `None`.
    pub fn apart(&self) -> Option<(u64, BorrowedFd<'_>)> {
        self.apart.as_ref().map(|a| (a.offset, a.csb.as_fd()))
    }

    /// The offsets of the region's parts.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region's memory in this process.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Whether the region uses huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// The description with which a client finds the region's rings by number.
    pub fn places(&self) -> RegionLayout {
        let l = &self.layout;
        RegionLayout {
            csb_atok: l.csb_atok,
            csb_ktoa: l.csb_ktoa,
            ring_pool: l.ring_pool,
            ring_size: l.sizes.rings.size,
            buf_pool: l.buf_pool,
            num_bufs: l.sizes.bufs.num,
            buf_size: l.sizes.bufs.size,
        }
    }

    fn pools(&self) -> MutexGuard<'_, RegionPools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers of free `netmap_if`s, rings and buffers.
    pub fn free(&self) -> (u32, u32, u32) {
        let p = self.pools();
        (p.ifs.free(), p.rings.free(), p.bufs.free())
    }

    /// Allocates the rings, CSB entries and buffers of a port.
    ///
    /// # Errors
    /// [`RegionError::Exhausted`] or [`RegionError::Slots`], with nothing allocated; [`RegionError::Slow`] like
    /// [`Region::touch`].
    pub fn port(self: &Arc<Self>, shape: PortShape) -> Result<PortMem, RegionError> {
        self.port_in_part(shape, 0, 0, &RingRanges::all(shape))
    }

    /// Like [`Region::port`], for a port whose last `host_tx` tx and `host_rx` rx rings are host rings. Only the rings
    /// in `used` get buffers; the slots of other rings name buffer 0.
    ///
    /// # Errors
    /// Like [`Region::port`].
    pub fn port_in_part(
        self: &Arc<Self>,
        shape: PortShape,
        host_tx: u32,
        host_rx: u32,
        used: &RingRanges,
    ) -> Result<PortMem, RegionError> {
        self.check_slots(shape.tx_slots)?;
        self.check_slots(shape.rx_slots)?;
        let count = shape.tx_rings.saturating_add(shape.rx_rings);
        let ids = {
            let mut pools = self.pools();
            let free = pools.rings.free();
            let of = |rings: &Range<u32>, slots: u32| (rings.len() as u32).saturating_mul(slots);
            let want_bufs = of(&used.tx, shape.tx_slots).saturating_add(of(&used.rx, shape.rx_slots));
            if pools.bufs.free() < want_bufs {
                return Err(RegionError::Exhausted { what: "buffers", asked: want_bufs, free: pools.bufs.free() });
            }
            pools.rings.take_run(count).ok_or(RegionError::Exhausted { what: "rings", asked: count, free })?
        };
        let host = (host_tx, host_rx);
        let mem = PortMem { region: Arc::clone(self), shape, host, ids, tx: Vec::new(), rx: Vec::new() };
        let used = used.clone();
        self.touch(move || mem.with_fresh_rings(&used))?
    }

    fn check_slots(&self, slots: u32) -> Result<(), RegionError> {
        let least = *RING_SLOTS_RANGE.start();
        let most = self.layout.max_slots().min(*RING_SLOTS_RANGE.end());
        if slots < least || slots > most {
            return Err(RegionError::Slots { slots, least, most });
        }
        Ok(())
    }

    // No thread accesses the shared memory while it holds the lock of the pools: an access that stalls would stall all
    // other users of the lock.

    fn fresh_ring(&self, id: u32, slots: u32, ringid: u16, rx: bool, with_bufs: bool) -> Result<RingSide, RegionError> {
        // The layout guarantees that the ring is inside the mapping; otherwise the whole region is unusable.
        let side = self.ring_of(id, slots)?;
        let RingSide { ring, csb, .. } = &side;
        let tail = if rx { 0 } else { slots - 1 };
        ring.init_header(ringid, rx, tail);
        let bufs = if with_bufs { self.take_bufs(slots) } else { vec![0; slots as usize] };
        let missing = slots.saturating_sub(bufs.len() as u32);
        if missing > 0 {
            self.give_bufs(bufs);
            return Err(RegionError::Exhausted { what: "buffers", asked: missing, free: 0 });
        }
        for (i, buf) in (0..).zip(bufs) {
            ring.set_slot_word(i, buf, 0, 0);
            ring.set_ptr(i, 0);
        }
        csb.reset(tail);
        Ok(side)
    }

    /// Takes `count` buffers, or fewer if the pool runs dry.
    fn take_bufs(&self, count: u32) -> Vec<u32> {
        let mut pools = self.pools();
        (0..count).map_while(|_| pools.bufs.take()).collect()
    }

    fn ring_of(&self, id: u32, slots: u32) -> Result<RingSide, RegionError> {
        self.places().ring(&self.map, id, slots).ok_or(RegionError::Exhausted { what: "space", asked: 1, free: 0 })
    }

    /// Returns buffers to the pool; ignores indices of buffers that are not in use.
    fn give_bufs(&self, bufs: impl IntoIterator<Item = u32>) {
        let mut pools = self.pools();
        for buf in bufs {
            pools.bufs.give(buf);
        }
    }

    /// Takes `count` buffers and links them through their first word, as `ni_bufs_head` requires. Returns the head of
    /// the list (0 if it is empty) and the number of buffers taken, which is smaller than `count` if the pool runs dry,
    /// as in netmap.
    fn take_extra_bufs(&self, count: u32) -> (u32, u32) {
        let bufs = self.take_bufs(count);
        let mut head = 0;
        for &buf in &bufs {
            self.store_u32(self.layout.buf_at(buf), head);
            head = buf;
        }
        (head, bufs.len() as u32)
    }

    /// Frees the list of extra buffers that starts at `head`. The application can write the list: a broken or circular
    /// list ends at the first buffer that is not in use.
    fn give_extra_bufs(&self, mut head: u32) {
        while head >= RESERVED_BUFS && self.pools().bufs.give(head) {
            head = self.load_u32(self.layout.buf_at(head));
        }
    }

    fn u32_at(&self, offset: u64) -> Option<&AtomicU32> {
        #[cfg(fuzzing)]
        crate::probe::read();
        let p = self.map.at(offset, 4, 4)?;
        // SAFETY: `at` checked bounds and alignment; accessed atomically only; the mapping lives as long as self.
        Some(unsafe { AtomicU32::from_ptr(p.as_ptr().cast()) })
    }

    fn store_u32(&self, offset: u64, v: u32) {
        if let Some(w) = self.u32_at(offset) {
            w.store(v, Ordering::Relaxed);
        }
    }

    fn load_u32(&self, offset: u64) -> u32 {
        self.u32_at(offset).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    fn store_u64(&self, offset: u64, v: u64) {
        if let Some(p) = self.map.at(offset, 8, 8) {
            // SAFETY: `at` checked bounds and alignment; accessed atomically only.
            unsafe { AtomicU64::from_ptr(p.as_ptr().cast()) }.store(v, Ordering::Relaxed);
        }
    }

    fn store_name(&self, offset: u64, name: &str) {
        let Some(p) = self.map.at(offset, 16, 1) else { return };
        for i in 0..16 {
            let b = if i < 15 { name.as_bytes().get(i).copied().unwrap_or(0) } else { 0 };
            // SAFETY: the 16 bytes of ni_name, checked by `at`; accessed atomically only.
            unsafe { AtomicU8::from_ptr(p.as_ptr().add(i)) }.store(b, Ordering::Relaxed);
        }
    }
}

impl Drop for Region {
    /// Makes the toucher (the thread of [`Region::set_toucher`]), if one is set, unmap the memory once no hole is being
    /// punched in its files. Punching a hole locks the file; munmap(2) would wait for that lock while it holds the lock
    /// that all other threads need to map memory.
    fn drop(&mut self) {
        let Some(toucher) = self.toucher.get() else { return };
        let files: Vec<_> = self.fd.take().into_iter().chain(self.apart.take().map(|apart| apart.csb)).collect();
        let map = Arc::clone(&self.map);
        toucher.give(move || {
            files.iter().for_each(wait_for_holes);
            drop(files);
            drop(map);
        });
    }
}

#[cfg(test)]
mod tests;
