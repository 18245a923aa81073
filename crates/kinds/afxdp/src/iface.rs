//! Properties of an interface in the kernel: index, MTU, queues, offloads, XDP program.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// An interface and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The interface's index.
    pub index: u32,
    /// MTU: maximum length of a packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Number of receive queues.
    pub queues: u32,
    /// Whether the interface is up.
    pub up: bool,
    /// The interface's Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
}

/// Creates a socket for ioctl(2) requests about interfaces. A socket of any family accepts them; a UNIX socket reaches
/// no network.
fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Creates a request about the interface `name`.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request
}

/// Calls ioctl(2) with an ifreq.
fn ask(fd: &OwnedFd, code: libc::Ioctl, request: &mut libc::ifreq) -> Result<(), Errno> {
    // SAFETY: all requests made here take an ifreq; a pointer in the ifreq points to a structure of the request's type,
    // which lives until the call returns.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_mut(request)) };
    checked(done)
}

/// Converts the result of a system call; a negative result is an error.
fn checked(done: libc::c_int) -> Result<(), Errno> {
    if done < 0 { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}

/// Makes an ethtool request about the interface `name`. `value` is the request's structure, which begins with its
/// command.
fn ethtool<T>(fd: &OwnedFd, name: &str, value: &mut T) -> Result<(), Errno> {
    let mut asked = request(name);
    asked.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    ask(fd, SIOCETHTOOL, &mut asked)
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    cmd: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Default)]
struct Ringparam {
    cmd: u32,
    max: [u32; 4],
    rx: u32,
    mini_and_jumbo: [u32; 2],
    tx: u32,
}

/// `struct ethtool_drvinfo`: the command, and strings with the driver's name among them.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// A driver's offload of VLAN tags. The values are flags of linux/ethtool.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagOffload {
    /// The driver removes tags from received frames (`rx-vlan-offload`, `ETH_FLAG_RXVLAN`).
    Received = 1 << 8,
    /// The driver inserts tags into sent frames; until then, the tag is in the frame's metadata (`tx-vlan-offload`,
    /// `ETH_FLAG_TXVLAN`).
    Sent = 1 << 7,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// The ioctl(2) requests that this crate uses, for seccomp filters.
pub const IOCTLS: [u32; 6] = [
    libc::SIOCGIFNAME as u32,
    libc::SIOCGIFINDEX as u32,
    libc::SIOCGIFMTU as u32,
    libc::SIOCGIFFLAGS as u32,
    libc::SIOCGIFHWADDR as u32,
    SIOCETHTOOL as u32,
];

/// Whether an interface of this name is up in this process's network namespace and has a carrier (`IFF_RUNNING`,
/// netdevice(7)). True if the request fails.
pub fn has_carrier(name: &str) -> bool {
    has_flags(name, libc::IFF_UP | libc::IFF_RUNNING)
}

/// Whether an interface of this name is up in this process's network namespace. True if the request fails.
pub fn is_up(name: &str) -> bool {
    has_flags(name, libc::IFF_UP)
}

fn has_flags(name: &str, all: libc::c_int) -> bool {
    flags(name).map_or(true, |flags| flags & all == all)
}

/// Creates a netlink socket that becomes readable when interfaces are created, deleted or changed.
///
/// # Errors
/// The process is out of descriptors.
pub fn news() -> Result<OwnedFd, Errno> {
    /// The multicast group of notifications about interfaces: `RTMGRP_LINK` (linux/rtnetlink.h).
    const LINKS: u32 = 1;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // NETLINK_ROUTE is protocol 0.
    let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&fd, &SocketAddrNetlink::new(0, LINKS))?;
    Ok(fd)
}

/// Drains a socket made by [`news`]. The messages only show that something changed; the caller queries the interfaces,
/// because the kernel drops messages when the socket's buffer is full.
pub fn read_news(fd: &OwnedFd) {
    let mut bytes = [0u8; 1];
    while !matches!(rustix::net::recv(fd, &mut bytes[..], RecvFlags::DONTWAIT), Err(Errno::AGAIN)) {}
}

/// Whether an interface is the loopback interface, which receives its own frames (`IFF_LOOPBACK`).
pub fn is_loopback(name: &str) -> bool {
    flags(name).is_ok_and(|flags| flags & libc::IFF_LOOPBACK != 0)
}

