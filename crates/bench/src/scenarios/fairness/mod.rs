//! A bystander beside an attacker: what it loses, compared with the same bystander beside somebody who behaves well.
//!
//! Sender, receiver and the one beside them take turns on one core, the worker has the other one. The time of the turns
//! of the one beside them is not the bystander's, and not counted: what is compared is what the worker does in the rest
//! of it. The median of netvale's ratio to `well-behaved` is the share of its fair rate that the bystander gets
//! (variants in Mpps), or how many times as long its slowest frames would take beside somebody who behaves well
//! (`…-p99`).

mod company;
mod programs;
mod storms;
mod table;
mod users;
mod vmm;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use netvale::{Port, RxRing, TxRing};

use self::company::Company;
use self::table::TABLE;
use super::own::{Daemon, FORWARDING};
use super::traffic::{SLOTS, Sender, Touch, frame};
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::threads_named;
use crate::error::{BenchError, Result, Skip};
use crate::peers::pingpong::empty_histogram;
use crate::sys::threads::{Done, Job, run_pinned_with};

/// Numbers of stations: the bystander's receiver; who is beside it; the bystander's sender; nobody.
pub const RECEIVER: u16 = 0;
/// See [`RECEIVER`].
pub const BESIDE: u16 = 1;
/// See [`RECEIVER`].
pub const SENDER: u16 = 40_000;
/// See [`RECEIVER`].
pub const NOBODY: u16 = 60_000;
/// A frame that has not come by then is lost, and counts as one that took so long.
const LOST: Duration = Duration::from_millis(20);
/// The longest wait for room to send.
const PATIENCE: Duration = Duration::from_secs(1);
/// Users may connect, and meet on the switch.
const FOR_ALL: &str = "[sockets]\nmode = '0666'\n[switch]\nshared = ['vale0']";
/// What ends in this measures single frames.
const SINGLE: &str = "-p99";

const BESIDES: Variant = Variant { frame_bytes: &[60], batch: &[256], ports: &[3], ..Variant::TWO_PORTS };

macro_rules! variants {
    ($($name:literal),* $(,)?) => {
        &[$(
            Variant { name: $name, ..BESIDES },
            Variant { name: concat!($name, "-p99"), unit: Unit::Micros, batch: &[1], ..BESIDES },
        )*]
    };
}

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "fairness",
    about: "two local ports beside an attacker on the same switch and worker, against the same beside somebody who behaves well; rate, and the slowest of 100 frames",
    variants: variants![
        "flood-receiver",
        "flood-broadcast",
        "flood-unknown",
        "flood-addresses",
        "doorbell",
        "reattach",
        "connect",
        "refused",
        "never-reads",
        "lossless-never-reads",
        "lossless-slow",
        "blocked-wakeup",
        "vhost-chains",
        "vhost-indirect",
        "vhost-kicks",
        "holes",
        "watchers",
        "filtering-sockets",
        "rules",
    ],
    ours: Some(|| Box::new(Beside::Attacker)),
};

/// Who is beside the bystander.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The attacker that the variant names.
    Attacker,
    /// Somebody of the same kind who behaves well.
    WellBehaved,
}

impl Contender for Beside {
    fn name(&self) -> &str {
        match self {
            Beside::Attacker => "netvale",
            Beside::WellBehaved => "well-behaved",
        }
    }

    fn about(&self) -> &str {
        match self {
            Beside::Attacker => "two local ports beside an attacker",
            Beside::WellBehaved => "two local ports beside somebody of the same kind who behaves well",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let name = case.variant.strip_suffix(SINGLE).unwrap_or(&case.variant);
        let row = TABLE.iter().find(|row| row.name == name).ok_or_else(|| BenchError::Usage(name.to_owned()))?;
        let daemon = Daemon::start(cores.1, FOR_ALL)?;
        std::fs::set_permissions(daemon.dir(), PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("letting others into the run directory"))?;
        // Requests are not the worker's work.
        crate::pin::pin_other(daemon.worker.pid(), cores.0)?;
        let (mut from, mut to) = (daemon.open("vale0:from", SLOTS)?, daemon.open("vale0:to", SLOTS)?);
        announce(&mut to, RECEIVER)?;
        announce(&mut from, SENDER)?;
        let company = match self {
            Beside::Attacker => (row.attacker)(&daemon)?,
            Beside::WellBehaved => (row.well_behaved)(&daemon)?,
        };
        let stations = if row.is_talked_to { 2 } else { 1 };
        let sender = Sender::new(SENDER, (RECEIVER, stations), case.frame_bytes, Touch::Nothing);
        let to_beside = row.is_talked_to.then(|| frame(BESIDE, SENDER, 60));
        let (tx, rx) = (from.take_rings().0, to.take_rings().1);
        let both = tx.into_iter().next().zip(rx.into_iter().next());
        let (tx, rx) = both.ok_or_else(|| BenchError::Usage("a port without rings".into()))?;
        let mut bystander = Bystander {
            tx,
            rx,
            sender,
            batch: case.batch,
            single: frame(RECEIVER, SENDER, 60),
            to_beside,
            _ports: [from, to],
        };
        bystander.sender.fill(&bystander.tx);
        daemon.worker.freeze()?;
        Ok(Box::new(Together { case: case.clone(), cores, bystander, company, daemon }))
    }
}

/// Teaches the switch where a station is.
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
    /// The frame that is sent alone.
    single: Vec<u8>,
    /// The frame before it, if the one beside them is talked to.
    to_beside: Option<Vec<u8>>,
    // After the rings.
    _ports: [Port; 2],
}

impl Bystander {
    /// Takes all that is there. Returns how many frames are its sender's.
    fn take(&mut self) -> u64 {
        let _ = self.rx.sync();
        let (there, mut own) = (self.rx.space(), 0);
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

    /// From before a frame is sent until it is there.
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
    cores: (usize, usize),
    bystander: Bystander,
    company: Box<dyn Company>,
    daemon: Daemon,
}

impl Together {
    fn run(&mut self, window: Duration, mut round: impl FnMut(&mut Bystander) -> u64 + Send) -> Result<Sample> {
        let (bystander, company) = (&mut self.bystander, &mut self.company);
        let (mut turns, begun) = (Duration::ZERO, Instant::now());
        let job = Job::new(self.cores.0, || {
            let start = Instant::now();
            company.turn()?;
            turns += start.elapsed();
            Ok(round(bystander))
        });
        let pid = self.daemon.worker.pid();
        let (done, beside) = run_pinned_with(vec![job], window, &[pid], &threads_named(pid, &[FORWARDING]))?;
        let own = 1.0 - turns.as_secs_f64() / begun.elapsed().as_secs_f64();
        // No frame at all is a figure, too.
        let rate = done.iter().map(Done::rate).sum();
        Ok(Sample::new(self.case.rate(rate) / own.max(1e-3), beside))
    }
}

impl Session for Together {
    fn resume(&mut self) -> Result<()> {
        self.daemon.worker.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.daemon.worker.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        if self.case.unit != Unit::Micros {
            return self.run(window, |bystander| {
                bystander.send();
                bystander.take()
            });
        }
        let mut times = empty_histogram()?;
        let mut sample = self.run(window, |bystander| {
            let time = bystander.one_way();
            times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            1
        })?;
        sample.value = times.value_at_quantile(0.99) as f64 / 1000.0;
        sample.latencies = Some(times);
        Ok(sample)
    }

    fn cores(&self) -> String {
        format!("all programs in turns on {}, worker on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        false
    }
}
