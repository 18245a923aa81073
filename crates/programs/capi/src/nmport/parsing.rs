//! `nmport_parse`: converts a name into a request.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_char, c_int};
use netvale_abi::nmreq::{NETMAP_REQ_OPT_OFFSETS, NmreqOptOffsets, NmreqOption, NmreqRegister};
use netvale_portspec::{Memory, PortSpec};
use rustix::io::Errno;

use super::context::{fail, nmctx_free};
use super::memory;
use super::requests::{is_prefixed, nmreq_get_mem_id, nmreq_remove_option, push_new, text};
use super::structs::PortDesc;

/// Disabled options, one bit each, in the order of [`OPTION_NAMES`]. `offset` is disabled until a program declares with
/// [`nmport_enable_option`] that it supports offsets.
static DISABLED: AtomicU32 = AtomicU32::new(1 << OFFSET);
const OPTION_NAMES: [&str; 4] = ["share", "extmem", "conf", "offset"];
const OFFSET: u32 = 3;

fn option_bit(name: *const c_char) -> Option<u32> {
    // SAFETY: a C string, by the contract of the two callers.
    let name = unsafe { text(name) }?;
    OPTION_NAMES.iter().position(|n| *n == name).map(|i| 1 << i)
}

/// Disables an option: specifications that contain it are refused.
///
/// # Safety
/// `name` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_disable_option(name: *const c_char) {
    if let Some(bit) = option_bit(name) {
        DISABLED.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Enables an option: specifications may contain it. Returns 0, or -1 for an unknown option.
///
/// # Safety
/// `name` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_enable_option(name: *const c_char) -> c_int {
    match option_bit(name) {
        Some(bit) => {
            DISABLED.fetch_and(!bit, Ordering::Relaxed);
            0
        }
        None => crate::errno::fail(Errno::OPNOTSUPP),
    }
}

/// Fills a port's request from a specification. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_parse(d: *mut PortDesc, spec: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let ctx = (*d).ctx;
        let Some(all) = text(spec) else { return fail(ctx, Errno::INVAL, "the port name is not UTF-8 text") };
        if !is_prefixed(all) {
            return fail(ctx, Errno::INVAL, &format!("{all}: expected netmap:NAME or SWITCH:NAME"));
        }
        let parsed = match PortSpec::parse(all) {
            Ok(parsed) => parsed,
            Err(e) => return fail(ctx, Errno::INVAL, &e.to_string()),
        };
        if let Some(name) = disabled(&parsed) {
            return fail(ctx, Errno::OPNOTSUPP, &format!("{all}: option {name} is disabled"));
        }
        fill(d, &parsed)
    }
}

/// Returns the specification's first option that is disabled; `None` if it has no such option.
fn disabled(spec: &PortSpec) -> Option<&'static str> {
    let used = [
        matches!(spec.memory, Memory::SharedWith(_)),
        matches!(spec.memory, Memory::External(_)),
        spec.conf != Default::default(),
        spec.offset.is_some(),
    ];
    let off = DISABLED.load(Ordering::Relaxed);
    (0..OPTION_NAMES.len()).find(|i| used[*i] && off & (1 << i) != 0).map(|i| OPTION_NAMES[i])
}

/// # Safety
/// `d` is a port that is not registered.
unsafe fn fill(d: *mut PortDesc, spec: &PortSpec) -> c_int {
    let mut reg = spec.to_register();
    // SAFETY: the caller's contract; C strings live during the calls to which they are passed.
    unsafe {
        if let Memory::SharedWith(name) = &spec.memory {
            // The conversion to a specification quotes a name that would otherwise be read as another name and a ring
            // number.
            let spec = PortSpec::from(name.clone()).to_string();
            let Ok(name) = std::ffi::CString::new(spec) else { return crate::errno::fail(Errno::INVAL) };
            let mut at = name.as_ptr();
            match u16::try_from(nmreq_get_mem_id(&raw mut at, (*d).ctx)) {
                Ok(id) => reg.nr_mem_id = id,
                Err(_) => return -1,
            }
        }
        if let Memory::External(extmem) = &spec.memory
            && memory::from_spec(d, extmem) < 0
        {
            return -1;
        }
        if let Some(o) = spec.offset {
            let bits = o.bits.map_or(0, |b| u64::from(b.get()));
            if nmport_offset(d, o.initial, o.initial, bits, 0) < 0 {
                memory::undo(d);
                return -1;
            }
        }
        (*d).hdr.nr_name = spec.name.nr_name_field();
        (*d).reg = reg;
        (*d).private.parsed = true;
    }
    0
}

/// Undoes [`nmport_parse`].
///
/// # Safety
/// `d` is a port that is not registered.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_parse(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        memory::undo(d);
        let offsets = (*d).private.offsets;
        if !offsets.is_null() {
            nmreq_remove_option(&raw mut (*d).hdr, offsets.cast());
            nmctx_free((*d).ctx, offsets.cast());
            (*d).private.offsets = std::ptr::null_mut();
        }
        (*d).hdr.nr_name = [0; 64];
        (*d).reg = NmreqRegister::default();
        (*d).private.parsed = false;
    }
}

/// Requests that frames begin at an offset in their buffers, which is initially `initial` bytes and at most `most`
/// bytes. Returns 0, or -1 on an error.
///
/// # Safety
/// `d` is a port that is not registered.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_offset(d: *mut PortDesc, initial: u64, most: u64, bits: u64, gap: u64) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let ctx = (*d).ctx;
        let option = NmreqOptOffsets {
            nro_opt: NmreqOption { nro_reqtype: NETMAP_REQ_OPT_OFFSETS, ..NmreqOption::default() },
            nro_max_offset: most,
            nro_initial_offset: initial,
            nro_offset_bits: u32::try_from(bits).unwrap_or(u32::MAX),
            nro_tx_align: 0,
            nro_min_gap: gap,
        };
        let option = push_new(ctx, &raw mut (*d).hdr, option);
        if option.is_null() {
            return fail(ctx, Errno::NOMEM, "offsets: out of memory");
        }
        (*d).private.offsets = option;
        0
    }
}
