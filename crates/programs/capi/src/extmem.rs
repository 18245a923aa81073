//! netmap's extmem option: the region with a port's rings and buffers is mapped over memory that the program provides.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use netvale_abi::nmreq::{NmreqOptExtmem, NmreqPoolsInfo};
use netvale_control::attach::{FilePlacement, IN_FILE, PoolSizes};
use rustix::io::Errno;

use crate::descriptor::BoundPort;
use crate::maps::{FileMemory, Inode};
use crate::{real, user};

/// A program's extmem option: the memory that the program provides, and the pools of objects that it requests in this
/// memory.
pub struct ProgramExtmem {
    addr: u64,
    option: NmreqOptExtmem,
    /// The requested numbers and sizes of objects.
    pub pools: PoolSizes,
    /// Number of the region that an earlier registration has placed in this memory; `None` if there was no such
    /// registration. As in netmap, the same memory is the same region.
    pub known: Option<u32>,
    /// The file of which the memory is a part; `None` if it is not part of a file. With a file, the region is placed in
    /// the file, where other processes can map it.
    file: Option<FileMemory>,
    room: u64,
}

const PAGE: u64 = 4096;

/// Memory of the program that a region has replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReplacedMemory {
    start: u64,
    len: u64,
    file: Inode,
}

/// The memory of this program's regions, with the regions' numbers.
static PLACES: Mutex<Vec<(ReplacedMemory, u32)>> = Mutex::new(Vec::new());

impl ProgramExtmem {
    /// Reads the option at `addr`. Fields that the program left zero get netmap's defaults for a small region.
    ///
    /// # Errors
    /// `EFAULT` for unmapped memory, `ENOMEM` for an empty range, `EINVAL` for too little memory.
    pub fn read(addr: u64) -> Result<ProgramExtmem, Errno> {
        let mut option: NmreqOptExtmem = user::read(addr)?;
        fill_in(&mut option.nro_info);
        let (start, len) = pages(option.nro_usrptr, option.nro_info.nr_memsize)?;
        let known = known(start, len);
        let file = if known.is_some() { None } else { FileMemory::find(start..start + len) };
        if file.is_none() {
            // If the memory is part of a file, other processes may be using it.
            user::probe(start, usize::try_from(len).map_err(|_| Errno::NOMEM)?)?;
        }
        let pools = pools(&option.nro_info, len)?;
        Ok(ProgramExtmem { addr, option, pools, known, file, room: len })
    }

    /// Returns the file in which the region must be placed, and the range in it; `None` if the memory is not part of a
    /// file.
    pub fn file(&self) -> Option<(BorrowedFd<'_>, FilePlacement)> {
        let memory = self.file.as_ref()?;
        Some((memory.file.as_fd(), FilePlacement { offset: memory.offset, len: self.room }))
    }

    /// Returns whether the program's memory already contains this region.
    fn is_there(&self, bound: &BoundPort) -> Result<bool, Errno> {
        if self.known == Some(bound.reply.mem_id) {
            return Ok(true);
        }
        let Some(memory) = self.file.as_ref().filter(|_| bound.reply.port_flags & IN_FILE != 0) else {
            return Ok(false);
        };
        let same_file = Inode::of(memory.file.as_fd())? == Inode::of(bound.region.as_fd())?;
        Ok(same_file && memory.offset == bound.reply.file_offset)
    }

    /// Maps the region over the program's memory, unless that memory already contains the region, and writes the option
    /// back.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn place(&self, bound: &BoundPort) -> Result<(), Errno> {
        let r = &bound.reply;
        let (start, room) = pages(self.option.nro_usrptr, self.option.nro_info.nr_memsize)?;
        if !self.is_there(bound)? {
            // The CSB arrays follow the pools in the region, and are not mapped into the program's memory.
            let len = r.csb_atok.min(room);
            let at = start as *mut libc::c_void;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let from = r.file_offset as libc::off_t;
            // SAFETY: the program gave this memory away for this purpose (netmap.h, nmreq_opt_extmem); all `len` bytes
            // were probed, and none of netvale's data is in this memory.
            let mapped = unsafe { real::mmap(at, len as usize, prot, flags, bound.region.as_raw_fd(), from) };
            if mapped == libc::MAP_FAILED {
                return Err(crate::errno::last());
            }
            remember(ReplacedMemory { start, len: room, file: Inode::of(bound.region.as_fd())? }, r.mem_id);
        }
        let info = self.addr + offset_of!(NmreqOptExtmem, nro_info) as u64;
        user::write_bytes(info, &user::bytes_of::<_, { size_of::<NmreqPoolsInfo>() }>(&self.option.nro_info))
    }
}

