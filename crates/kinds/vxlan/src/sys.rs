//! System calls on UDP sockets that rustix lacks: sending and receiving many messages, each of several datagrams. An
//! outbox holds the messages that are sent.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use netvale_port::FrameRef;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::ip::{self, IpWords};

/// Socket option of linux/udp.h: size of the datagrams into which the kernel cuts a message.
const UDP_SEGMENT: libc::c_int = 103;
/// Socket option of linux/udp.h: the kernel merges received datagrams.
const UDP_GRO: libc::c_int = 104;
/// Size in bytes of a control message that contains an int, including the control message's header.
const CONTROL: usize = 24;
/// Maximum number of control messages per message: one with the segment size, one with the traffic class.
const CONTROLS: usize = 2;
/// Size of a buffer for a datagram in bytes.
pub const BUFFER: usize = 65_536;

/// Opens a UDP socket and binds it.
pub fn udp(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if at.is_ipv6() {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    rustix::net::bind(&socket, &at)?;
    Ok(socket)
}

/// Sets an integer option.
pub fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let at = (&raw const value).cast();
    // SAFETY: `value` is an int, of the length given, and outlives the call.
    match unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, at, 4) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an integer option.
pub fn get(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value = 0;
    let mut len = 4;
    // SAFETY: `value` has the four bytes of `len`, and both outlive the call.
    match unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the MTU in bytes of the path to the peer of a connected socket; `None` if this host does not know it.
pub fn path_mtu(socket: &impl AsFd, is_v4: bool) -> Option<u32> {
    let (level, name) = if is_v4 { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    get(socket, level, name).ok().and_then(|mtu| u32::try_from(mtu).ok())
}

/// Returns the time of a monotonic clock with the precision of the kernel's ticks. The C library can read this clock
/// even without a vDSO.
pub fn coarse_time() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable, and outlives the call; the call cannot fail: every Linux has that clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time
}

/// Makes the kernel merge received datagrams of one flow.
pub fn set_gro(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, UDP_GRO, 1)
}

/// An IPv4 or IPv6 socket address.
#[derive(Clone, Copy)]
union VxlanSocketName {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl VxlanSocketName {
    const EMPTY: VxlanSocketName = VxlanSocketName {
        // SAFETY: all zeros are a value of this struct of integers.
        v6: unsafe { std::mem::zeroed() },
    };

    /// Returns the socket address for an IP address and a port, and its length in bytes.
    fn of(words: IpWords, port: u16) -> (VxlanSocketName, u32) {
        match ip::of(words) {
            std::net::IpAddr::V4(v4) => {
                let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(v4.octets()) };
                let family = libc::AF_INET as u16;
                let v4 = libc::sockaddr_in { sin_family: family, sin_port: port.to_be(), sin_addr, sin_zero: [0; 8] };
                (VxlanSocketName { v4 }, size_of::<libc::sockaddr_in>() as u32)
            }
            std::net::IpAddr::V6(v6) => {
                let mut name = VxlanSocketName::EMPTY;
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.octets() },
                    sin6_scope_id: 0,
                };
                (name, size_of::<libc::sockaddr_in6>() as u32)
            }
        }
    }

    /// Returns the address that the kernel has written.
    fn words(&self) -> IpWords {
        // SAFETY: the union was all zeros or was written by the kernel, so each byte is initialized. Both structs
        // consist of integers, and both begin with the family.
        unsafe {
            if self.v4.sin_family == libc::AF_INET as u16 {
                let v4 = std::net::Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                return ip::words(v4.into());
            }
            ip::words(std::net::Ipv6Addr::from(self.v6.sin6_addr.s6_addr).into())
        }
    }
}

/// Control data, aligned as its header requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct VxlanControl {
    len: usize,
    level: libc::c_int,
    kind: libc::c_int,
    value: [u8; 8],
}

const _: () = assert!(size_of::<VxlanControl>() == CONTROL && size_of::<libc::cmsghdr>() == 16);

const NO_CONTROL: VxlanControl = VxlanControl { len: 0, level: 0, kind: 0, value: [0; 8] };

impl VxlanControl {
    /// Creates control data with an int.
    fn int(level: libc::c_int, kind: libc::c_int, value: libc::c_int) -> VxlanControl {
        let [a, b, c, d] = value.to_ne_bytes();
        VxlanControl { len: 20, level, kind, value: [a, b, c, d, 0, 0, 0, 0] }
    }

    fn first_int(&self) -> libc::c_int {
        let [a, b, c, d, ..] = self.value;
        libc::c_int::from_ne_bytes([a, b, c, d])
    }
}

/// An empty message header.
fn empty() -> libc::mmsghdr {
    // SAFETY: all zeros are a valid value: null pointers and numbers.
    unsafe { std::mem::zeroed() }
}

