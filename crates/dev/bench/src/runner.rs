//! Measures a case: a warm-up of each contender, then the runs of netvale and each peer in turn.
//!
//! Because runs alternate, slow changes of the machine (clock, neighbours, memory) affect all contenders alike. All
//! sessions exist at the same time, but only one runs. Sessions that take long to set up may be kept for the next case.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::case::Case;
use crate::contender::{Contender, Facts, Sample, Session};
use crate::error::{BenchError, Result};
use crate::measure::Plan;
use crate::progress::Progress;
use crate::record::{Against, Line, Record, Skipped};
use crate::stats::Summary;
use crate::{crowd, hop, interrupt};

/// The percentiles of a distribution that records contain.
const PERCENTILES: [f64; 12] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// The fact with the shortest and the longest time that a cache line took to move between the CPUs before a run.
pub const LINE_NS: &str = "line_ns";

/// A contender that is set up, with its runs so far.
struct Entrant<'a> {
    who: &'a Contender,
    session: Session,
    runs: Runs,
}

/// The runs of an entrant.
#[derive(Default)]
struct Runs {
    values: Vec<f64>,
    latencies: Option<Histogram<u64>>,
    shares: Vec<f64>,
    disturbed: bool,
    /// Time that a cache line took to move between the CPUs before each run, in nanoseconds.
    hops: Vec<f64>,
    /// Facts of the last attempt.
    facts: Facts,
}

impl Entrant<'_> {
    /// Makes one run, and repeats it while it is disturbed. Of several attempts, the least disturbed one counts.
    fn run(&mut self, plan: Plan) -> Result<()> {
        let mut best = self.attempt(plan.window)?;
        for _ in 0..plan.repeats {
            if !best.disturbance.spoils() {
                break;
            }
            let next = self.attempt(plan.window)?;
            if next.disturbance.score() < best.disturbance.score() {
                best = next;
            }
        }
        self.runs.disturbed |= best.disturbance.spoils();
        self.runs.values.push(best.value);
        self.runs.shares.extend(best.cpu_percent);
        self.keep_latencies(best.latencies);
        Ok(())
    }

    fn attempt(&mut self, window: Duration) -> Result<Sample> {
        interrupt::check()?;
        self.session.resume()?;
        let sample = self.session.measure(window);
        self.session.pause()?;
        let mut sample = sample?;
        self.runs.facts = std::mem::take(&mut sample.facts);
        Ok(sample)
    }

    fn keep_latencies(&mut self, more: Option<Histogram<u64>>) {
        match (&mut self.runs.latencies, more) {
            // Both histograms have the same bounds, so adding cannot fail; if it did, the first one would remain.
            (Some(all), Some(more)) => drop(all.add(more)),
            (kept, more) => *kept = more.or(kept.take()),
        }
    }

    fn percentiles(&self) -> Vec<(f64, f64)> {
        let Some(all) = &self.runs.latencies else { return Vec::new() };
        PERCENTILES.iter().map(|&percent| (percent, all.value_at_percentile(percent) as f64 / 1000.0)).collect()
    }

    fn cpu_percent(&self) -> Option<f64> {
        Summary::of(&self.runs.shares).map(|shares| shares.median)
    }

    fn summary(&self) -> Result<Summary> {
        Summary::of(&self.runs.values).ok_or_else(|| BenchError::NoTraffic(self.who.name.to_owned()))
    }
}

/// Measures `case` with the first of `contenders` that can run, against each of the other contenders; if `alone` is
/// true, measures each contender by itself.
///
/// Reuses the sessions in `held`, left by an earlier case, that can also measure this case. Afterwards, `held` contains
/// the sessions that can change to another case. A contender that cannot run yields a `skipped` line; the other
/// contenders run.
pub fn run_case(
    case: &Case,
    contenders: &[&Contender],
    held: &mut HeldSessions,
    alone: bool,
    cpus: &[usize],
    plan: Plan,
    progress: &Progress,
) -> Result<Vec<Line>> {
    let round = Round { case, cpus, plan, progress };
    held.turn(case, contenders);
    let (mut lines, ready) = round.set_up(contenders, held)?;
    let done = round.run_all(ready, &mut lines)?;
    // If netvale's side is missing, the peers' figures are kept, but without a ratio.
    let first_left = contenders.first().map(|who| who.name) != done.first().map(|entrant| entrant.who.name);
    lines.extend(records(case, &done, alone || first_left)?.into_iter().map(|record| Line::Record(Box::new(record))));
    held.keep(done);
    Ok(lines)
}

