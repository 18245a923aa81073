//! A line: the part of a port that stays while its peers come and go. Workers use its seats, which hold a connected
//! peer's queues. Its story describes the peers for display.

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
use crate::ingress::PeerIngress;
use crate::news::PeerNews;
use crate::parts::PeerParts;
use crate::reader::{FrameReader, MessageReader, StreamReader};
use crate::room::AwaitedRoom;
use crate::rules::{FrameFormat, FrameRules};

/// Maximum time to wait for a worker that is using a queue of a leaving peer.
const GRACE: Duration = Duration::from_millis(1);
/// Approximate memory of a connected peer, in bytes.
pub const PEER_MEMORY: u64 = 3 << 20;

/// The sockets of a peer and their use.
#[derive(Clone, Debug)]
pub struct SocketPeer {
    /// The socket from which the peer's frames come, and the socket to which frames for the peer go.
    pub sockets: [Arc<OwnedFd>; 2],
    /// Format of frames in these sockets.
    pub format: FrameFormat,
    /// Whether an end or error of a socket means that the peer is gone.
    pub is_connection: bool,
    /// Whether the sockets are the port's own and serve any peer.
    pub is_ports: bool,
    /// A control connection without frames, which is open as long as the peer exists; `None` if the peer has no such
    /// connection.
    pub control: Option<Arc<OwnedFd>>,
    /// Source address of the frames that this port sends to a multicast group; frames that come back from it are
    /// ignored.
    pub own: Option<SocketAddrV4>,
}

impl SocketPeer {
    /// Creates a peer with a connected socket.
    pub fn connected(socket: OwnedFd, format: FrameFormat) -> SocketPeer {
        SocketPeer { format, is_connection: true, ..SocketPeer::at(&Arc::new(socket)) }
    }

    /// Creates a peer whose datagrams use a socket of the port's own.
    pub fn datagrams(socket: &Arc<OwnedFd>) -> SocketPeer {
        SocketPeer { is_ports: true, ..SocketPeer::at(socket) }
    }

    /// Creates a datagram peer that exists as long as the connection `control` is open.
    pub fn plugged(socket: OwnedFd, control: Arc<OwnedFd>) -> SocketPeer {
        SocketPeer { control: Some(control), ..SocketPeer::at(&Arc::new(socket)) }
    }

    /// Creates a datagram peer with one socket for both directions.
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

/// Data that a predecessor received from a peer or accepted for the peer, but did not deliver.
#[derive(Debug, Default)]
pub struct Undelivered {
    /// The start of an incomplete frame, including its length prefix, which was taken from the socket.
    pub begun: Vec<u8>,
    /// Data accepted for the peer and not sent yet, one item per message.
    pub backlog: Vec<Vec<u8>>,
    /// For a stream, a record in shared memory per direction, which says whether part of a frame is missing; otherwise
    /// `None`.
    pub noted: Option<[NotedCounts; 2]>,
}

/// The connected peer of a line.
pub(crate) struct LinePeer {
    pub peer: SocketPeer,
    pub noted: Vec<Arc<OwnedFd>>,
    news: PeerNews,
}

/// The history of a line's peers, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineStory {
    /// Number of peers so far.
    pub connections: u64,
    /// The reason why the last peer was disconnected; `None` if it disconnected by itself.
    pub last_error: Option<String>,
    /// Identity of the last peer; a peer with this identity gets the same line when it returns.
    pub who: Option<String>,
    /// The last peer's description of itself.
    pub about: Option<String>,
}

/// Resources left by a peer that is gone. Closing them may take a long time.
#[derive(Debug, Default)]
pub struct LeftPeer {
    /// The peer's sockets, unless they are used elsewhere.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Descriptors that the peer passed.
    pub strangers: Vec<OwnedFd>,
}

impl LeftPeer {
    /// Returns the resources of a peer that is gone.
    pub fn of(peer: SocketPeer) -> LeftPeer {
        let [from, to] = peer.sockets;
        let to = (!Arc::ptr_eq(&from, &to)).then_some(to);
        LeftPeer { sockets: std::iter::once(from).chain(to).chain(peer.control).collect(), strangers: Vec::new() }
    }
}

/// The part of a port that stays while peers come and go.
pub struct SocketLine {
    pub(crate) input: Arc<Seat<PeerIngress>>,
    pub(crate) output: Arc<Seat<PeerEgress>>,
    rules: Arc<FrameRules>,
    news: Arc<OwnedFd>,
    peer: RefCell<Option<LinePeer>>,
    story: RefCell<LineStory>,
    /// Whether only peers that request the line's number get the line.
    is_reserved: Cell<bool>,
}

