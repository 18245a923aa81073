//! The UDP socket of a VTEP's address and port, which the tunnels of several VNIs share, and the sockets for sending.
//!
//! The worker of any tunnel may read the socket; it moves datagrams of another VNI to the inbox of that VNI's tunnel. A
//! worker that reads holds [`Endpoint::turn`] until it has finished, and empties its own tunnel's inbox before it
//! reads, so that datagrams of a VNI stay in order.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use netvale_mem::lent::{Lent, LentGuard};
use netvale_port::pace::QueuePace;
use netvale_port::wake::WakeSet;
use thiserror::Error;

use crate::sys::{self, VxlanMessage};

/// Size of the socket's receive buffer in bytes, which lasts for a third of a millisecond at 100 Gbit/s.
const RECEIVE_ROOM: i32 = 4 << 20;
/// Size of a sending socket's send buffer in bytes.
const SEND_ROOM: i32 = 4 << 20;
/// Capacity of an inbox in messages.
const INBOX: usize = 32;
/// Number of sockets for sending. With several sockets, flows spread over source ports.
pub const SOURCES: usize = 16;
/// Shift of the ECN codepoint in the number that selects a socket and a codepoint.
pub const ECN_SHIFT: u32 = SOURCES.ilog2();

/// An error in creating a tunnel.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// Another socket on this host uses the address and port.
    #[error("UDP port {1} of {0} is in use by the kernel's VXLAN device or another program; choose another port")]
    InUse(IpAddr, u16),
    /// The address does not belong to this host.
    #[error("{0} is not an address of this host")]
    NotHere(IpAddr),
    /// Another netvale port uses the VNI at this address and UDP port.
    #[error("VNI {0} is in use by another netvale port with this address and UDP port")]
    VniInUse(u32),
    /// A system call failed.
    #[error("cannot use a UDP socket at {0}: {1}")]
    Socket(IpAddr, io::Error),
}

/// Options for sending datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// Time to live, or hop limit; `None` for the system's default.
    pub ttl: Option<u8>,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// Whether routers, and this host, may fragment datagrams.
    pub may_fragment: bool,
    /// Whether datagrams have no checksum.
    pub no_checksum: bool,
}

/// Sockets for sending, all with the same options.
#[derive(Debug)]
pub struct SendSockets {
    sockets: Vec<OwnedFd>,
    /// Type of service or traffic class, without the ECN codepoint.
    pub class: u8,
    /// Whether the kernel cuts messages into datagrams (UDP GSO).
    gso: AtomicBool,
    /// Limits the workers' time for sending.
    pub(crate) pace: QueuePace,
}

impl SendSockets {
    fn new(local: IpAddr, options: SendOptions) -> io::Result<SendSockets> {
        let one = |_| {
            let socket = sys::udp(SocketAddr::new(local, 0))?;
            sys::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_ROOM)?;
            options.set_on(&socket, local.is_ipv4())?;
            Ok(socket)
        };
        let sockets = (0..SOURCES).map(one).collect::<io::Result<_>>()?;
        // The kernel refuses GSO without checksums.
        Ok(SendSockets {
            sockets,
            class: options.dscp << 2,
            gso: AtomicBool::new(!options.no_checksum || !local.is_ipv4()),
            pace: QueuePace::default(),
        })
    }

    /// Returns whether the kernel cuts messages into datagrams.
    #[inline]
    pub fn has_gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Records that the kernel cannot cut messages for these sockets, because packets go through IPsec or, on older
    /// kernels, leave through a card without checksum offload.
    pub fn disable_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// Returns the socket for flows with this hash.
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
        // IPv6 datagrams always have checksums (RFC 6935).
        if self.no_checksum && is_v4 {
            sys::set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
        }
        Ok(())
    }
}

/// The messages for one tunnel that the workers of other tunnels have read.
pub struct TunnelInbox {
    content: Lent<InboxContent>,
    wake: Arc<WakeSet>,
}

struct InboxContent {
    full: Vec<VxlanMessage>,
    spare: Vec<VxlanMessage>,
}

impl TunnelInbox {
    /// Creates an empty inbox; the worker of the inbox's tunnel sleeps on `wake`.
    fn new(wake: Arc<WakeSet>) -> TunnelInbox {
        let content = InboxContent {
            full: Vec::with_capacity(INBOX),
            spare: (0..INBOX).map(|_| VxlanMessage::empty()).collect(),
        };
        TunnelInbox { content: Lent::with(content), wake }
    }

    /// Adds a message, which `fill` writes into a spare buffer. Returns whether there was room.
    fn put(&self, fill: impl FnOnce(&mut VxlanMessage)) -> bool {
        let Ok(mut content) = self.content.enter() else { return false };
        let Some(mut message) = content.spare.pop() else { return false };
        fill(&mut message);
        content.full.push(message);
        drop(content);
        self.wake.poke();
        true
    }

