//! System calls of sockets that rustix lacks: many messages into buffers; frames as parcels, from where they lie; a
//! look at the waiting bytes of a stream, and a skipper that takes them out.
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

/// Room for a control message with as many descriptors as the kernel passes (`SCM_MAX_FD`, linux/net/scm.h).
const RIGHTS: usize = size_of::<libc::cmsghdr>() + 254 * size_of::<libc::c_int>();
/// Room for one with a user and a process.
const CREDENTIALS: usize = size_of::<libc::cmsghdr>() + 16;
/// Messages received together.
pub const MESSAGES: usize = 32;
/// Frames sent together, and their parts (linux/uio.h, `UIO_MAXIOV`).
pub const PARCELS: usize = 64;
const PARTS: usize = 1024;
/// Bytes in front of a frame: its length, and a virtio-net header.
pub const HEAD: usize = 16;
/// Bytes that a stream's bytes are taken out into, to be forgotten.
const FORGOTTEN: usize = 4096;
/// Calls of one kind for that many bytes at most.
const MOST_SKIPPED: usize = 128 * FORGOTTEN;

fn done(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| last_error())
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Who made a UNIX connection: user and process, whose number is 0 if it has none in this PID namespace
/// (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// Whatever getsockopt(2) returns.
pub fn maker_of(connection: &OwnedFd) -> Result<libc::ucred, Errno> {
    let mut maker = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let at = (&raw mut maker).cast();
    // SAFETY: the kernel writes at most `len` bytes, which is the size of what is there, and any bytes make one.
    let returned =
        unsafe { libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut len) };
    done(returned as isize).map(|_| maker)
}

/// Control data, aligned as its header needs.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Rights([u8; RIGHTS]);

const _: () = assert!(RIGHTS.is_multiple_of(8));

impl Rights {
    /// Process and user in the first `len` bytes, which the kernel has written.
    fn credentials(&self, len: usize) -> Option<(i32, u32)> {
        let (head, data) = header_of(self.0.get(..len)?)?;
        let is_it = head[1..] == [libc::SOL_SOCKET as usize, libc::SCM_CREDENTIALS as usize];
        let (process, data) = data.split_first_chunk().filter(|_| is_it)?;
        Some((i32::from_ne_bytes(*process), u32::from_ne_bytes(*data.first_chunk()?)))
    }

    /// Takes the descriptors out of the first `len` bytes, which the kernel has written.
    fn take(&self, len: usize, into: &mut Vec<OwnedFd>) {
        let header = size_of::<libc::cmsghdr>();
        let mut rest = self.0.get(..len).unwrap_or_default();
        while let Some(([size, level, kind], data)) = header_of(rest) {
            let Some(values) = size.checked_sub(header).and_then(|len| data.get(..len)) else { return };
            if (level, kind) == (libc::SOL_SOCKET as usize, libc::SCM_RIGHTS as usize) {
                let numbers = values.as_chunks().0.iter().map(|bytes| libc::c_int::from_ne_bytes(*bytes));
                // SAFETY: the kernel has just made these descriptors for this message, and nobody else knows them.
                into.extend(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
            rest = rest.get(size.next_multiple_of(8)..).unwrap_or_default();
        }
    }
}

/// Length, level and type of the control message that bytes begin with, and what follows its header.
fn header_of(bytes: &[u8]) -> Option<([usize; 3], &[u8])> {
    let (size, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, data) = rest.split_first_chunk()?;
    let int = |bytes: &[u8; 4]| libc::c_int::from_ne_bytes(*bytes) as usize;
    Some(([usize::from_ne_bytes(*size), int(level), int(kind)], data))
}

/// A message header with nothing in it.
fn empty() -> libc::mmsghdr {
    // SAFETY: all zeros are a value of it: null pointers and numbers.
    unsafe { std::mem::zeroed() }
}

fn part(at: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }
}

/// Bytes of control data: C libraries differ in the type of that number.
fn control_len(len: impl TryInto<usize>) -> usize {
    len.try_into().unwrap_or_default().min(RIGHTS)
}

/// No address.
const NOWHERE: libc::sockaddr_in =
    libc::sockaddr_in { sin_family: 0, sin_port: 0, sin_addr: libc::in_addr { s_addr: 0 }, sin_zero: [0; 8] };

/// Buffers for messages that are received together.
pub struct MessageBuffers {
    buffers: Vec<Box<[u8]>>,
    names: Vec<libc::sockaddr_in>,
    rights: Vec<Rights>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: pointers in it are written before each call, and used in that call only.
unsafe impl Send for MessageBuffers {}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct CameMessage<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether there were more.
    pub is_cut: bool,
    /// Where it came from, if that is an address of IPv4.
    pub from: Option<SocketAddrV4>,
}

impl MessageBuffers {
    /// Makes room for messages of that many bytes.
    pub fn new(longest: usize) -> MessageBuffers {
        MessageBuffers {
            buffers: (0..MESSAGES).map(|_| vec![0; longest].into_boxed_slice()).collect(),
            names: vec![NOWHERE; MESSAGES],
            rights: vec![Rights([0; RIGHTS]); MESSAGES],
            parts: vec![part(std::ptr::null(), 0); MESSAGES],
            headers: (0..MESSAGES).map(|_| empty()).collect(),
        }
    }

