//! The UDP socket of a VTEP's address and port, which the tunnels of several VNIs share, and the sockets that they send
//! from.
//!
//! Any tunnel's worker reads the socket; datagrams of another VNI go into that tunnel's inbox. Who reads holds
//! [`Endpoint::turn`] until that is done, and looks into its own inbox first: so datagrams of a VNI stay in order.

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

/// Bytes that wait in the socket at most: half a millisecond at 100 Gbit/s.
const RECEIVE_ROOM: i32 = 4 << 20;
const SEND_ROOM: i32 = 4 << 20;
/// Messages in an inbox.
const INBOX: usize = 32;
/// Sockets to send from: source ports among which flows are spread.
pub const SOURCES: usize = 16;
/// Behind a socket's number: the ECN codepoint of what leaves from it.
pub const ECN_SHIFT: u32 = SOURCES.ilog2();

/// Why a tunnel cannot be made.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// Another socket has the address and port.
    #[error("UDP port {1} of {0} is in use: by the kernel's VXLAN device or another program; name another port")]
    InUse(IpAddr, u16),
    /// The address is none of this host's.
    #[error("{0} is no address of this host")]
    NotHere(IpAddr),
    /// Another tunnel has the VNI.
    #[error("VNI {0} is another port's on this address and UDP port")]
    VniInUse(u32),
    /// A system call failed.
    #[error("UDP socket at {0}: {1}")]
    Socket(IpAddr, io::Error),
}

/// How datagrams are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// Time to live, or hop limit; the system's if none.
    pub ttl: Option<u8>,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// Whether routers, and this host, may cut datagrams into fragments.
    pub may_fragment: bool,
    /// Whether datagrams have a checksum.
    pub no_checksum: bool,
}

/// Sockets to send from, with the same options.
#[derive(Debug)]
pub struct Sources {
    sockets: Vec<OwnedFd>,
    /// The type of service, or traffic class, without a codepoint.
    pub class: u8,
    /// Whether the kernel cuts messages into datagrams (UDP GSO).
    gso: AtomicBool,
    /// The worker's time that sending takes.
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
        // It refuses to without checksums.
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

    /// The kernel does not, on the way that these packets take: through IPsec, or out of a card that makes no checksums
    /// (older kernels).
    pub fn disable_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// The socket for flows with that hash.
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
        // Without it, IPv6 has no datagrams (RFC 6935).
        if self.no_checksum && is_v4 {
            sys::set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
        }
        Ok(())
    }
}

/// What waits for a tunnel: messages that other tunnels' workers have read.
pub struct Inbox {
    content: Lent<Content>,
    wake: Arc<WakeSet>,
}

struct Content {
    full: Vec<Message>,
    spare: Vec<Message>,
}

impl Inbox {
    /// An empty inbox, whose owner sleeps on `wake`.
    fn new(wake: Arc<WakeSet>) -> Inbox {
        let content =
            Content { full: Vec::with_capacity(INBOX), spare: (0..INBOX).map(|_| Message::empty()).collect() };
        Inbox { content: Lent::with(content), wake }
    }

    /// Puts a message in, which `fill` makes of a spare one. Returns whether there was room.
    fn put(&self, fill: impl FnOnce(&mut Message)) -> bool {
        let Ok(mut content) = self.content.enter() else { return false };
        let Some(mut message) = content.spare.pop() else { return false };
        fill(&mut message);
        content.full.push(message);
        drop(content);
        self.wake.poke();
        true
    }

    /// Moves messages behind those of `into`, as far as there are buffers in `free`. Returns whether some are left.
    pub fn take(&self, into: &mut Vec<Message>, free: &mut Vec<Message>) -> bool {
        let Ok(mut content) = self.content.enter() else { return true };
        let Content { full, spare } = &mut *content;
        let count = full.len().min(free.len());
        into.extend(full.drain(..count));
        spare.extend(free.drain(..count));
        !full.is_empty()
    }
}

/// A tunnel as its endpoint knows it.
type Member = (u32, Arc<Inbox>);

/// A VTEP of this host.
pub struct Endpoint {
    local: IpAddr,
    port: u16,
    socket: OwnedFd,
    /// Whose turn it is to read.
    turn: Lent<()>,
    members: ArcSwap<Vec<Member>>,
    /// Held by who changes them.
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

    /// Goes on with the socket of another process.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if it is no such socket.
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
        // What comes is another host's, and is cut again where it must be: kernels without this have each datagram
        // alone.
        let _ = sys::set_gro(&socket);
        let (level, name) = if local.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVTOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
        };
        sys::set(&socket, level, name, 1).map_err(failed)?;
        let (turn, members, sources) = (Lent::with(()), ArcSwap::default(), Mutex::default());
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
    /// [`EndpointError::VniInUse`], or [`EndpointError::Socket`] if the socket cannot be waited for.
    pub fn join(&self, vni: u32, wake: &Arc<WakeSet>) -> Result<Arc<Inbox>, EndpointError> {
        if self.members.load().iter().any(|(other, _)| *other == vni) {
            return Err(EndpointError::VniInUse(vni));
        }
        wake.add(&self.socket).map_err(|e| EndpointError::Socket(self.local, e.into()))?;
        let inbox = Arc::new(Inbox::new(Arc::clone(wake)));
        self.change(|members| members.push((vni, Arc::clone(&inbox))));
        Ok(inbox)
    }

    /// Takes the tunnel with that inbox out: its VNI is free.
    pub fn leave(&self, inbox: &Arc<Inbox>) {
        self.change(|members| members.retain(|(_, other)| !Arc::ptr_eq(other, inbox)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Member>)) {
        // Workers that are done with a tunnel, and the control thread.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut members = Vec::clone(&self.members.load());
        change(&mut members);
        members.sort_unstable_by_key(|(vni, _)| *vni);
        self.members.store(Arc::new(members));
    }

    /// Sockets to send from.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if no descriptors are left, or an option cannot be had.
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

    /// The turn to read, unless another worker has it.
    #[inline]
    pub fn turn(&self) -> Option<Guard<'_, ()>> {
        self.turn.enter_now().ok()
    }

    /// Gives the tunnel of another VNI a message, which `fill` makes of a spare one. Returns whether there was room,
    /// `None` if there is no such VNI.
    pub fn pass_on(&self, vni: u32, fill: impl FnOnce(&mut Message)) -> Option<bool> {
        let members = self.members.load();
        let i = members.binary_search_by_key(&vni, |(vni, _)| *vni).ok()?;
        members.get(i).map(|(_, inbox)| inbox.put(fill))
    }

    /// The largest datagram's packet on the way to a VTEP, in bytes, as far as the host knows.
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
