//! Frames across the switch: in the daemon, or embedded in the program that sends and receives.

use std::time::Duration;

use netvale::{Port, RxRing, TxRing};
use netvale_control::types::StatsReply;

use super::embedded::Embedded;
use super::own::{Daemon, FORWARDING};
use super::stations::{Plan, Stations};
use super::traffic::{SLOTS, Touch, frame};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::threads_named;
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::scenarios::{Scenario, Variant};
use crate::sys::threads::{Job, run_pinned_with, total_rate};

/// Rounds between two looks at the clock.
const ROUNDS: u32 = 32;
/// The longest wait for the frames that teach the switch its addresses.
const LEARNING: Duration = Duration::from_secs(10);
/// Each number the double of the one before.
const PORTS: &[u32] = &[2, 4, 8, 16, 32, 64];
const ADDRESSES: &[u32] = &[1, 512, 1024, 2048, 4096, 8192];

const SHORT: Variant = Variant { frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS };

/// The scenario. Unless a variant ends in `untouched`, the sender writes the first line of each frame and the receiver
/// reads it. In `1-to-n` each batch goes to another port, in `1-to-n-mixed` each frame.
pub const SCENARIO: Scenario = Scenario {
    name: "vale",
    about: "frames across a learning switch, embedded or in the daemon: 1 to 1, 1 to n, n to 1, n addresses",
    variants: &[
        Variant { name: "embedded", ..SHORT },
        Variant { name: "embedded-untouched", ..SHORT },
        Variant { name: "daemon", ..SHORT },
        Variant { name: "daemon-untouched", ..SHORT },
        Variant { name: "daemon-large", unit: Unit::Gbps, frame_bytes: &[1500], ..SHORT },
        Variant { name: "1-to-n", ports: PORTS, ..SHORT },
        Variant { name: "1-to-n-mixed", ports: PORTS, ..SHORT },
        Variant { name: "n-to-1", ports: PORTS, ..SHORT },
        Variant { name: "addresses", addresses: ADDRESSES, ..SHORT },
    ],
    ours: Some(|| Box::new(Vale)),
};

/// Netvale's switch.
pub struct Vale;

impl Contender for Vale {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "local ports on a VALE switch, one worker"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        if case.variant.starts_with("embedded") {
            return Ok(Box::new(Embedded::start(case, cores.0)?));
        }
        let daemon = Daemon::start(cores.1, "")?;
        let open = |name: &str| daemon.open(&format!("vale0:{name}"), SLOTS);
        let ports = ports(Plan::of(case), open)?;
        Ok(Box::new(Running::start((case, 0), cores, daemon, ports)?))
    }
}

/// The worker's costs in the last measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    busy_percent: f64,
    ns_a_frame: f64,
    /// Kicks in both directions for a thousand frames that crossed.
    kicks: f64,
}

impl Cost {
    fn between(before: &StatsReply, after: &StatsReply) -> Self {
        let busy = |stats: &StatsReply| stats.workers.iter().map(|worker| worker.busy_ns).sum::<u64>();
        let frames = |stats: &StatsReply| stats.ports.iter().map(|port| port.in_frames).sum::<u64>();
        let kicks =
            |stats: &StatsReply| stats.ports.iter().map(|port| port.kicks_sent + port.kicks_received).sum::<u64>();
        let busy_ns = (busy(after) - busy(before)) as f64;
        Self {
            busy_percent: 100.0 * busy_ns / (after.now_ns - before.now_ns).max(1) as f64,
            ns_a_frame: busy_ns / (frames(after) - frames(before)).max(1) as f64,
            kicks: 1000.0 * (kicks(after) - kicks(before)) as f64 / (frames(after) - frames(before)).max(1) as f64,
        }
    }
}

/// The ports of a case: those that send, and those that receive.
pub type Ports = (Vec<Port>, Vec<Port>);

/// Opens them by their names.
///
/// # Errors
/// Those of `open`.
pub fn ports(plan: Plan, open: impl Fn(&str) -> Result<Port>) -> Result<Ports> {
    let senders = (0..plan.senders).map(|index| open(&format!("from{index}"))).collect::<Result<Vec<_>>>()?;
    let receivers = (0..plan.receivers).map(|index| open(&format!("to{index}"))).collect::<Result<Vec<_>>>()?;
    Ok((senders, receivers))
}