    /// Moves messages to `into`, each in exchange for a buffer from `free`, until messages or buffers run out. Returns
    /// whether messages may be left in the inbox.
    pub fn take(&self, into: &mut Vec<VxlanMessage>, free: &mut Vec<VxlanMessage>) -> bool {
        let Ok(mut content) = self.content.enter() else { return true };
        let InboxContent { full, spare } = &mut *content;
        let count = full.len().min(free.len());
        into.extend(full.drain(..count));
        spare.extend(free.drain(..count));
        !full.is_empty()
    }
}

/// A tunnel of an endpoint: its VNI and its inbox.
type EndpointMember = (u32, Arc<TunnelInbox>);

/// A VTEP of this host: an address, a UDP port and its tunnels.
pub struct Endpoint {
    local: IpAddr,
    port: u16,
    socket: OwnedFd,
    /// The right to read the socket, which one worker has at a time.
    turn: Lent<()>,
    members: ArcSwap<Vec<EndpointMember>>,
    /// Held while the members are changed.
    changing: Mutex<()>,
    sources: Mutex<HashMap<SendOptions, Weak<SendSockets>>>,
}

impl Endpoint {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`EndpointError`] if the address does not belong to this host, the port is in use, or no descriptors are left.
    pub fn new(local: IpAddr, port: u16) -> Result<Endpoint, EndpointError> {
        let socket = sys::udp(SocketAddr::new(local, port)).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => EndpointError::InUse(local, port),
            Some(libc::EADDRNOTAVAIL) => EndpointError::NotHere(local),
            _ => EndpointError::Socket(local, e),
        })?;
        Self::of(local, port, socket)
    }

    /// Takes over a predecessor's socket.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if it is not a UDP socket bound to this address and port.
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
        // With this option, the kernel may deliver several datagrams merged into one message; the receiver cuts them
        // apart. Kernels without this option deliver each datagram alone.
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

    /// Returns the endpoint's address.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Returns the endpoint's UDP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds the tunnel of a VNI, whose worker sleeps on `wake`.
    ///
    /// # Errors
    /// [`EndpointError::VniInUse`], or [`EndpointError::Socket`] if the wake set refuses the socket.
    pub fn join(&self, vni: u32, wake: &Arc<WakeSet>) -> Result<Arc<TunnelInbox>, EndpointError> {
        if self.members.load().iter().any(|(other, _)| *other == vni) {
            return Err(EndpointError::VniInUse(vni));
        }
        wake.add(&self.socket).map_err(|e| EndpointError::Socket(self.local, e.into()))?;
        let inbox = Arc::new(TunnelInbox::new(Arc::clone(wake)));
        self.change(|members| members.push((vni, Arc::clone(&inbox))));
        Ok(inbox)
    }

    /// Removes the tunnel with this inbox, which frees its VNI.
    pub fn leave(&self, inbox: &Arc<TunnelInbox>) {
        self.change(|members| members.retain(|(_, other)| !Arc::ptr_eq(other, inbox)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<EndpointMember>)) {
        // Workers that drop a tunnel and the control thread may call this function at the same time.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut members = Vec::clone(&self.members.load());
        change(&mut members);
        members.sort_unstable_by_key(|(vni, _)| *vni);
        self.members.store(Arc::new(members));
    }

    /// Returns sockets for sending with these options.
    ///
    /// # Errors
    /// [`EndpointError::Socket`] if the process is out of descriptors, or an option is refused.
    pub fn sources(&self, options: SendOptions) -> Result<Arc<SendSockets>, EndpointError> {
        let mut all = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sources) = all.get(&options).and_then(Weak::upgrade) {
            return Ok(sources);
        }
        let sources = SendSockets::new(self.local, options).map_err(|e| EndpointError::Socket(self.local, e))?;
        let sources = Arc::new(sources);
        all.retain(|_, other| other.strong_count() > 0);
        all.insert(options, Arc::downgrade(&sources));
        Ok(sources)
    }

    /// Returns the right to read the socket; `None` if another worker has it.
    #[inline]
    pub fn turn(&self) -> Option<LentGuard<'_, ()>> {
        self.turn.enter_now().ok()
    }

    /// Passes a message, which `fill` writes into a spare buffer, to the tunnel of another VNI. Returns whether that
    /// tunnel's inbox had room; `None` if no tunnel has the VNI.
    pub fn pass_on(&self, vni: u32, fill: impl FnOnce(&mut VxlanMessage)) -> Option<bool> {
        let members = self.members.load();
        let i = members.binary_search_by_key(&vni, |(vni, _)| *vni).ok()?;
        members.get(i).map(|(_, inbox)| inbox.put(fill))
    }

    /// Returns the MTU of the path to a VTEP in bytes, as far as this host knows it; `None` if there is no route.
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
