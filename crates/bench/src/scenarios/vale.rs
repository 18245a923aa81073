//! Frames from one port to another across the daemon's switch: sender and receiver take turns on one core, the daemon's worker
//! has the other.

use std::time::Duration;

use netvale::Port;

use super::own::{Daemon, fill, frame, open, receive, send};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::threads_named;
use crate::error::{Result, Skip};
use crate::scenarios::{Scenario, Variant};
use crate::sys::threads::{Job, run_pinned_with, total_rate};

/// Rounds between two looks at the clock.
const ROUNDS: u32 = 32;

/// The scenario. In `1-1` the sender writes each frame and the receiver reads it; in `1-1-slots` both touch slots only.
pub const SCENARIO: Scenario = Scenario {
    name: "vale",
    about: "frames across a learning switch",
    variants: &[
        Variant { name: "1-1", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ports: &[2] },
        Variant { name: "1-1-slots", unit: Unit::Mpps, frame_bytes: &[60], batch: &[256], ports: &[2] },
        Variant { name: "1-1-large", unit: Unit::Gbps, frame_bytes: &[1500], batch: &[256], ports: &[2] },
    ],
    ours: Some(|| Box::new(Vale)),
};

/// Netvale's daemon.
pub struct Vale;

impl Contender for Vale {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "two local ports on a VALE switch, one worker"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (core, worker_core) = env.two_cores()?;
        let daemon = Daemon::start(worker_core, "")?;
        let (mut from, mut to) = (open(daemon.dir(), "vale0:from")?, open(daemon.dir(), "vale0:to")?);
        // The receiver shows itself once, so that its address is known.
        to.tx()[0].send(&frame(1, 2, 60));
        to.sync();
        let bytes = frame(2, 1, case.frame_bytes);
        fill(&from.tx()[0], &bytes);
        while !from.wait(netvale::Interest::Rx, Some(Duration::from_secs(1))).unwrap_or(true) {}
        daemon.worker.freeze()?;
        Ok(Box::new(Running { case: case.clone(), core, worker_core, daemon, from, to, bytes }))
    }
}

struct Running {
    case: Case,
    core: usize,
    worker_core: usize,
    daemon: Daemon,
    from: Port,
    to: Port,
    bytes: Vec<u8>,
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        self.daemon.worker.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.daemon.worker.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (touch, batch) = (self.touched(), self.case.batch.max(1));
        let (tx, rx, bytes) = (&mut self.from.tx()[0], &mut self.to.rx()[0], &self.bytes);
        let job = Job::new(self.core, move || {
            let mut received = 0;
            for _ in 0..ROUNDS {
                send(tx, bytes, batch, touch);
                received += u64::from(receive(rx, batch, touch));
            }
            Ok(received)
        });
        let pid = self.daemon.worker.pid();
        let workers = threads_named(pid, &["netvale-w"]);
        let (done, beside) = run_pinned_with(vec![job], window, &[pid], &workers)?;
        let rate = total_rate("netvale", &done)?;
        let value = self.case.unit.rate(1_000_000, self.case.frame_bytes, 1.0).unwrap_or(0.0) * rate / 1e6;
        Ok(Sample::new(value, beside))
    }

    fn cores(&self) -> String {
        format!("sender and receiver in turns on {}, worker on {}", self.core, self.worker_core)
    }

    fn touched(&self) -> bool {
        self.case.variant != "1-1-slots"
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), super::own::SLOTS.to_string())]
    }
}