/// Applications on ports of a daemon's switch, under way.
pub struct Running {
    case: Case,
    core: usize,
    worker_core: usize,
    stations: Stations<TxRing, RxRing>,
    drops_before: u64,
    drop_percent: f64,
    cost: Cost,
    // Rings belong to ports, ports to the daemon: dropped in this order.
    _ports: Vec<Port>,
    daemon: Daemon,
}

impl Running {
    /// Applications on `core` send on and receive from ports with that many bytes of header before each frame.
    ///
    /// # Errors
    /// No frame passes.
    pub fn start(
        (case, hdr_len): (&Case, u32),
        (core, worker_core): (usize, usize),
        daemon: Daemon,
        (mut senders, mut receivers): Ports,
    ) -> Result<Self> {
        let plan = Plan::of(case);
        for (index, port) in (0..).zip(&mut receivers) {
            announce(port, plan.behind(index), hdr_len)?;
        }
        daemon.wait_for_frames(u64::from(plan.receivers) * u64::from(plan.stations))?;
        let tx = senders.iter_mut().flat_map(|port| port.take_rings().0).collect();
        let rx = receivers.iter_mut().flat_map(|port| port.take_rings().1).collect();
        let mut stations = Stations::with_header(plan, (case, hdr_len), Touch::of(case), tx, rx);
        let drops_before = daemon.drops()?;
        // What was flooded while addresses were unknown is none of the measurement's.
        daemon.worker.freeze()?;
        while stations.discard() > 0 {}
        let ports = senders.into_iter().chain(receivers).collect();
        Ok(Self {
            case: case.clone(),
            core,
            worker_core,
            stations,
            drops_before,
            drop_percent: 0.0,
            cost: Cost::default(),
            _ports: ports,
            daemon,
        })
    }
}

/// Sends a frame from each station, so that the switch knows where they are.
fn announce(port: &mut Port, stations: impl Iterator<Item = u16>, hdr_len: u32) -> Result<()> {
    // To an address nobody has: the others' first frames are all flooded.
    let nobody = u16::MAX;
    for station in stations {
        let bytes = [vec![0; hdr_len as usize], frame(nobody, station, 60)].concat();
        let sent = interrupt::poll_until(LEARNING, || {
            let sent = port.tx()[0].send(&bytes);
            port.sync();
            Ok(sent.then_some(()))
        })?;
        sent.ok_or_else(|| BenchError::NoTraffic("netvale's switch".into()))?;
    }
    Ok(())
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        self.daemon.worker.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.daemon.worker.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let stations = &mut self.stations;
        stations.forget_lost();
        let job = Job::new(self.core, move || Ok((0..ROUNDS).map(|_| stations.round()).sum()));
        let pid = self.daemon.worker.pid();
        let workers = threads_named(pid, &[FORWARDING]);
        let before = self.daemon.stats()?;
        let (done, beside) = run_pinned_with(vec![job], window, &[pid], &workers)?;
        self.cost = Cost::between(&before, &self.daemon.stats()?);
        let dropped = self.daemon.drops()? - self.drops_before;
        let books = self.stations.books(dropped);
        books.check("netvale")?;
        self.drop_percent = books.drop_percent();
        Ok(Sample::new(self.case.rate(total_rate("netvale", &done)?), beside))
    }

    fn cores(&self) -> String {
        format!("all ports' applications in turns on {}, worker on {}", self.core, self.worker_core)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![
            ("slots".into(), SLOTS.to_string()),
            ("bytes".into(), Touch::of(&self.case).words().into()),
            ("worker_busy_percent".into(), format!("{:.0}", self.cost.busy_percent)),
            ("worker_ns_a_frame".into(), format!("{:.1}", self.cost.ns_a_frame)),
            ("kicks_a_thousand_frames".into(), format!("{:.3}", self.cost.kicks)),
            ("drop_percent".into(), format!("{:.3}", self.drop_percent)),
        ]
    }
}
