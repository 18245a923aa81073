//! Sending frames.
#![allow(unsafe_code)]

use std::time::Duration;

use libc::{c_int, c_void, size_t};

use crate::handle::Handle;
use crate::{on_handle, sys};

/// How long a full ring is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Sends one frame. Returns its length.
///
/// # Safety
/// `frame` has `len` bytes.
unsafe fn inject(h: &Handle, frame: *const u8, len: usize) -> c_int {
    if len > usize::from(u16::MAX) || frame.is_null() {
        return h.fail(sys::ERROR, "a frame has at most 65535 bytes");
    }
    // SAFETY: a borrow that ends here.
    let Some(a) = (unsafe { h.active() }) else { return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated") };
    let ring = match a.tx() {
        Ok(Some(ring)) => ring,
        Ok(None) => return h.fail(sys::ERROR, "a monitor watches and cannot send"),
        Err(e) => return h.fail(sys::ERROR, &format!("send: {e}")),
    };
    // SAFETY: the caller's.
    let bytes = unsafe { std::slice::from_raw_parts(frame, len) };
    if ring.send_now(bytes, PATIENCE) {
        len as c_int
    } else {
        h.fail(sys::ERROR, "send: no room in the port's ring (Resource temporarily unavailable)")
    }
}

on_handle! {
    /// Sends a frame; returns its length.
    fn pcap_inject(p, h, frame: *const c_void, len: size_t) -> c_int = c"pcap_inject" {
        // SAFETY: the caller's.
        unsafe { inject(h, frame.cast(), len) }
    }
    /// Sends a frame; returns 0.
    fn pcap_sendpacket(p, h, frame: *const u8, len: c_int) -> c_int = c"pcap_sendpacket" {
        let Ok(len) = usize::try_from(len) else { return h.fail(sys::ERROR, "a negative length") };
        // SAFETY: the caller's.
        if unsafe { inject(h, frame, len) } < 0 { sys::ERROR } else { 0 }
    }
}