/// Sessions that are idle until the next case, each with its contender's name.
#[derive(Default)]
pub struct HeldSessions(Vec<(&'static str, Session)>);

impl HeldSessions {
    /// Changes the sessions to the case. Drops sessions that cannot measure the case, and sessions whose contender does
    /// not take part.
    fn turn(&mut self, case: &Case, contenders: &[&Contender]) {
        let takes_part = |name: &str| contenders.iter().any(|who| who.name == name);
        self.0.retain_mut(|(name, session)| takes_part(name) && session.turn(case));
    }

    fn take(&mut self, name: &str) -> Option<Session> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn keep(&mut self, entrants: Vec<Entrant<'_>>) {
        let left = entrants.into_iter().filter(|entrant| entrant.session.can_turn());
        self.0.extend(left.map(|entrant| (entrant.who.name, entrant.session)));
    }
}

/// The case, the CPUs and the settings, which all contenders share.
struct Round<'a> {
    case: &'a Case,
    cpus: &'a [usize],
    plan: Plan,
    progress: &'a Progress,
}

impl Round<'_> {
    fn set_up<'a>(
        &self,
        contenders: &[&'a Contender],
        held: &mut HeldSessions,
    ) -> Result<(Vec<Line>, Vec<Entrant<'a>>)> {
        let mut lines = Vec::new();
        let mut ready = Vec::new();
        for &who in contenders {
            self.progress.say(format!("{}: setting up {}", self.case, who.name));
            match self.enter(who, held.take(who.name)) {
                Ok(entrant) => ready.push(entrant),
                Err(error) => lines.push(self.skipped(who.name, error)?),
            }
        }
        Ok((lines, ready))
    }

    /// Prepares a contender for the case: with its session from an earlier case if there is one, otherwise with a new
    /// one.
    fn enter<'a>(&self, who: &'a Contender, held: Option<Session>) -> Result<Entrant<'a>> {
        who.available(self.cpus)?;
        let session = match held {
            Some(session) => session,
            None => crowd::beside(self.case, who.start(self.case, self.cpus)?)?,
        };
        let mut entrant = Entrant { who, session, runs: Runs::default() };
        entrant.attempt(self.plan.warm_up)?;
        Ok(entrant)
    }

    /// Performs all runs, in turn; a contender that fails is dropped.
    fn run_all<'a>(&self, mut ready: Vec<Entrant<'a>>, lines: &mut Vec<Line>) -> Result<Vec<Entrant<'a>>> {
        for run in 1..=self.plan.runs {
            let mut going = Vec::new();
            for mut entrant in ready {
                let name = entrant.who.name;
                self.progress.say(format!("{}: run {run} of {}, {name}", self.case, self.plan.runs));
                entrant.runs.hops.extend(hop::nanoseconds(self.cpus));
                match entrant.run(self.plan) {
                    Ok(()) => going.push(entrant),
                    Err(error) => lines.push(self.skipped(name, error)?),
                }
                self.progress.step();
            }
            ready = going;
        }
        Ok(ready)
    }

    /// Returns the line about a contender that failed. An interrupt concerns all contenders and is returned as an
    /// error.
    fn skipped(&self, name: &str, error: BenchError) -> Result<Line> {
        let reason = match error {
            BenchError::Interrupted => return Err(BenchError::Interrupted),
            BenchError::Skipped(skip) => skip.to_string(),
            other => other.to_string(),
        };
        self.progress.note(&format!("{}: {name} skipped: {reason}", self.case.scenario));
        Ok(Line::Skipped(Skipped { scenario: self.case.scenario.clone(), contender: name.to_owned(), skipped: reason }))
    }
}

fn records(case: &Case, ready: &[Entrant<'_>], alone: bool) -> Result<Vec<Record>> {
    if alone {
        return ready.iter().map(|entrant| record(case, entrant, None)).collect();
    }
    match ready {
        [] => Ok(Vec::new()),
        [ours] => Ok(vec![record(case, ours, None)?]),
        [ours, peers @ ..] => peers.iter().map(|peer| record(case, ours, Some(peer))).collect(),
    }
}

fn record(case: &Case, entrant: &Entrant<'_>, peer: Option<&Entrant<'_>>) -> Result<Record> {
    let summary = entrant.summary()?;
    let facts = |of: &Entrant<'_>| of.session.facts.iter().chain(&of.runs.facts).cloned().collect::<Facts>();
    let mut context: BTreeMap<String, String> = facts(entrant).into_iter().collect();
    context.extend(peer.map(facts).unwrap_or_default());
    let hops =
        entrant.runs.hops.iter().chain(peer.iter().flat_map(|peer| &peer.runs.hops)).copied().collect::<Vec<_>>();
    context.extend(Summary::of(&hops).map(|hops| (LINE_NS.to_owned(), format!("{:.0} - {:.0}", hops.min, hops.max))));
    Ok(Record {
        case: case.clone(),
        contender: entrant.who.name.to_owned(),
        summary,
        cores: entrant.session.cores.clone(),
        touched: entrant.session.touched,
        disturbed: entrant.runs.disturbed,
        percentiles: entrant.percentiles(),
        cpu_percent: entrant.cpu_percent(),
        against: peer.map(|peer| against(case, summary, peer)).transpose()?,
        context,
    })
}

fn against(case: &Case, ours: Summary, peer: &Entrant<'_>) -> Result<Against> {
    let theirs = peer.summary()?;
    Ok(Against {
        peer: peer.who.name.to_owned(),
        peer_median: theirs.median,
        peer_min: theirs.min,
        peer_max: theirs.max,
        peer_runs: theirs.runs,
        ratio: case.unit.ratio(ours.median, theirs.median),
        peer_cores: peer.session.cores.clone(),
        peer_touched: peer.session.touched,
        peer_disturbed: peer.runs.disturbed,
        peer_percentiles: peer.percentiles(),
        peer_cpu_percent: peer.cpu_percent(),
    })
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