    /// Receives as many messages as there are and have room. Returns their number. Descriptors that came with them,
    /// which the kernel would otherwise close here, go to `fds`.
    ///
    /// # Errors
    /// Whatever recvmmsg(2) returns; `EAGAIN` if there is none.
    pub fn receive(&mut self, socket: &OwnedFd, fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
        for (i, buffer) in self.buffers.iter_mut().enumerate() {
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

    /// Message `i` of those received last.
    pub fn message(&self, i: usize) -> Option<CameMessage<'_>> {
        let buffer = self.buffers.get(i)?;
        let header = self.headers.get(i)?;
        let name = self.names.get(i)?;
        let bytes = buffer.get(..(header.msg_len as usize).min(buffer.len()))?;
        let is_v4 = name.sin_family == libc::AF_INET as u16;
        let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
        let from = is_v4.then(|| SocketAddrV4::new(ip, u16::from_be(name.sin_port)));
        Some(CameMessage { bytes, is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0, from })
    }
}

/// Who has sent a datagram, and how it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSender {
    /// The path that the sender's socket was bound to, as the sender had it.
    pub path: Option<PathBuf>,
    /// Its user and process, as the kernel vouches for them.
    pub user: u32,
    /// The process; 0: it has no number in this PID namespace.
    pub process: i32,
    /// The first bytes.
    pub begins: [u8; 4],
    /// All bytes.
    pub len: usize,
}

/// Looks who has sent the datagram that is next; it stays there. The socket must ask for that (`SO_PASSCRED`).
///
/// # Errors
/// Whatever recvmsg(2) returns; `EAGAIN` if nothing waits.
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

/// What is found at the front of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Bytes that were copied.
    pub bytes: usize,
    /// Whether descriptors came with them, which stay where they are.
    pub has_descriptors: bool,
}

/// Copies what waits in a stream, as much as there is room for; it stays there. `bytes` is 0 if the peer has hung up.
///
/// # Errors
/// Whatever recvmsg(2) returns; `EAGAIN` if nothing waits.
pub fn peek(socket: &OwnedFd, into: &mut [u8]) -> Result<Peeked, Errno> {
    let mut one = part(into.as_mut_ptr(), into.len());
    let mut header = empty().msg_hdr;
    header.msg_iov = &raw mut one;
    header.msg_iovlen = 1;
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the header points to one part, which is `into`, borrowed exclusively; both outlive the call.
    let bytes = done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })?.min(into.len());
    Ok(Peeked { bytes, has_descriptors: header.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Takes bytes out of streams and forgets them.
pub struct Skipper {
    forgotten: Box<[u8; FORGOTTEN]>,
    parts: Vec<libc::iovec>,
}

// SAFETY: pointers in it are written before each call, and used in that call only.
unsafe impl Send for Skipper {}

impl Default for Skipper {
    fn default() -> Self {
        Skipper { forgotten: Box::new([0; FORGOTTEN]), parts: Vec::with_capacity(MOST_SKIPPED / FORGOTTEN) }
    }
}

impl Skipper {
    /// Takes that many bytes out, all of which wait there.
    ///
    /// # Errors
    /// Whatever recvmsg(2) returns; `EAGAIN` if there were fewer.
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

    /// All parts are the same memory, which so stays in the first cache.
    fn skip_some(&mut self, socket: &OwnedFd, count: usize) -> Result<usize, Errno> {
        let at = self.forgotten.as_mut_ptr();
        let lens = (0..count).step_by(FORGOTTEN).map(|from| FORGOTTEN.min(count - from));
        self.parts.clear();
        self.parts.extend(lens.map(|len| part(at, len)));
        let mut header = empty().msg_hdr;
        header.msg_iov = self.parts.as_mut_ptr();
        header.msg_iovlen = self.parts.len() as _;
        // SAFETY: each part is at most `FORGOTTEN` bytes of memory that is this value's own, and read by nobody.
        done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) })
    }
}

