//! Frames from one process to another over a netmap pipe: each process has a core, the daemon only introduced them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::own::{Daemon, open};
use super::traffic::{Books, Receiver, SLOTS, Sender, Touch};
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{Result, Skip};
use crate::interrupt;
use crate::sys::worker::{Context, Worker};

/// Role of the sending process.
pub const SENDER: &str = "pipe-sender";
/// Role of the receiving process.
pub const RECEIVER: &str = "pipe-receiver";
/// Counter of frames moved.
const FRAMES: usize = 0;
/// Counter of frames that arrived with other bytes than were sent.
const WRONG: usize = 1;
/// The time that the two run before counting starts.
const SETTLE: Duration = Duration::from_millis(50);

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "pipe",
    about: "frames from one process to another over a pipe; touched: first line written and read, untouched: slots only",
    variants: &[
        Variant { name: "untouched", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "touched", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "touched-large", unit: Unit::Gbps, frame_bytes: &[1500], batch: &[64], ..Variant::TWO_PORTS },
        Variant { name: "all-bytes-large", unit: Unit::Gbps, frame_bytes: &[1500], batch: &[64], ..Variant::TWO_PORTS },
    ],
    ours: Some(|| Box::new(Pipe)),
};

fn touch(case: &Case) -> Touch {
    match case.variant.as_str() {
        "untouched" => Touch::Nothing,
        "all-bytes-large" => Touch::All,
        _ => Touch::Line,
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    dir: String,
    case: Case,
}

/// The sending process.
///
/// # Errors
/// The port cannot be opened.
pub fn sender_role(context: &Context) -> Result<()> {
    let Task { dir, case } = context.arguments()?;
    let mut port = open(Path::new(&dir), "netmap:bench{1", SLOTS)?;
    let mut sender = Sender::new(1, (2, 1), case.frame_bytes, touch(&case));
    sender.fill(&port.tx()[0]);
    let (sent, batch) = (context.counters.counter(FRAMES), case.batch.max(1));
    context.ready()?;
    let tx = &mut port.tx()[0];
    loop {
        sender.send(tx, batch);
        publish(sent, sender.sent);
    }
}

/// The receiving process.
///
/// # Errors
/// The port cannot be opened.
pub fn receiver_role(context: &Context) -> Result<()> {
    let Task { dir, case } = context.arguments()?;
    let mut port = open(Path::new(&dir), "netmap:bench}1", SLOTS)?;
    let mut receiver = Receiver::new(touch(&case));
    let (received, wrong) = (context.counters.counter(FRAMES), context.counters.counter(WRONG));
    let batch = case.batch.max(1);
    context.ready()?;
    let rx = &mut port.rx()[0];
    loop {
        receiver.receive(rx, batch);
        publish(received, receiver.received);
        publish(wrong, receiver.wrong);
    }
}

/// Only when there is news: the line is this process' alone most of the time.
#[inline]
fn publish(counter: &AtomicU64, value: u64) {
    if counter.load(Ordering::Relaxed) != value {
        counter.store(value, Ordering::Relaxed);
    }
}

/// A netmap pipe.
pub struct Pipe;

impl Contender for Pipe {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "a netmap pipe between two processes, zero-copy"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (first, second) = env.two_cores()?;
        let daemon = Daemon::start(first, "")?;
        let task = Task { dir: daemon.dir().display().to_string(), case: case.clone() };
        let receiver = Worker::spawn(RECEIVER, second, &task)?;
        receiver.freeze()?;
        let sender = Worker::spawn(SENDER, first, &task)?;
        sender.freeze()?;
        Ok(Box::new(Running { case: case.clone(), cores: (first, second), sender, receiver, _daemon: daemon }))
    }
}

struct Running {
    case: Case,
    cores: (usize, usize),
    sender: Worker,
    receiver: Worker,
    _daemon: Daemon,
}

impl Running {
    /// The two processes stop between filling a slot and counting it at worst, hence the batches.
    fn books(&self) -> Books {
        let received = self.receiver.count(FRAMES);
        Books {
            sent: self.sender.count(FRAMES) + u64::from(self.case.batch),
            received,
            wrong: self.receiver.count(WRONG),
            dropped: 0,
            in_flight: u64::from(2 * SLOTS + 2 * self.case.batch),
        }
    }
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        self.receiver.thaw()?;
        self.sender.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.sender.freeze()?;
        self.receiver.freeze()?;
        self.books().check("netvale's pipe")
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let pids = [self.sender.pid(), self.receiver.pid()];
        interrupt::sleep(SETTLE)?;
        let watch = Watch::start(&pids, &[(pids[0], pids[0]), (pids[1], pids[1])]);
        let (before, start) = (self.receiver.count(FRAMES), Instant::now());
        interrupt::sleep(window)?;
        let (frames, seconds) = (self.receiver.count(FRAMES) - before, start.elapsed().as_secs_f64());
        let beside = watch.finish();
        Ok(Sample::new(self.case.unit.rate(frames, self.case.frame_bytes, seconds).unwrap_or(0.0), beside))
    }

    fn cores(&self) -> String {
        format!("sender on {}, receiver on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), SLOTS.to_string()), ("bytes".into(), touch(&self.case).words().into())]
    }
}
