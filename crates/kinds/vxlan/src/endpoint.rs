//! The UDP socket of a VTEP's address and port, shared by the tunnels of several VNIs, and their sockets to send from.
//!
//! Any tunnel's worker reads the socket; datagrams of another VNI go to that tunnel's inbox. A reader holds
//! [`Endpoint::turn`] until it has finished, and empties its own inbox first: datagrams of a VNI stay in order.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use netvale_mem::lent::{Guard, Lent};
use netvale_port::pace::Pace;
use netvale_port::wake::WakeSet;
use thiserror::Error;

use crate::sys::{self, Message};

/// Most bytes that wait in the socket: half a millisecond at 100 Gbit/s.
const RECEIVE_ROOM: i32 = 4 << 20;
const SEND_ROOM: i32 = 4 << 20;
/// Messages in an inbox.
const INBOX: usize = 32;
/// Number of sockets to send from: flows spread over their source ports.
pub const SOURCES: usize = 16;
/// Shift of the ECN codepoint, above the socket's number.
pub const ECN_SHIFT: u32 = SOURCES.ilog2();

/// An error creating a tunnel.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// Another socket has the address and port.
    #[error("UDP port {1} of {0} is in use: by the kernel's VXLAN device or another program; name another port")]
    InUse(IpAddr, u16),
    /// The address is not one of this host's.
    #[error("{0} is no address of this host")]
    NotHere(IpAddr),
    /// Another tunnel has the VNI.
    #[error("VNI {0} is another port's on this address and UDP port")]
    VniInUse(u32),
    /// A system call failed.
    #[error("UDP socket at {0}: {1}")]
    Socket(IpAddr, io::Error),
}

/// Options for sending datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// Time to live, or hop limit; `None`: the system's.
    pub ttl: Option<u8>,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// Whether routers, and this host, may fragment datagrams.
    pub may_fragment: bool,
    /// Whether datagrams have no checksum.
    pub no_checksum: bool,
}

/// Sockets to send from, with the same options.
#[derive(Debug)]
pub struct Sources {
    sockets: Vec<OwnedFd>,
    /// Type of service, or traffic class, without the codepoint.
    pub class: u8,
    /// Whether the kernel cuts messages into datagrams (UDP GSO).
    gso: AtomicBool,
    /// Pacing of the workers' time for sending.
    pub(crate) pace: Pace,
}

impl Sources {
    fn new(local: IpAddr, options: SendOptions) -> io::Result<Sources> {
        let one = |_| {
            let socket = sys::udp(SocketAddr::new(local, 0))?;
            sys::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_ROOM)?;
            options.set_on(&socket, local.is_ipv4())?;
            Ok(socket)
        };
        let sockets = (0..SOURCES).map(one).collect::<io::Result<_>>()?;
        // The kernel refuses GSO without checksums.
        Ok(Sources {
            sockets,
            class: options.dscp << 2,
            gso: AtomicBool::new(!options.no_checksum || !local.is_ipv4()),
            pace: Pace::default(),
        })
    }

    /// Whether the kernel cuts messages into datagrams.
    #[inline]
    pub fn has_gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Records that the kernel cannot cut messages on the path of these packets: through IPsec, or out of a card
    /// without checksum offload (older kernels).
    pub fn disable_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// The socket for flows with this hash.
    #[inline]
    pub fn get(&self, hash: usize) -> &OwnedFd {
        &self.sockets[hash % self.sockets.len()]
    }
}

impl SendOptions {
    fn set_on(self, socket: &OwnedFd, is_v4: bool) -> io::Result<()> {
        let (level, ttl, tos, discover) = if is_v4 {
            (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS, libc::IP_MTU_DISCOVER)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS, libc::IPV6_MTU_DISCOVER)
        };
        if let Some(value) = self.ttl {
            sys::set(socket, level, ttl, value.into())?;
        }
        sys::set(socket, level, tos, i32::from(self.dscp) << 2)?;
        let how = if self.may_fragment { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_DO };
        sys::set(socket, level, discover, how)?;
        // IPv6 has no datagrams without checksums (RFC 6935).
        if self.no_checksum && is_v4 {
            sys::set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
        }
        Ok(())
    }
}

/// Messages for a tunnel that other tunnels' workers have read.
pub struct Inbox {
    content: Lent<Content>,
    wake: Arc<WakeSet>,
}

struct Content {
    full: Vec<Message>,
    spare: Vec<Message>,
}

impl Inbox {
    /// Creates an empty inbox; its owner sleeps on `wake`.
    fn new(wake: Arc<WakeSet>) -> Inbox {
        let content =
            Content { full: Vec::with_capacity(INBOX), spare: (0..INBOX).map(|_| Message::empty()).collect() };
        Inbox { content: Lent::with(content), wake }
    }

    /// Adds a message, made by `fill` from a spare one. Returns whether it had room.
    fn put(&self, fill: impl FnOnce(&mut Message)) -> bool {
        let Ok(mut content) = self.content.enter() else { return false };
        let Some(mut message) = content.spare.pop() else { return false };
        fill(&mut message);
        content.full.push(message);
        drop(content);
        self.wake.poke();
        true
    }

    /// Appends messages to `into`, while `free` has buffers. Returns whether some are left.
    pub fn take(&self, into: &mut Vec<Message>, free: &mut Vec<Message>) -> bool {
        let Ok(mut content) = self.content.enter() else { return true };
        let Content { full, spare } = &mut *content;
        let count = full.len().min(free.len());
        into.extend(full.drain(..count));
        spare.extend(free.drain(..count));
        !full.is_empty()
    }
}

