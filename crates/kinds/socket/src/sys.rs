//! System calls on sockets that rustix lacks: receiving many messages into buffers, sending many frames as parcels
//! without copying, and peeking at a stream. A skipper discards bytes of a stream.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use netvale_mem::copy::copy_bytes;
use netvale_port::FrameRef;
use rustix::io::Errno;

/// Size of a control message with as many descriptors as the kernel passes (`SCM_MAX_FD`, linux/net/scm.h), in bytes.
const RIGHTS: usize = size_of::<libc::cmsghdr>() + 254 * size_of::<libc::c_int>();
/// Size of a control message with the sender's process, user and group, in bytes.
const CREDENTIALS: usize = size_of::<libc::cmsghdr>() + 16;
/// Maximum number of messages per receive call.
pub const MESSAGES: usize = 32;
/// Maximum number of frames per send call.
pub const PARCELS: usize = 64;
/// Maximum number of parts (iovecs) of all frames per send call (linux/uio.h, `UIO_MAXIOV`).
const PARTS: usize = 1024;
/// Maximum size of a frame's prefix in bytes: its length and a virtio-net header.
pub const HEAD: usize = 16;
/// Size in bytes of the buffer into which discarded bytes are read.
const FORGOTTEN: usize = 4096;
/// Maximum number of bytes discarded in one call.
const MOST_SKIPPED: usize = 128 * FORGOTTEN;

fn done(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| last_error())
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns the user and process that made a UNIX connection (`SO_PEERCRED`, unix(7)). The process ID is 0 if it is
/// invisible in this PID namespace.
///
/// # Errors
/// The error of getsockopt(2).
pub fn maker_of(connection: &OwnedFd) -> Result<libc::ucred, Errno> {
    let mut maker = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let at = (&raw mut maker).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure, for which any bytes are valid.
    let returned =
        unsafe { libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut len) };
    done(returned as isize).map(|_| maker)
}

/// Control data, aligned as `cmsghdr` requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Rights([u8; RIGHTS]);

const _: () = assert!(RIGHTS.is_multiple_of(8));

impl Rights {
    /// Returns the IDs of the process and the user from the first `len` bytes, which the kernel has written; `None` if
    /// these bytes contain no credentials.
    fn credentials(&self, len: usize) -> Option<(i32, u32)> {
        let (head, data) = header_of(self.0.get(..len)?)?;
        let is_it = head[1..] == [libc::SOL_SOCKET as usize, libc::SCM_CREDENTIALS as usize];
        let (process, data) = data.split_first_chunk().filter(|_| is_it)?;
        Some((i32::from_ne_bytes(*process), u32::from_ne_bytes(*data.first_chunk()?)))
    }

