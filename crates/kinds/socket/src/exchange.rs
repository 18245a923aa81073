//! Connects a port with its peers. An *exchange* has a source of peers and the port's *lines*: queues that remain while
//! peers come and go. A new peer is an *arrival*; the source watches its own sockets for *events*. All of this runs on
//! the main thread and never blocks.

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

/// epoll data of the descriptor with which workers signal news.
const NEWS: u64 = 0;
/// epoll data of the source's own socket.
const SOCKET: u64 = 1;
/// epoll data of the first connection; later connections get the following numbers.
const FIRST: u64 = 16;
/// Maximum number of events per epoll_wait(2).
const EVENTS: usize = 64;

/// A new peer.
pub struct PeerArrival {
    /// The peer's sockets; `None` if [`PeerSource::seat`] creates them once the peer has a line.
    peer: Option<SocketPeer>,
    /// The identifier by which the source knows the peer.
    token: u64,
    /// Number of the [`SocketLine`] that the peer requests; `None` if any line will do.
    pub number: Option<u16>,
    /// The peer's identity in words; `None` if it is unknown.
    pub who: Option<String>,
    /// The peer's description of itself, if it sent one.
    pub about: Option<String>,
}

impl PeerArrival {
    /// Creates an arrival without a requested line or description.
    fn of(peer: SocketPeer, who: Option<String>) -> PeerArrival {
        PeerArrival { peer: Some(peer), token: 0, number: None, who, about: None }
    }
}

/// Returns a text that names the process and user that made a connection; `None` if the kernel does not report them.
fn who_made(connection: &OwnedFd) -> Option<String> {
    let maker = maker_of(connection).ok()?;
    Some(match maker.pid {
        0 => format!("user {}", maker.uid),
        pid => format!("process {pid} of user {}", maker.uid),
    })
}

/// Returns the ID of the user that is named at the end of [`PeerArrival::who`]; `None` if no user is named.
pub fn user_of(who: &str) -> Option<u32> {
    who.rsplit_once("user ").and_then(|(_, user)| user.parse().ok())
}

/// Requested buffer size in bytes for UNIX and datagram sockets; the kernel grants no more than the host permits.
const WIDE: usize = 4 << 20;

/// Enlarges the buffers of a UNIX or datagram socket. The kernel adapts the buffers of TCP sockets itself.
fn widen(socket: &OwnedFd) {
    if sockopt::socket_type(socket) == Ok(SocketType::STREAM) && !is_unix(socket, SocketType::STREAM) {
        return;
    }
    // If this fails, bursts may lose frames.
    let _ = sockopt::set_socket_send_buffer_size(socket, WIDE);
    let _ = sockopt::set_socket_recv_buffer_size(socket, WIDE);
}

/// The set of sockets that a source watches.
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

/// A source of peers.
pub trait PeerSource {
    /// Starts to watch for peers.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno>;

    /// Returns the peers that have arrived since the last call; `ready` has the epoll data of ready sockets.
    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival>;

    /// Returns the time until the source must be polled even if no event occurs.
    fn wait(&self, _now: Instant) -> Duration {
        Duration::MAX
    }

    /// Returns the sockets of an arrival that gets the line `number`.
    ///
    /// # Errors
    /// The reason why the peer cannot be connected, in words.
    fn seat(&mut self, arrival: &mut PeerArrival, _number: u16) -> Result<SocketPeer, String> {
        arrival.peer.take().ok_or_else(|| "the peer is gone".to_owned())
    }

    /// Rejects an arrival for which there is no line. Returns the peer's resources, which the caller closes.
    fn turn_away(&mut self, arrival: PeerArrival, now: Instant) -> LeftPeer {
        self.left(0, now);
        arrival.peer.map(LeftPeer::of).unwrap_or_default()
    }

    /// Handles the departure of the peer of line `number`.
    fn left(&mut self, number: u16, now: Instant);

    /// Returns the lines whose peers have announced their departure.
    fn leaving(&mut self) -> Vec<u16> {
        Vec::new()
    }

    /// Returns whether a peer counts as gone as soon as nobody receives the datagrams sent to it.
    fn goes_when_missed(&self) -> bool {
        false
    }

    /// Takes over the peer of a predecessor's line.
    ///
    /// # Errors
    /// [`OpenError`] names the missing resource.
    fn go_on(&mut self, _number: u16, _peer: &SocketPeer) -> Result<(), OpenError> {
        Ok(())
    }

    /// Returns the peer of a predecessor's line if its sockets are the port's own.
    fn own_peer(&mut self) -> Option<SocketPeer> {
        None
    }

    /// Returns the reasons why peers were rejected since the last call.
    fn refused(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns descriptors that peers passed or left since the last call; the caller closes the descriptors on a thread
    /// where closing may block.
    fn strangers(&mut self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Returns the sockets that a successor needs.
    fn save(&self) -> Vec<Fd>;

    /// Returns the claims with which this process takes over the socket files, once the predecessor can no longer
    /// resume.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }
}

/// The lines of a port and the source of their peers.
pub struct Exchange {
    events: SourceEvents,
    news: Arc<OwnedFd>,
    source: Box<dyn PeerSource>,
    format: FrameFormat,
    lines: BTreeMap<u16, Rc<SocketLine>>,
}

impl Exchange {
    /// Creates an exchange without lines, for frames of this format.
    ///
    /// # Errors
    /// Fails when the process is out of descriptors.
    pub fn new(mut source: Box<dyn PeerSource>, format: FrameFormat) -> Result<Exchange, Errno> {
        let events = SourceEvents(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        let news = news()?;
        events.add(&*news, NEWS, epoll::EventFlags::IN)?;
        source.watch(events.clone())?;
        Ok(Exchange { events, news, source, format, lines: BTreeMap::new() })
    }

    /// Returns the descriptor that becomes readable when a worker reports something about a line's peer.
    pub fn news(&self) -> &Arc<OwnedFd> {
        &self.news
    }

    /// Adds a line.
    pub fn add(&mut self, number: u16, line: Rc<SocketLine>) {
        self.lines.insert(number, line);
    }

    /// Adds a predecessor's line and takes over the line's peer.
    ///
    /// # Errors
    /// [`BadState`] if the state contradicts itself.
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

    /// Removes a line, which must have no peer.
    pub fn remove(&mut self, number: u16) {
        self.lines.remove(&number);
    }

    /// Returns the lines by number.
    pub fn lines(&self) -> &BTreeMap<u16, Rc<SocketLine>> {
        &self.lines
    }

    /// Returns the source of peers.
    pub fn source(&mut self) -> &mut dyn PeerSource {
        &mut *self.source
    }

    /// Returns `Some` if workers have reported the end of a line's peer, with the reason; the reason is `None` if the
    /// peer disconnected by itself.
    pub fn over(&self, line: &SocketLine) -> Option<Option<String>> {
        let is_missed = line.take_missed() && self.source.goes_when_missed();
        line.over().or_else(|| is_missed.then_some(None))
    }

    /// Returns the sockets that a successor needs.
    pub fn save(&self) -> Vec<Fd> {
        self.source.save()
    }

    /// Returns the peers that have arrived since the last call.
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

    /// Returns the time until the exchange must be polled even if no event occurs.
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
    /// Returns a descriptor that is readable when there is work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.0.as_fd()
    }
}
