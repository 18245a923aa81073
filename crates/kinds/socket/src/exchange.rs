//! What the peers of a port connect through. An *exchange* has the port's lines, and a source of peers. A new peer is
//! an *arrival*; the source watches *events* of its sockets. The main thread does everything here, without waiting.

mod bound;
mod dial;
mod group;
mod guest;
mod listen;
mod pair;
mod place;
mod plugs;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::{clear, news};
use netvale_port::listener::{Claim, OpenError, is_unix};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

pub use dial::{DialTarget, Dialing};
pub use group::MulticastGroup;
pub use guest::GuestSocket;
pub use listen::{ListeningSource, OwnAddress};
pub use pair::{DatagramPair, PairAddresses};
pub use place::SOCKETS_OF_PEERS;
pub use plugs::PlugSwitch;

use crate::line::{LeftPeer, SocketLine, SocketPeer};
use crate::rules::FrameFormat;
use crate::state::LineState;
use crate::sys::maker_of;

/// epoll data of what workers tell, and of the source's own socket. Those of connections begin behind.
const NEWS: u64 = 0;
const SOCKET: u64 = 1;
const FIRST: u64 = 16;
/// Events that are read together.
const EVENTS: usize = 64;

/// A peer that has come.
pub struct PeerArrival {
    /// How it is reached, if that does not depend on its line.
    peer: Option<SocketPeer>,
    /// What its source knows it by.
    token: u64,
    /// The number of the line that it wants.
    pub number: Option<u16>,
    /// Who it is.
    pub who: Option<String>,
    /// What it says of itself.
    pub about: Option<String>,
}

impl PeerArrival {
    /// A peer that wants no particular line and says nothing.
    fn of(peer: SocketPeer, who: Option<String>) -> PeerArrival {
        PeerArrival { peer: Some(peer), token: 0, number: None, who, about: None }
    }
}

/// Who made a connection, in words.
fn who_made(connection: &OwnedFd) -> Option<String> {
    let maker = maker_of(connection).ok()?;
    Some(match maker.pid {
        0 => format!("user {}", maker.uid),
        pid => format!("process {pid} of user {}", maker.uid),
    })
}

/// The user of whom [`PeerArrival::who`] tells.
pub fn user_of(who: &str) -> Option<u32> {
    who.rsplit_once("user ").and_then(|(_, user)| user.parse().ok())
}

/// Bytes that a socket of datagrams, or of frames on this host, should have room for; it gets what the host allows.
const WIDE: usize = 4 << 20;

/// Gives a UNIX socket, or one of datagrams, as much room as it may have. A TCP socket finds out by itself.
fn widen(socket: &OwnedFd) {
    if sockopt::socket_type(socket) == Ok(SocketType::STREAM) && !is_unix(socket, SocketType::STREAM) {
        return;
    }
    // Less room costs frames that come together, and nothing else.
    let _ = sockopt::set_socket_send_buffer_size(socket, WIDE);
    let _ = sockopt::set_socket_recv_buffer_size(socket, WIDE);
}

/// What a source watches.
#[derive(Clone)]
pub struct SourceEvents(Arc<OwnedFd>);

impl SourceEvents {
    fn add(&self, fd: impl AsFd, data: u64, events: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&*self.0, fd, epoll::EventData::new_u64(data), events)
    }

    fn change(&self, fd: impl AsFd, data: u64, events: epoll::EventFlags) {
        // Fails only for a descriptor that is not in the set.
        let _ = epoll::modify(&*self.0, fd, epoll::EventData::new_u64(data), events);
    }

    fn remove(&self, fd: impl AsFd) {
        // Fails only for a descriptor that is not in the set.
        let _ = epoll::delete(&*self.0, fd);
    }
}

/// Where peers come from.
pub trait PeerSource {
    /// Begins to watch for peers.
    ///
    /// # Errors
    /// Whatever epoll_ctl(2) returns.
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno>;

    /// Peers that have come by now; `ready` is what has happened.
    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival>;

    /// How long until it has to be asked again, whatever happens.
    fn wait(&self, _now: Instant) -> Duration {
        Duration::MAX
    }

    /// How a peer is reached that gets the line with that number.
    ///
    /// # Errors
    /// Why it cannot be, in words.
    fn seat(&mut self, arrival: &mut PeerArrival, _number: u16) -> Result<SocketPeer, String> {
        arrival.peer.take().ok_or_else(|| "it is gone already".to_owned())
    }

