//! A switch in one thread, with policies and without them in turn: what a frame takes longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::appl::AppRing;
use netvale_switch::{Forwarder, Passed, Switch, Work};

use super::kinds::{Kind, Pair};
use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::error::{BenchError, Result};
use crate::scenarios::embedded;
use crate::scenarios::stations::{FIRST_SENDER, Plan, Stations};
use crate::scenarios::traffic::{SLOTS, Touch};
use crate::stats::median;
use crate::sys::threads::{Job, run_pinned};

/// Rounds after a change that do not count, and those that do: about half a millisecond.
const SETTLE: u32 = 16;
const ROUNDS: u32 = 128;

/// The same rings and buffers, whose ports have policies in every other turn: what memory they have makes a larger
/// difference than what is to be measured.
pub struct OnTop {
    case: Case,
    core: usize,
    kind: Kind,
    switch: Arc<Switch>,
    lane: Lane,
    /// Nanoseconds a frame without policies, of the last measurement.
    without: f64,
}

/// What frames pass.
struct Lane {
    stations: Stations<AppRing, AppRing>,
    forwarder: Forwarder,
    work: Work,
}

impl Lane {
    fn rounds(&mut self, count: u32) -> u64 {
        let mut received = 0;
        for _ in 0..count {
            self.stations.send();
            while let Passed::Frames(_) = self.forwarder.pass(&mut self.work) {}
            received += self.stations.receive();
        }
        received
    }
}

/// The sender came first.
pub const PAIR: Pair = Pair { ports: (0, 1), stations: (FIRST_SENDER, 0) };

impl OnTop {
    /// A switch with two ports, private to this process.
    ///
    /// # Errors
    /// No memory.
    pub fn start(case: &Case, kind: Kind, core: usize) -> Result<Self> {
        let (plan, switch) = (Plan::of(case), Switch::new("vale0"));
        let (forwarder, tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
        let (_, _, rx) = embedded::port(&switch, "to", SLOTS, 0)?;
        let stations = Stations::new(plan, case, Touch::of(case), vec![tx], vec![rx]);
        let lane = Lane { stations, forwarder, work: Work::default() };
        Ok(Self { case: case.clone(), core, kind, switch, lane, without: 0.0 })
    }
}

/// Nanoseconds a frame of a turn with `kind`.
fn turn(switch: &Switch, lane: &mut Lane, kind: Kind) -> Result<(f64, u64)> {
    Kind::clear(switch, PAIR);
    kind.set(switch, PAIR)?;
    lane.rounds(SETTLE);
    let begun = Instant::now();
    let frames = lane.rounds(ROUNDS);
    Ok((begun.elapsed().as_nanos() as f64 / frames.max(1) as f64, frames))
}

impl Session for OnTop {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (switch, lane, kind) = (&self.switch, &mut self.lane, self.kind);
        let (mut without, mut on_top) = (Vec::new(), Vec::new());
        let round = || {
            let (before, first) = turn(switch, lane, Kind::None)?;
            let (after, second) = turn(switch, lane, kind)?;
            without.push(before);
            on_top.push(after - before);
            Ok(first + second)
        };
        let (_, beside) = run_pinned(vec![Job::new(self.core, round)], window)?;
        self.lane.stations.books(0).check("netvale's embedded switch")?;
        let silent = || BenchError::NoTraffic("netvale's embedded switch".into());
        self.without = median(&without).ok_or_else(silent)?;
        Ok(Sample::new(median(&on_top).ok_or_else(silent)?, beside))
    }

    fn cores(&self) -> String {
        format!("sender, switch and receiver in one thread on {}", self.core)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), SLOTS.to_string()), ("without_policies_ns".into(), format!("{:.1}", self.without))]
    }
}