/// A received datagram, or several datagrams of equal length that the kernel has merged.
#[derive(Debug)]
pub struct VxlanMessage {
    /// The bytes of the message, in a buffer of [`BUFFER`] bytes. The buffer is never cleared, so pages that no message
    /// has used take no memory.
    pub data: Vec<u8>,
    /// Size in bytes of each datagram but the last, which may be shorter; 0 if the message is a single datagram.
    pub each: usize,
    /// If the frame in a single datagram stands for several packets, the payload size in bytes of each of these
    /// packets; 0 if the kernel does not report it.
    pub inner: usize,
    /// Address of the sender.
    pub from: IpWords,
    /// ECN codepoint of the message's packet.
    pub ecn: u8,
}

impl VxlanMessage {
    /// Creates a buffer without a message.
    pub fn empty() -> VxlanMessage {
        VxlanMessage { data: Vec::with_capacity(BUFFER), each: 0, inner: 0, from: [0; 2], ecn: 0 }
    }

    /// Makes the message a copy of a single datagram.
    pub fn copy_of(&mut self, datagram: &[u8], from: IpWords, ecn: u8) {
        self.data.clear();
        self.data.extend_from_slice(&datagram[..datagram.len().min(BUFFER)]);
        self.each = 0;
        self.inner = 0;
        self.from = from;
        self.ecn = ecn;
    }

    /// Sets the fields that the kernel reports as control data.
    fn read_controls(&mut self, controls: &[VxlanControl; CONTROLS]) {
        self.each = 0;
        self.inner = 0;
        self.ecn = 0;
        for control in controls.iter().take_while(|control| control.len > 0) {
            match (control.level, control.kind) {
                (libc::SOL_UDP, UDP_GRO) => self.each = usize::try_from(control.first_int()).unwrap_or(0),
                (libc::IPPROTO_IP, libc::IP_TOS) => self.ecn = control.value[0] & 3,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.ecn = control.first_int() as u8 & 3,
                _ => {}
            }
        }
    }

    /// Returns the datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let each = if self.each == 0 { BUFFER } else { self.each };
        self.data.chunks(each)
    }
}

/// Memory for receiving many messages in one call.
pub struct VxlanReceiver {
    names: Vec<VxlanSocketName>,
    controls: Vec<[VxlanControl; CONTROLS]>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the receiver's pointers are written before each call, and used only in that call.
unsafe impl Send for VxlanReceiver {}

impl VxlanReceiver {
    /// Creates a receiver of at most `most` messages per call.
    pub fn new(most: usize) -> VxlanReceiver {
        VxlanReceiver {
            names: vec![VxlanSocketName::EMPTY; most],
            controls: vec![[NO_CONTROL; CONTROLS]; most],
            parts: vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; most],
            headers: (0..most).map(|_| empty()).collect(),
        }
    }

    /// Receives into the first buffers of `into`. Returns the number of messages.
    pub fn receive(&mut self, socket: &impl AsFd, into: &mut [VxlanMessage]) -> usize {
        let most = into.len().min(self.headers.len());
        for (i, message) in into.iter_mut().take(most).enumerate() {
            self.names[i] = VxlanSocketName::EMPTY;
            self.controls[i] = [NO_CONTROL; CONTROLS];
            message.data.clear();
            // Allocates nothing, as the buffer has this capacity.
            message.data.reserve(BUFFER);
            self.parts[i] = libc::iovec { iov_base: message.data.as_mut_ptr().cast(), iov_len: BUFFER };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<VxlanSocketName>() as u32;
            header.msg_iov = &raw mut self.parts[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[i]).cast();
            header.msg_controllen = (CONTROLS * CONTROL) as _;
        }
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: the first `most` headers point to names, parts and control data of `self`, and to buffers of `into`,
        // which have room for BUFFER bytes; all are borrowed exclusively, are not moved, and have the given lengths.
        let got = unsafe { libc::recvmmsg(fd, self.headers.as_mut_ptr(), most as u32, flags, std::ptr::null_mut()) };
        let got = usize::try_from(got).unwrap_or(0).min(most);
        for (i, message) in into.iter_mut().take(got).enumerate() {
            let len = (self.headers[i].msg_len as usize).min(BUFFER);
            // SAFETY: the kernel has written the message's `len` bytes to the buffer, which has room for BUFFER bytes.
            unsafe { message.data.set_len(len) };
            message.read_controls(&self.controls[i]);
            message.from = self.names[i].words();
        }
        got
    }
}

/// A piece of a message.
#[inline]
fn part(at: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }
}

/// Messages that are built piece by piece and sent in one call.
pub struct Outbox {
    names: Vec<VxlanSocketName>,
    controls: Vec<[VxlanControl; CONTROLS]>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Index of each message's first part.
    begins: Vec<usize>,
    port: u16,
}

