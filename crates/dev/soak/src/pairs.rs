//! Bystanders: ends that continually exchange numbered frames, with a thread per pair.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ends::End;
use crate::frames::{Expected, Number, Seen, Tally, damage, read};
use crate::machine::{GoneTime, waited};
use crate::replayed;

/// Maximum frames of a flow in flight: fewer than any ring, socket or cable on the path holds.
const WINDOW: u64 = 64;
/// Frames sent in a turn, and the length of a turn: it leaves the machine time for other work.
const TURN: u64 = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// After this time the window counts as lost, and is refilled.
const GIVEN_UP: Duration = Duration::from_millis(200);

/// Maximum number of a pair's damaged frames to describe.
const MOST_DAMAGES: usize = 12;
/// A longer time without a frame is recorded.
const LONG: Duration = Duration::from_millis(100);

/// Frames in one direction, between ends of a pair.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name in the report.
    pub name: String,
    /// The sending end; `None` if the frames come from a file.
    pub from: Option<usize>,
    /// The receiving end.
    pub to: usize,
    /// The flow whose frames these are copies of.
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
    /// Ports that may drop its frames, each in the daemon of that number.
    pub ports: Vec<(usize, String)>,
}

impl Pair {
    /// Two ends that exchange frames in both directions.
    pub fn two(a: Box<dyn End>, b: Box<dyn End>, ports: &[(usize, &str)]) -> Pair {
        let flows = vec![Flow::between("there", 0, 1), Flow::between("back", 1, 0)];
        let ports = ports.iter().map(|(daemon, port)| (*daemon, (*port).to_owned())).collect();
        Pair { ends: vec![a, b], flows, ports }
    }
}

/// A pair's counts, across the daemons' lives.
#[derive(Debug, Default)]
pub struct Books {
    /// Damaged frames, of any flow.
    pub corrupt: AtomicU64,
    /// Arrival and description of the first damaged frames.
    damages: Mutex<Vec<(Instant, String)>>,
    /// Frames from elsewhere.
    pub strangers: AtomicU64,
    /// One for each flow.
    pub tallies: Vec<Tally>,
    /// Frames that would have been sent so far if those in flight had never been late, and the frames sent.
    pub wanted: AtomicU64,
    /// See `wanted`.
    pub offered: AtomicU64,
    waits: Mutex<Vec<LongWait>>,
}

impl Books {
    /// Books for that many flows.
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

    /// Takes the waits recorded since the last call.
    pub fn waits(&self) -> Vec<LongWait> {
        std::mem::take(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A completed long time without a frame.
#[derive(Clone, Copy, Debug)]
pub struct LongWait {
    /// The flow's number in its pair.
    pub flow: usize,
    /// Its end.
    pub until: Instant,
    /// Its length.
    pub whole: Duration,
    /// Its length less the machine's part.
    pub own: Duration,
}

/// Arrivals of frames, and the machine's time taken until then.
#[derive(Clone, Copy)]
struct LastFrame {
    at: Instant,
    gone: Duration,
    received: u64,
    lost: u64,
}

/// A pair with a running thread.
pub struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the pair; its flows are numbered from `first`.
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
        // A panic shows as missing frames.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Measures the machine's part of a pair's time.
pub struct PairClock {
    /// Time taken from the daemons.
    pub gone: Arc<GoneTime>,
    /// Whether the pair also has ports of the second daemon.
    pub needs_second: bool,
}

impl PairClock {
    /// Time taken so far; `own` is the schedstat of the pair's thread, which may lack a processor too.
    fn gone(&self, own: Option<&File>) -> Duration {
        self.gone.of(self.needs_second) + without_processor(own)
    }

    /// Time taken as of now.
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
    /// The next number of each flow, and the time of its last sending.
    next: Vec<(u64, Instant)>,
    payload: Vec<u8>,
}

impl Turns {
    fn new(pair: Pair, first: u32, epoch: u32, books: Arc<Books>, clock: PairClock) -> Turns {
        let number = |index: usize| first + pair.flows[index].copies.unwrap_or(index) as u32;
        let expected = pair.flows.iter().enumerate().map(|(i, flow)| {
            // A file was written before any end was opened.
            let (number, epoch) = if flow.cycle.is_some() { (replayed::FLOW, 0) } else { (number(i), epoch) };
            Expected::new(number, epoch, flow.cycle)
        });
        let expected = expected.collect();
        let next = vec![(0, Instant::now()); pair.flows.len()];
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
        // Before the first arrival, the other end may not exist yet.
        let is_judged = self.expected[index].due() > 0;
        self.books.wanted.fetch_add(if is_judged { TURN } else { 0 }, Ordering::Relaxed);
        for _ in 0..most {
            let number = Number { flow: self.first + index as u32, epoch: self.epoch, sequence: *next };
            number.payload(&mut self.payload);
            if !end.send(&self.payload) {
                break;
            }
            *next += 1;
            *since = Instant::now();
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

    /// Records the end of a long wait, unless frames were dropped: after a drop the next ones are sent only later.
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
                // The last check is as late as everything else on a busy machine.
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
