//! Frames from one process to another over a netmap pipe: each process has a core, the daemon only introduced them.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::own::{Daemon, fill, frame, open, receive, send};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::scenarios::{Scenario, Variant};
use crate::sys::worker::{Context, Worker};

/// Role of the sending process.
pub const SENDER: &str = "pipe-sender";
/// Role of the receiving process.
pub const RECEIVER: &str = "pipe-receiver";
/// Rounds between two updates of the counter.
const ROUNDS: u32 = 16;

/// The scenario. In `two-process` the sender writes each frame and the receiver reads it; in `two-process-slots` both touch slots only.
pub const SCENARIO: Scenario = Scenario {
    name: "pipe",
    about: "frames from one process to another over a pipe",
    variants: &[
        Variant { name: "two-process", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ports: &[2] },
        Variant { name: "two-process-slots", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ports: &[2] },
    ],
    ours: Some(|| Box::new(Pipe)),
};

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    dir: String,
    frame_bytes: u32,
    batch: u32,
    touch: bool,
}

/// The sending process.
///
/// # Errors
/// Its port cannot be opened.
pub fn sender_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let mut port = open(Path::new(&task.dir), "netmap:bench{1")?;
    let bytes = frame(2, 1, task.frame_bytes);
    fill(&port.tx()[0], &bytes);
    context.ready()?;
    loop {
        let mut n = 0;
        for _ in 0..ROUNDS {
            n += u64::from(send(&mut port.tx()[0], &bytes, task.batch, task.touch));
        }
        context.counters.counter(0).fetch_add(n, Ordering::Relaxed);
    }
}

/// The receiving process.
///
/// # Errors
/// Its port cannot be opened.
pub fn receiver_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let mut port = open(Path::new(&task.dir), "netmap:bench}1")?;
    context.ready()?;
    loop {
        let mut n = 0;
        for _ in 0..ROUNDS {
            n += u64::from(receive(&mut port.rx()[0], task.batch, task.touch));
        }
        context.counters.counter(0).fetch_add(n, Ordering::Relaxed);
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
        let task = Task {
            dir: daemon.dir().display().to_string(),
            frame_bytes: case.frame_bytes,
            batch: case.batch.max(1),
            touch: case.variant == "two-process",
        };
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

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        self.receiver.thaw()?;
        self.sender.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.sender.freeze()?;
        self.receiver.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let pids = [self.sender.pid(), self.receiver.pid()];
        std::thread::sleep(Duration::from_millis(50));
        let watch = Watch::start(&pids, &[(pids[0], pids[0]), (pids[1], pids[1])]);
        let (before, start) = (self.receiver.count(0), Instant::now());
        std::thread::sleep(window);
        let (frames, seconds) = (self.receiver.count(0) - before, start.elapsed().as_secs_f64());
        let beside = watch.finish();
        interrupt::check()?;
        if frames == 0 {
            return Err(BenchError::NoTraffic("netvale's pipe".into()));
        }
        Ok(Sample::new(self.case.unit.rate(frames, self.case.frame_bytes, seconds).unwrap_or(0.0), beside))
    }

    fn cores(&self) -> String {
        format!("sender on {}, receiver on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        self.case.variant == "two-process"
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), super::own::SLOTS.to_string())]
    }
}