/// A tunnel of an endpoint: its VNI and its inbox.
type Member = (u32, Arc<Inbox>);

/// A VTEP of this host.
pub struct Endpoint {
    local: IpAddr,
    port: u16,
    socket: OwnedFd,
    /// The turn to read.
    turn: Lent<()>,
    members: ArcSwap<Vec<Member>>,
    /// Held during changes of the members.
    changing: Mutex<()>,
    sources: Mutex<HashMap<SendOptions, Weak<Sources>>>,
}

impl Endpoint {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`EndpointError`] if the address is not this host's, the port is in use, or no descriptors are left.
    pub fn new(local: IpAddr, port: u16) -> Result<Endpoint, EndpointError> {
        let socket = sys::udp(SocketAddr::new(local, port)).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => EndpointError::InUse(local, port),
            Some(libc::EADDRNOTAVAIL) => EndpointError::NotHere(local),
            _ => EndpointError::Socket(local, e),
        })?;
        Self::of(local, port, socket)
    }

    /// Continues with another process's socket.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if it is not such a socket.
    pub fn continued(local: IpAddr, port: u16, socket: OwnedFd) -> Result<Endpoint, EndpointError> {
        let is_bound = rustix::net::getsockname(&socket)
            .ok()
            .and_then(|name| SocketAddr::try_from(name).ok())
            .is_some_and(|name| name == SocketAddr::new(local, port));
        let kind = sys::get(&socket, libc::SOL_SOCKET, libc::SO_TYPE).ok();
        if !is_bound || kind != Some(libc::SOCK_DGRAM) {
            return Err(EndpointError::Socket(local, io::ErrorKind::InvalidInput.into()));
        }
        Self::of(local, port, socket)
    }

    fn of(local: IpAddr, port: u16, socket: OwnedFd) -> Result<Endpoint, EndpointError> {
        let failed = |e| EndpointError::Socket(local, e);
        sys::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_ROOM).map_err(failed)?;
        // Received data is another host's, and is cut again where necessary. Kernels without this option deliver each
        // datagram alone.
        let _ = sys::set_gro(&socket);
        let (level, name) = if local.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVTOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
        };
        sys::set(&socket, level, name, 1).map_err(failed)?;
        let turn = Lent::with(());
        let members = ArcSwap::default();
        let sources = Mutex::default();
        Ok(Endpoint { local, port, socket, turn, members, changing: Mutex::default(), sources })
    }

    /// Its address.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Its UDP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds the tunnel of a VNI, whose worker sleeps on `wake`.
    ///
    /// # Errors
    /// [`EndpointError::VniInUse`], or [`EndpointError::Socket`] if the wake set refuses the socket.
    pub fn join(&self, vni: u32, wake: &Arc<WakeSet>) -> Result<Arc<Inbox>, EndpointError> {
        if self.members.load().iter().any(|(other, _)| *other == vni) {
            return Err(EndpointError::VniInUse(vni));
        }
        wake.add(&self.socket).map_err(|e| EndpointError::Socket(self.local, e.into()))?;
        let inbox = Arc::new(Inbox::new(Arc::clone(wake)));
        self.change(|members| members.push((vni, Arc::clone(&inbox))));
        Ok(inbox)
    }

    /// Removes the tunnel with that inbox: its VNI is free.
    pub fn leave(&self, inbox: &Arc<Inbox>) {
        self.change(|members| members.retain(|(_, other)| !Arc::ptr_eq(other, inbox)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Member>)) {
        // Workers that leave a tunnel, and the control thread.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut members = Vec::clone(&self.members.load());
        change(&mut members);
        members.sort_unstable_by_key(|(vni, _)| *vni);
        self.members.store(Arc::new(members));
    }

    /// Sockets to send from.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if the process is out of descriptors, or an option is refused.
    pub fn sources(&self, options: SendOptions) -> Result<Arc<Sources>, EndpointError> {
        let mut all = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sources) = all.get(&options).and_then(Weak::upgrade) {
            return Ok(sources);
        }
        let sources = Sources::new(self.local, options).map_err(|e| EndpointError::Socket(self.local, e))?;
        let sources = Arc::new(sources);
        all.retain(|_, other| other.strong_count() > 0);
        all.insert(options, Arc::downgrade(&sources));
        Ok(sources)
    }

    /// The turn to read, unless another worker holds it.
    #[inline]
    pub fn turn(&self) -> Option<Guard<'_, ()>> {
        self.turn.enter_now().ok()
    }

    /// Passes a message, made by `fill` from a spare one, to the tunnel of another VNI. Returns whether it had room;
    /// `None` for an unknown VNI.
    pub fn pass_on(&self, vni: u32, fill: impl FnOnce(&mut Message)) -> Option<bool> {
        let members = self.members.load();
        let i = members.binary_search_by_key(&vni, |(vni, _)| *vni).ok()?;
        members.get(i).map(|(_, inbox)| inbox.put(fill))
    }

    /// The largest packet on the path to a VTEP, in bytes, as far as the host knows.
    #[must_use]
    pub fn path_mtu(&self, to: IpAddr) -> Option<u32> {
        let socket = sys::udp(SocketAddr::new(self.local, 0)).ok()?;
        rustix::net::connect(&socket, &SocketAddr::new(to, self.port)).ok()?;
        sys::path_mtu(&socket, to.is_ipv4())
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
