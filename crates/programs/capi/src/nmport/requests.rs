//! `nmreq_*`: converts names into requests, and handles lists of options.
#![allow(unsafe_code)]

use std::ffi::CStr;

use libc::{c_char, c_int, c_void};
use netvale_abi::NETMAP_API;
use netvale_abi::ioctl::NIOCCTRL;
use netvale_abi::nmreq::{
    NETMAP_REQ_OPT_CSB, NETMAP_REQ_OPT_EXTMEM, NETMAP_REQ_OPT_OFFSETS, NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS,
    NETMAP_REQ_OPT_SYNC_KLOOP_MODE, NETMAP_REQ_PORT_INFO_GET, NmreqHeader, NmreqOption, NmreqPortInfoGet,
    NmreqRegister,
};
use netvale_portspec::{PortName, PortSpec};
use rustix::io::Errno;

use super::context::{fail, nmctx_free, nmctx_get, nmctx_malloc, report_error};
use super::structs::NmCtx;

/// Returns a C string as text; `None` if it is not UTF-8.
///
/// # Safety
/// `p` is a C string.
pub unsafe fn text<'a>(p: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's contract.
    if p.is_null() { None } else { unsafe { CStr::from_ptr(p) }.to_str().ok() }
}

/// Returns the length in bytes of the part of `mode` before the first option. This part has the rings, the region
/// number (`@` and digits) and the flags.
pub fn mode_len(mode: &str) -> usize {
    let option = |(at, _): &(usize, char)| !mode[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    mode.char_indices().filter(|(_, c)| *c == '@').find(option).map_or(mode.len(), |(at, _)| at)
}

/// Initialises a request's header with version, type and body.
///
/// # Safety
/// `header` points to memory for a header.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_header_init(header: *mut NmreqHeader, reqtype: u16, body: *mut c_void) {
    let new = NmreqHeader {
        nr_version: NETMAP_API as u16,
        nr_reqtype: reqtype,
        nr_body: body as u64,
        ..NmreqHeader::default()
    };
    // SAFETY: the caller's contract.
    unsafe { header.write(new) };
}

/// Parses a port's name at the start of a specification into the header, and advances `*spec` past the name. Returns 0,
/// or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_header_decode(
    spec: *mut *const c_char,
    header: *mut NmreqHeader,
    ctx: *mut NmCtx,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(all) = text(*spec) else { return fail(ctx, Errno::INVAL, "the port name is not UTF-8 text") };
        if !is_prefixed(all) {
            return fail(ctx, Errno::INVAL, &format!("{all}: expected netmap:NAME or SWITCH:NAME"));
        }
        match PortName::split_off(all) {
            Ok((parsed, rest)) => {
                (*header).nr_name = parsed.nr_name_field();
                *spec = (*spec).add(all.len() - rest.len());
                0
            }
            Err(e) => fail(ctx, Errno::INVAL, &e.to_string()),
        }
    }
}

/// Returns whether the name in a specification has a prefix (`netmap:` or a switch's name), which libnetmap requires.
pub fn is_prefixed(spec: &str) -> bool {
    spec.split(['@', '/']).next().is_some_and(|name| name.contains(':'))
}

/// Parses rings, region and flags, which follow a port's name, and advances `*mode` past them. Returns 0, or -1 on an
/// error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_register_decode(
    mode: *mut *const c_char,
    reg: *mut NmreqRegister,
    ctx: *mut NmCtx,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(all) = text(*mode) else { return fail(ctx, Errno::INVAL, "the mode is not UTF-8 text") };
        let part = &all[..mode_len(all)];
        // `p` is a placeholder for the port's name; only the part after the name is used.
        match PortSpec::parse(&format!("netmap:'p'{part}")) {
            Ok(parsed) => {
                let from = parsed.to_register();
                let r = &mut *reg;
                r.nr_mode = from.nr_mode;
                r.nr_ringid = from.nr_ringid;
                r.nr_flags = from.nr_flags;
                if part.contains('@') {
                    r.nr_mem_id = from.nr_mem_id;
                }
                *mode = (*mode).add(part.len());
                0
            }
            Err(e) => fail(ctx, Errno::INVAL, &e.to_string()),
        }
    }
}