/// Returns the flags of an interface; zero if it does not exist.
fn flags(name: &str) -> Result<libc::c_int, Errno> {
    if name.len() >= libc::IFNAMSIZ {
        return Ok(0);
    }
    let mut asked = request(name);
    match ask(&socket()?, libc::SIOCGIFFLAGS as libc::Ioctl, &mut asked) {
        // SAFETY: the ioctl has succeeded, so the kernel has filled in this member.
        Ok(()) => Ok(libc::c_int::from(unsafe { asked.ifr_ifru.ifru_flags })),
        Err(Errno::NODEV | Errno::NXIO) => Ok(0),
        Err(e) => Err(e),
    }
}

/// Returns the name of the interface with this index; `None` if there is no such interface.
///
/// # Errors
/// The request cannot be made: the process is out of descriptors.
pub fn name_of(ifindex: u32) -> Result<Option<String>, Errno> {
    let mut asked = request("");
    asked.ifr_ifru.ifru_ifindex = ifindex.cast_signed();
    match ask(&socket()?, libc::SIOCGIFNAME as libc::Ioctl, &mut asked) {
        Ok(()) => {}
        Err(Errno::NODEV | Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    }
    let bytes: Vec<u8> = asked.ifr_name.iter().map(|c| c.to_ne_bytes()[0]).take_while(|&byte| byte != 0).collect();
    Ok(String::from_utf8(bytes).ok())
}

/// Returns the name of an interface's driver (ethtool -i); `None` if it is not reported.
pub fn driver(name: &str) -> Option<String> {
    /// `ETHTOOL_GDRVINFO`.
    const GET_DRIVER: u32 = 0x3;
    let mut info = DriverInfo { cmd: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
    ethtool(&socket().ok()?, name, &mut info).ok()?;
    let text = info.driver.split(|&byte| byte == 0).next()?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

/// Returns the flags that ethtool(8) shows as `ntuple`, `rx-vlan-offload` and so on.
fn offloads(name: &str) -> Result<u32, Errno> {
    /// `ETHTOOL_GFLAGS`.
    const GET_FLAGS: u32 = 0x25;
    let mut value = EthtoolValue { cmd: GET_FLAGS, data: 0 };
    ethtool(&socket()?, name, &mut value)?;
    Ok(value.data)
}

/// Whether the interface's driver performs this offload. False if the request fails.
pub fn has_offload(name: &str, offload: TagOffload) -> bool {
    offloads(name).is_ok_and(|flags| flags & offload as u32 != 0)
}

/// Turns an offload on or off.
///
/// # Errors
/// `EINVAL` or `EOPNOTSUPP` if the driver cannot change the offload, `EPERM` without `CAP_NET_ADMIN`.
pub fn set_offload(name: &str, offload: TagOffload, on: bool) -> Result<(), Errno> {
    /// `ETHTOOL_SFLAGS`.
    const SET_FLAGS: u32 = 0x26;
    let flag = offload as u32;
    let flags = offloads(name)? & !flag | if on { flag } else { 0 };
    ethtool(&socket()?, name, &mut EthtoolValue { cmd: SET_FLAGS, data: flags })?;
    if has_offload(name, offload) == on { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

impl Interface {
    /// Finds an interface in this process's network namespace.
    ///
    /// # Errors
    /// `ENODEV` if it does not exist.
    pub fn find(name: &str) -> Result<Interface, Errno> {
        // A longer name would be truncated, possibly to the name of another interface.
        if name.len() >= libc::IFNAMSIZ {
            return Err(Errno::NODEV);
        }
        let fd = socket()?;
        let mut asked = request(name);
        ask(&fd, libc::SIOCGIFINDEX as libc::Ioctl, &mut asked)?;
        // SAFETY: the ioctl above succeeded, so the kernel has filled in this member.
        let index = unsafe { asked.ifr_ifru.ifru_ifindex }.cast_unsigned();
        ask(&fd, libc::SIOCGIFMTU as libc::Ioctl, &mut asked)?;
        // SAFETY: the ioctl above succeeded, so the kernel has filled in this member.
        let mtu = unsafe { asked.ifr_ifru.ifru_mtu }.cast_unsigned();
        ask(&fd, libc::SIOCGIFFLAGS as libc::Ioctl, &mut asked)?;
        // SAFETY: the ioctl above succeeded, so the kernel has filled in this member.
        let up = libc::c_int::from(unsafe { asked.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0;
        ask(&fd, libc::SIOCGIFHWADDR as libc::Ioctl, &mut asked)?;
        // SAFETY: the ioctl above succeeded, so the kernel has filled in this member.
        let address = unsafe { asked.ifr_ifru.ifru_hwaddr };
        let ethernet = address.sa_family == libc::ARPHRD_ETHER;
        // C's char may be signed or unsigned; the byte is the same.
        let mac = std::array::from_fn(|i| if ethernet { address.sa_data[i].to_ne_bytes()[0] } else { 0 });
        Ok(Interface { name: name.to_owned(), index, mtu, queues: queues(&fd, name), up, mac })
    }

    /// Makes the interface also receive frames for other stations, until the returned descriptor is closed.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn promiscuous(&self) -> Result<OwnedFd, Errno> {
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let member = libc::packet_mreq {
            mr_ifindex: self.index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let at = std::ptr::from_ref(&member).cast();
        let len = size_of_val(&member) as libc::socklen_t;
        // SAFETY: this option takes a packet_mreq and copies it.
        let done = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, at, len) };
        checked(done).map(|()| fd)
    }

    /// Numbers of slots of the driver's tx and rx rings (ethtool -g), if the driver reports them.
    pub fn slots(&self) -> Option<(u32, u32)> {
        /// `ETHTOOL_GRINGPARAM`.
        const GET_RINGPARAM: u32 = 0x10;
        let mut rings = Ringparam { cmd: GET_RINGPARAM, ..Ringparam::default() };
        ethtool(&socket().ok()?, &self.name, &mut rings).ok()?;
        Some((rings.tx, rings.rx)).filter(|(tx, rx)| *tx > 0 && *rx > 0)
    }

    /// Returns the ID of the interface's XDP program; `None` if it has none, or the request fails.
    pub fn program(&self) -> Option<u32> {
        const IFLA_XDP: u16 = 43;
        const IFLA_XDP_PROG_ID: u16 = 4;
        let attributes = attributes_of(self.index).ok()?;
        let id = find(find(&attributes, IFLA_XDP)?, IFLA_XDP_PROG_ID)?;
        id.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }
}

/// Number of receive channels (ethtool -l); 1 if the driver does not report them.
fn queues(fd: &OwnedFd, name: &str) -> u32 {
    /// `ETHTOOL_GCHANNELS`.
    const GET_CHANNELS: u32 = 0x3c;
    let mut channels = EthtoolChannels { cmd: GET_CHANNELS, ..EthtoolChannels::default() };
    ethtool(fd, name, &mut channels).map_or(1, |()| (channels.rx + channels.combined).max(1))
}

/// Returns the name of the interface at the far end of a veth, if that interface is in this process's network
/// namespace; otherwise `None`.
pub fn far_end(index: u32) -> Option<String> {
    const IFLA_LINK: u16 = 5;
    const IFLA_LINK_NETNSID: u16 = 37;
    let attributes = attributes_of(index).ok()?;
    let far = find(&attributes, IFLA_LINK).filter(|_| find(&attributes, IFLA_LINK_NETNSID).is_none())?;
    name_of(u32::from_ne_bytes(far.try_into().ok()?)).ok()?
}

/// Requests the attributes of an interface from rtnetlink.
fn attributes_of(index: u32) -> Result<Vec<u8>, Errno> {
    const RTM_GETLINK: u16 = 18;
    const REQUEST: u16 = 1;
    /// Length of struct nlmsghdr and struct ifinfomsg in bytes.
    const HEADERS: usize = 16 + 16;
    // NETLINK_ROUTE is protocol 0.
    let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::with_capacity(HEADERS);
    message.extend((HEADERS as u32).to_ne_bytes());
    message.extend([RTM_GETLINK.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    message.extend([0; 12]);
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    rustix::net::send(&fd, &message, SendFlags::empty())?;
    let mut answer = vec![0u8; 16_384];
    let (got, _) = rustix::net::recv(&fd, &mut answer[..], RecvFlags::empty())?;
    Ok(answer.get(HEADERS..got).unwrap_or(&[]).to_vec())
}

/// Finds the attribute of the type `wanted` (linux/netlink.h, struct nlattr); `None` if it is absent.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    /// Mask that removes the flags `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const TYPE: u16 = 0x3fff;
    while let Some(&[l0, l1, t0, t1]) = attributes.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let kind = u16::from_ne_bytes([t0, t1]) & TYPE;
        let value = attributes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the loopback interface is found, with one queue and without an XDP program; an unused name is not
    /// found.
    #[test]
    fn the_loopback_interface_is_found_with_one_queue() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!((lo.index, lo.queues, lo.program()), (1, 1, None));
        assert_eq!(Interface::find("nosuch0"), Err(Errno::NODEV));
        assert!(is_loopback("lo") && !is_loopback("nosuch0"));
    }

    /// Objective: an attribute is found after other attributes; a truncated attribute ends the search.
    #[test]
    fn attributes_are_found_after_others() {
        let bytes = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0x80, 1, 2, 3, 4];
        assert_eq!(find(&bytes, 2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find(&bytes, 3), None);
        assert_eq!(find(&bytes[..10], 2), None);
    }
}
