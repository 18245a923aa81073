//! AF_PACKET sockets with a whole batch per system call: the kernel's own raw path, as a peer.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netvale_harness::packet::{open, set_option};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::case::Case;
use crate::error::{BenchError, Result};

/// Maximum number of frames per call.
pub const MAX_BATCH: usize = 64;
/// Returns the frames per call for a case.
pub fn batch(case: &Case) -> usize {
    case.burst(MAX_BATCH as u32) as usize
}

/// Room for a received frame in bytes; longer frames are cut, which does not affect counting.
pub const ROOM: usize = 2048;

/// The purpose of a socket. The kernel copies every frame to each receiving socket, so senders do not receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Send only, past the queueing discipline.
    Send,
    /// Receive only, without frames that this host sends.
    Receive,
}

/// A non-blocking AF_PACKET socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    room: Vec<u8>,
}

impl PacketSocket {
    /// Opens a socket on `interface` in the calling thread's network namespace.
    pub fn open(interface: &str, role: Role) -> Result<Self> {
        let prepare = |socket: BorrowedFd<'_>| {
            if role == Role::Send {
                return set_option(socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
            }
            set_option(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
            set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)
        };
        let fd = open(interface, role == Role::Receive, prepare)
            .map_err(BenchError::io(format!("opening a packet socket on {interface} (needs root)")))?;
        Ok(Self { fd, room: vec![0; MAX_BATCH * ROOM] })
    }

    /// Sends `frame` `count` times in one call. Returns the number of frames that the kernel accepted: 0 if its queue
    /// is full.
    pub fn send(&mut self, frame: &[u8], count: usize) -> Result<u64> {
        send_batch(&self.fd, frame, count)
    }

    /// Sleeps until frames arrive, at most for `limit`.
    pub fn wait(&self, limit: Duration) -> Result<()> {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(BenchError::io("waiting for a packet socket")(error)),
        }
    }

    /// Receives up to `count` frames in one call. Returns the number of frames received.
    pub fn receive(&mut self, count: usize) -> Result<u64> {
        receive_batch(&self.fd, &mut self.room, count, |_| ())
    }
}

/// Receives up to `count` messages in one call into `room`, which has 64 places of 2,048 bytes, and passes each message
/// to `each`. Returns the number of messages.
pub fn receive_batch(socket: impl AsFd, room: &mut [u8], count: usize, mut each: impl FnMut(&[u8])) -> Result<u64> {
    let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BATCH];
    let places = room.chunks_exact_mut(ROOM);
    let count = count.min(MAX_BATCH).min(places.len());
    for (piece, place) in pieces.iter_mut().zip(places) {
        *piece = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: ROOM };
    }
    let mut headers = headers(&mut pieces);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY:
    // - `headers` and the `pieces` to which they point are in this stack frame until the call returns;
    // - each of the first `count` pieces points to its own ROOM bytes of `room`, which is borrowed exclusively for the
    //   call;
    // - the count is at most the array's length; a null timeout is allowed.
    let came = unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count as u32, 0, std::ptr::null_mut()) };
    let came = moved(came).map_err(BenchError::io("receiving on a socket"))?;
    for (header, place) in headers.iter().zip(room.chunks_exact(ROOM)).take(came as usize) {
        each(place.get(..header.msg_len as usize).unwrap_or(place));
    }
    Ok(came)
}

/// Sends the same bytes `count` times in one call on a connected or bound socket. Returns the number of messages that
/// the kernel accepted: 0 if its queue is full.
pub fn send_batch(socket: impl AsFd, bytes: &[u8], count: usize) -> Result<u64> {
    let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut pieces = [piece; MAX_BATCH];
    let mut headers = headers(&mut pieces);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY:
    // - `headers` and the `pieces` to which they point are in this stack frame until the call returns;
    // - each piece points to `bytes`, which is borrowed for the call and which sendmmsg only reads;
    // - the count is at most the array's length.
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count.min(MAX_BATCH) as u32, 0) };
    moved(sent).map_err(BenchError::io("sending on a socket"))
}

fn headers(pieces: &mut [libc::iovec; MAX_BATCH]) -> [libc::mmsghdr; MAX_BATCH] {
    // SAFETY: mmsghdr has only integers and pointers; all zeroes (null, length 0) is a valid value.
    let mut headers: [libc::mmsghdr; MAX_BATCH] = unsafe { mem::zeroed() };
    for (header, piece) in headers.iter_mut().zip(pieces.iter_mut()) {
        header.msg_hdr.msg_iov = piece;
        header.msg_hdr.msg_iovlen = 1;
    }
    headers
}

/// Returns the number of frames moved. A full or empty queue is not an error: the number is 0, and the caller tries
/// again.
fn moved(result: i32) -> io::Result<u64> {
    let error = io::Error::last_os_error();
    match u64::try_from(result) {
        Ok(count) => Ok(count),
        Err(_) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) => Ok(0),
        Err(_) => Err(error),
    }
}