    /// Moves the descriptors of the first `len` bytes, which the kernel has written, into `into`.
    fn take(&self, len: usize, into: &mut Vec<OwnedFd>) {
        let header = size_of::<libc::cmsghdr>();
        let mut rest = self.0.get(..len).unwrap_or_default();
        while let Some(([size, level, kind], data)) = header_of(rest) {
            let Some(values) = size.checked_sub(header).and_then(|len| data.get(..len)) else { return };
            if (level, kind) == (libc::SOL_SOCKET as usize, libc::SCM_RIGHTS as usize) {
                let numbers = values.as_chunks().0.iter().map(|bytes| libc::c_int::from_ne_bytes(*bytes));
                // SAFETY: the kernel has just created these descriptors for this message; nothing else owns them.
                into.extend(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
            rest = rest.get(size.next_multiple_of(8)..).unwrap_or_default();
        }
    }
}

/// Returns length, level and type of the control message at the start of `bytes`, and the bytes after its header;
/// `None` if the header is incomplete.
fn header_of(bytes: &[u8]) -> Option<([usize; 3], &[u8])> {
    let (size, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, data) = rest.split_first_chunk()?;
    let int = |bytes: &[u8; 4]| libc::c_int::from_ne_bytes(*bytes) as usize;
    Some(([usize::from_ne_bytes(*size), int(level), int(kind)], data))
}

/// Returns an empty message header.
fn empty() -> libc::mmsghdr {
    // SAFETY: all zeros are valid: null pointers and numbers.
    unsafe { std::mem::zeroed() }
}

fn part(at: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }
}

/// Converts the length of control data to `usize`. The type of the length differs between C libraries.
fn control_len(len: impl TryInto<usize>) -> usize {
    len.try_into().unwrap_or_default().min(RIGHTS)
}

/// An address without a family.
const NOWHERE: libc::sockaddr_in =
    libc::sockaddr_in { sin_family: 0, sin_port: 0, sin_addr: libc::in_addr { s_addr: 0 }, sin_zero: [0; 8] };

/// Buffers for messages that are received together.
pub struct MessageBuffers {
    /// A buffer of `longest` bytes for each message. One block, so large that the allocator takes it from the kernel:
    /// pages that no message has used take no memory.
    buffers: Box<[u8]>,
    longest: usize,
    names: Vec<libc::sockaddr_in>,
    rights: Vec<Rights>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are written before each call and used in that call only.
unsafe impl Send for MessageBuffers {}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct CameMessage<'a> {
    /// The message's bytes, as far as they fit into the buffer.
    pub bytes: &'a [u8],
    /// Whether the message was longer than the buffer.
    pub is_cut: bool,
    /// The source address, if it is an IPv4 address.
    pub from: Option<SocketAddrV4>,
}

impl MessageBuffers {
    /// Creates buffers for messages of `longest` bytes.
    pub fn new(longest: usize) -> MessageBuffers {
        MessageBuffers {
            buffers: vec![0; MESSAGES * longest].into_boxed_slice(),
            longest,
            names: vec![NOWHERE; MESSAGES],
            rights: vec![Rights([0; RIGHTS]); MESSAGES],
            parts: vec![part(std::ptr::null(), 0); MESSAGES],
            headers: (0..MESSAGES).map(|_| empty()).collect(),
        }
    }

    /// Receives as many messages as are available and the buffers can hold. Returns their number. Descriptors that came
    /// with the messages go to `fds`; without a place for them, the kernel would close them in this call.
    ///
    /// # Errors
    /// The error of recvmmsg(2); `EAGAIN` if there is no message.
    pub fn receive(&mut self, socket: &OwnedFd, fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
        for (i, buffer) in self.buffers.chunks_exact_mut(self.longest).enumerate() {
            self.names[i] = NOWHERE;
            self.parts[i] = part(buffer.as_mut_ptr(), buffer.len());
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_iov = &raw mut self.parts[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.rights[i]).cast();
            header.msg_controllen = RIGHTS as _;
        }
        let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as _;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the headers point to names, parts, control data and buffers of `self`, which is borrowed exclusively;
        // none of them moves during the call, and all have the lengths given.
        let got = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, MESSAGES as u32, flags, std::ptr::null_mut()) };
        let got = done(got as isize)?.min(MESSAGES);
        for (header, rights) in self.headers.iter().zip(&self.rights).take(got) {
            let len = control_len(header.msg_hdr.msg_controllen);
            if len > 0 {
                rights.take(len, fds);
            }
        }
        Ok(got)
    }

    /// Returns message `i` of the last call; `None` if there is no such message.
    pub fn message(&self, i: usize) -> Option<CameMessage<'_>> {
        let buffer = self.buffers.chunks_exact(self.longest).nth(i)?;
        let header = self.headers.get(i)?;
        let name = self.names.get(i)?;
        let bytes = buffer.get(..(header.msg_len as usize).min(buffer.len()))?;
        let is_v4 = name.sin_family == libc::AF_INET as u16;
        let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
        let from = is_v4.then(|| SocketAddrV4::new(ip, u16::from_be(name.sin_port)));
        Some(CameMessage { bytes, is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0, from })
    }
}

/// The sender and the start of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSender {
    /// Path to which the sender's socket is bound, as the sender wrote it; `None` if it is not bound to a path.
    pub path: Option<PathBuf>,
    /// User ID of the sender, attested by the kernel.
    pub user: u32,
    /// Process ID of the sender; 0 if it is invisible in this PID namespace.
    pub process: i32,
    /// The first bytes of the datagram.
    pub begins: [u8; 4],
    /// Length of the datagram in bytes.
    pub len: usize,
}

