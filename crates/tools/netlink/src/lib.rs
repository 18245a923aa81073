//! Rtnetlink sockets (rtnetlink(7)) in the calling thread's network namespace: [`NetlinkSocket`] for requests and
//! dumps, [`NetlinkEvents`] for notifications.
//!
//! Messages from senders other than the kernel, answers to earlier requests, and messages of unknown types, which newer
//! kernels may send, are skipped.
#![forbid(unsafe_code)]

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// Maximum length of a datagram in bytes. The kernel limits each datagram of a dump to 32 KiB.
const LONGEST: usize = 64 * 1024;
/// Size of the receive buffer for unread notifications, in bytes: enough for notifications about some 100,000
/// addresses.
const QUEUE: usize = 64 << 20;
/// Groups of notifications: `RTMGRP_LINK` and `RTMGRP_NEIGH` of linux/rtnetlink.h.
const GROUPS: u32 = 0x1 | 0x4;
/// `NLM_F_DUMP_INTR`: the table changed during its dump.
const INTERRUPTED: u16 = 0x10;
/// Maximum number of attempts to get a consistent dump.
const ATTEMPTS: usize = 5;

/// How a request treats existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMode {
    /// Changes or removes an existing object; fails if the object does not exist.
    Change,
    /// Creates the object; fails if it already exists.
    New,
    /// Creates the object, or replaces the existing one.
    Replace,
}

/// A netlink socket for requests and dumps.
#[derive(Debug)]
pub struct NetlinkSocket {
    fd: OwnedFd,
    place: Vec<u8>,
    number: u32,
}

impl NetlinkSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// The error of socket(2).
    pub fn open() -> rustix::io::Result<NetlinkSocket> {
        Ok(NetlinkSocket { fd: socket(SocketFlags::CLOEXEC)?, place: vec![0; LONGEST], number: 0 })
    }

    /// Sends a request and waits for its acknowledgement.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn request(&mut self, request: RouteNetlinkMessage, mode: RequestMode) -> rustix::io::Result<()> {
        let flags = match mode {
            RequestMode::Change => 0,
            RequestMode::New => NLM_F_CREATE | NLM_F_EXCL,
            RequestMode::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        };
        self.send(request, flags | NLM_F_ACK)?;
        self.answers(&mut |_| {}).map(drop)
    }

    /// Sets attributes of an interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_link(&mut self, index: u32, attributes: Vec<LinkAttribute>) -> rustix::io::Result<()> {
        self.request(RouteNetlinkMessage::SetLink(link_message(index, attributes)), RequestMode::Change)
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bring_up(&mut self, index: u32) -> rustix::io::Result<()> {
        let mut message = link_message(index, Vec::new());
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), RequestMode::Change)
    }

    /// Finds an interface by name. Returns what `parse` returns for the kernel's description of the interface.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist, or `parse` returns `None`.
    pub fn link<T>(&mut self, name: &str, parse: impl Fn(&RouteNetlinkMessage) -> Option<T>) -> rustix::io::Result<T> {
        let message = link_message(0, vec![LinkAttribute::IfName(name.to_owned())]);
        let mut link = None;
        self.send(RouteNetlinkMessage::GetLink(message), NLM_F_ACK)?;
        self.answers(&mut |answer| link = link.take().or_else(|| parse(&answer)))?;
        link.ok_or(Errno::NODEV)
    }

    /// Dumps a whole table. Returns the entries as `parse` returns them, without those for which it returns `None`. If
    /// the table changes during the dump, the dump is repeated; if it changes during all attempts, entries may be
    /// missing.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn dump<T>(
        &mut self,
        request: &RouteNetlinkMessage,
        parse: impl Fn(&RouteNetlinkMessage) -> Option<T>,
    ) -> rustix::io::Result<Vec<T>> {
        let mut entries = Vec::new();
        for _ in 0..ATTEMPTS {
            entries.clear();
            self.send(request.clone(), NLM_F_DUMP)?;
            let is_interrupted = self.answers(&mut |answer| entries.extend(parse(&answer)))?;
            if !is_interrupted {
                break;
            }
        }
        Ok(entries)
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> rustix::io::Result<()> {
        self.number = self.number.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.number;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty()).map(drop)
    }

    /// Reads the answers to the last request. Returns whether the kernel reports that a dump is inconsistent.
    fn answers(&mut self, each: &mut dyn FnMut(RouteNetlinkMessage)) -> rustix::io::Result<bool> {
        let mut interrupted = false;
        loop {
            let Some(length) = receive(&self.fd, &mut self.place, RecvFlags::empty())? else { continue };
            let mut messages = Messages(self.place.get(..length).unwrap_or(&[]));
            while let Some(message) = messages.next()? {
                // An answer with another number belongs to an earlier request that was abandoned.
                if message.header.sequence_number != self.number {
                    continue;
                }
                interrupted |= message.header.flags & INTERRUPTED != 0;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(interrupted),
                    NetlinkPayload::Error(error) => {
                        return error.code.map_or(Ok(interrupted), |code| {
                            Err(Errno::from_raw_os_error(code.get().saturating_abs()))
                        });
                    }
                    NetlinkPayload::InnerMessage(inner) => each(inner),
                    _ => {}
                }
            }
        }
    }
}

