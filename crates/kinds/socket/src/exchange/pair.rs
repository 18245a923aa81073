//! A pair: the port's socket exchanges datagrams with one other socket, the peer's.
//!
//! The port connects its socket to the peer's socket, so that the kernel accepts datagrams from no other sender. When
//! the peer's UNIX socket is closed, the kernel reports `ECONNREFUSED` or nothing, and refuses datagrams from a new
//! socket at the same path (`EPERM`). The port therefore checks the peer's socket at intervals, and connects to a new
//! socket once there is one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::folder::UserPath;
use netvale_port::listener::{Claim, ListenAddress, OpenError, connect_to_place};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::bound::BoundSocket;
use super::{PeerArrival, PeerSource, SOCKET, SourceEvents, widen};
use crate::line::SocketPeer;

/// The addresses of a pair.
#[derive(Clone, Debug)]
pub enum PairAddresses {
    /// The port's own UNIX socket and the peer's path.
    Unix(ListenAddress, UserPath),
    /// The port's own UDP address and the peer's.
    Inet(SocketAddr, SocketAddr),
}

/// The sockets of a pair.
enum PairEnds {
    Unix(Box<BoundSocket>, UserPath),
    Inet(Arc<OwnedFd>, SocketAddr),
}

/// A socket that exchanges datagrams with one other socket.
pub struct DatagramPair {
    ends: PairEnds,
    every: Duration,
    /// Time of the next check of the peer; `None` if no check is needed.
    next: Option<Instant>,
    /// Device and inode of the socket file to which the port's socket is connected; `None` if it is not connected to a
    /// file.
    there: Option<(u64, u64)>,
    is_connected: bool,
    is_lost: bool,
    events: Option<SourceEvents>,
}

impl DatagramPair {
    /// Binds the port's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the port's address is not free, or a system call fails.
    pub fn open(addresses: &PairAddresses, every: Duration) -> Result<DatagramPair, OpenError> {
        let ends = match addresses {
            PairAddresses::Unix(site, other) => PairEnds::Unix(Box::new(BoundSocket::open(site)?), other.clone()),
            PairAddresses::Inet(local, remote) => {
                let socket = udp_at(*local).map_err(OpenError::step(local.to_string(), "bind a UDP socket"))?;
                PairEnds::Inet(Arc::new(socket), *remote)
            }
        };
        Ok(Self::with(ends, every))
    }

    /// Takes over a predecessor's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the socket is of another type, or its file is not at the path.
    pub fn restore(addresses: &PairAddresses, every: Duration, socket: OwnedFd) -> Result<DatagramPair, OpenError> {
        let ends = match addresses {
            PairAddresses::Unix(site, other) => {
                PairEnds::Unix(Box::new(BoundSocket::restore(site, socket)?), other.clone())
            }
            PairAddresses::Inet(local, _) if sockopt::socket_type(&socket) != Ok(SocketType::DGRAM) => {
                return Err(OpenError::step(local.to_string(), "restore its socket")(Errno::NOTSOCK));
            }
            PairAddresses::Inet(_, remote) => PairEnds::Inet(Arc::new(socket), *remote),
        };
        Ok(Self::with(ends, every))
    }

    fn with(ends: PairEnds, every: Duration) -> DatagramPair {
        let next = Some(Instant::now());
        DatagramPair { ends, every, next, there: None, is_connected: false, is_lost: false, events: None }
    }

    fn socket(&self) -> &Arc<OwnedFd> {
        match &self.ends {
            PairEnds::Unix(bound, _) => bound.socket(),
            PairEnds::Inet(socket, _) => socket,
        }
    }

    /// Returns device and inode of the peer's socket file, if it exists now.
    fn file(&self) -> Option<(u64, u64)> {
        let PairEnds::Unix(_, other) = &self.ends else { return None };
        other.open().and_then(|folder| folder.find()).map(|found| found.identity()).ok()
    }

    fn connect(&mut self) -> Result<(), Errno> {
        let there = self.file();
        match &self.ends {
            PairEnds::Unix(bound, other) if bound.is_there() => connect_to_place(bound.socket(), other)?,
            PairEnds::Unix(..) => return Err(Errno::NOTCONN),
            PairEnds::Inet(socket, remote) => rustix::net::connect(&**socket, remote)?,
        }
        self.there = there;
        self.is_connected = true;
        Ok(())
    }

    /// Returns whether the peer's file is still the file of the socket to which the port's socket is connected.
    fn is_still_there(&self) -> bool {
        match &self.ends {
            PairEnds::Inet(..) => true,
            PairEnds::Unix(bound, other) => {
                self.file() == self.there && connect_to_place(bound.socket(), other).is_ok()
            }
        }
    }

    fn who(&self) -> String {
        match &self.ends {
            PairEnds::Unix(_, other) => other.path().display().to_string(),
            PairEnds::Inet(_, remote) => remote.to_string(),
        }
    }

    /// Starts or stops watching the port's socket, edge-triggered, for the first datagram of a peer.
    fn listen(&self, on: bool) {
        let Some(events) = &self.events else { return };
        events.remove(&**self.socket());
        if on {
            // If this fails, the next check finds the peer.
            let _ = events.add(&**self.socket(), SOCKET, epoll::EventFlags::IN | epoll::EventFlags::ET);
        }
    }

    fn begun(&mut self, now: Instant) -> SocketPeer {
        self.is_connected = true;
        self.next = matches!(self.ends, PairEnds::Unix(..)).then_some(now + self.every);
        self.listen(false);
        SocketPeer::datagrams(self.socket())
    }
}

impl PeerSource for DatagramPair {
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        self.events = Some(events);
        self.listen(true);
        Ok(())
    }

    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        if !self.next.is_some_and(|next| now >= next || ready.contains(&SOCKET)) {
            return Vec::new();
        }
        self.next = Some(now + self.every);
        if self.is_connected {
            self.is_lost = !self.is_still_there();
            return Vec::new();
        }
        if let PairEnds::Unix(bound, _) = &mut self.ends
            && !bound.is_there()
        {
            // The next check tries again.
            let _ = bound.renew();
        }
        if self.connect().is_err() {
            return Vec::new();
        }
        let peer = self.begun(now);
        vec![PeerArrival::of(peer, Some(self.who()))]
    }

    fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }

    fn goes_when_missed(&self) -> bool {
        matches!(self.ends, PairEnds::Unix(..))
    }

    fn leaving(&mut self) -> Vec<u16> {
        if std::mem::take(&mut self.is_lost) { vec![0] } else { Vec::new() }
    }

    fn left(&mut self, _number: u16, now: Instant) {
        self.is_connected = false;
        self.next = Some(now + self.every);
        self.listen(false);
        if let PairEnds::Unix(bound, _) = &mut self.ends {
            // The next check tries again.
            let _ = bound.renew();
        }
        self.listen(true);
    }

    fn own_peer(&mut self) -> Option<SocketPeer> {
        self.there = self.file();
        Some(self.begun(Instant::now()))
    }

    fn save(&self) -> Vec<Fd> {
        vec![Fd::shared(self.socket())]
    }

    fn claims(&self) -> Vec<Claim> {
        match &self.ends {
            PairEnds::Unix(bound, _) => bound.claims(),
            PairEnds::Inet(..) => Vec::new(),
        }
    }
}

/// Creates a UDP socket bound to an address.
fn udp_at(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = udp(at.is_ipv4())?;
    rustix::net::bind(&socket, &at)?;
    widen(&socket);
    Ok(socket)
}

/// Creates a UDP socket.
pub(super) fn udp(is_v4: bool) -> Result<OwnedFd, Errno> {
    let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
}