/// Returns the sender of the next datagram, which stays in the socket. The socket must have `SO_PASSCRED` set.
///
/// # Errors
/// The error of recvmsg(2); `EAGAIN` if there is no datagram.
pub fn sender_of_next(socket: &OwnedFd) -> Result<GuestSender, Errno> {
    let mut begins = [0; 4];
    let mut name = libc::sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let mut rights = Rights([0; RIGHTS]);
    let mut one = part(begins.as_mut_ptr(), begins.len());
    let mut header = empty().msg_hdr;
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_un>() as u32;
    header.msg_iov = &raw mut one;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut rights).cast();
    header.msg_controllen = CREDENTIALS as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to a name, a part and control data that outlive the call, with the lengths given.
    let len = done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })?;
    let (process, user) = rights.credentials(control_len(header.msg_controllen)).ok_or(Errno::ACCESS)?;
    let end = (header.msg_namelen as usize).saturating_sub(2).min(name.sun_path.len());
    let path: Vec<u8> = name.sun_path[..end].iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    let path = (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)));
    Ok(GuestSender { path, user, process, begins, len })
}

/// Result of a peek at a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Number of copied bytes.
    pub bytes: usize,
    /// Whether descriptors came with the bytes; they stay in the socket.
    pub has_descriptors: bool,
}

/// Copies bytes that wait in a stream socket into `into`, as far as they fit, and leaves them in the socket.
/// [`Peeked::bytes`] is 0 if the peer has hung up.
///
/// # Errors
/// The error of recvmsg(2); `EAGAIN` if there are no bytes.
pub fn peek(socket: &OwnedFd, into: &mut [u8]) -> Result<Peeked, Errno> {
    let mut one = part(into.as_mut_ptr(), into.len());
    let mut header = empty().msg_hdr;
    header.msg_iov = &raw mut one;
    header.msg_iovlen = 1;
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header points to one part, which covers `into`, borrowed exclusively; the part and `into` outlive the
    // call.
    let bytes = done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })?.min(into.len());
    Ok(Peeked { bytes, has_descriptors: header.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Reads bytes from streams and discards them.
pub struct Skipper {
    forgotten: Box<[u8; FORGOTTEN]>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers are written before each call and used in that call only.
unsafe impl Send for Skipper {}

impl Default for Skipper {
    fn default() -> Self {
        Skipper { forgotten: Box::new([0; FORGOTTEN]), parts: Vec::with_capacity(MOST_SKIPPED / FORGOTTEN) }
    }
}

impl Skipper {
    /// Discards `count` bytes, all of which must be in the socket.
    ///
    /// # Errors
    /// The error of recvmsg(2); `EAGAIN` if there are fewer bytes, `EPIPE` if the peer has hung up.
    pub fn skip(&mut self, socket: &OwnedFd, mut count: usize) -> Result<(), Errno> {
        while count > 0 {
            let skipped = self.skip_some(socket, count.min(MOST_SKIPPED))?;
            if skipped == 0 {
                return Err(Errno::PIPE);
            }
            count -= skipped.min(count);
        }
        Ok(())
    }

    /// Discards up to `count` bytes in one call. Returns the number of discarded bytes. All parts use the same memory,
    /// which therefore stays in the first-level cache.
    fn skip_some(&mut self, socket: &OwnedFd, count: usize) -> Result<usize, Errno> {
        let at = self.forgotten.as_mut_ptr();
        let lens = (0..count).step_by(FORGOTTEN).map(|from| FORGOTTEN.min(count - from));
        self.parts.clear();
        self.parts.extend(lens.map(|len| part(at, len)));
        let mut header = empty().msg_hdr;
        header.msg_iov = self.parts.as_mut_ptr();
        header.msg_iovlen = self.parts.len() as _;
        // SAFETY: each part is at most `FORGOTTEN` bytes of this value's own memory, which nothing reads.
        done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) })
    }
}

/// Frames, each with its prefix, which one call sends without copying them.
pub struct Parcels {
    heads: Vec<[u8; HEAD]>,
    parts: Vec<libc::iovec>,
    /// Index of each frame's first part.
    begins: Vec<usize>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are valid by the contract of `add_frame` and `add_bytes` until the frames are sent or cleared;
// nothing else reads them.
unsafe impl Send for Parcels {}

impl Default for Parcels {
    fn default() -> Self {
        Parcels {
            heads: Vec::with_capacity(PARCELS),
            parts: Vec::with_capacity(PARTS),
            begins: Vec::with_capacity(PARCELS),
            headers: (0..PARCELS).map(|_| empty()).collect(),
        }
    }
}

impl Parcels {
    /// Removes all frames.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.parts.clear();
        self.begins.clear();
    }

