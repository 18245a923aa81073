//! `struct nmem_d`: a region that is mapped once for all of this program's ports in it.
#![allow(unsafe_code)]

use libc::{MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, c_int, c_void};
use rustix::io::Errno;

use super::context::{nmctx_free, nmctx_lock, nmctx_malloc, nmctx_unlock};
use super::structs::{MemDesc, PortDesc};

/// Returns the region of a registered port, and adds the port to the region's users. Maps the region unless another
/// port has already mapped it.
///
/// # Errors
/// The error of mmap(2).
///
/// # Safety
/// `d` is a registered port.
pub unsafe fn acquire(d: *mut PortDesc) -> Result<*mut MemDesc, Errno> {
    // SAFETY: the caller's contract; the list is read and changed under its lock.
    unsafe {
        let ctx = (*d).ctx;
        nmctx_lock(ctx);
        let mut m = (*ctx).mem_descs;
        while !m.is_null() && (*m).mem_id != (*d).reg.nr_mem_id {
            m = (*m).next;
        }
        let found = if m.is_null() { map(d) } else { Ok(m) };
        if let Ok(m) = found {
            (*m).refcount += 1;
        }
        nmctx_unlock(ctx);
        found
    }
}

/// # Safety
/// The conditions of [`acquire`]; the caller must hold the context's lock.
unsafe fn map(d: *mut PortDesc) -> Result<*mut MemDesc, Errno> {
    // SAFETY: the caller's contract; the new entry is written whole before it is linked in.
    unsafe {
        let ctx = (*d).ctx;
        let m = nmctx_malloc(ctx, size_of::<MemDesc>()).cast::<MemDesc>();
        if m.is_null() {
            return Err(Errno::NOMEM);
        }
        let extmem = (*d).extmem;
        let (mem, size) = if extmem.is_null() {
            let size = (*d).reg.nr_memsize as usize;
            (libc::mmap(std::ptr::null_mut(), size, PROT_READ | PROT_WRITE, MAP_SHARED, (*d).fd, 0), size)
        } else {
            ((*extmem).nro_usrptr as *mut c_void, (*extmem).nro_info.nr_memsize as usize)
        };
        if mem == MAP_FAILED {
            nmctx_free(ctx, m.cast());
            return Err(crate::errno::last());
        }
        let next = (*ctx).mem_descs;
        let mem_id = (*d).reg.nr_mem_id;
        let is_extmem = c_int::from(!extmem.is_null());
        m.write(MemDesc { mem_id, refcount: 0, mem, size, is_extmem, next, prev: std::ptr::null_mut() });
        if !next.is_null() {
            (*next).prev = m;
        }
        (*ctx).mem_descs = m;
        Ok(m)
    }
}

/// Removes a port from its region's users. When the last user is removed, the region is unmapped.
///
/// # Safety
/// `d` has a region from [`acquire`].
pub unsafe fn release(d: *mut PortDesc) {
    // SAFETY: the caller's contract; the list is changed under its lock.
    unsafe {
        let ctx = (*d).ctx;
        let m = (*d).mem;
        nmctx_lock(ctx);
        (*m).refcount -= 1;
        if (*m).refcount <= 0 {
            if (*m).is_extmem == 0 {
                libc::munmap((*m).mem, (*m).size);
            }
            if (*m).prev.is_null() {
                (*ctx).mem_descs = (*m).next;
            } else {
                (*(*m).prev).next = (*m).next;
            }
            if !(*m).next.is_null() {
                (*(*m).next).prev = (*m).prev;
            }
            nmctx_free(ctx, m.cast());
        }
        nmctx_unlock(ctx);
        (*d).mem = std::ptr::null_mut();
    }
}
