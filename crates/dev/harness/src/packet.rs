//! Packet sockets, which send and receive an interface's frames past the network stack.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Opens a non-blocking packet socket on an interface in the calling thread's network namespace. If `hears` is false,
/// the socket only sends. `prepare` runs before frames can arrive.
///
/// # Errors
/// The interface does not exist, this user may not open packet sockets, or `prepare` fails.
pub fn open(
    interface: &str,
    hears: bool,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    prepare(socket.as_fd())?;
    // SAFETY: a structure of integers and an array of integers, for which all zeros are a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = if hears { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
    address.sll_ifindex = name_to_index(&socket, interface)?.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads an address of the given size, which exists until the call returns.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an integer option of a socket (setsockopt(2)).
///
/// # Errors
/// The kernel does not support the option, or this user may not set it.
pub fn set_option(socket: impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads an integer of the given size, which exists until the call returns.
    match unsafe { libc::setsockopt(socket, level, option, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