/// The switch's queues to and from a line's peers.
pub type LineQueues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

impl SocketLine {
    /// Creates a line without a peer, and the line's queues. `news` becomes readable when a worker reports something
    /// about a peer, for example that the peer hung up.
    ///
    /// # Errors
    /// Fails when the process is out of descriptors.
    pub fn new(rules: &Arc<FrameRules>, news: &Arc<OwnedFd>) -> Result<(SocketLine, LineQueues), Errno> {
        let input = Arc::new(Seat::<PeerIngress>::woken()?);
        let output = Arc::<Seat<PeerEgress>>::default();
        let egress: Arc<dyn Egress> = Arc::new(SeatEgress(Arc::clone(&output)));
        let ingress: Box<dyn Ingress> = Box::new(SeatIngress::new(Arc::clone(&input)).by_calls());
        let (peer, story, is_reserved) = Default::default();
        let rules = Arc::clone(rules);
        let news = Arc::clone(news);
        let line = SocketLine { input, output, rules, news, peer, story, is_reserved };
        Ok((line, (vec![egress], vec![ingress])))
    }

    /// Returns whether a peer is connected.
    pub fn is_taken(&self) -> bool {
        self.peer.borrow().is_some()
    }

    /// Returns whether only peers that request the line's number get the line.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved.get()
    }

    /// Reserves the line for peers that request its number, or opens it to all.
    pub fn reserve(&self, is_reserved: bool) {
        self.is_reserved.set(is_reserved);
    }

    /// Returns the history of the line's peers.
    pub fn story(&self) -> LineStory {
        self.story.borrow().clone()
    }

    /// Replaces the history by a predecessor's.
    pub fn continue_story(&self, story: LineStory) {
        *self.story.borrow_mut() = story;
    }

    /// Connects a peer to a free line; `who` identifies the peer, `about` is its description of itself.
    ///
    /// # Errors
    /// The reason why the peer cannot be connected, in words.
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

    /// Takes over a predecessor's peer and the peer's undelivered data.
    ///
    /// # Errors
    /// The reason why the peer cannot be taken over, in words.
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

    /// Puts the peer's queues into the seats. The socket is already in the worker's wake set.
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
        let ingress = PeerIngress {
            parts: from,
            reader,
            counters: Arc::clone(&self.input.counters),
            input: Arc::downgrade(&self.input),
            output: Arc::downgrade(&self.output),
        };
        self.input.put(ingress).map_err(text)?;
        *self.peer.borrow_mut() = Some(LinePeer { peer, noted: copies, news });
        Ok(())
    }

    fn parts(&self, socket: &Arc<OwnedFd>, news: &PeerNews, room: &AwaitedRoom) -> PeerParts {
        let socket = Arc::clone(socket);
        PeerParts { socket, rules: Arc::clone(&self.rules), news: news.clone(), room: room.clone() }
    }

    /// Returns `Some` if a worker has reported the end of the peer. The inner value names the rule that the peer broke;
    /// it is `None` if the peer disconnected by itself.
    pub fn over(&self) -> Option<Option<String>> {
        let peer = self.peer.borrow();
        let news = &peer.as_ref()?.news;
        news.is_over().then(|| news.reason())
    }

    /// Returns whether a worker found, since the last call, that nobody receives the datagrams sent to the peer.
    pub fn take_missed(&self) -> bool {
        self.peer.borrow().as_ref().is_some_and(|peer| peer.news.take_missed())
    }

    /// Lets the worker take everything that the peer has sent, and then report the peer as gone.
    pub fn let_go(&self) {
        self.peer.borrow().iter().for_each(|peer| peer.news.end());
        self.input.poke();
    }

    /// Removes the peer. `why` is the reason for disconnecting it; `None` if the peer disconnected by itself. Returns
    /// the peer's resources, which the caller closes.
    pub fn end(&self, why: Option<String>) -> LeftPeer {
        let Some(LinePeer { peer, news, .. }) = self.peer.borrow_mut().take() else { return LeftPeer::default() };
        self.story.borrow_mut().last_error = why;
        self.input.wake.iter().for_each(|wake| wake.remove(&*peer.sockets[0]));
        self.input.set_open(false);
        self.output.set_open(false);
        // A worker that does not return the queue in time drops it later.
        let _ = self.input.queue.take_within(GRACE);
        let _ = self.output.queue.take_within(GRACE);
        LeftPeer { strangers: news.take_strangers(), ..LeftPeer::of(peer) }
    }

    /// Returns the connected peer; empty if no peer is connected.
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
