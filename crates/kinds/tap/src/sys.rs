//! The ioctls of /dev/net/tun and of interfaces.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

const TUNSETSTEERINGEBPF: libc::Ioctl = 0x8004_54e0u32 as libc::Ioctl;
const TUNGETIFF: libc::Ioctl = 0x8004_54d2u32 as libc::Ioctl;
const TUNSETVNETLE: libc::Ioctl = 0x4004_54dc;
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;
const TUNGETVNETHDRSZ: libc::Ioctl = 0x8004_54d7u32 as libc::Ioctl;

/// The ioctl requests that this crate makes; system call filters must permit them.
pub const IOCTLS: [u32; 13] = [
    libc::TUNSETIFF as u32,
    libc::TUNSETVNETHDRSZ as u32,
    libc::TUNSETOFFLOAD as u32,
    libc::TUNSETSNDBUF as u32,
    TUNSETSTEERINGEBPF as u32,
    TUNGETIFF as u32,
    TUNSETVNETLE as u32,
    TUNGETDEVNETNS as u32,
    libc::SIOCSIFHWADDR as u32,
    TUNGETVNETHDRSZ as u32,
    libc::SIOCSIFMTU as u32,
    libc::SIOCGIFFLAGS as u32,
    libc::SIOCSIFFLAGS as u32,
];

/// `struct ifreq`: a name and a union, of which this crate uses flags, a number and an address.
#[repr(C)]
#[derive(Clone, Copy)]
struct IfReq {
    name: [u8; 16],
    data: [u8; 24],
}

impl IfReq {
    fn new(name: &str) -> Result<IfReq, Errno> {
        let mut r = IfReq { name: [0; 16], data: [0; 24] };
        // The last byte stays 0, which terminates the name.
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

fn call(fd: BorrowedFd<'_>, request: libc::Ioctl, arg: *mut libc::c_void) -> Result<libc::c_int, Errno> {
    // SAFETY: every caller below passes either a request that takes no pointer, or a request with a pointer to a live,
    // exclusively borrowed value of the type that the request reads and writes (ifreq or int), as defined by the
    // kernel's tun and netdevice interfaces.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, arg) };
    let failed = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    if result < 0 { Err(failed()) } else { Ok(result) }
}

fn with_ifreq(fd: BorrowedFd<'_>, request: libc::Ioctl, r: &mut IfReq) -> Result<(), Errno> {
    call(fd, request, std::ptr::from_mut(r).cast()).map(drop)
}

fn with_int(fd: BorrowedFd<'_>, request: libc::Ioctl, mut value: libc::c_int) -> Result<(), Errno> {
    call(fd, request, std::ptr::from_mut(&mut value).cast()).map(drop)
}

/// TUNSETIFF: creates or joins the interface. Returns its name.
pub fn set_iff(fd: impl AsFd, name: &str, flags: i32) -> Result<String, Errno> {
    let mut r = IfReq::new(name)?;
    r.set(&(flags as u16).to_ne_bytes());
    with_ifreq(fd.as_fd(), libc::TUNSETIFF, &mut r)?;
    Ok(r.name())
}

/// TUNGETIFF: returns name and flags of the interface of an open TUN device.
pub fn get_iff(fd: impl AsFd) -> Result<(String, u16), Errno> {
    let mut r = IfReq::new("")?;
    with_ifreq(fd.as_fd(), TUNGETIFF, &mut r)?;
    Ok((r.name(), u16::from_ne_bytes([r.data[0], r.data[1]])))
}

/// TUNGETDEVNETNS: returns the network namespace of the interface of an open TUN device.
pub fn namespace_of(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let fd = call(fd.as_fd(), TUNGETDEVNETNS, std::ptr::null_mut())?;
    // SAFETY: the request created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// TUNSETVNETLE: makes the fields of virtio-net headers little-endian.
pub fn set_little_endian(fd: impl AsFd) -> Result<(), Errno> {
    with_int(fd.as_fd(), TUNSETVNETLE, 1)
}

/// SIOCSIFHWADDR: sets the Ethernet address of the interface of an open TUN device.
pub fn set_address(fd: impl AsFd, name: &str, mac: [u8; 6]) -> Result<(), Errno> {
    let mut r = IfReq::new(name)?;
    let mut address = [0; 8];
    address[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
    address[2..].copy_from_slice(&mac);
    r.set(&address);
    with_ifreq(fd.as_fd(), libc::SIOCSIFHWADDR as libc::Ioctl, &mut r)
}

/// TUNGETVNETHDRSZ: returns the size of virtio-net headers in bytes.
pub fn vnet_hdr_size(fd: impl AsFd) -> Result<i32, Errno> {
    let mut bytes: libc::c_int = 0;
    call(fd.as_fd(), TUNGETVNETHDRSZ, std::ptr::from_mut(&mut bytes).cast())?;
    Ok(bytes)
}

/// TUNSETVNETHDRSZ: sets the size of virtio-net headers in bytes.
pub fn set_vnet_hdr_size(fd: impl AsFd, bytes: i32) -> Result<(), Errno> {
    with_int(fd.as_fd(), libc::TUNSETVNETHDRSZ, bytes)
}

/// TUNSETOFFLOAD: sets the offloads that the kernel may leave to the reader. The flags themselves are the argument, in
/// place of a pointer.
pub fn set_offload(fd: impl AsFd, flags: u32) -> Result<(), Errno> {
    call(fd.as_fd(), libc::TUNSETOFFLOAD, std::ptr::without_provenance_mut(flags as usize)).map(drop)
}

/// TUNSETSNDBUF: sets the maximum number of bytes of written frames that the kernel may buffer.
pub fn set_send_buffer(fd: impl AsFd, bytes: i32) -> Result<(), Errno> {
    with_int(fd.as_fd(), libc::TUNSETSNDBUF, bytes)
}

/// TUNSETSTEERINGEBPF: sets the program that chooses the queue of each frame sent by the stack.
pub fn set_steering(fd: impl AsFd, program: impl AsFd) -> Result<(), Errno> {
    with_int(fd.as_fd(), TUNSETSTEERINGEBPF, program.as_fd().as_raw_fd())
}

/// SIOCSIFMTU: sets an interface's MTU, through any socket.
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

/// Creates a socket for requests about interfaces. A socket of any family accepts such requests; a UNIX socket reaches
/// no network.
pub fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Returns whether an interface of this name exists; also false if the request to the kernel fails.
pub fn is_there(name: &str) -> bool {
    let asked = socket().and_then(|socket| {
        let mut r = IfReq::new(name)?;
        with_ifreq(socket.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut r)
    });
    asked.is_ok()
}
