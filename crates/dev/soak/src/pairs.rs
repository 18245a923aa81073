//! Bystanders: ends that continually exchange numbered frames, with a thread for each pair.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ends::PairEnd;
use crate::frames::{ExpectedFrame, FlowTally, FrameNumber, PayloadReading, damage, read};
use crate::machine::{GoneTime, waited};
use crate::replayed;

/// Maximum number of a flow's frames in flight: less than the capacity of any ring, socket or veth on the path.
const WINDOW: u64 = 64;
/// Maximum number of frames that a flow sends in a turn of its pair's thread.
const TURN: u64 = 8;
/// Pause after each turn, which leaves the machine time for other work.
const PAUSE: Duration = Duration::from_millis(2);
/// Time after which frames in flight count as lost, and further frames are sent.
const GIVEN_UP: Duration = Duration::from_millis(200);

/// Maximum number of a pair's damaged frames that are described.
const MOST_DAMAGES: usize = 12;
/// A wait for a frame is recorded if it lasts at least this long.
const LONG: Duration = Duration::from_millis(100);

/// A flow: frames in one direction between two ends of a pair.
#[derive(Clone, Debug)]
pub struct PairFlow {
    /// The flow's name in the report.
    pub name: String,
    /// The sending end; `None` if the frames come from a file.
    pub from: Option<usize>,
    /// The receiving end.
    pub to: usize,
    /// For a monitor, the flow whose frames are copied; `None` for other flows.
    pub copies: Option<usize>,
    /// The `cycle` of [`ExpectedFrame::new`]: after that many frames, the numbers start again; `None`: never.
    pub cycle: Option<u64>,
}

impl PairFlow {
    /// Creates a flow from one end to another.
    pub fn between(name: &str, from: usize, to: usize) -> PairFlow {
        PairFlow { name: name.into(), from: Some(from), to, copies: None, cycle: None }
    }
}

/// The ends of some ports, and the flows of frames between them.
pub struct SoakPair {
    /// The ends.
    pub ends: Vec<Box<dyn PairEnd>>,
    /// The flows.
    pub flows: Vec<PairFlow>,
    /// Ports that may drop the pair's frames, each with the index of its daemon.
    pub ports: Vec<(usize, String)>,
}

impl SoakPair {
    /// Creates a pair whose two ends exchange frames in both directions.
    pub fn two(a: Box<dyn PairEnd>, b: Box<dyn PairEnd>, ports: &[(usize, &str)]) -> SoakPair {
        let flows = vec![PairFlow::between("there", 0, 1), PairFlow::between("back", 1, 0)];
        let ports = ports.iter().map(|(daemon, port)| (*daemon, (*port).to_owned())).collect();
        SoakPair { ends: vec![a, b], flows, ports }
    }
}

/// A pair's counts, which continue when a daemon is restarted.
#[derive(Debug, Default)]
pub struct PairCounts {
    /// Damaged frames of all flows.
    pub corrupt: AtomicU64,
    /// Time of arrival and description of the first damaged frames.
    damages: Mutex<Vec<(Instant, String)>>,
    /// Frames that are not a bystander's.
    pub strangers: AtomicU64,
    /// The counts of each flow.
    pub tallies: Vec<FlowTally>,
    /// Frames that would have been sent so far if no frame in flight had ever been late.
    pub wanted: AtomicU64,
    /// Frames that were sent before any frame in flight was late; this number is compared with `wanted`.
    pub offered: AtomicU64,
    waits: Mutex<Vec<LongWait>>,
}

impl PairCounts {
    /// Creates counts for `flows` flows.
    pub fn of(flows: usize) -> PairCounts {
        PairCounts { tallies: (0..flows).map(|_| FlowTally::default()).collect(), ..PairCounts::default() }
    }

