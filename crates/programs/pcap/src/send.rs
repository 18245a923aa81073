//! Sending frames.
#![allow(unsafe_code)]

use std::time::Duration;

use libc::{c_int, c_void, size_t};
use netvale::SendError;
use rustix::io::Errno;

use crate::handle::{Handle, put_text};
use crate::{on_handle, sys};

/// Maximum time for which a send waits for room in a full ring. A switch empties a ring within this time, but the
/// program at a pipe's other end may never read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reports an error as the system's libpcap does: sets `errno` and the handle's error text. Returns the error code.
fn refused(h: &Handle, e: Errno) -> c_int {
    let mut text = [0; sys::ERRBUF_SIZE];
    // SAFETY: the buffer has the stated length, and errno belongs to this thread.
    unsafe {
        libc::strerror_r(e.raw_os_error(), text.as_mut_ptr(), text.len());
        let why = crate::text(text.as_ptr()).unwrap_or("");
        put_text(h.errbuf(), &format!("send: {why}"));
        *libc::__errno_location() = e.raw_os_error();
    }
    sys::ERROR
}

/// Sends one frame. Returns its length, or an error.
///
/// # Safety
/// `frame` has `len` bytes.
unsafe fn inject(h: &Handle, frame: *const u8, len: usize) -> c_int {
    // SAFETY: the borrow ends within this function.
    let Some(a) = (unsafe { h.active() }) else { return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated") };
    if frame.is_null() {
        return refused(h, Errno::FAULT);
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { std::slice::from_raw_parts(frame, len) };
    let mut sent = a.sender.send(bytes, Duration::ZERO);
    if matches!(sent, Err(SendError::NoRoom)) && !h.nonblock.get() && !a.is_nonblocking() {
        sent = a.sender.send(bytes, PATIENCE);
        if matches!(sent, Err(SendError::NoRoom)) {
            return refused(h, Errno::NOBUFS);
        }
    }
    match sent {
        Ok(()) => len as c_int,
        Err(e) => {
            let code = refused(h, e.errno());
            match e {
                SendError::ReceiveOnly => h.fail(code, "a monitor port cannot send"),
                SendError::Open(e) => h.fail(code, &format!("send: {e}")),
                _ => code,
            }
        }
    }
}

on_handle! {
    /// Sends a frame. Returns its length, or an error.
    fn pcap_inject(p, h, frame: *const c_void, len: size_t) -> c_int = c"pcap_inject" {
        // SAFETY: the caller's contract.
        unsafe { inject(h, frame.cast(), len) }
    }
    /// Sends a frame. Returns 0, or an error.
    fn pcap_sendpacket(p, h, frame: *const u8, len: c_int) -> c_int = c"pcap_sendpacket" {
        let Ok(len) = usize::try_from(len) else { return refused(h, Errno::INVAL) };
        // SAFETY: the caller's contract.
        if unsafe { inject(h, frame, len) } < 0 { sys::ERROR } else { 0 }
    }
}
