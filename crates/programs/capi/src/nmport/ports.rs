//! `nmport_*`: opens a port by name.
#![allow(unsafe_code)]

use libc::{c_char, c_int};
use netvale_abi::ioctl::NIOCCTRL;
use netvale_abi::nmreq::{NETMAP_REQ_REGISTER, NmreqOption};
use rustix::io::Errno;

use super::context::{fail, nmctx_free, nmctx_get, nmctx_malloc, report_error};
use super::parsing::{nmport_parse, nmport_undo_parse};
use super::requests::{nmreq_header_init, nmreq_option_name, text};
use super::rings::{nmport_mmap, nmport_undo_mmap};
use super::structs::{NmCtx, PortDesc};

/// Creates an empty port.
// SAFETY: the name and type are those of libnetmap, which this library replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmport_new() -> *mut PortDesc {
    // SAFETY: the current context is valid.
    unsafe { new_with(nmctx_get()) }
}

/// # Safety
/// `ctx` is a valid context.
unsafe fn new_with(ctx: *mut NmCtx) -> *mut PortDesc {
    // SAFETY: the caller's contract; zeros are valid values of all fields, and the request's header points to the body
    // in the same port.
    unsafe {
        let d = nmctx_malloc(ctx, size_of::<PortDesc>()).cast::<PortDesc>();
        if d.is_null() {
            fail(ctx, Errno::NOMEM, "cannot allocate a port");
            return d;
        }
        d.write_bytes(0, 1);
        nmreq_header_init(&raw mut (*d).hdr, NETMAP_REQ_REGISTER, (&raw mut (*d).reg).cast());
        (*d).ctx = ctx;
        (*d).fd = -1;
        d
    }
}

/// Frees the memory of a port.
///
/// # Safety
/// `d` is null or a port, which is not used afterwards.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_delete(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        if !d.is_null() {
            nmctx_free((*d).ctx, d.cast());
        }
    }
}

/// Opens `/dev/netmap` and registers the port. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_register(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let ctx = (*d).ctx;
        let name = String::from_utf8_lossy(netvale_abi::name::get(&(*d).hdr.nr_name)).into_owned();
        if (*d).register_done != 0 {
            return fail(ctx, Errno::INVAL, &format!("{name}: already registered"));
        }
        (*d).fd = libc::open(c"/dev/netmap".as_ptr(), libc::O_RDWR);
        if (*d).fd < 0 {
            report_error(ctx, "cannot open /dev/netmap: 'netvale up' starts a daemon");
            return -1;
        }
        let before = (*d).reg;
        if libc::ioctl((*d).fd, NIOCCTRL.into(), &raw mut (*d).hdr) < 0 {
            let errno = crate::errno::last();
            (*d).reg = before;
            report_options(d);
            libc::close((*d).fd);
            (*d).fd = -1;
            let text = format!("{name}: {}", std::io::Error::from(errno));
            return crate::told::keep(|| fail(ctx, errno, &text));
        }
        (*d).register_done = 1;
        0
    }
}

/// Reports those options of a port's request that have an error status.
///
/// # Safety
/// `d` is a port; the options of its request are valid.
unsafe fn report_options(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut option = (*d).hdr.nr_options as *const NmreqOption;
        while !option.is_null() {
            let status = (*option).nro_status as i32;
            if status != 0 {
                let name = text(nmreq_option_name((*option).nro_reqtype)).unwrap_or("unknown");
                let why = std::io::Error::from_raw_os_error(status);
                report_error((*d).ctx, &format!("option {name}: {why}"));
            }
            option = (*option).nro_next as *const NmreqOption;
        }
    }
}

/// Undoes [`nmport_register`].
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_register(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        if (*d).fd >= 0 {
            libc::close((*d).fd);
        }
        ((*d).fd, (*d).register_done) = (-1, 0);
    }
}

/// Calls [`nmport_new`], then [`nmport_parse`]. Returns the port; null on an error.
///
/// # Safety
/// `spec` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_prepare(spec: *const c_char) -> *mut PortDesc {
    // SAFETY: the caller's contract.
    unsafe {
        let d = nmport_new();
        if !d.is_null() && nmport_parse(d, spec) < 0 {
            nmport_delete(d);
            return std::ptr::null_mut();
        }
        d
    }
}

/// Undoes [`nmport_prepare`].
///
/// # Safety
/// `d` is a port, which is not used afterwards.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_prepare(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        nmport_undo_parse(d);
        nmport_delete(d);
    }
}

/// Calls [`nmport_register`], then [`nmport_mmap`]. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions of these two functions.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_open_desc(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if nmport_register(d) < 0 {
            return -1;
        }
        if nmport_mmap(d) < 0 {
            let errno = crate::errno::get();
            nmport_undo_register(d);
            crate::errno::set(errno);
            return -1;
        }
        0
    }
}

/// Undoes [`nmport_open_desc`].
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_open_desc(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        nmport_undo_mmap(d);
        nmport_undo_register(d);
    }
}

/// Opens a port by its specification. Returns the port; null on an error.
///
/// # Safety
/// `spec` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_open(spec: *const c_char) -> *mut PortDesc {
    // SAFETY: the caller's contract.
    unsafe {
        let d = nmport_prepare(spec);
        if !d.is_null() && nmport_open_desc(d) < 0 {
            let errno = crate::errno::get();
            nmport_undo_prepare(d);
            crate::errno::set(errno);
            return std::ptr::null_mut();
        }
        d
    }
}

/// Closes a port.
///
/// # Safety
/// `d` is null or a port, which is not used afterwards.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_close(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        if !d.is_null() {
            nmport_undo_open_desc(d);
            nmport_undo_prepare(d);
        }
    }
}

/// Creates a port with a copy of the request of port `d`, but without the request's options. If `d` is registered, the
/// copy requests the region of `d`.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_clone(d: *mut PortDesc) -> *mut PortDesc {
    // SAFETY: the caller's contract.
    unsafe {
        if !(*d).extmem.is_null() && (*d).register_done == 0 {
            fail((*d).ctx, Errno::INVAL, "a port with extmem must be registered before being cloned");
            return std::ptr::null_mut();
        }
        let copy = new_with((*d).ctx);
        if !copy.is_null() {
            (*copy).hdr.nr_name = (*d).hdr.nr_name;
            (*copy).reg = (*d).reg;
            (*copy).private.parsed = true;
        }
        copy
    }
}
