//! What a bystander, a measured pair of ports, loses beside an attacker, compared with the same bystander beside a
//! well-behaved program.
//!
//! Sender, receiver and the program beside them take turns on one core; the worker has the other core. The turns of the
//! program beside them do not count, so that only the worker's time is compared. The median of netvale's ratio to
//! `well-behaved` is the share of its fair rate that the bystander gets (variants in Mpps), or the factor by which its
//! slowest frames are slower (`…-p99`).

mod company;
mod programs;
mod storms;
mod table;
mod users;
mod vmm;

use std::os::unix::fs::PermissionsExt;

use netvale::{RxRing, TxRing};

use self::company::Company;
use self::table::{TABLE, VARIANTS};
use super::*;
use crate::peers::pingpong::empty_histogram;

/// Station number of the bystander's receiver.
pub const RECEIVER: u16 = 0;
/// Station number of the program beside the bystander.
pub const BESIDE: u16 = 1;
/// Station number of the bystander's sender.
pub const SENDER: u16 = 40_000;
/// A number that no station has.
pub const NOBODY: u16 = 60_000;
/// Time after which a frame counts as lost. Its latency is then recorded as this time.
const LOST: Duration = Duration::from_millis(20);
/// Time limit for sending.
const PATIENCE: Duration = Duration::from_secs(1);
/// Configuration that allows all users to connect to the daemon and to share the switch.
const FOR_ALL: &str = "[sockets]\nmode = '0666'\n[switch]\nshared = ['vale0']";

/// The scenario: a bystander beside an attacker, or beside a well-behaved program.
pub const SCENARIO: Scenario = Scenario {
    name: "fairness",
    about: "two local ports beside an attacker on the same switch and worker, compared with the same beside a \
        well-behaved program; rate, and 99th percentile of the latency",
    variants: VARIANTS,
    needs: &[TWO],
    start: |case, cores| start(case, cores, true),
};

/// Returns the peer: the same bystander beside the well-behaved program.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "well-behaved", "two local ports beside a well-behaved program of the same kind";
        SCENARIO.needs, |case| SCENARIO.has(case), |case, cores| start(case, cores, false);
    }
}

fn start(case: &Case, cores: Cores, is_attacked: bool) -> Result<Session> {
    let name = case.variant.strip_suffix(P99).unwrap_or(&case.variant);
    let row = TABLE.iter().find(|row| row.name == name).ok_or_else(|| BenchError::Usage(name.to_owned()))?;
    let daemon = Daemon::start(None, cores.1, FOR_ALL)?;
    std::fs::set_permissions(daemon.dir(), PermissionsExt::from_mode(0o755))
        .map_err(BenchError::io("opening the run directory to other users"))?;
    // The main thread runs on the other core, so that requests take none of the worker's time.
    crate::pin::pin_other(daemon.pid(), cores.0)?;
    let mut from = daemon.port("from")?;
    let mut to = daemon.port("to")?;
    announce(&mut to, RECEIVER)?;
    announce(&mut from, SENDER)?;
    let company = if is_attacked { (row.attacker)(&daemon)? } else { (row.well_behaved)(&daemon)? };
    let bystander = Bystander::new(case, row.is_talked_to, from, to)?;
    let mut together = Together { case: case.clone(), core: cores.0, bystander, company, daemon: Rc::clone(&daemon) };
    let words = format!("all programs take turns on CPU {}, worker on CPU {}", cores.0, cores.1);
    Session::new(words, false, move |window| together.measure(window)).with(&daemon).idle()
}

/// Sends a frame from which the switch learns that the station is behind this port.
pub fn announce(port: &mut Port, station: u16) -> Result<()> {
    let sent = port.tx()[0].send_now(&frame(NOBODY, station, 60), PATIENCE);
    if sent { Ok(()) } else { Err(BenchError::NoTraffic("netvale's switch".into())) }
}

/// The two ports that are measured.
struct Bystander {
    tx: TxRing,
    rx: RxRing,
    sender: Sender,
    batch: u32,
    /// The frame whose latency is measured.
    single: Vec<u8>,
    /// The frame sent before `single`, if the bystander also sends to the program beside it.
    to_beside: Option<Vec<u8>>,
    // Dropped after the rings.
    _ports: [Port; 2],
}

impl Bystander {
    fn new(case: &Case, talks: bool, mut from: Port, mut to: Port) -> Result<Bystander> {
        let sender = Sender::new(SENDER, (RECEIVER, if talks { 2 } else { 1 }), case.frame_bytes, Touch::Nothing);
        let both = from.take_rings().0.into_iter().next().zip(to.take_rings().1.into_iter().next());
        let (tx, rx) = both.ok_or_else(|| BenchError::Usage("the port has no rings".into()))?;
        let to_beside = talks.then(|| frame(BESIDE, SENDER, 60));
        let single = frame(RECEIVER, SENDER, 60);
        let mut this = Bystander { tx, rx, sender, batch: case.batch, single, to_beside, _ports: [from, to] };
        this.sender.fill(&this.tx);
        Ok(this)
    }

    /// Takes all available frames. Returns the number of frames from the bystander's sender.
    fn take(&mut self) -> u64 {
        let _ = self.rx.sync();
        let there = self.rx.space();
        let mut own = 0;
        for k in 0..there {
            let mut head = [0; 12];
            self.rx.read(self.rx.at(k), &mut head);
            own += u64::from(head[..] == self.single[..12]);
        }
        self.rx.advance(there);
        let _ = self.rx.sync();
        own
    }

    fn send(&mut self) {
        self.sender.send(&mut self.tx, self.batch);
    }

    /// Sends a frame, and returns the time from just before sending until the frame has arrived.
    fn one_way(&mut self) -> Duration {
        if let Some(frame) = &self.to_beside {
            self.tx.send(frame);
        }
        let start = Instant::now();
        let mut is_sent = false;
        while start.elapsed() < LOST {
            if !is_sent {
                is_sent = self.tx.send(&self.single);
                self.tx.sync();
            }
            if self.take() > 0 {
                break;
            }
        }
        start.elapsed()
    }
}

struct Together {
    case: Case,
    core: usize,
    bystander: Bystander,
    company: Company,
    daemon: Rc<Daemon>,
}

impl Together {
    fn run(&mut self, window: Duration, mut round: impl FnMut(&mut Bystander) -> u64 + Send) -> Result<Sample> {
        let bystander = &mut self.bystander;
        let company = &mut self.company;
        let mut turns = Duration::ZERO;
        let begun = Instant::now();
        let job = Job::new(self.core, || {
            let start = Instant::now();
            company()?;
            turns += start.elapsed();
            Ok(round(bystander))
        });
        let (done, beside) = run_pinned_with(vec![job], window, &[self.daemon.pid()], &self.daemon.threads())?;
        let own = 1.0 - turns.as_secs_f64() / begun.elapsed().as_secs_f64();
        // A rate of zero is a valid result.
        let rate = done.iter().map(Done::rate).sum();
        Ok(Sample::new(self.case.rate(rate) / own.max(1e-3), beside))
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        if self.case.unit != Unit::Micros {
            return self.run(window, |bystander| {
                bystander.send();
                bystander.take()
            });
        }
        let mut times = empty_histogram()?;
        let sample = self.run(window, |bystander| {
            let time = bystander.one_way();
            times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            1
        })?;
        Ok(Sample::of_times(times, 0.99, sample.disturbance))
    }
}