/// Parses a port's name at the start of `*name`, and advances `*name` past it. Returns the number of the port's region,
/// or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_get_mem_id(name: *mut *const c_char, ctx: *mut NmCtx) -> i32 {
    let mut info = NmreqPortInfoGet::default();
    let mut header = NmreqHeader::default();
    // SAFETY: the caller's contract for name and context; header and body are local and live during the ioctl.
    unsafe {
        nmreq_header_init(&raw mut header, NETMAP_REQ_PORT_INFO_GET, (&raw mut info).cast());
        let mut rest = *name;
        if nmreq_header_decode(&raw mut rest, &raw mut header, ctx) < 0 {
            return -1;
        }
        let fd = libc::open(c"/dev/netmap".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            report_error(ctx, "cannot open /dev/netmap: 'netvale up' starts a daemon");
            return -1;
        }
        let done = libc::ioctl(fd, NIOCCTRL.into(), &raw mut header);
        let errno = crate::errno::get();
        libc::close(fd);
        let shown = text(*name).unwrap_or("the port");
        if done < 0 {
            return fail(ctx, crate::errno::from_raw(errno), &format!("{shown}: cannot determine its memory region"));
        }
        if info.nr_mem_id == 0 {
            return fail(ctx, Errno::NXIO, &format!("{shown} does not exist, so its memory region cannot be shared"));
        }
        *name = rest;
        info.nr_mem_id.into()
    }
}

/// Allocates an option from a context, and puts it at the front of a request's list. Returns null if the context has no
/// memory.
///
/// # Safety
/// `ctx` and `header` are valid; `T` begins with a [`NmreqOption`].
pub unsafe fn push_new<T>(ctx: *mut NmCtx, header: *mut NmreqHeader, option: T) -> *mut T {
    // SAFETY: the caller's contract; the option is written whole before it is linked in.
    unsafe {
        let at = nmctx_malloc(ctx, size_of::<T>()).cast::<T>();
        if !at.is_null() {
            at.write(option);
            nmreq_push_option(header, at.cast());
        }
        at
    }
}

/// Puts an option at the front of a request's list.
///
/// # Safety
/// `header` is valid, and `option` is valid for as long as it is in the request's list.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_push_option(header: *mut NmreqHeader, option: *mut NmreqOption) {
    // SAFETY: the caller's contract.
    unsafe {
        (*option).nro_next = (*header).nr_options;
        (*header).nr_options = option as u64;
    }
}

/// Removes an option from a request's list.
///
/// # Safety
/// The list's options are valid.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_remove_option(header: *mut NmreqHeader, option: *mut NmreqOption) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut link = &raw mut (*header).nr_options;
        while *link != 0 {
            if *link == option as u64 {
                *link = (*option).nro_next;
                (*option).nro_next = 0;
                return;
            }
            link = &raw mut (*(*link as *mut NmreqOption)).nro_next;
        }
    }
}

/// Returns the option of type `kind` in a request's list; null if there is no such option.
///
/// # Safety
/// The list's options are valid.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_find_option(header: *mut NmreqHeader, kind: u32) -> *mut NmreqOption {
    // SAFETY: the caller's contract.
    unsafe {
        let mut option = (*header).nr_options as *mut NmreqOption;
        while !option.is_null() && (*option).nro_reqtype != kind {
            option = (*option).nro_next as *mut NmreqOption;
        }
        option
    }
}

/// Frees all options of a request, and empties its list.
///
/// # Safety
/// The list's options were allocated from the current context.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_free_options(header: *mut NmreqHeader) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut option = (*header).nr_options as *mut NmreqOption;
        (*header).nr_options = 0;
        while !option.is_null() {
            let next = (*option).nro_next as *mut NmreqOption;
            nmctx_free(nmctx_get(), option.cast());
            option = next;
        }
    }
}

/// Returns the name of the option type `kind`.
// SAFETY: the name and type are those of libnetmap, which this library replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmreq_option_name(kind: u32) -> *const c_char {
    match kind {
        NETMAP_REQ_OPT_EXTMEM => c"extmem",
        NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS => c"sync-kloop-eventfds",
        NETMAP_REQ_OPT_CSB => c"csb",
        NETMAP_REQ_OPT_SYNC_KLOOP_MODE => c"sync-kloop-mode",
        NETMAP_REQ_OPT_OFFSETS => c"offsets",
        _ => c"unknown",
    }
    .as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a specification is split into name, mode and options at the same places as by libnetmap.
    #[test]
    fn a_specification_splits_as_in_libnetmap() {
        let parts = |spec: &str| {
            let (_, rest) = PortName::split_off(spec).unwrap();
            let name = spec.strip_suffix(rest).unwrap();
            let (mode, options) = rest.split_at(mode_len(rest));
            (name.to_owned(), mode.to_owned(), options.to_owned())
        };
        let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(parts("netmap:eth0-2/x"), own("netmap:eth0", "-2/x", ""));
        assert_eq!(parts("vale0:a{1@3/r@conf:rings=4"), own("vale0:a{1", "@3/r", "@conf:rings=4"));
        assert_eq!(parts("vale:b@share:vale0:a"), own("vale:b", "", "@share:vale0:a"));
        assert_eq!(parts("netmap:eth0*"), own("netmap:eth0", "*", ""));
        assert_eq!(parts("netmap:veth-a-2/x"), own("netmap:veth-a", "-2/x", ""));
        assert_eq!(parts("lan:'web-1'-0@conf:2"), own("lan:'web-1'", "-0", "@conf:2"));
    }
}