/// A netlink socket for notifications about devices, forwarding entries and neighbours.
#[derive(Debug)]
pub struct NetlinkEvents {
    fd: OwnedFd,
    place: Vec<u8>,
}

impl NetlinkEvents {
    /// Opens a socket.
    ///
    /// # Errors
    /// The error of socket(2) or bind(2).
    pub fn open() -> rustix::io::Result<NetlinkEvents> {
        let fd = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // The first call needs CAP_NET_ADMIN. Without this capability, the second call sets the size, up to the
        // system's limit.
        if sockopt::set_socket_recv_buffer_size_force(&fd, QUEUE).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, QUEUE)?;
        }
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(NetlinkEvents { fd, place: vec![0; LONGEST] })
    }

    /// Reads notifications without blocking, at most `limit` datagrams. `each` is called with each notification.
    /// Returns `false` if notifications were lost, so that the tables must be read again.
    ///
    /// # Errors
    /// The error of recvmsg(2).
    pub fn read(&mut self, limit: usize, each: &mut dyn FnMut(RouteNetlinkMessage)) -> rustix::io::Result<bool> {
        for _ in 0..limit {
            let length = match receive(&self.fd, &mut self.place, RecvFlags::DONTWAIT) {
                Ok(Some(length)) => length,
                Ok(None) => continue,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::NOBUFS | Errno::MSGSIZE) => return Ok(false),
                Err(error) => return Err(error),
            };
            let mut messages = Messages(self.place.get(..length).unwrap_or(&[]));
            while let Some(message) = messages.next()? {
                if let NetlinkPayload::InnerMessage(inner) = message.payload {
                    each(inner);
                }
            }
        }
        Ok(true)
    }

    /// Returns whether there are unread notifications.
    ///
    /// # Errors
    /// The error of poll(2).
    pub fn are_there(&self) -> rustix::io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))
            .map(|n| n > 0)
    }

    /// Discards unread notifications.
    pub fn discard(&mut self) {
        while !matches!(receive(&self.fd, &mut self.place, RecvFlags::DONTWAIT), Err(Errno::AGAIN)) {}
    }
}

impl AsFd for NetlinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns a message about the interface with this index; 0 stands for an interface that the attributes name.
pub fn link_message(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    // Protocol 0 is NETLINK_ROUTE.
    rustix::net::socket_with(rustix::net::AddressFamily::NETLINK, SocketType::RAW, flags, None)
}

/// Receives a datagram. Returns its length; `None` if the sender is not the kernel.
fn receive(fd: &OwnedFd, place: &mut [u8], flags: RecvFlags) -> rustix::io::Result<Option<usize>> {
    let mut iov = [IoSliceMut::new(place)];
    let got =
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(fd, &mut iov, &mut RecvAncillaryBuffer::default(), flags))?;
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let sender = got.address.and_then(|address| SocketAddrNetlink::try_from(address).ok());
    Ok(sender.filter(|sender| sender.pid() == 0).map(|_| got.bytes))
}

/// The messages of a datagram that have not been read yet.
#[derive(Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl Messages<'_> {
    /// Reads the next message; `None` after the last message.
    ///
    /// # Errors
    /// `EPROTO` if the message is malformed. In this case, the rest of the datagram is skipped.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> rustix::io::Result<Option<NetlinkMessage<RouteNetlinkMessage>>> {
        while !self.0.is_empty() {
            let length = self.0.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes).ok_or(Errno::PROTO)?;
            let length = usize::try_from(length).map_err(|_| Errno::PROTO)?;
            let one = self.0.get(..length).filter(|one| one.len() >= 16).ok_or(Errno::PROTO)?;
            self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            // Messages that the parser does not know are skipped.
            if let Ok(message) = NetlinkMessage::deserialize(one) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}
