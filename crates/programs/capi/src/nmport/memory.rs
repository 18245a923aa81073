//! extmem: a port's region in the program's own memory.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;

use libc::{MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, c_char, c_int, c_void, size_t};
use netvale_abi::nmreq::{NETMAP_REQ_OPT_EXTMEM, NmreqOptExtmem, NmreqOption, NmreqPoolsInfo};
use netvale_mem::layout::DEFAULT_BUF_SIZE;
use netvale_portspec::Extmem;
use rustix::io::Errno;

use super::context::{fail, nmctx_free};
use super::requests::{nmreq_remove_option, push_new, text};
use super::structs::PortDesc;

/// Requests that a port's region be placed in the `size` bytes at `base`. The numbers and sizes of the region's objects
/// can then be changed through [`nmport_extmem_getinfo`]. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_extmem(d: *mut PortDesc, base: *mut c_void, size: size_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let ctx = (*d).ctx;
        if (*d).register_done != 0 {
            return fail(ctx, Errno::INVAL, "extmem: the port is already registered");
        }
        if !(*d).extmem.is_null() {
            return fail(ctx, Errno::INVAL, "extmem: the option is already set");
        }
        let option = NmreqOptExtmem {
            nro_opt: NmreqOption { nro_reqtype: NETMAP_REQ_OPT_EXTMEM, ..NmreqOption::default() },
            nro_usrptr: base as u64,
            nro_info: defaults(size as u64),
        };
        (*d).extmem = push_new(ctx, &raw mut (*d).hdr, option);
        if (*d).extmem.is_null() { fail(ctx, Errno::NOMEM, "extmem: out of memory") } else { 0 }
    }
}

/// Returns netmap's default numbers and sizes of objects, and as many buffers as fit into the rest of the memory.
fn defaults(size: u64) -> NmreqPoolsInfo {
    let ifs = 2u32;
    let if_size = 1024u32;
    let rings = 4u32;
    let ring_size = 5 * 4096u32;
    let fixed = u64::from(ifs * if_size + rings * ring_size) + 4096;
    let bufs = size.saturating_sub(fixed) / u64::from(DEFAULT_BUF_SIZE);
    NmreqPoolsInfo {
        nr_memsize: size,
        nr_if_pool_objtotal: ifs,
        nr_if_pool_objsize: if_size,
        nr_ring_pool_objtotal: rings,
        nr_ring_pool_objsize: ring_size,
        nr_buf_pool_objtotal: u32::try_from(bufs).unwrap_or(u32::MAX),
        nr_buf_pool_objsize: DEFAULT_BUF_SIZE,
        ..NmreqPoolsInfo::default()
    }
}

/// Maps a file, and requests that a port's region be placed in the file. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_extmem_from_file(d: *mut PortDesc, name: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let ctx = (*d).ctx;
        let Some(path) = text(name) else { return fail(ctx, Errno::INVAL, "extmem: the file name is not UTF-8") };
        match map_file(Path::new(path)) {
            Ok((base, size)) => {
                if nmport_extmem(d, base, size) < 0 {
                    libc::munmap(base, size);
                    return -1;
                }
                (*d).private.file = (base, size);
                0
            }
            Err(e) => {
                let errno = e.raw_os_error().map_or(Errno::IO, crate::errno::from_raw);
                fail(ctx, errno, &format!("extmem: {path}: {e}"))
            }
        }
    }
}

fn map_file(path: &Path) -> std::io::Result<(*mut c_void, size_t)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let size = usize::try_from(file.metadata()?.len()).map_err(|_| std::io::Error::from(Errno::FBIG))?;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), size, PROT_READ | PROT_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
    if base == MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok((base, size)) }
}

/// Returns the description of the pools in a port's extmem option: numbers and sizes of objects, which the program may
/// change. Returns null if the port has no such option.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_extmem_getinfo(d: *mut PortDesc) -> *mut NmreqPoolsInfo {
    // SAFETY: the caller's contract.
    unsafe {
        let extmem = (*d).extmem;
        if extmem.is_null() { std::ptr::null_mut() } else { &raw mut (*extmem).nro_info }
    }
}

/// Applies the `@extmem:` option of a specification. Returns 0, or -1 on an error.
///
/// # Safety
/// `d` is a port that is not registered.
pub unsafe fn from_spec(d: *mut PortDesc, extmem: &Extmem) -> c_int {
    let Ok(name) = std::ffi::CString::new(extmem.file.as_str()) else { return crate::errno::fail(Errno::INVAL) };
    // SAFETY: the caller's contract.
    unsafe {
        if nmport_extmem_from_file(d, name.as_ptr()) < 0 {
            return -1;
        }
        let info = &mut *nmport_extmem_getinfo(d);
        for (asked, into) in [
            (extmem.if_num, &mut info.nr_if_pool_objtotal),
            (extmem.if_size, &mut info.nr_if_pool_objsize),
            (extmem.ring_num, &mut info.nr_ring_pool_objtotal),
            (extmem.ring_size, &mut info.nr_ring_pool_objsize),
            (extmem.buf_num, &mut info.nr_buf_pool_objtotal),
            (extmem.buf_size, &mut info.nr_buf_pool_objsize),
        ] {
            if asked != 0 {
                *into = asked;
            }
        }
    }
    0
}

/// Removes the extmem option from a port.
///
/// # Safety
/// `d` is a port that is not registered.
pub unsafe fn undo(d: *mut PortDesc) {
    // SAFETY: the caller's contract; the option was allocated from the port's context, and the file's mapping came from
    // `map_file`.
    unsafe {
        let extmem = (*d).extmem;
        if !extmem.is_null() {
            nmreq_remove_option(&raw mut (*d).hdr, extmem.cast());
            nmctx_free((*d).ctx, extmem.cast());
            (*d).extmem = std::ptr::null_mut();
        }
        let (base, size) = std::mem::replace(&mut (*d).private.file, (std::ptr::null_mut(), 0));
        if !base.is_null() {
            libc::munmap(base, size);
        }
    }
}