/// Frames that are sent together, each with what stands in front of it, from where they lie.
pub struct Parcels {
    heads: Vec<[u8; HEAD]>,
    parts: Vec<libc::iovec>,
    /// First part of each.
    begins: Vec<usize>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: pointers in it belong to the caller of `add` and its like, who promised that they are good until the frames
// are sent or cleared; nothing else reads them.
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
    /// Forgets all frames.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.parts.clear();
        self.begins.clear();
    }

    /// Whether there is room for a frame of that many pieces.
    pub fn has_room(&self, pieces: usize) -> bool {
        self.begins.len() < PARCELS && self.parts.len() + 1 + pieces <= PARTS
    }

    /// Begins a frame with what stands in front of it, at most [`HEAD`] bytes. There has to be room.
    fn begin(&mut self, head: &[u8]) {
        debug_assert!(self.begins.len() < PARCELS);
        let mut copy = [0; HEAD];
        let len = head.len().min(HEAD);
        copy[..len].copy_from_slice(&head[..len]);
        self.begins.push(self.parts.len());
        self.heads.push(copy);
        // `heads` never grows beyond its capacity, so that what is in it stays where it is.
        let at = self.heads.last().map_or(std::ptr::null(), |head| head.as_ptr());
        if len > 0 {
            self.parts.push(part(at, len));
        }
    }

    /// Adds a frame of a batch. There has to be room.
    ///
    /// # Safety
    /// The batch of the frame must not be cleared before the frames are sent or cleared.
    pub unsafe fn add_frame(&mut self, head: &[u8], frame: &FrameRef<'_>) {
        self.begin(head);
        let pieces = (0..frame.pieces()).map(|i| frame.piece(i).raw());
        // The addresses go to the kernel, which copies.
        self.parts.extend(pieces.map(|(at, len)| part(at, len)));
    }

    /// Adds a frame of one piece. There has to be room.
    ///
    /// # Safety
    /// The bytes must stay where they are, and be written by nobody, before the frames are sent or cleared.
    pub unsafe fn add_bytes(&mut self, head: &[u8], bytes: &[u8]) {
        self.begin(head);
        self.parts.push(part(bytes.as_ptr(), bytes.len()));
    }

    fn parts_of(&self, parcels: &Range<usize>) -> Range<usize> {
        let place = |i: usize| self.begins.get(i).copied().unwrap_or(self.parts.len());
        place(parcels.start)..place(parcels.end)
    }

    /// Sends each as a message. Returns how many were sent.
    ///
    /// # Errors
    /// Whatever sendmmsg(2) returns, about the first.
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
        // SAFETY: the headers point to parts of `self`, and those to heads of `self` and to frames, which are readable
        // by the contracts of `add_frame` and `add_bytes`.
        done(unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags) } as isize)
    }

    /// Sends these one behind the other. Returns how many bytes were sent.
    ///
    /// # Errors
    /// Whatever sendmsg(2) returns.
    pub fn send_stream(&mut self, socket: &OwnedFd, parcels: &Range<usize>) -> Result<usize, Errno> {
        let range = self.parts_of(parcels);
        let parts = self.parts.get_mut(range).unwrap_or_default();
        let mut header = empty().msg_hdr;
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len() as _;
        // SAFETY: as in `send_messages`.
        done(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
    }

    /// Copies what one has behind its first `skipped` bytes.
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