    /// Returns whether there is room for a frame of this many pieces.
    pub fn has_room(&self, pieces: usize) -> bool {
        self.begins.len() < PARCELS && self.parts.len() + 1 + pieces <= PARTS
    }

    /// Starts a frame with a prefix of at most [`HEAD`] bytes. There must be room.
    fn begin(&mut self, head: &[u8]) {
        debug_assert!(self.begins.len() < PARCELS);
        let mut copy = [0; HEAD];
        let len = head.len().min(HEAD);
        copy[..len].copy_from_slice(&head[..len]);
        self.begins.push(self.parts.len());
        self.heads.push(copy);
        // `heads` never grows beyond its capacity, so its entries do not move.
        let at = self.heads.last().map_or(std::ptr::null(), |head| head.as_ptr());
        if len > 0 {
            self.parts.push(part(at, len));
        }
    }

    /// Adds a frame of a batch. There must be room.
    ///
    /// # Safety
    /// The frame's batch must not be cleared before the frames are sent or cleared.
    pub unsafe fn add_frame(&mut self, head: &[u8], frame: &FrameRef<'_>) {
        self.begin(head);
        let pieces = (0..frame.pieces()).map(|i| frame.piece(i).raw());
        // The kernel copies from these addresses.
        self.parts.extend(pieces.map(|(at, len)| part(at, len)));
    }

    /// Adds a contiguous frame. There must be room.
    ///
    /// # Safety
    /// The bytes must neither move nor be written before the frames are sent or cleared.
    pub unsafe fn add_bytes(&mut self, head: &[u8], bytes: &[u8]) {
        self.begin(head);
        self.parts.push(part(bytes.as_ptr(), bytes.len()));
    }

    fn parts_of(&self, parcels: &Range<usize>) -> Range<usize> {
        let place = |i: usize| self.begins.get(i).copied().unwrap_or(self.parts.len());
        place(parcels.start)..place(parcels.end)
    }

    /// Sends each frame as a message. Returns the number of sent frames.
    ///
    /// # Errors
    /// The error of sendmmsg(2) for the first frame.
    pub fn send_messages(&mut self, socket: &OwnedFd, parcels: Range<usize>) -> Result<usize, Errno> {
        for i in parcels.clone() {
            let range = self.parts_of(&(i..i + 1));
            let parts = self.parts.get_mut(range).unwrap_or_default();
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = parts.len() as _;
        }
        let headers = self.headers.get_mut(parcels).unwrap_or_default();
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _;
        let count = headers.len() as u32;
        // SAFETY: the headers point to parts of `self`, and the parts point to heads of `self` and to frames, which are
        // readable by the contracts of `add_frame` and `add_bytes`.
        done(unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags) } as isize)
    }

    /// Sends the frames as a byte stream. Returns the number of sent bytes.
    ///
    /// # Errors
    /// The error of sendmsg(2).
    pub fn send_stream(&mut self, socket: &OwnedFd, parcels: &Range<usize>) -> Result<usize, Errno> {
        let range = self.parts_of(parcels);
        let parts = self.parts.get_mut(range).unwrap_or_default();
        let mut header = empty().msg_hdr;
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len() as _;
        // SAFETY: as in `send_messages`.
        done(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
    }

    /// Appends a frame's bytes after the first `skipped` bytes to `into`.
    pub fn copy_rest(&self, parcel: usize, mut skipped: usize, into: &mut Vec<u8>) {
        for one in self.parts.get(self.parts_of(&(parcel..parcel + 1))).unwrap_or_default() {
            let past = skipped.min(one.iov_len);
            skipped -= past;
            let len = one.iov_len - past;
            if len == 0 {
                continue;
            }
            let begin = into.len();
            into.resize(begin + len, 0);
            // SAFETY: the part's bytes are readable as in `send_messages`; `into` has `len` bytes from `begin` on.
            unsafe { copy_bytes(one.iov_base.cast::<u8>().add(past).cast_const(), into.as_mut_ptr().add(begin), len) };
        }
    }
}