    /// Counts a damaged frame.
    fn damaged(&self, payload: &[u8]) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        let mut damages = self.damages.lock().unwrap_or_else(PoisonError::into_inner);
        if damages.len() < MOST_DAMAGES {
            damages.push((Instant::now(), damage(payload)));
        }
    }

    /// Returns the first damaged frames.
    pub fn damages(&self) -> Vec<(Instant, String)> {
        self.damages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes and returns the recorded waits.
    pub fn waits(&self) -> Vec<LongWait> {
        std::mem::take(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A wait for a frame that lasted at least [`LONG`] and is over.
#[derive(Clone, Copy, Debug)]
pub struct LongWait {
    /// The flow's number in its pair.
    pub flow: usize,
    /// The moment when the wait ended.
    pub until: Instant,
    /// The length of the wait.
    pub whole: Duration,
    /// The length of the wait without the time that the machine took from the daemons.
    pub own: Duration,
}

/// The moment when a flow's last frames arrived, with the time that the machine had taken and the flow's counts at that
/// moment.
#[derive(Clone, Copy)]
struct LastFrame {
    at: Instant,
    gone: Duration,
    received: u64,
    lost: u64,
}

/// A pair whose thread runs.
pub struct RunningPair {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningPair {
    /// Starts the pair. Its flows have numbers from `first`.
    pub fn start(
        pair: SoakPair,
        first: u32,
        epoch: u32,
        books: Arc<PairCounts>,
        clock: PairClock,
    ) -> std::io::Result<RunningPair> {
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let run = move || PairTurns::new(pair, first, epoch, books, clock).run(&ends);
        let thread = std::thread::Builder::new().name("soak-pair".into()).spawn(run)?;
        Ok(RunningPair { over, thread: Some(thread) })
    }
}

impl Drop for RunningPair {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // A panic of the thread is ignored: the checks notice that frames are missing.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Measures the time that the machine, rather than a daemon, takes from a pair.
pub struct PairClock {
    /// Time that the machine has taken from the daemons.
    pub gone: Arc<GoneTime>,
    /// Whether the pair also has ports on the second daemon.
    pub needs_second: bool,
}

impl PairClock {
    /// Returns the time that the machine had taken from the pair at the last check. `own` is the schedstat of the
    /// pair's thread, which may itself have waited for a CPU.
    fn gone(&self, own: Option<&File>) -> Duration {
        self.gone.of(self.needs_second) + without_processor(own)
    }

    /// Like [`PairClock::gone`], but checks first, so that the time is up to date.
    fn now(&self, own: Option<&File>) -> Duration {
        self.gone.now(self.needs_second) + without_processor(own)
    }
}

fn without_processor(thread: Option<&File>) -> Duration {
    Duration::from_nanos(thread.and_then(waited).unwrap_or(0))
}

struct PairTurns {
    pair: SoakPair,
    clock: PairClock,
    arrivals: Vec<Option<LastFrame>>,
    first: u32,
    epoch: u32,
    books: Arc<PairCounts>,
    expected: Vec<ExpectedFrame>,
    /// For each flow, the number of the next frame, and when a frame was last sent.
    next: Vec<(u64, Instant)>,
    payload: Vec<u8>,
}

impl PairTurns {
    fn new(pair: SoakPair, first: u32, epoch: u32, books: Arc<PairCounts>, clock: PairClock) -> PairTurns {
        let number = |index: usize| first + pair.flows[index].copies.unwrap_or(index) as u32;
        let expected = pair.flows.iter().enumerate().map(|(i, flow)| {
            // A replayed file was written before any end was opened.
            let (number, epoch) = if flow.cycle.is_some() { (replayed::FLOW, 0) } else { (number(i), epoch) };
            ExpectedFrame::new(number, epoch, flow.cycle)
        });
        let expected = expected.collect();
        let next = vec![(0, Instant::now()); pair.flows.len()];
        let arrivals = vec![None; pair.flows.len()];
        PairTurns { expected, pair, clock, arrivals, first, epoch, books, next, payload: Vec::new() }
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
        // Until the first frame arrives, the other end may not exist yet.
        let is_judged = self.expected[index].due() > 0;
        self.books.wanted.fetch_add(if is_judged { TURN } else { 0 }, Ordering::Relaxed);
        for _ in 0..most {
            let number = FrameNumber { flow: self.first + index as u32, epoch: self.epoch, sequence: *next };
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
        let PairTurns { pair, expected, books, .. } = self;
        for (at, end) in pair.ends.iter_mut().enumerate() {
            end.receive(&mut |payload| match read(payload) {
                PayloadReading::Stranger => _ = books.strangers.fetch_add(1, Ordering::Relaxed),
                PayloadReading::Corrupt => books.damaged(payload),
                PayloadReading::Frame(number) => {
                    let of_end = pair.flows.iter().enumerate().filter(|(_, flow)| flow.to == at);
                    of_end.for_each(|(i, _)| expected[i].count(number, &books.tallies[i]));
                }
            });
        }
        expected.iter().zip(&books.tallies).for_each(|(expected, tally)| expected.pause(tally));
    }

    /// Records the waits that end now, if they were long. A wait after a drop is not recorded, because a flow resends
    /// only after a delay.
    fn note_arrivals(&mut self, own: Option<&File>) {
        let gone = self.clock.gone(own);
        for (flow, (last, tally)) in self.arrivals.iter_mut().zip(&self.books.tallies).enumerate() {
            let [received, lost] = [&tally.received, &tally.lost].map(FlowTally::get);
            if last.is_some_and(|last| last.received == received) || received == 0 {
                continue;
            }
            let now = LastFrame { at: Instant::now(), gone, received, lost };
            let Some(before) = last.replace(now).filter(|before| before.lost == lost) else { continue };
            let whole = now.at - before.at;
            if whole > LONG {
                // Check again, because on a busy machine the last check may itself be late.
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
