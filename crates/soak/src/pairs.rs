//! Bystanders: ends that exchange numbered frames all the while, on a thread for each pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ends::End;
use crate::frames::{Expected, Number, Seen, Tally, read};
use crate::replayed;

/// Frames of a flow that are under way at most: fewer than any ring, socket or cable on the way holds.
const WINDOW: u64 = 64;
/// Frames sent in a turn, and the length of a turn: this machine has other things to do.
const TURN: u64 = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// After such a time the window is taken to be lost, and filled again.
const GIVEN_UP: Duration = Duration::from_millis(200);

/// Frames one way, between ends of a pair.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name in the report.
    pub name: String,
    /// The end that sends; none if frames come from a file.
    pub from: Option<usize>,
    /// The end that receives.
    pub to: usize,
    /// The flow whose frames they are copies of.
    pub copies: Option<usize>,
    /// See [`Expected::new`].
    pub cycle: Option<u64>,
}

impl Flow {
    /// From one end to another.
    pub fn between(name: &str, from: usize, to: usize) -> Flow {
        Flow { name: name.into(), from: Some(from), to, copies: None, cycle: None }
    }
}

/// Ends, and the flows between them.
pub struct Pair {
    /// The ends.
    pub ends: Vec<Box<dyn End>>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Ports at which its frames may be dropped, in the daemon of that number.
    pub ports: Vec<(usize, String)>,
}

impl Pair {
    /// Two ends that exchange frames both ways.
    pub fn two(a: Box<dyn End>, b: Box<dyn End>, ports: &[(usize, &str)]) -> Pair {
        let flows = vec![Flow::between("there", 0, 1), Flow::between("back", 1, 0)];
        let ports = ports.iter().map(|(daemon, port)| (*daemon, (*port).to_owned())).collect();
        Pair { ends: vec![a, b], flows, ports }
    }
}

/// What is counted of a pair, from one life to the next.
#[derive(Debug, Default)]
pub struct Books {
    /// Damaged frames have no flow.
    pub corrupt: AtomicU64,
    /// Others' frames.
    pub strangers: AtomicU64,
    /// One for each flow.
    pub tallies: Vec<Tally>,
}

/// A pair whose thread runs.
pub struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the pair whose flows have these numbers from `first` on.
    pub fn start(pair: Pair, first: u32, epoch: u32, books: Arc<Books>) -> std::io::Result<Running> {
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let run = move || Turns::new(pair, first, epoch, books).run(&ends);
        let thread = std::thread::Builder::new().name("soak-pair".into()).spawn(run)?;
        Ok(Running { over, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // One that panicked was noticed by the frames that did not come.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Turns {
    pair: Pair,
    first: u32,
    epoch: u32,
    books: Arc<Books>,
    expected: Vec<Expected>,
    /// The next number of each flow, and when frames were sent last.
    next: Vec<(u64, Instant)>,
    payload: Vec<u8>,
}

impl Turns {
    fn new(pair: Pair, first: u32, epoch: u32, books: Arc<Books>) -> Turns {
        let number = |index: usize| first + pair.flows[index].copies.unwrap_or(index) as u32;
        let expected = pair.flows.iter().enumerate().map(|(i, flow)| {
            // Files were written before anything was opened.
            let (number, epoch) = if flow.cycle.is_some() { (replayed::FLOW, 0) } else { (number(i), epoch) };
            Expected::new(number, epoch, flow.cycle)
        });
        let (expected, next) = (expected.collect(), vec![(0, Instant::now()); pair.flows.len()]);
        Turns { expected, pair, first, epoch, books, next, payload: Vec::new() }
    }

    fn run(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            for index in 0..self.pair.flows.len() {
                self.send(index);
            }
            self.pair.ends.iter_mut().for_each(|end| end.flush());
            self.receive();
            std::thread::sleep(PAUSE);
            self.pair.ends[0].wait(PAUSE);
        }
    }

    fn send(&mut self, index: usize) {
        let flow = &self.pair.flows[index];
        let Some(end) = flow.from.filter(|_| flow.copies.is_none()).and_then(|from| self.pair.ends.get_mut(from))
        else {
            return;
        };
        let (next, since) = &mut self.next[index];
        let is_stuck = since.elapsed() > GIVEN_UP;
        let under_way = next.saturating_sub(self.expected[index].due());
        let most = if is_stuck { TURN } else { WINDOW.saturating_sub(under_way).min(TURN) };
        for _ in 0..most {
            let number = Number { flow: self.first + index as u32, epoch: self.epoch, sequence: *next };
            number.payload(&mut self.payload);
            if !end.send(&self.payload) {
                break;
            }
            (*next, *since) = (*next + 1, Instant::now());
            self.books.tallies[index].sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn receive(&mut self) {
        let Turns { pair, expected, books, .. } = self;
        for (at, end) in pair.ends.iter_mut().enumerate() {
            end.receive(&mut |payload| match read(payload) {
                Seen::Stranger => _ = books.strangers.fetch_add(1, Ordering::Relaxed),
                Seen::Corrupt => _ = books.corrupt.fetch_add(1, Ordering::Relaxed),
                Seen::Frame(number) => {
                    let of_end = pair.flows.iter().enumerate().filter(|(_, flow)| flow.to == at);
                    of_end.for_each(|(i, _)| expected[i].count(number, &books.tallies[i]));
                }
            });
        }
        expected.iter().zip(&books.tallies).for_each(|(expected, tally)| expected.pause(tally));
    }
}
