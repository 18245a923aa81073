//! The ioctls of /dev/net/tun and of interfaces.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

const TUNSETSTEERINGEBPF: libc::Ioctl = 0x8004_54e0u32 as libc::Ioctl;

/// The requests that are made here, for system call filters.
pub const IOCTLS: [u32; 8] = [
    libc::TUNSETIFF as u32,
    libc::TUNSETVNETHDRSZ as u32,
    libc::TUNSETOFFLOAD as u32,
    libc::TUNSETSNDBUF as u32,
    TUNSETSTEERINGEBPF as u32,
    libc::SIOCSIFMTU as u32,
    libc::SIOCGIFFLAGS as u32,
    libc::SIOCSIFFLAGS as u32,
];

/// `struct ifreq`: a name and a union, of which flags, a number and an address are used here.
#[repr(C)]
#[derive(Clone, Copy)]
struct IfReq {
    name: [u8; 16],
    data: [u8; 24],
}

impl IfReq {
    fn new(name: &str) -> Result<IfReq, Errno> {
        let mut r = IfReq { name: [0; 16], data: [0; 24] };
        // The last byte stays 0.
        r.name
            .get_mut(..name.len())
            .filter(|_| name.len() < 16)
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(name.as_bytes());
        Ok(r)
    }

    fn name(&self) -> String {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    fn set(&mut self, bytes: &[u8]) {
        self.data[..bytes.len()].copy_from_slice(bytes);
    }
}

fn call(fd: BorrowedFd<'_>, request: libc::Ioctl, arg: *mut libc::c_void) -> Result<(), Errno> {
    // SAFETY: every caller below passes a request together with a pointer to a live, exclusively borrowed value of the type that
    // request reads and writes (ifreq or int), as the kernel's tun and netdevice interfaces define them.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, arg) };
    if result < 0 { Err(Errno::from_raw_os_error(last_errno())) } else { Ok(()) }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn with_ifreq(fd: BorrowedFd<'_>, request: libc::Ioctl, r: &mut IfReq) -> Result<(), Errno> {
    call(fd, request, std::ptr::from_mut(r).cast())
}

fn with_int(fd: BorrowedFd<'_>, request: libc::Ioctl, mut value: libc::c_int) -> Result<(), Errno> {
    call(fd, request, std::ptr::from_mut(&mut value).cast())
}

/// TUNSETIFF: makes or joins the interface. Returns its name.
pub fn set_iff(fd: impl AsFd, name: &str, flags: i32) -> Result<String, Errno> {
    let mut r = IfReq::new(name)?;
    r.set(&(flags as u16).to_ne_bytes());
    with_ifreq(fd.as_fd(), libc::TUNSETIFF, &mut r)?;
    Ok(r.name())
}

/// TUNSETVNETHDRSZ.
pub fn set_vnet_hdr_size(fd: impl AsFd, bytes: i32) -> Result<(), Errno> {
    with_int(fd.as_fd(), libc::TUNSETVNETHDRSZ, bytes)
}

/// TUNSETOFFLOAD: what frames the kernel may give us unfinished. The value is the argument itself.
pub fn set_offload(fd: impl AsFd, flags: u32) -> Result<(), Errno> {
    call(fd.as_fd(), libc::TUNSETOFFLOAD, std::ptr::without_provenance_mut(flags as usize))
}

/// TUNSETSNDBUF: bytes the kernel may hold of what we sent.
pub fn set_send_buffer(fd: impl AsFd, bytes: i32) -> Result<(), Errno> {
    with_int(fd.as_fd(), libc::TUNSETSNDBUF, bytes)
}

/// TUNSETSTEERINGEBPF: what chooses the queue.
pub fn set_steering(fd: impl AsFd, program: impl AsFd) -> Result<(), Errno> {
    with_int(fd.as_fd(), TUNSETSTEERINGEBPF, program.as_fd().as_raw_fd())
}

/// SIOCSIFMTU, through any socket.
pub fn set_mtu(socket: impl AsFd, name: &str, mtu: u32) -> Result<(), Errno> {
    let mut r = IfReq::new(name)?;
    r.set(&(mtu as libc::c_int).to_ne_bytes());
    with_ifreq(socket.as_fd(), libc::SIOCSIFMTU as libc::Ioctl, &mut r)
}

/// SIOCGIFFLAGS and SIOCSIFFLAGS: brings the interface up.
pub fn set_up(socket: impl AsFd, name: &str) -> Result<(), Errno> {
    let mut r = IfReq::new(name)?;
    with_ifreq(socket.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut r)?;
    let flags = u16::from_ne_bytes([r.data[0], r.data[1]]) | libc::IFF_UP as u16;
    r.set(&flags.to_ne_bytes());
    with_ifreq(socket.as_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &mut r)
}
