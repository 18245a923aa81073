//! A source with a listening socket: each connection is a peer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::listener::{Claim, ListenAddress, Listener, OpenError, SocketFile};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};

use super::{PeerArrival, PeerSource, SOCKET, SourceEvents, who_made, widen};
use crate::line::SocketPeer;
use crate::rules::FrameFormat;

/// Maximum number of connections that wait until they are accepted.
const BACKLOG: i32 = 64;
/// Number of peers that may arrive in one burst. The limits on arrivals keep a peer that connects again and again from
/// using up the main thread's time.
const TOGETHER: u32 = 32;
/// After a burst, one further peer may arrive per interval of this length.
const EVERY: Duration = Duration::from_millis(20);

/// The address at which a port listens.
#[derive(Clone, Debug)]
pub enum OwnAddress {
    /// A UNIX socket at a path.
    Unix(ListenAddress),
    /// An IP address and a TCP port.
    Inet(SocketAddr),
}

/// A rate limit for arriving peers: `TOGETHER` peers in a burst, then one per `EVERY`.
#[derive(Clone, Copy, Debug)]
struct Turnstile {
    left: u32,
    since: Instant,
}

impl Turnstile {
    fn new(now: Instant) -> Turnstile {
        Turnstile { left: TOGETHER, since: now }
    }

    /// Returns whether one more peer may arrive now, and counts the peer if so.
    fn pass(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_nanos() / EVERY.as_nanos();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(TOGETHER);
        self.since = if self.left == TOGETHER { now } else { self.since + EVERY * more };
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// A listening socket whose connections are accepted at a limited rate.
pub(super) struct Acceptor {
    pub(super) socket: Arc<OwnedFd>,
    events: Option<SourceEvents>,
    turnstile: Turnstile,
    /// End of a pause in which no connection is accepted; `None` outside of a pause.
    paused: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(socket: OwnedFd) -> Acceptor {
        Acceptor { socket: Arc::new(socket), events: None, turnstile: Turnstile::new(Instant::now()), paused: None }
    }

    pub(super) fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        events.add(&*self.socket, SOCKET, epoll::EventFlags::IN)?;
        self.events = Some(events);
        Ok(())
    }

    /// Accepts the next connection. Returns the connection with its source address; `None` if no connection waits, or
    /// the rate limit is reached.
    pub(super) fn accept(&mut self, now: Instant) -> Option<(OwnedFd, Option<SocketAddrAny>)> {
        if self.paused.is_some_and(|until| now < until) {
            return None;
        }
        if self.paused.take().is_some() {
            self.listen(epoll::EventFlags::IN);
        }
        if !netvale_mem::notify::nap(self.socket.as_fd(), Duration::ZERO) {
            return None;
        }
        if !self.turnstile.pass(now) {
            self.pause(now + EVERY);
            return None;
        }
        match rustix::net::acceptfrom_with(&*self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => Some(connection),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => None,
            Err(_) => {
                // The process is out of descriptors, and the connection keeps the socket readable: without a pause, the
                // thread would spin.
                self.pause(now + 10 * EVERY);
                None
            }
        }
    }

    fn pause(&mut self, until: Instant) {
        self.paused = Some(until);
        self.listen(epoll::EventFlags::empty());
    }

    fn listen(&self, events: epoll::EventFlags) {
        self.events.iter().for_each(|all| all.change(&*self.socket, SOCKET, events));
    }

    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.paused.map_or(Duration::MAX, |until| until.saturating_duration_since(now))
    }
}

/// A listening socket and the format of its connections.
pub struct ListeningSource {
    acceptor: Acceptor,
    /// File of the socket; `None` for TCP.
    file: Option<SocketFile>,
    format: FrameFormat,
}

/// Returns the type of sockets that carry this format.
pub(super) fn type_of(format: FrameFormat) -> SocketType {
    match format {
        FrameFormat::Stream => SocketType::STREAM,
        FrameFormat::Messages => SocketType::SEQPACKET,
    }
}

