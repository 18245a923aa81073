//! bind, setsockopt, send, write and related functions on packet sockets; interfaces by name and index.
#![allow(unsafe_code)]

use std::ffi::CStr;

use libc::{
    AF_PACKET, PACKET_RX_RING, PACKET_TX_RING, SOL_PACKET, c_char, c_int, c_uint, c_void, iovec, mmsghdr, msghdr,
    size_t, sockaddr, sockaddr_ll, socklen_t, ssize_t,
};
use rustix::io::Errno;

use crate::packet::{self, ifreq, socket};
use crate::{errno, real, table};

/// Returns the interface index in a packet socket's address; `None` if `addr` is not an `AF_PACKET` address.
///
/// # Safety
/// `addr` is null or readable for `len` bytes.
unsafe fn index_in(addr: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let enough = len as usize >= std::mem::offset_of!(sockaddr_ll, sll_hatype);
    // SAFETY: `addr` is long enough for the fields read here, and the reads do not depend on its alignment.
    unsafe {
        let family =
            !addr.is_null() && enough && c_int::from((&raw const (*addr).sa_family).read_unaligned()) == AF_PACKET;
        family.then(|| (&raw const (*addr.cast::<sockaddr_ll>()).sll_ifindex).read_unaligned())
    }
}

/// Returns the program's bytes as a slice, which is empty if `at` is null.
///
/// # Safety
/// `at` is null, or readable for `len` bytes during the call.
unsafe fn bytes<'a>(at: *const c_void, len: size_t) -> &'a [u8] {
    // SAFETY: the caller's contract.
    if at.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(at.cast(), len) } }
}

/// Returns the concatenated pieces of a frame.
///
/// # Safety
/// The conditions of writev(2).
unsafe fn gathered(parts: *const iovec, count: usize) -> Vec<u8> {
    // SAFETY: the caller's contract.
    let parts = if parts.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(parts, count.min(1024)) } };
    // SAFETY: the caller's contract.
    parts.iter().flat_map(|p| unsafe { bytes(p.iov_base, p.iov_len) }).copied().collect()
}

fn sent(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(n) => n as ssize_t,
        Err(e) => errno::fail(e) as ssize_t,
    }
}

/// Returns the destination of a send on `fd`: `Some(Some(index))` for the port with that index, `Some(None)` for the
/// port to which `fd` is bound, `None` if the kernel must handle the send.
fn to_port(fd: c_int, index: Option<c_int>) -> Option<Option<c_int>> {
    match index {
        Some(i) if packet::port_at(i).is_some() => Some(Some(i)),
        Some(0) | None if socket::is_bound(fd) => Some(None),
        _ => None,
    }
}

/// bind(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    if table::holds(fd) {
        return errno::fail(Errno::NOTSOCK);
    }
    // SAFETY: the program's arguments, by the C function's contract.
    let index = unsafe { index_in(addr, len) };
    if let Some(done) = index.zip(crate::borrow(fd)).and_then(|(index, socket)| socket::bind(socket, fd, index)) {
        return errno::done(done);
    }
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { real::bind(fd, addr, len) }
}

/// setsockopt(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if table::holds(fd) {
        return errno::fail(Errno::NOTSOCK);
    }
    let is_ring = level == SOL_PACKET && matches!(name, PACKET_RX_RING | PACKET_TX_RING);
    if is_ring && socket::is_bound(fd) {
        return errno::fail(socket::no_rings());
    }
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe { real::setsockopt(fd, level, name, value, len) }
}

/// send(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe {
        match to_port(fd, None) {
            _ if table::holds(fd) => sent(Err(Errno::NOTSOCK)),
            Some(index) => sent(socket::send(fd, index, bytes(at, len), flags)),
            None => real::send(fd, at, len, flags),
        }
    }
}

/// sendto(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe {
        match to_port(fd, index_in(addr, addr_len)) {
            _ if table::holds(fd) => sent(Err(Errno::NOTSOCK)),
            Some(index) => sent(socket::send(fd, index, bytes(at, len), flags)),
            None => real::sendto(fd, at, len, flags, addr, addr_len),
        }
    }
}

/// sendmsg(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe {
        if table::holds(fd) {
            return sent(Err(Errno::NOTSOCK));
        }
        if !message.is_null() && may_be_ours(fd) {
            let m = &*message;
            if let Some(index) = to_port(fd, index_in(m.msg_name.cast(), m.msg_namelen)) {
                return sent(socket::send(fd, index, &gathered(m.msg_iov, m.msg_iovlen), flags));
            }
        }
        real::sendmsg(fd, message, flags)
    }
}

/// sendmmsg(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if table::holds(fd) {
        return errno::fail(Errno::NOTSOCK);
    }
    if !may_be_ours(fd) || messages.is_null() {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    for k in 0..count {
        // SAFETY: the program passed `count` messages.
        unsafe {
            let m = messages.add(k as usize);
            let n = sendmsg(fd, &raw const (*m).msg_hdr, flags);
            let Ok(n) = c_uint::try_from(n) else {
                // If earlier messages were sent, their number is the result, as in the kernel.
                return if k == 0 { -1 } else { k.cast_signed() };
            };
            (*m).msg_len = n;
        }
    }
    count.cast_signed()
}

/// Returns whether a message sent on `fd` may be for a port. If false, the message need not be inspected.
fn may_be_ours(fd: c_int) -> bool {
    socket::is_bound(fd) || packet::any()
}

/// write(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe {
        if table::holds(fd) {
            sent(Err(Errno::INVAL))
        } else if socket::is_bound(fd) {
            sent(socket::send(fd, None, bytes(at, len), 0))
        } else {
            real::write(fd, at, len)
        }
    }
}

/// writev(2).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's arguments, by the C function's contract.
    unsafe {
        if table::holds(fd) {
            sent(Err(Errno::INVAL))
        } else if socket::is_bound(fd) {
            sent(socket::send(fd, None, &gathered(parts, usize::try_from(count).unwrap_or(0)), 0))
        } else {
            real::writev(fd, parts, count)
        }
    }
}

/// if_nametoindex(3).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the program passed a C string.
    let ours = if name.is_null() { None } else { unsafe { CStr::from_ptr(name) }.to_str().ok() };
    match ours.and_then(packet::index_of) {
        Some(index) => index.cast_unsigned(),
        // SAFETY: the program's arguments, by the C function's contract.
        None => unsafe { real::if_nametoindex(name) },
    }
}

/// if_indextoname(3).
///
/// # Safety
/// The conditions of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn if_indextoname(index: c_uint, into: *mut c_char) -> *mut c_char {
    let Some((name, _)) = packet::port_at(index.cast_signed()) else {
        // SAFETY: the program's arguments, by the C function's contract.
        return unsafe { real::if_indextoname(index, into) };
    };
    let name = ifreq::padded(&name);
    // SAFETY: the program's buffer has IF_NAMESIZE bytes.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), into.cast(), name.len()) };
    into
}