/// Sets fields that the program left zero to netmap's defaults for a small region.
fn fill_in(info: &mut NmreqPoolsInfo) {
    for (field, default) in [
        (&mut info.nr_if_pool_objtotal, 2),
        (&mut info.nr_if_pool_objsize, 1024),
        (&mut info.nr_ring_pool_objtotal, 4),
        (&mut info.nr_ring_pool_objsize, 5 * PAGE as u32),
        (&mut info.nr_buf_pool_objtotal, 4098),
        (&mut info.nr_buf_pool_objsize, 2048),
    ] {
        if *field == 0 {
            *field = default;
        }
    }
}

/// Returns the start and the length of the whole pages that contain the `len` bytes at address `at`.
fn pages(at: u64, len: u64) -> Result<(u64, u64), Errno> {
    let start = at & !(PAGE - 1);
    let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::FAULT)?;
    if end == start { Err(Errno::NOMEM) } else { Ok((start, end - start)) }
}

/// Returns the pools for a request. Object sizes are rounded up to cache lines, and each pool has as many objects as
/// fit after the previous pool.
fn pools(info: &NmreqPoolsInfo, room: u64) -> Result<PoolSizes, Errno> {
    const LINE: u64 = 64;
    const RING_ALIGN: u64 = 128;
    let mut at = 0u64;
    let mut fit = |num: u32, size: u32| {
        let size = u64::from(size).next_multiple_of(LINE);
        let fits = u64::from(num).min(room.saturating_sub(at) / size);
        // As in netmap, no object is placed after a pool that does not fit completely.
        at = if fits < num.into() { room } else { (at + fits * size).next_multiple_of(RING_ALIGN) };
        Ok::<_, Errno>((fits as u32, u32::try_from(size).map_err(|_| Errno::INVAL)?))
    };
    let pools = PoolSizes {
        ifs: fit(info.nr_if_pool_objtotal, info.nr_if_pool_objsize)?,
        rings: fit(info.nr_ring_pool_objtotal, info.nr_ring_pool_objsize)?,
        bufs: fit(info.nr_buf_pool_objtotal, info.nr_buf_pool_objsize)?,
    };
    // Rings cannot use the first two buffers.
    if pools.bufs.0 <= 2 { Err(Errno::INVAL) } else { Ok(pools) }
}

/// Returns the number of the region that is already in this memory; `None` if there is none.
fn known(start: u64, len: u64) -> Option<u32> {
    let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let same = places.iter().rev().find(|(place, _)| (place.start, place.len) == (start, len))?;
    (Inode::at(start)? == same.0.file).then_some(same.1)
}

fn remember(place: ReplacedMemory, mem_id: u32) {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.retain(|(p, _)| p.start != place.start);
    places.push((place, mem_id));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: pools that just fit are taken unchanged; odd sizes are rounded up, which leaves room for fewer
    /// buffers; excess objects are omitted; too little memory is refused.
    #[test]
    fn pools_that_fit_are_taken_unchanged() {
        let mut info = NmreqPoolsInfo {
            nr_if_pool_objtotal: 2,
            nr_if_pool_objsize: 1024,
            nr_ring_pool_objtotal: 64,
            nr_ring_pool_objsize: 512,
            nr_buf_pool_objtotal: 4096,
            nr_buf_pool_objsize: 2048,
            ..NmreqPoolsInfo::default()
        };
        let room = 2 * 1024 + 64 * 512 + 4096 * 2048;
        assert_eq!(pools(&info, room).unwrap(), PoolSizes { ifs: (2, 1024), rings: (64, 512), bufs: (4096, 2048) });
        info.nr_buf_pool_objsize = 2049;
        let rounded = pools(&info, room).unwrap().bufs;
        assert_eq!(rounded.1, 2112);
        assert!(rounded.0 < 4096 && rounded.0 > 3900);
        info.nr_ring_pool_objsize = 1 << 20;
        assert_eq!(pools(&info, room), Err(Errno::INVAL));
        info.nr_ring_pool_objsize = 512;
        assert_eq!(pools(&info, 1000), Err(Errno::INVAL));
    }

    /// Objective: fields that the program left zero get netmap's values.
    #[test]
    fn zero_fields_get_netmaps_defaults() {
        let mut info = NmreqPoolsInfo { nr_memsize: 1 << 24, nr_ring_pool_objtotal: 7, ..NmreqPoolsInfo::default() };
        fill_in(&mut info);
        let pools = pools(&info, 1 << 24).unwrap();
        assert_eq!(pools, PoolSizes { ifs: (2, 1024), rings: (7, 20_480), bufs: (4098, 2048) });
    }

    /// Objective: if memory begins in the middle of a page, the range starts at the start of that page.
    #[test]
    fn memory_within_a_page_counts_from_its_start() {
        assert_eq!(pages(4096, 8192), Ok((4096, 8192)));
        assert_eq!(pages(5000, 8192), Ok((4096, 12_288)));
        assert_eq!(pages(4096, 0), Err(Errno::NOMEM));
        assert_eq!(pages(u64::MAX, 8192), Err(Errno::FAULT));
    }
}
