//! A line: what stays of a port while its peers come and go. Its seats are what workers see, and a peer's queues sit in
//! them as long as it is connected. Its story is what is shown of its peers.

use std::cell::{Cell, Ref, RefCell};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::noted::NotedCounts;
use netvale_port::listener::is_unix;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::{Egress, Ingress};
use rustix::io::Errno;
use rustix::net::SocketType;

use crate::egress::{Carrier, PeerEgress};
use crate::ingress::{PeerIngress, PeerSeats};
use crate::news::PeerNews;
use crate::parts::PeerParts;
use crate::reader::{FrameReader, MessageReader, StreamReader};
use crate::room::AwaitedRoom;
use crate::rules::{FrameFormat, FrameRules};

/// How long a worker is waited for that is just using a queue of a peer's that goes.
const GRACE: Duration = Duration::from_millis(1);
/// Bytes of memory that a connected peer takes, about.
pub const PEER_MEMORY: u64 = 3 << 20;

/// How a peer is reached.
#[derive(Clone, Debug)]
pub struct SocketPeer {
    /// The socket that its frames come from, and the one that frames for it go to.
    pub sockets: [Arc<OwnedFd>; 2],
    /// How frames lie in them.
    pub format: FrameFormat,
    /// Whether it is gone once a socket says so.
    pub is_connection: bool,
    /// Whether the sockets are the port's own, with any peer.
    pub is_ports: bool,
    /// The connection that says that it is there, where its frames do not.
    pub control: Option<Arc<OwnedFd>>,
    /// Where this port's own frames to a group come from.
    pub own: Option<SocketAddrV4>,
}

impl SocketPeer {
    /// A peer at a connected socket.
    pub fn connected(socket: OwnedFd, format: FrameFormat) -> SocketPeer {
        SocketPeer { format, is_connection: true, ..SocketPeer::at(&Arc::new(socket)) }
    }

    /// A peer to and from which datagrams go by a socket that is the port's own.
    pub fn datagrams(socket: &Arc<OwnedFd>) -> SocketPeer {
        SocketPeer { is_ports: true, ..SocketPeer::at(socket) }
    }

    /// A peer of datagrams that is there as long as a connection lasts.
    pub fn plugged(socket: OwnedFd, control: Arc<OwnedFd>) -> SocketPeer {
        SocketPeer { control: Some(control), ..SocketPeer::at(&Arc::new(socket)) }
    }

    /// Datagrams by a socket.
    fn at(socket: &Arc<OwnedFd>) -> SocketPeer {
        SocketPeer {
            sockets: [Arc::clone(socket), Arc::clone(socket)],
            format: FrameFormat::Messages,
            is_connection: false,
            is_ports: false,
            control: None,
            own: None,
        }
    }
}

/// What a peer's former process had taken out of a socket, or accepted for it, that is not delivered.
#[derive(Debug, Default)]
pub struct Undelivered {
    /// The beginning of a frame, with its length.
    pub begun: Vec<u8>,
    /// What has to be sent before anything else.
    pub backlog: Vec<Vec<u8>>,
    /// Where each direction of a stream is noted.
    pub noted: Option<[NotedCounts; 2]>,
}

/// A peer that is connected.
pub(crate) struct LinePeer {
    pub peer: SocketPeer,
    pub noted: Vec<Arc<OwnedFd>>,
    news: PeerNews,
}

/// What is shown of a line's peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineStory {
    /// Number of peers so far.
    pub connections: u64,
    /// Why the last one is not connected, unless it just left.
    pub last_error: Option<String>,
    /// Who the last one is: it finds the line again by that.
    pub who: Option<String>,
    /// What it says of itself.
    pub about: Option<String>,
}

/// What is left of a peer that is gone: closing it may take long.
#[derive(Debug, Default)]
pub struct LeftPeer {
    /// Its sockets, unless they are used elsewhere.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Descriptors that it passed.
    pub strangers: Vec<OwnedFd>,
}

impl LeftPeer {
    /// What is left of that peer.
    pub fn of(peer: SocketPeer) -> LeftPeer {
        let [from, to] = peer.sockets;
        let to = (!Arc::ptr_eq(&from, &to)).then_some(to);
        LeftPeer { sockets: std::iter::once(from).chain(to).chain(peer.control).collect(), strangers: Vec::new() }
    }
}

/// What stays of a port while peers come and go.
pub struct SocketLine {
    pub(crate) input: Arc<Seat<PeerIngress>>,
    pub(crate) output: Arc<Seat<PeerEgress>>,
    rules: Arc<FrameRules>,
    news: Arc<OwnedFd>,
    peer: RefCell<Option<LinePeer>>,
    story: RefCell<LineStory>,
    /// Only peers that ask for its number get it.
    is_reserved: Cell<bool>,
}

/// The queues of a port.
pub type LineQueues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

