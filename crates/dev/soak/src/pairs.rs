//! Bystanders: ends that exchange numbered frames all the while, on a thread for each pair.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ends::End;
use crate::frames::{Expected, Number, Seen, Tally, damage, read};
use crate::machine::{GoneTime, waited};
use crate::replayed;

/// Frames of a flow that are under way at most: fewer than any ring, socket or cable on the way holds.
const WINDOW: u64 = 64;
/// Frames sent in a turn, and the length of a turn: this machine has other things to do.
const TURN: u64 = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// After such a time the window is taken to be lost, and filled again.
const GIVEN_UP: Duration = Duration::from_millis(200);

/// Damaged frames of a pair that are described.
const MOST_DAMAGES: usize = 12;
/// A longer time without a frame is written down.
const LONG: Duration = Duration::from_millis(100);

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
    /// When the first of them came, and what was wrong with them.
    damages: Mutex<Vec<(Instant, String)>>,
    /// Others' frames.
    pub strangers: AtomicU64,
    /// One for each flow.
    pub tallies: Vec<Tally>,
    /// Frames that would have been sent so far if those under way had never been late, and those that were.
    pub wanted: AtomicU64,
    /// See `wanted`.
    pub offered: AtomicU64,
    waits: Mutex<Vec<LongWait>>,
}

impl Books {
    /// For that many flows.
    pub fn of(flows: usize) -> Books {
        Books { tallies: (0..flows).map(|_| Tally::default()).collect(), ..Books::default() }
    }

    /// Counts a damaged frame.
    fn damaged(&self, payload: &[u8]) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        let mut damages = self.damages.lock().unwrap_or_else(PoisonError::into_inner);
        if damages.len() < MOST_DAMAGES {
            damages.push((Instant::now(), damage(payload)));
        }
    }

    /// The first damaged frames.
    pub fn damages(&self) -> Vec<(Instant, String)> {
        self.damages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes out what was written down since the last time.
    pub fn waits(&self) -> Vec<LongWait> {
        std::mem::take(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A long time without a frame, which is over.
#[derive(Clone, Copy, Debug)]
pub struct LongWait {
    /// The flow's number in its pair.
    pub flow: usize,
    /// When it was over.
    pub until: Instant,
    /// All of it.
    pub whole: Duration,
    /// Without what the machine took.
    pub own: Duration,
}

/// When frames came, and what the machine had taken until then.
#[derive(Clone, Copy)]
struct LastFrame {
    at: Instant,
    gone: Duration,
    received: u64,
    lost: u64,
}

/// A pair whose thread runs.
pub struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the pair whose flows have these numbers from `first` on.
    pub fn start(pair: Pair, first: u32, epoch: u32, books: Arc<Books>, clock: PairClock) -> std::io::Result<Running> {
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let run = move || Turns::new(pair, first, epoch, books, clock).run(&ends);
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

/// Knows what the machine has taken of a pair's time.
pub struct PairClock {
    /// Of the daemons'.
    pub gone: Arc<GoneTime>,
    /// Whether it has ports of the second one, too.
    pub needs_second: bool,
}

impl PairClock {
    /// So far; `own` is the schedstat of the pair's thread, which may have no processor either.
    fn gone(&self, own: Option<&File>) -> Duration {
        self.gone.of(self.needs_second) + without_processor(own)
    }

    /// The same as of now.
    fn now(&self, own: Option<&File>) -> Duration {
        self.gone.now(self.needs_second) + without_processor(own)
    }
}

fn without_processor(thread: Option<&File>) -> Duration {
    Duration::from_nanos(thread.and_then(waited).unwrap_or(0))
}

struct Turns {
    pair: Pair,
    clock: PairClock,
    arrivals: Vec<Option<LastFrame>>,
    first: u32,
    epoch: u32,
    books: Arc<Books>,
    expected: Vec<Expected>,
    /// The next number of each flow, and when frames were sent last.
    next: Vec<(u64, Instant)>,
    payload: Vec<u8>,
}

impl Turns {
    fn new(pair: Pair, first: u32, epoch: u32, books: Arc<Books>, clock: PairClock) -> Turns {
        let number = |index: usize| first + pair.flows[index].copies.unwrap_or(index) as u32;
        let expected = pair.flows.iter().enumerate().map(|(i, flow)| {
            // Files were written before anything was opened.
            let (number, epoch) = if flow.cycle.is_some() { (replayed::FLOW, 0) } else { (number(i), epoch) };
            Expected::new(number, epoch, flow.cycle)
        });
        let (expected, next) = (expected.collect(), vec![(0, Instant::now()); pair.flows.len()]);
        let arrivals = vec![None; pair.flows.len()];
        Turns { expected, pair, clock, arrivals, first, epoch, books, next, payload: Vec::new() }
    }

    fn run(&mut self, over: &AtomicBool) {
        let own = File::open("/proc/thread-self/schedstat").ok();
        while !over.load(Ordering::Relaxed) {
            for index in 0..self.pair.flows.len() {
                self.send(index);
            }
            self.pair.ends.iter_mut().for_each(|end| end.flush());
            self.receive();
            self.note_arrivals(own.as_ref());
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
        // Until the first one has come, the other end may not be there.
        let is_judged = self.expected[index].due() > 0;
        self.books.wanted.fetch_add(if is_judged { TURN } else { 0 }, Ordering::Relaxed);
        for _ in 0..most {
            let number = Number { flow: self.first + index as u32, epoch: self.epoch, sequence: *next };
            number.payload(&mut self.payload);
            if !end.send(&self.payload) {
                break;
            }
            (*next, *since) = (*next + 1, Instant::now());
            self.books.tallies[index].sent.fetch_add(1, Ordering::Relaxed);
            self.books.offered.fetch_add(u64::from(is_judged && !is_stuck), Ordering::Relaxed);
        }
    }

    fn receive(&mut self) {
        let Turns { pair, expected, books, .. } = self;
        for (at, end) in pair.ends.iter_mut().enumerate() {
            end.receive(&mut |payload| match read(payload) {
                Seen::Stranger => _ = books.strangers.fetch_add(1, Ordering::Relaxed),
                Seen::Corrupt => books.damaged(payload),
                Seen::Frame(number) => {
                    let of_end = pair.flows.iter().enumerate().filter(|(_, flow)| flow.to == at);
                    of_end.for_each(|(i, _)| expected[i].count(number, &books.tallies[i]));
                }
            });
        }
        expected.iter().zip(&books.tallies).for_each(|(expected, tally)| expected.pause(tally));
    }

    /// Writes down the end of a long wait, unless frames were dropped: the next ones are sent only after a while then.
    fn note_arrivals(&mut self, own: Option<&File>) {
        let gone = self.clock.gone(own);
        for (flow, (last, tally)) in self.arrivals.iter_mut().zip(&self.books.tallies).enumerate() {
            let [received, lost] = [&tally.received, &tally.lost].map(Tally::get);
            if last.is_some_and(|last| last.received == received) || received == 0 {
                continue;
            }
            let now = LastFrame { at: Instant::now(), gone, received, lost };
            let Some(before) = last.replace(now).filter(|before| before.lost == lost) else { continue };
            let whole = now.at - before.at;
            if whole > LONG {
                // What was last looked at is as late as everything on a busy machine.
                let gone = self.clock.now(own);
                let wait = LongWait {
                    flow,
                    until: now.at,
                    whole,
                    own: whole.saturating_sub(gone.saturating_sub(before.gone)),
                };
                self.books.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
            }
        }
    }
}