// SAFETY: the pointers are valid until the messages are sent or cleared, by the contracts of `add` and `add_frame`;
// nothing else reads them.
unsafe impl Send for Outbox {}

impl Outbox {
    /// Creates an outbox for `messages` messages, with `parts` parts in total.
    pub fn new(messages: usize, parts: usize, port: u16) -> Outbox {
        Outbox {
            names: Vec::with_capacity(messages),
            controls: Vec::with_capacity(messages),
            parts: Vec::with_capacity(parts),
            headers: Vec::with_capacity(messages),
            begins: Vec::with_capacity(messages),
            port,
        }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.names.clear();
        self.controls.clear();
        self.parts.clear();
        self.headers.clear();
        self.begins.clear();
    }

    /// Returns the number of parts for which there is still room.
    pub fn room(&self) -> usize {
        self.parts.capacity() - self.parts.len()
    }

    /// Returns whether there is room for a message of `parts` parts.
    pub fn has_room(&self, parts: usize) -> bool {
        self.begins.len() < self.begins.capacity() && parts <= self.room()
    }

    /// Begins a message.
    pub fn begin(&mut self, to: IpWords) {
        let (name, len) = VxlanSocketName::of(to, self.port);
        let mut header = empty();
        header.msg_hdr.msg_namelen = len;
        self.names.push(name);
        self.controls.push([NO_CONTROL; CONTROLS]);
        self.headers.push(header);
        self.begins.push(self.parts.len());
    }

    /// Adds bytes to the last message.
    ///
    /// # Safety
    /// The bytes must be readable until the messages are sent or cleared.
    #[inline]
    pub unsafe fn add(&mut self, at: *const u8, len: usize) {
        debug_assert!(self.parts.len() < self.parts.capacity());
        self.parts.push(part(at, len));
    }

    /// Adds a header and a frame's bytes to the last message.
    ///
    /// # Safety
    /// The header must outlive the messages, and the frame's batch must not be cleared before the messages are sent or
    /// cleared.
    #[inline]
    pub unsafe fn add_frame(&mut self, header: &[u8], frame: &FrameRef<'_>) {
        debug_assert!(self.parts.len() + frame.pieces() < self.parts.capacity());
        // The kernel copies from these addresses.
        let of = |i| {
            let (at, len) = frame.piece(i).raw();
            part(at, len)
        };
        self.parts.extend_from_slice(&[part(header.as_ptr(), header.len()), of(0)]);
        if frame.pieces() > 1 {
            self.parts.extend((1..frame.pieces()).map(of));
        }
    }

    /// Makes the kernel cut the last message into datagrams of `each` bytes (UDP GSO), of which the last datagram may
    /// be shorter.
    pub fn set_segment_size(&mut self, each: usize) {
        let [a, b] = (each as u16).to_ne_bytes();
        let value = [a, b, 0, 0, 0, 0, 0, 0];
        self.control(VxlanControl { len: 18, level: libc::SOL_UDP, kind: UDP_SEGMENT, value });
    }

    /// Sets the type of service, or traffic class, of the last message's packets.
    pub fn set_class(&mut self, is_v4: bool, class: u8) {
        let (level, kind) =
            if is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        self.control(VxlanControl::int(level, kind, class.into()));
    }

    fn control(&mut self, control: VxlanControl) {
        if let Some(place) = self.controls.last_mut().and_then(|all| all.iter_mut().find(|one| one.len == 0)) {
            *place = control;
        }
    }

    /// Sends the messages from `first` up to `end`. Returns the number of sent messages and, if that is 0, the error
    /// for the first message.
    pub fn send(&mut self, socket: &impl AsFd, first: usize, end: usize) -> (usize, Option<io::Error>) {
        for i in first..end.min(self.headers.len()) {
            let next = self.begins.get(i + 1).copied().unwrap_or(self.parts.len());
            let parts = &mut self.parts[self.begins[i]..next];
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = parts.len() as _;
            let controls = &mut self.controls[i];
            let count = controls.iter().take_while(|control| control.len > 0).count();
            header.msg_control = if count > 0 { (&raw mut *controls).cast() } else { std::ptr::null_mut() };
            header.msg_controllen = (count * CONTROL) as _;
        }
        let Some(headers) = self.headers.get_mut(first..end) else { return (0, None) };
        if headers.is_empty() {
            return (0, None);
        }
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: the headers point to names, parts and control data of `self`, which are not moved during the call;
        // the bytes of parts are readable by the contract of `add`.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as u32, flags) };
        match usize::try_from(sent) {
            Ok(sent) => (sent, None),
            Err(_) => (0, Some(io::Error::last_os_error())),
        }
    }
}