impl ListeningSource {
    /// Opens a listening socket.
    ///
    /// # Errors
    /// [`OpenError`] if the address is not free, or a system call fails.
    pub fn open(at: &OwnAddress, format: FrameFormat) -> Result<ListeningSource, OpenError> {
        let (socket, file) = match at {
            OwnAddress::Unix(site) => {
                let (listener, file) = Listener::listen_for(site, type_of(format), BACKLOG)?;
                (listener.into_fd(), Some(file))
            }
            OwnAddress::Inet(at) => (listen_at(*at).map_err(OpenError::step(at.to_string(), "listen"))?, None),
        };
        Ok(ListeningSource { acceptor: Acceptor::new(socket), file, format })
    }

    /// Takes over a predecessor's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the socket is of another type, or its file is not at the path.
    pub fn restore(at: &OwnAddress, format: FrameFormat, socket: OwnedFd) -> Result<ListeningSource, OpenError> {
        let (socket, file) = match at {
            OwnAddress::Unix(site) => {
                let (listener, file) = Listener::restore_for(socket, site, type_of(format))?;
                (listener.into_fd(), Some(file))
            }
            OwnAddress::Inet(at) if sockopt::socket_acceptconn(&socket) != Ok(true) => {
                return Err(OpenError::step(at.to_string(), "restore its socket")(Errno::NOTSOCK));
            }
            OwnAddress::Inet(_) => (socket, None),
        };
        Ok(ListeningSource { acceptor: Acceptor::new(socket), file, format })
    }

    fn arrival(&self, connection: OwnedFd, from: Option<SocketAddrAny>) -> PeerArrival {
        let ip = from.and_then(|from| SocketAddr::try_from(from).ok()).map(|from| from.ip());
        if ip.is_some() {
            prepare_tcp(&connection);
        }
        let who = ip.map(|ip: IpAddr| ip.to_canonical().to_string()).or_else(|| who_made(&connection));
        PeerArrival::of(SocketPeer::connected(connection, self.format), who)
    }
}

impl PeerSource for ListeningSource {
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        self.acceptor.watch(events)
    }

    fn arrivals(&mut self, now: Instant, _ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        let mut arrivals = Vec::new();
        while let Some((connection, from)) = self.acceptor.accept(now) {
            widen(&connection);
            arrivals.push(self.arrival(connection, from));
        }
        arrivals
    }

    fn wait(&self, now: Instant) -> Duration {
        self.acceptor.wait(now)
    }

    fn left(&mut self, _number: u16, _now: Instant) {}

    fn save(&self) -> Vec<Fd> {
        vec![Fd::shared(&self.acceptor.socket)]
    }

    fn claims(&self) -> Vec<Claim> {
        self.file.iter().map(SocketFile::claim).collect()
    }
}

/// Makes a TCP connection send frames without delay.
pub(super) fn prepare_tcp(connection: &OwnedFd) {
    // A failure costs only latency.
    let _ = sockopt::set_tcp_nodelay(connection, true);
}

/// Creates an unbound TCP socket whose address family is the family of `at`.
pub(super) fn tcp(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

fn listen_at(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = tcp(at)?;
    // Connections of an earlier daemon may linger at the address.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a burst of peers is let in; after the burst, one peer per interval is let in, however many attempt to
    /// connect.
    #[test]
    fn turnstile() {
        let begun = Instant::now();
        let mut turnstile = Turnstile::new(begun);
        let mut passed = |now: Instant| (0..1000).filter(|_| turnstile.pass(now)).count();
        assert_eq!(passed(begun), TOGETHER as usize);
        assert_eq!(passed(begun + EVERY / 2), 0);
        assert_eq!(passed(begun + EVERY), 1);
        assert_eq!(passed(begun + 4 * EVERY), 3);
        assert_eq!(passed(begun + 4000 * EVERY), TOGETHER as usize);
    }
}