impl SocketLine {
    /// Creates a line without a peer, and its queues. `news` becomes readable when a worker reports something about a
    /// peer, such as its hang-up.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(rules: &Arc<FrameRules>, news: &Arc<OwnedFd>) -> Result<(SocketLine, LineQueues), Errno> {
        let input = Arc::new(Seat::<PeerIngress>::woken()?);
        let output = Arc::<Seat<PeerEgress>>::default();
        let egress: Arc<dyn Egress> = Arc::new(SeatEgress(Arc::clone(&output)));
        let ingress: Box<dyn Ingress> = Box::new(SeatIngress::new(Arc::clone(&input)).by_calls());
        let (peer, story, is_reserved) = Default::default();
        let (rules, news) = (Arc::clone(rules), Arc::clone(news));
        let line = SocketLine { input, output, rules, news, peer, story, is_reserved };
        Ok((line, (vec![egress], vec![ingress])))
    }

    /// Whether a peer is connected.
    pub fn is_taken(&self) -> bool {
        self.peer.borrow().is_some()
    }

    /// Whether only peers that ask for its number get it.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved.get()
    }

    /// Leaves it to peers that ask for its number, or to any.
    pub fn reserve(&self, is_reserved: bool) {
        self.is_reserved.set(is_reserved);
    }

    /// What is shown of its peers.
    pub fn story(&self) -> LineStory {
        self.story.borrow().clone()
    }

    /// Goes on with what is shown in another process.
    pub fn continue_story(&self, story: LineStory) {
        *self.story.borrow_mut() = story;
    }

    /// Connects a peer, whose place is free: who it is, and what it says of itself.
    ///
    /// # Errors
    /// Why it cannot be connected, in words.
    pub fn begin(&self, peer: SocketPeer, who: Option<String>, about: Option<String>) -> Result<(), String> {
        let noted = if peer.format == FrameFormat::Stream { Some(new_notes().map_err(text)?) } else { None };
        self.go_on(peer, Undelivered { noted, ..Undelivered::default() })?;
        let mut story = self.story.borrow_mut();
        story.connections += 1;
        story.last_error = None;
        story.who = who;
        story.about = about;
        Ok(())
    }

    /// Goes on with a peer, of whom that is not delivered.
    ///
    /// # Errors
    /// Why it cannot, in words.
    pub fn go_on(&self, peer: SocketPeer, rest: Undelivered) -> Result<(), String> {
        let from = Arc::clone(&peer.sockets[0]);
        self.input.wake.iter().try_for_each(|wake| wake.add(&*from)).map_err(text)?;
        let done = self.seat(peer, rest);
        if done.is_err() {
            self.input.wake.iter().for_each(|wake| wake.remove(&*from));
            let _ = self.output.queue.take_within(GRACE);
        }
        done
    }

    /// Puts the queues of a peer into the seats. Its socket wakes the worker by then.
    fn seat(&self, peer: SocketPeer, rest: Undelivered) -> Result<(), String> {
        let Undelivered { begun, backlog, noted } = rest;
        let news = PeerNews::new(&self.news);
        let [reader, writer] = noted.map_or([None, None], |noted| noted.map(Some));
        let copies = reader.iter().chain(&writer).map(|noted| noted.as_fd().try_clone_to_owned().map(Arc::new));
        let copies = copies.collect::<Result<_, _>>().map_err(text)?;
        let longest = self.rules.longest();
        let reader = match reader {
            Some(noted) => FrameReader::Stream(Box::new(StreamReader::new(longest, &begun, noted))),
            None => FrameReader::Messages(MessageReader::new(longest, peer.is_connection, peer.own)),
        };
        let room = AwaitedRoom::new(&self.input);
        let [from, to] = peer.sockets.each_ref().map(|socket| self.parts(socket, &news, &room));
        let counters = Arc::clone(&self.output.counters);
        let egress = PeerEgress::new(to, carrier(&peer), counters, writer, &backlog);
        self.output.put(egress).map_err(text)?;
        let seats = PeerSeats { input: Arc::downgrade(&self.input), output: Arc::downgrade(&self.output) };
        let ingress = PeerIngress::new(from, reader, Arc::clone(&self.input.counters), seats);
        self.input.put(ingress).map_err(text)?;
        *self.peer.borrow_mut() = Some(LinePeer { peer, noted: copies, news });
        Ok(())
    }

    fn parts(&self, socket: &Arc<OwnedFd>, news: &PeerNews, room: &AwaitedRoom) -> PeerParts {
        let socket = Arc::clone(socket);
        PeerParts { socket, rules: Arc::clone(&self.rules), news: news.clone(), room: room.clone() }
    }

    /// What a worker found: that the peer is gone, and the rule that it broke, if it did.
    pub fn over(&self) -> Option<Option<String>> {
        let peer = self.peer.borrow();
        let news = &peer.as_ref()?.news;
        news.is_over().then(|| news.reason())
    }

    /// Whether a worker found that nobody takes the peer's datagrams since the last call.
    pub fn take_missed(&self) -> bool {
        self.peer.borrow().as_ref().is_some_and(|peer| peer.news.take_missed())
    }

    /// Takes what the peer has sent, and then finds it gone.
    pub fn let_go(&self) {
        self.peer.borrow().iter().for_each(|peer| peer.news.end());
        self.input.poke();
    }

    /// Disconnects the peer, `why`: not because it left.
    pub fn end(&self, why: Option<String>) -> LeftPeer {
        let Some(LinePeer { peer, news, .. }) = self.peer.borrow_mut().take() else { return LeftPeer::default() };
        self.story.borrow_mut().last_error = why;
        self.input.wake.iter().for_each(|wake| wake.remove(&*peer.sockets[0]));
        self.input.set_open(false);
        self.output.set_open(false);
        // What a worker does not give back in time is dropped by it.
        let _ = self.input.queue.take_within(GRACE);
        let _ = self.output.queue.take_within(GRACE);
        LeftPeer { strangers: news.take_strangers(), ..LeftPeer::of(peer) }
    }

    /// The peer that is connected.
    pub(crate) fn peer(&self) -> Ref<'_, Option<LinePeer>> {
        self.peer.borrow()
    }
}

fn carrier(peer: &SocketPeer) -> Carrier {
    let is_tcp = peer.format == FrameFormat::Stream && !is_unix(&peer.sockets[1], SocketType::STREAM);
    Carrier { format: peer.format, is_tcp, is_connection: peer.is_connection }
}

fn new_notes() -> Result<[NotedCounts; 2], Errno> {
    Ok([NotedCounts::new()?, NotedCounts::new()?])
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}
