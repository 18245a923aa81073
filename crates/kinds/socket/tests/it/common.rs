//! A port without a daemon: the port's exchange and lines, and a worker's work on them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::listener::ListenAddress;
use netvale_port::{Batch, DropReason, Egress, FrameRef, RingCounters, Scratch, Source};
use netvale_socket::exchange::{ListeningSource, OwnAddress, PeerSource};
use netvale_socket::{Exchange, FrameFormat, FrameRules, LineState, LineStory, PeerArrival, SocketLine};

const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(1);
/// Number of times that a test checks that something does not happen.
const LOOKS: usize = 20;

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, PAUSE, holds), "{what}");
}

/// Returns a frame of `len` bytes; frames with different `number`s differ.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| at as u8));
    frame.truncate(len);
    frame
}

/// Returns a frame with its length as prefix.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

/// Returns the whole frames of a stream, and the number of bytes after them.
pub fn frames_of(mut stream: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut frames = Vec::new();
    while let Some((length, rest)) = stream.split_first_chunk::<4>()
        && let Some((frame, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)
    {
        frames.push(frame.to_vec());
        stream = rest;
    }
    (frames, stream.len())
}

/// Creates a folder for sockets.
pub fn folder() -> tempfile::TempDir {
    netvale_harness::scratch("sockets").unwrap()
}

/// Returns the address of a socket at `path`, to which only this user may connect.
pub fn site(path: &Path) -> ListenAddress {
    ListenAddress::from(path.to_owned())
}

/// A line with the worker's ends of its queues.
struct ServedLine {
    line: Rc<SocketLine>,
    output: Arc<dyn Egress>,
    input: Source,
    spare: Box<Batch>,
}

/// A port with its worker.
pub struct SocketRig {
    exchange: Exchange,
    rules: Arc<FrameRules>,
    lines: BTreeMap<u16, ServedLine>,
    /// Number of the first line.
    first: u16,
    batch: Box<Batch>,
    scratch: Scratch,
    /// Reasons why peers were rejected.
    pub refused: Vec<String>,
}

fn bytes_of(frame: &FrameRef<'_>) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    assert_eq!(frame.copy_out(0, &mut bytes), frame.len());
    bytes
}

impl SocketRig {
    /// Creates a port with this source of peers; its first line exists immediately if `first` is 0.
    pub fn new(source: impl PeerSource + 'static, format: FrameFormat, rules: FrameRules, first: u16) -> SocketRig {
        let exchange = Exchange::new(Box::new(source), format).unwrap();
        let rules = Arc::new(rules);
        let mut rig = SocketRig {
            exchange,
            rules,
            lines: BTreeMap::new(),
            first,
            batch: Box::default(),
            scratch: Scratch::new(),
            refused: Vec::new(),
        };
        if first == 0 {
            let line = rig.serve_line(0);
            rig.exchange.add(0, line);
        }
        rig
    }

    /// Creates a port that listens at a path for streams of frames without header.
    pub fn listening(path: &Path) -> SocketRig {
        let source = ListeningSource::open(&OwnAddress::Unix(site(path)), FrameFormat::Stream).unwrap();
        SocketRig::new(source, FrameFormat::Stream, FrameRules::new(0, 1500), 0)
    }

    fn serve_line(&mut self, number: u16) -> Rc<SocketLine> {
        let (line, (mut outputs, mut inputs)) = SocketLine::new(&self.rules, self.exchange.news()).unwrap();
        let line = Rc::new(line);
        let output = outputs.pop().unwrap();
        let input = Source::new(inputs.pop().unwrap());
        self.lines.insert(number, ServedLine { line: Rc::clone(&line), output, input, spare: Box::default() });
        line
    }

    /// Does the main thread's work.
    pub fn serve(&mut self) {
        self.serve_at(Instant::now());
    }

    /// Does the main thread's work as of `now`.
    pub fn serve_at(&mut self, now: Instant) {
        let arrivals = self.exchange.arrivals(now);
        let over = |(number, line): (&u16, &Rc<SocketLine>)| Some((*number, self.exchange.over(line)?));
        let over: Vec<_> = self.exchange.lines().iter().filter_map(over).collect();
        for (number, why) in over {
            self.exchange.source().left(number, now);
            self.line(number).end(why);
        }
        arrivals.into_iter().for_each(|arrival| self.admit(arrival, now));
        let refused = self.exchange.source().refused();
        self.refused.extend(refused);
        self.exchange.source().strangers();
    }

    fn admit(&mut self, mut arrival: PeerArrival, now: Instant) {
        let is_free = |number: &u16| self.lines.get(number).is_none_or(|one| !one.line.is_taken());
        let number = arrival.number.unwrap_or_else(|| (self.first..).find(is_free).unwrap());
        if !self.lines.contains_key(&number) {
            let line = self.serve_line(number);
            self.exchange.add(number, line);
        }
        let seated = self
            .exchange
            .source()
            .seat(&mut arrival, number)
            .and_then(|peer| self.lines[&number].line.begin(peer, arrival.who.clone(), arrival.about.clone()));
        if let Err(why) = seated {
            self.refused.push(why);
            self.exchange.source().turn_away(arrival, now);
        }
    }

    /// Returns a line.
    pub fn line(&self, number: u16) -> &SocketLine {
        &self.lines[&number].line
    }

    /// Returns the history of a line's peers, for display.
    pub fn story(&self, number: u16) -> LineStory {
        self.line(number).story()
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Waits until a line has a peer (if `is_taken`) or has no peer (otherwise).
    #[track_caller]
    pub fn until_taken(&mut self, number: u16, is_taken: bool) {
        until(&format!("line {number}: {is_taken}"), || {
            self.serve();
            if !is_taken {
                self.receive(number);
            }
            self.lines.get(&number).is_some_and(|one| one.line.is_taken()) == is_taken
        });
    }

    /// Waits until a line has a peer and a condition holds.
    #[track_caller]
    pub fn until_taken_and(&mut self, number: u16, mut holds: impl FnMut(&mut SocketRig) -> bool) {
        until(&format!("line {number} has a peer"), || {
            self.serve();
            self.lines.get(&number).is_some_and(|one| one.line.is_taken()) && holds(self)
        });
    }

    /// Sends a frame on a line. Returns whether it was sent or dropped; false if there is no room.
    pub fn send(&mut self, number: u16, frame: &[u8]) -> bool {
        let output = &self.lines[&number].output;
        let scratch = &mut self.scratch;
        self.batch.lend(frame, |batch| output.deliver(batch, &[0], scratch)) == 1
    }

    /// Returns the frames that a line has received since the last call, at most one batch.
    pub fn receive(&mut self, number: u16) -> Vec<Vec<u8>> {
        let Some(one) = self.lines.get_mut(&number) else { return Vec::new() };
        let frames = one.input.take(&mut one.spare).iter().map(|frame| bytes_of(&frame)).collect();
        one.input.release(&mut one.spare);
        frames
    }

    /// Waits for `count` frames on a line, and checks that no more follow.
    #[track_caller]
    pub fn receives(&mut self, number: u16, count: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        until(&format!("{count} frames of line {number}"), || {
            all.extend(self.receive(number));
            all.len() >= count
        });
        (0..LOOKS).for_each(|_| all.extend(self.receive(number)));
        assert_eq!(all.len(), count, "line {number}");
        all
    }

    /// Forwards frames that a line has received to line 0 of another port. Returns the number of received frames, and
    /// the number of frames that line 0 has sent or dropped.
    pub fn forward(&mut self, number: u16, to: &mut SocketRig) -> (usize, usize) {
        let Some(one) = self.lines.get_mut(&number) else { return (0, 0) };
        let batch = one.input.take(&mut one.spare);
        let picks: Vec<u16> = (0..batch.len() as u16).collect();
        let done = to.lines[&0].output.deliver(batch, &picks, &mut to.scratch);
        one.input.release(&mut one.spare);
        (picks.len(), done)
    }

    /// Returns the counters of frames that a line has sent to its peer.
    pub fn sent(&self, number: u16) -> &RingCounters {
        self.lines[&number].output.counters()
    }

    /// Returns the number of frames from a line's peer that were dropped for this reason.
    pub fn lost(&self, number: u16, why: DropReason) -> u64 {
        self.lines[&number].input.ingress().counters().drops(why)
    }

    /// Returns the sockets of the exchange, for a successor.
    pub fn sockets(&self) -> Vec<OwnedFd> {
        Fd::take_all(self.exchange.save()).unwrap()
    }

    /// Returns the state of the lines for a successor: the exact state if `is_parked`, otherwise the state for the case
    /// that this process is killed.
    pub fn states(&self, is_parked: bool) -> Vec<(u16, LineState)> {
        let state = |line: &SocketLine| if is_parked { line.save_parked().unwrap() } else { line.save() };
        self.lines.iter().map(|(number, one)| (*number, state(&one.line))).collect()
    }

    /// Restores a predecessor's lines.
    pub fn go_on(&mut self, states: Vec<(u16, LineState)>) {
        for (number, state) in states {
            let line = self.serve_line(number);
            self.exchange.restore(number, line, state).unwrap();
        }
    }

    /// Takes the socket files over from the predecessor.
    pub fn claim(&mut self) {
        self.exchange.source().claims().iter().for_each(|claim| claim.take());
    }
}

/// Returns a path in a folder.
pub fn at(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}
