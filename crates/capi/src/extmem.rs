//! netmap's extmem option: the region takes the place of memory the program brought.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::AsRawFd;

use netvale_abi::nmreq::{NmreqOptExtmem, NmreqPoolsInfo};
use netvale_control::attach::Pools;
use rustix::io::Errno;

use crate::descriptor::Bound;
use crate::{real, user};

/// The program's memory, and the pools it wants there.
pub struct Extmem {
    addr: u64,
    option: NmreqOptExtmem,
    /// What the daemon is asked for.
    pub pools: Pools,
}

const PAGE: u64 = 4096;

impl Extmem {
    /// Reads the option at `addr`.
    ///
    /// # Errors
    /// `EFAULT`; `EINVAL` for memory that does not begin at a page, or too little of it.
    pub fn read(addr: u64) -> Result<Extmem, Errno> {
        let option: NmreqOptExtmem = user::read(addr)?;
        let info = &option.nro_info;
        if option.nro_usrptr == 0 || !option.nro_usrptr.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        user::probe(option.nro_usrptr, usize::try_from(info.nr_memsize).map_err(|_| Errno::INVAL)?)?;
        Ok(Extmem { addr, option, pools: pools(info)? })
    }

    /// Puts the region where the program's memory is, and writes the option back.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn replace(&mut self, bound: &Bound) -> Result<(), Errno> {
        let r = &bound.reply;
        // The CSB behind the pools is no business of the program's memory.
        let len = r.csb_atok.min(self.option.nro_info.nr_memsize.next_multiple_of(PAGE));
        let at = self.option.nro_usrptr as *mut libc::c_void;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: the program gave this memory away for the purpose (netmap.h, nmreq_opt_extmem); all `len` bytes of it were seen to
        // be there, and it holds nothing of ours.
        let mapped = unsafe { real::mmap(at, len as usize, prot, flags, bound.region.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(crate::errno::last());
        }
        self.option.nro_info = NmreqPoolsInfo {
            nr_mem_id: u16::try_from(r.mem_id).unwrap_or(u16::MAX),
            nr_if_pool_offset: r.if_pool,
            nr_if_pool_objtotal: r.num_ifs,
            nr_if_pool_objsize: r.if_size,
            nr_ring_pool_offset: r.ring_pool,
            nr_ring_pool_objtotal: r.num_rings,
            nr_ring_pool_objsize: r.ring_size,
            nr_buf_pool_offset: r.buf_pool,
            nr_buf_pool_objtotal: r.num_bufs,
            nr_buf_pool_objsize: r.buf_size,
            ..self.option.nro_info
        };
        let info = self.addr + offset_of!(NmreqOptExtmem, nro_info) as u64;
        user::write_bytes(info, &user::bytes_of::<_, { size_of::<NmreqPoolsInfo>() }>(&self.option.nro_info))
    }
}

/// Objects of the size asked for, rounded up to cache lines as netmap does, and as many buffers as fit.
fn pools(info: &NmreqPoolsInfo) -> Result<Pools, Errno> {
    const LINE: u64 = 64;
    const RING_ALIGN: u64 = 128;
    let up = |size: u32| u64::from(size).next_multiple_of(LINE);
    let (if_size, ring_size, buf_size) =
        (up(info.nr_if_pool_objsize), up(info.nr_ring_pool_objsize), up(info.nr_buf_pool_objsize));
    let rings_at = (if_size * u64::from(info.nr_if_pool_objtotal)).next_multiple_of(RING_ALIGN);
    let bufs_at = (rings_at + ring_size * u64::from(info.nr_ring_pool_objtotal)).next_multiple_of(RING_ALIGN);
    let room = info.nr_memsize.next_multiple_of(PAGE).checked_sub(bufs_at).ok_or(Errno::INVAL)?;
    if buf_size == 0 {
        return Err(Errno::INVAL);
    }
    let bufs = u64::from(info.nr_buf_pool_objtotal).min(room / buf_size);
    let size = |bytes: u64| u32::try_from(bytes).map_err(|_| Errno::INVAL);
    Ok(Pools {
        ifs: (info.nr_if_pool_objtotal, size(if_size)?),
        rings: (info.nr_ring_pool_objtotal, size(ring_size)?),
        bufs: (size(bufs)?, size(buf_size)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: pools that just fit are taken as they are, odd sizes are rounded at the cost of buffers, too little memory is
    /// refused.
    #[test]
    fn sizes() {
        let mut info = NmreqPoolsInfo {
            nr_if_pool_objtotal: 2,
            nr_if_pool_objsize: 1024,
            nr_ring_pool_objtotal: 64,
            nr_ring_pool_objsize: 512,
            nr_buf_pool_objtotal: 4096,
            nr_buf_pool_objsize: 2048,
            nr_memsize: 2 * 1024 + 64 * 512 + 4096 * 2048,
            ..NmreqPoolsInfo::default()
        };
        assert_eq!(pools(&info).unwrap(), Pools { ifs: (2, 1024), rings: (64, 512), bufs: (4096, 2048) });
        info.nr_buf_pool_objsize = 2049;
        let rounded = pools(&info).unwrap().bufs;
        assert_eq!(rounded.1, 2112);
        assert!(rounded.0 < 4096 && rounded.0 > 3900);
        info.nr_memsize = 1000;
        assert_eq!(pools(&info), Err(Errno::INVAL));
    }
}
