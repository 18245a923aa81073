//! A source of peers that connects to a listening socket, the target, and reconnects after a connection has ended.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::folder::UserPath;
use netvale_port::listener::{OpenError, connect_to_place, socket_for};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::listen::{prepare_tcp, tcp, type_of};
use super::{PeerArrival, PeerSource, SOCKET, SourceEvents, widen};
use crate::line::SocketPeer;
use crate::rules::FrameFormat;

/// The address to which a port connects.
#[derive(Clone, Debug)]
pub enum DialTarget {
    /// A UNIX socket at a path.
    Unix(UserPath),
    /// A socket with an IP address.
    Inet(SocketAddr),
}

/// A source of peers that repeatedly attempts to connect to one target.
pub struct Dialing {
    target: DialTarget,
    format: FrameFormat,
    /// Pause between two attempts.
    every: Duration,
    /// Time of the next attempt; `None` while a peer is connected.
    next: Option<Instant>,
    /// The connection in progress; `None` if there is none.
    pending: Option<OwnedFd>,
    events: Option<SourceEvents>,
}

impl Dialing {
    /// Creates a source that attempts to connect immediately, and then at intervals of `every` while it has no peer.
    pub fn new(target: DialTarget, format: FrameFormat, every: Duration) -> Dialing {
        Dialing { target, format, every, next: Some(Instant::now()), pending: None, events: None }
    }

    /// Starts an attempt. Returns the connection if it is established; `None` if it is pending or has failed.
    fn try_now(&mut self, now: Instant) -> Option<OwnedFd> {
        self.next = Some(now + self.every);
        let made = match &self.target {
            DialTarget::Unix(place) => socket_for(type_of(self.format))
                .and_then(|socket| connect_to_place(&socket, place).map(|()| (socket, true))),
            DialTarget::Inet(at) => tcp(*at).and_then(|socket| begin(socket, *at)),
        };
        let (socket, is_established) = made.ok()?;
        if is_established {
            return Some(socket);
        }
        self.events.iter().for_each(|events| {
            let _ = events.add(&socket, SOCKET, epoll::EventFlags::OUT);
        });
        self.pending = Some(socket);
        None
    }

    /// Returns the pending connection once it is established; discards it if it has failed.
    fn completed(&mut self) -> Option<OwnedFd> {
        let socket = self.pending.take()?;
        self.events.iter().for_each(|events| events.remove(&socket));
        (sockopt::socket_error(&socket) == Ok(Ok(()))).then_some(socket)
    }

    fn arrival(&mut self, socket: OwnedFd) -> PeerArrival {
        self.next = None;
        widen(&socket);
        let who = match &self.target {
            DialTarget::Unix(place) => place.path().display().to_string(),
            DialTarget::Inet(at) => {
                prepare_tcp(&socket);
                at.to_string()
            }
        };
        PeerArrival::of(SocketPeer::connected(socket, self.format), Some(who))
    }
}

/// Starts to connect. Returns the socket, and whether the connection is already established.
fn begin(socket: OwnedFd, at: SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    match rustix::net::connect(&socket, &at) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(e) => Err(e),
    }
}

impl PeerSource for Dialing {
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        self.events = Some(events);
        Ok(())
    }

    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        let made = if ready.contains(&SOCKET) { self.completed() } else { None };
        let is_due = self.next.is_some_and(|next| now >= next);
        let made = made.or_else(|| {
            // An attempt that takes longer than the pause is abandoned.
            let late = if is_due { self.pending.take() } else { None };
            late.iter().for_each(|late| self.events.iter().for_each(|events| events.remove(late)));
            is_due.then(|| self.try_now(now)).flatten()
        });
        made.map(|socket| self.arrival(socket)).into_iter().collect()
    }

    fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }

    fn left(&mut self, _number: u16, now: Instant) {
        self.next = Some(now + self.every);
    }

    fn go_on(&mut self, _number: u16, _peer: &SocketPeer) -> Result<(), OpenError> {
        self.next = None;
        Ok(())
    }

    fn save(&self) -> Vec<Fd> {
        Vec::new()
    }
}