    /// A peer that has come gets no line.
    fn turn_away(&mut self, arrival: PeerArrival, now: Instant) -> LeftPeer {
        self.left(0, now);
        arrival.peer.map(LeftPeer::of).unwrap_or_default()
    }

    /// The peer of a line is gone.
    fn left(&mut self, number: u16, now: Instant);

    /// Lines whose peers have said that they go.
    fn leaving(&mut self) -> Vec<u16> {
        Vec::new()
    }

    /// Whether a peer is gone when nobody takes a datagram for it.
    fn goes_when_missed(&self) -> bool {
        false
    }

    /// Goes on with the peer of a line in another process.
    ///
    /// # Errors
    /// What is missing of it.
    fn go_on(&mut self, _number: u16, _peer: &SocketPeer) -> Result<(), OpenError> {
        Ok(())
    }

    /// The peer of a line in another process, where the sockets are the port's own.
    fn own_peer(&mut self) -> Option<SocketPeer> {
        None
    }

    /// Why others were turned away since the last call.
    fn refused(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Descriptors that others have passed or left since the last call: for who can close them.
    fn strangers(&mut self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// The sockets that another process goes on with.
    fn save(&self) -> Vec<Fd>;

    /// Makes files of sockets this process's, once its predecessor does not go on.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }
}

/// The lines of a port, and where their peers come from.
pub struct Exchange {
    events: SourceEvents,
    news: Arc<OwnedFd>,
    source: Box<dyn PeerSource>,
    format: FrameFormat,
    lines: BTreeMap<u16, Rc<SocketLine>>,
}

impl Exchange {
    /// Creates an exchange without lines, for frames that lie so.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(mut source: Box<dyn PeerSource>, format: FrameFormat) -> Result<Exchange, Errno> {
        let events = SourceEvents(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        let news = news()?;
        events.add(&*news, NEWS, epoll::EventFlags::IN)?;
        source.watch(events.clone())?;
        Ok(Exchange { events, news, source, format, lines: BTreeMap::new() })
    }

    /// What lines tell their news by.
    pub fn news(&self) -> &Arc<OwnedFd> {
        &self.news
    }

    /// Adds a line.
    pub fn add(&mut self, number: u16, line: Rc<SocketLine>) {
        self.lines.insert(number, line);
    }

    /// Adds another process's line, and goes on with its peer.
    ///
    /// # Errors
    /// [`BadState`] if what is said contradicts itself.
    pub fn restore(&mut self, number: u16, line: Rc<SocketLine>, state: LineState) -> Result<(), BadState> {
        let is_ports = state.peer.as_ref().is_some_and(|peer| peer.socket.is_none());
        let own = if is_ports { self.source.own_peer() } else { None };
        line.restore(state, self.format, own)?;
        if let Some(one) = line.peer().as_ref() {
            self.source.go_on(number, &one.peer)?;
        }
        self.add(number, line);
        Ok(())
    }

    /// Removes a line, whose peer must be gone.
    pub fn remove(&mut self, number: u16) {
        self.lines.remove(&number);
    }

    /// Its lines by number.
    pub fn lines(&self) -> &BTreeMap<u16, Rc<SocketLine>> {
        &self.lines
    }

    /// The source of its peers.
    pub fn source(&mut self) -> &mut dyn PeerSource {
        &mut *self.source
    }

    /// Whether a line's peer is gone, as workers have found: why, if not because it left.
    pub fn over(&self, line: &SocketLine) -> Option<Option<String>> {
        let is_missed = line.take_missed() && self.source.goes_when_missed();
        line.over().or_else(|| is_missed.then_some(None))
    }

    /// The sockets that another process goes on with.
    pub fn save(&self) -> Vec<Fd> {
        self.source.save()
    }

    /// Peers that have come by now.
    pub fn arrivals(&mut self, now: Instant) -> Vec<PeerArrival> {
        let ready = self.ready();
        if ready.contains(&NEWS) {
            clear(&self.news);
        }
        let arrivals = self.source.arrivals(now, &ready);
        for number in self.source.leaving() {
            self.lines.get(&number).into_iter().for_each(|line| line.let_go());
        }
        arrivals
    }

    /// How long until it has to be asked again, whatever happens.
    pub fn wait(&self, now: Instant) -> Duration {
        self.source.wait(now)
    }

    fn ready(&self) -> BTreeSet<u64> {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let immediately = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = epoll::wait(&*self.events.0, &mut events[..], Some(&immediately));
        ready.map(|(ready, _)| ready.iter().map(|event| event.data.u64()).collect()).unwrap_or_default()
    }
}

impl AsFd for Exchange {
    /// Readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.0.as_fd()
    }
}
