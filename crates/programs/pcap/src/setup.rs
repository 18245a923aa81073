//! Functions that set a handle's options (before activation), filter and modes.
#![allow(unsafe_code)]

use libc::{c_char, c_int};
use netvale_portspec::Directions;

use crate::handle::Handle;
use crate::sys::{self, BpfProgram};
use crate::{filter, on_handle, text};

/// Sets an option with `set`, or returns an error if the handle is already activated.
fn before(h: &Handle, set: impl FnOnce()) -> c_int {
    if h.is_active() {
        return h.fail(sys::ERROR_ACTIVATED, "can't perform operation on activated capture");
    }
    set();
    0
}

/// Returns `value` if the handle is activated, otherwise an error.
fn after(h: &Handle, value: c_int) -> c_int {
    if h.is_active() { value } else { h.fail(sys::ERROR_NOT_ACTIVATED, "not activated") }
}

on_handle! {
    /// Sets the snapshot length, the maximum number of captured bytes per frame.
    fn pcap_set_snaplen(p, h, snaplen: c_int) -> c_int = c"pcap_set_snaplen" { before(h, || h.snaplen.set(snaplen)) }
    /// Has no effect: a port receives all frames that the switch sends to it.
    fn pcap_set_promisc(p, h, _on: c_int) -> c_int = c"pcap_set_promisc" { before(h, || ()) }
    /// Returns 0, which means that monitor mode is not possible: a port has no radio.
    fn pcap_can_set_rfmon(p, h) -> c_int = c"pcap_can_set_rfmon" { before(h, || ()) }
    /// Has no effect: a port has no radio.
    fn pcap_set_rfmon(p, h, _on: c_int) -> c_int = c"pcap_set_rfmon" { before(h, || ()) }
    /// Sets the maximum wait of a read, in milliseconds.
    fn pcap_set_timeout(p, h, ms: c_int) -> c_int = c"pcap_set_timeout" { before(h, || h.timeout.set(ms)) }
    /// Has no effect: a handle always reports frames immediately.
    fn pcap_set_immediate_mode(p, h, _on: c_int) -> c_int = c"pcap_set_immediate_mode" { before(h, || ()) }
    /// Has no effect: a handle has no capture buffer, since frames stay in the port's rings.
    fn pcap_set_buffer_size(p, h, _bytes: c_int) -> c_int = c"pcap_set_buffer_size" { before(h, || ()) }
    /// Has no effect: a handle captures frames of all protocols.
    fn pcap_set_protocol_linux(p, h, _protocol: c_int) -> c_int = c"pcap_set_protocol_linux" { before(h, || ()) }
    /// Accepts time stamps by the host's clock. Returns a warning for any other type of time stamp.
    fn pcap_set_tstamp_type(p, h, kind: c_int) -> c_int = c"pcap_set_tstamp_type" {
        const WARNING_NOT_SUPPORTED: c_int = 3;
        let done = before(h, || ());
        if done == 0 && kind != sys::TSTAMP_HOST { WARNING_NOT_SUPPORTED } else { done }
    }
    /// Sets the precision of time stamps: microseconds or nanoseconds.
    fn pcap_set_tstamp_precision(p, h, precision: c_int) -> c_int = c"pcap_set_tstamp_precision" {
        const NOT_SUPPORTED: c_int = -12;
        match precision {
            sys::PRECISION_MICRO | sys::PRECISION_NANO => before(h, || h.nano.set(precision == sys::PRECISION_NANO)),
            _ => NOT_SUPPORTED,
        }
    }
    /// Returns the precision of time stamps.
    fn pcap_get_tstamp_precision(p, h) -> c_int = c"pcap_get_tstamp_precision" {
        if h.nano.get() { sys::PRECISION_NANO } else { sys::PRECISION_MICRO }
    }
    /// Stores an empty list, since the only type of time stamp is the default.
    fn pcap_list_tstamp_types(p, _h, list: *mut *mut c_int) -> c_int = c"pcap_list_tstamp_types" {
        // SAFETY: the caller guarantees that `list` is valid.
        unsafe { *list = std::ptr::null_mut() };
        0
    }

    /// Sets whether reads and sends return immediately if they would have to wait.
    fn pcap_setnonblock(p, h, on: c_int, _errbuf: *mut c_char) -> c_int = c"pcap_setnonblock" {
        h.nonblock.set(on != 0);
        0
    }
    /// Returns 1 if reads and sends do not wait, otherwise 0.
    fn pcap_getnonblock(p, h, _errbuf: *mut c_char) -> c_int = c"pcap_getnonblock" {
        after(h, h.nonblock.get().into())
    }
    /// Sets the direction of captured frames. A handle of a port captures received frames; a handle of a monitor
    /// captures frames of the directions that the monitor watches. Any other choice is an error.
    fn pcap_setdirection(p, h, direction: c_int) -> c_int = c"pcap_setdirection" {
        const INOUT: c_int = 0;
        const IN: c_int = 1;
        const OUT: c_int = 2;
        match (direction, filter::ways(&h.name)) {
            (INOUT, _) | (IN, Directions::Rx) | (OUT, Directions::Tx) => after(h, 0),
            (IN | OUT, Directions::Both) => h.fail(sys::ERROR, filter::UNKNOWN),
            (OUT, _) => h.fail(sys::ERROR, "a port captures received frames; open NAME/t for sent frames"),
            (IN, _) => h.fail(sys::ERROR, "NAME/t captures sent frames; open NAME/r for received frames"),
            _ => h.fail(sys::ERROR, "invalid direction"),
        }
    }
    /// Compiles a filter expression.
    fn pcap_compile(
        p, h, program: *mut BpfProgram, filter: *const c_char, optimize: c_int, mask: u32
    ) -> c_int = c"pcap_compile" {
        if !h.is_active() {
            return h.fail(sys::ERROR, "not-yet-activated pcap_t passed to pcap_compile");
        }
        let dead = h.dead.get();
        // SAFETY: the system's function gets a handle of the system's libpcap, and leaves its error text in that
        // handle.
        unsafe {
            let done = sys::compile(dead, program, filter, optimize, mask);
            if done == 0 {
                0
            } else {
                h.fail(done, text(sys::geterr(dead)).unwrap_or("syntax error in filter expression"))
            }
        }
    }
    /// Sets the filter that frames must pass.
    fn pcap_setfilter(p, h, program: *mut BpfProgram) -> c_int = c"pcap_setfilter" {
        if !h.is_active() {
            return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated");
        }
        // SAFETY: the caller guarantees that the program has `len` instructions at `insns`. The instructions are copied
        // before they are validated.
        unsafe {
            if program.is_null() || (*program).insns.is_null() {
                return h.fail(sys::ERROR, "no filter specified");
            }
            let mut insns = std::slice::from_raw_parts((*program).insns, (*program).len as usize).to_vec();
            if let Err(why) = filter::settle(&mut insns, filter::ways(&h.name)) {
                return h.fail(sys::ERROR, why);
            }
            match c_int::try_from(insns.len()) {
                Ok(n) if sys::bpf_validate(insns.as_ptr(), n) != 0 => {
                    *h.filter.get() = insns;
                    0
                }
                _ => h.fail(sys::ERROR, "BPF program is not valid"),
            }
        }
    }
}
