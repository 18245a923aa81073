//! UDP messages of several datagrams each (GSO), prepared once and sent repeatedly; and the same frames as a batch.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use netvale_harness::packet::set_option;
use netvale_port::Batch;

use crate::error::{BenchError, Result};

/// `UDP_SEGMENT` of linux/udp.h.
const UDP_SEGMENT: i32 = 103;
/// `UDP_GRO` of linux/udp.h.
const UDP_GRO: i32 = 104;
/// Number of datagrams per message (linux/udp.h, `UDP_MAX_SEGMENTS` of older kernels).
const DATAGRAMS: usize = 64;
/// Distance between frames in bytes, as in a ring's buffers.
const STRIDE: usize = 2048;
/// Length of the header before each frame in bytes.
const HEADER: usize = 8;

/// Control data with the length at which the kernel cuts a message.
#[repr(C, align(8))]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    each: u16,
    padding: [u8; 6],
}

/// Frames in buffers of their own. All pointers point to heap memory of other fields, which is neither moved nor
/// written.
pub struct Prepared {
    batch: Batch,
    headers: Vec<libc::mmsghdr>,
    _parts: Vec<libc::iovec>,
    _control: Box<Control>,
    _name: Box<libc::sockaddr_in>,
    _memory: Box<[u8]>,
}

// SAFETY: the pointers of the value point to memory that the value owns and takes along to the other thread.
unsafe impl Send for Prepared {}

impl Prepared {
    /// Prepares `count` copies of `frame`, each after a `header`, to an IPv4 address.
    pub fn new(header: [u8; HEADER], frame: &[u8], count: usize, to: SocketAddr) -> Result<Self> {
        let SocketAddr::V4(to) = to else { return Err(BenchError::Usage(format!("{to} is not an IPv4 address"))) };
        let each = HEADER + frame.len();
        if each * DATAGRAMS > 65_000 || frame.len() > STRIDE {
            return Err(BenchError::Usage(format!("frames of {} bytes do not fit into one message", frame.len())));
        }
        let mut memory = header.to_vec();
        memory.resize(STRIDE, 0);
        for _ in 0..count {
            memory.extend(frame);
            memory.resize(memory.len().next_multiple_of(STRIDE), 0);
        }
        let memory = memory.into_boxed_slice();
        let mut batch = Batch::new();
        let mut parts = Vec::new();
        for buffer in memory.chunks_exact(STRIDE).skip(1) {
            // SAFETY: the buffer is in `memory`, which is kept with the batch and never written; it has `frame.len()`
            // bytes.
            unsafe { batch.push(buffer.as_ptr(), frame.len() as u32) };
            parts.push(part(&memory[..HEADER]));
            parts.push(part(&buffer[..frame.len()]));
        }
        let control = Control { len: 18, level: libc::SOL_UDP, kind: UDP_SEGMENT, each: each as u16, padding: [0; 6] };
        let mut control = Box::new(control);
        let mut name = Box::new(name(to));
        let message = |parts: &mut [libc::iovec]| message(parts, &mut control, &mut name);
        let headers = parts.chunks_mut(2 * DATAGRAMS).map(message).collect();
        Ok(Self { batch, headers, _parts: parts, _control: control, _name: name, _memory: memory })
    }

    /// Returns the frames, without headers.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Sends all messages in one call.
    pub fn send(&mut self, socket: &UdpSocket) -> Result<()> {
        let at = self.headers.as_mut_ptr();
        let count = self.headers.len();
        // SAFETY: the headers point to parts, name and control data that `self` keeps in place, and the parts to its
        // memory. The kernel only reads these, and writes lengths into the headers, which are borrowed exclusively.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), at, count as u32, libc::MSG_DONTWAIT as _) };
        let error = if sent < 0 { io::Error::last_os_error() } else { io::ErrorKind::WouldBlock.into() };
        if usize::try_from(sent) == Ok(count) {
            Ok(())
        } else {
            Err(BenchError::io("sending prepared messages")(error))
        }
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn name(to: std::net::SocketAddrV4) -> libc::sockaddr_in {
    let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) };
    libc::sockaddr_in { sin_family: libc::AF_INET as u16, sin_port: to.port().to_be(), sin_addr, sin_zero: [0; 8] }
}

fn message(parts: &mut [libc::iovec], control: &mut Control, name: &mut libc::sockaddr_in) -> libc::mmsghdr {
    // SAFETY: mmsghdr has only integers and pointers; all zeroes (null, length 0) is a valid value.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let message = &mut header.msg_hdr;
    message.msg_name = (&raw mut *name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // A message of a single datagram is not cut.
    if parts.len() > 2 {
        message.msg_control = (&raw mut *control).cast();
        message.msg_controllen = size_of::<Control>() as _;
    }
    header
}

/// Opens a socket that receives messages unsegmented and is never read: once its buffer is full, the kernel drops
/// further messages.
pub fn sink(at: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((at, 0)).map_err(BenchError::io("opening a UDP socket"))?;
    set(&socket, libc::SOL_UDP, UDP_GRO, 1)?;
    Ok(socket)
}

/// Opens a socket for sending, with the options of a tunnel's socket.
pub fn source(at: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((at, 0)).map_err(BenchError::io("opening a UDP socket"))?;
    set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20)?;
    set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    Ok(socket)
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) -> Result<()> {
    set_option(socket, level, option, value).map_err(BenchError::io("setting an option of a UDP socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each frame arrives after its header, and the batch has the same frames.
    #[test]
    fn each_message_has_its_header_and_the_batchs_frame() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("an option");
        let to = receiver.local_addr().expect("bound");
        let mut prepared = Prepared::new(*b"header  ", &[7; 60], 65, to).expect("short frames");
        prepared.send(&source(to.ip()).expect("a port")).expect("room");
        for _ in 0..65 {
            let mut bytes = [0; 100];
            assert_eq!(receiver.recv(&mut bytes).expect("a datagram"), 68);
            assert_eq!((&bytes[..8], &bytes[8..68]), (&b"header  "[..], &[7; 60][..]));
        }
        assert_eq!((prepared.batch().len(), prepared.batch().bytes()), (65, 65 * 60));
    }
}
