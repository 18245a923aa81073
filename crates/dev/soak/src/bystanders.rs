//! All pairs of bystanders: ends that exchange numbered frames and must not suffer from attacks. Their counts continue
//! when a daemon is restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frames::FlowTally;
use crate::kinds::{KINDS, PairKind};
use crate::pairs::{PairClock, PairCounts, PairFlow, RunningPair};
use crate::report::FlowCounts;
use crate::shares::PairMoment;
use crate::stalls::StallWatch;
use crate::waits::{LongWaits, WaitOf};
use crate::world::World;

/// Maximum wait of a bystander for a frame on a machine busy with attackers. A longer wait is a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of flow numbers that are reserved for each pair.
const FLOWS: u32 = 16;

struct BystanderPair {
    kind: &'static PairKind,
    running: Option<RunningPair>,
    books: Arc<PairCounts>,
    flows: Vec<PairFlow>,
    ports: Vec<(usize, String)>,
    epoch: u32,
    /// Frames lost before the daemon last started, which set its drop counters to zero.
    lost_before: u64,
    /// For each flow, the number of frames at the last check, and the time since which this number has not changed.
    seen: Vec<(u64, Instant)>,
    /// The longest wait of each flow, without the time that the machine took from the daemons.
    longest_wait: Vec<Duration>,
}

/// All pairs of bystanders.
pub struct Bystanders {
    all: Vec<BystanderPair>,
    waits: LongWaits,
    /// Kinds of pairs that cannot run here, with the reason.
    pub left_out: BTreeMap<String, String>,
}

fn received(books: &PairCounts) -> Vec<u64> {
    books.tallies.iter().map(|tally| FlowTally::get(&tally.received)).collect()
}

impl BystanderPair {
    fn lost(&self) -> u64 {
        self.books.tallies.iter().map(|tally| FlowTally::get(&tally.lost)).sum()
    }

    /// Opens the pair's ports, and continues its counts.
    fn start(&mut self, w: &World, number: u32) -> Result<(), String> {
        self.running = None;
        let pair = (self.kind.make)(w)?;
        if self.books.tallies.is_empty() {
            self.books = Arc::new(PairCounts::of(pair.flows.len()));
        }
        self.longest_wait.resize(pair.flows.len(), Duration::ZERO);
        self.flows = pair.flows.clone();
        self.ports = pair.ports.clone();
        self.lost_before = self.lost();
        self.seen = received(&self.books).into_iter().map(|frames| (frames, Instant::now())).collect();
        self.epoch += 1;
        let clock = PairClock { gone: Arc::clone(&w.machine.gone), needs_second: self.kind.needs_second };
        let started = RunningPair::start(pair, number * FLOWS, self.epoch, Arc::clone(&self.books), clock);
        self.running = Some(started.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Returns the pair's current failures.
    fn check(&mut self, w: &World) -> Vec<String> {
        let name = self.kind.name;
        let mut wrong = Vec::new();
        for ((flow, now), (frames, since)) in self.flows.iter().zip(received(&self.books)).zip(&mut self.seen) {
            if now > *frames {
                *frames = now;
                *since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                wrong.push(format!("{name}, {}: no frame for {} s", flow.name, since.elapsed().as_secs()));
                *since = Instant::now();
            }
        }
        // Losses are counted before the daemon's count is read, so that the daemon's count is never older than the
        // number of losses.
        let lost = self.lost() - self.lost_before;
        let count = || self.ports.iter().map(|(d, p)| w.daemons[*d].drops(p)).sum();
        let drops: Option<u64> = if lost == 0 { Some(0) } else { count() };
        // If the daemon does not answer now, the next check tries again.
        if let Some(drops) = drops.filter(|&drops| lost > drops) {
            wrong.push(format!("{name}: {lost} frames lost, but only {drops} counted as dropped"));
            self.lost_before += lost;
        }
        wrong
    }

    fn counts(&self) -> impl Iterator<Item = FlowCounts> + '_ {
        let flows = self.flows.iter().zip(&self.books.tallies).zip(&self.longest_wait);
        flows.map(|((flow, tally), longest_wait)| FlowCounts {
            name: format!("{}: {}", self.kind.name, flow.name),
            sent: FlowTally::get(&tally.sent),
            received: FlowTally::get(&tally.received),
            lost: FlowTally::get(&tally.lost),
            disordered: FlowTally::get(&tally.disordered),
            is_sent_again: self.kind.is_sent_again,
            stale: FlowTally::get(&tally.stale),
            longest_pause_ms: FlowTally::get(&tally.longest_pause_ms),
            longest_wait_ms: longest_wait.as_millis() as u64,
        })
    }
}

impl Bystanders {
    /// Starts all pairs that can run here.
    pub fn start(w: &World) -> Bystanders {
        let mut this = Bystanders { all: Vec::new(), waits: LongWaits::default(), left_out: BTreeMap::new() };
        for kind in KINDS {
            let mut one = BystanderPair {
                kind,
                running: None,
                books: Arc::default(),
                flows: Vec::new(),
                ports: Vec::new(),
                epoch: 0,
                lost_before: 0,
                seen: Vec::new(),
                longest_wait: Vec::new(),
            };
            match one.start(w, this.all.len() as u32) {
                Ok(()) => this.all.push(one),
                Err(why) => _ = this.left_out.insert(format!("bystanders, {}", kind.name), why),
            }
        }
        this
    }

    /// Closes the ports of all pairs that have ports on the daemon with the index `daemon`.
    pub fn close(&mut self, daemon: usize) {
        self.all.iter_mut().filter(|one| daemon == 0 || one.kind.needs_second).for_each(|one| one.running = None);
    }

    /// Opens the ports that [`Bystanders::close`] has closed. Returns the failures.
    pub fn open(&mut self, w: &World, daemon: usize) -> Vec<String> {
        let which = self.all.iter_mut().enumerate().filter(|(_, one)| daemon == 0 || one.kind.needs_second);
        let restart = |(number, one): (usize, &mut BystanderPair)| {
            let why = one.start(w, number as u32).err()?;
            Some(format!("{}, after a restart: {why}", one.kind.name))
        };
        which.filter_map(restart).collect()
    }

    /// Returns failures that are new since the last call.
    pub fn check(&mut self, w: &World, watch: &StallWatch) -> Vec<String> {
        let wrong: Vec<String> = self.all.iter_mut().flat_map(|one| one.check(w)).collect();
        [wrong, self.waits(false, watch)].concat()
    }

    /// Returns descriptions of waits that were too long, with the states of the daemons' threads during each. If `all`
    /// is true, judges all recorded waits; otherwise only waits that are old enough.
    pub fn waits(&mut self, all: bool, watch: &StallWatch) -> Vec<String> {
        for (number, one) in self.all.iter().enumerate() {
            self.waits.add(number, one.kind, one.books.waits());
        }
        let mut wrong = Vec::new();
        for WaitOf { pair, wait, .. } in self.waits.judged(all) {
            let one = &mut self.all[pair];
            one.longest_wait[wait.flow] = one.longest_wait[wait.flow].max(wait.own);
            if wait.is_too_long() {
                let [whole, own] = [wait.whole, wait.own].map(|time| time.as_millis());
                let flow = &one.flows[wait.flow].name;
                let name = one.kind.name;
                let wait_of = format!("{name}, {flow}: no frame for {whole} ms, of which the daemon caused {own} ms");
                wrong.push([vec![wait_of], watch.during(wait.since(), wait.until)].concat().join("\n  "));
            }
        }
        wrong
    }

    /// Returns names and counts of all pairs.
    pub fn books(&self) -> Vec<(&'static str, Arc<PairCounts>)> {
        self.all.iter().map(|one| (one.kind.name, Arc::clone(&one.books))).collect()
    }

    /// Returns the names of all pairs.
    pub fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|one| one.kind.name).collect()
    }

    /// Returns the current counts of all pairs.
    pub fn moments(&self, w: &World) -> Vec<PairMoment> {
        let of = |one: &BystanderPair| PairMoment::of(&one.books, w.machine.gone.now(one.kind.needs_second));
        self.all.iter().map(of).collect()
    }

    /// Returns the number of damaged frames of all pairs whose `is_sent_again` has this value. (It is true if attackers
    /// may send a pair's frames again.)
    pub fn corrupt(&self, is_sent_again: bool) -> u64 {
        let those = self.all.iter().filter(|one| one.kind.is_sent_again == is_sent_again);
        those.map(|one| FlowTally::get(&one.books.corrupt)).sum()
    }

    /// Describes each pair's first damaged frames, with the time since `begun`.
    pub fn damages(&self, begun: Instant) -> Vec<String> {
        let of = |one: &BystanderPair| {
            let name = one.kind.name;
            one.books.damages().into_iter().map(move |(at, what)| {
                format!("{name}, after {:.1} s: {what}", at.saturating_duration_since(begun).as_secs_f64())
            })
        };
        self.all.iter().flat_map(of).collect()
    }

    /// Returns the counts of all flows.
    pub fn counts(&self) -> Vec<FlowCounts> {
        self.all.iter().flat_map(BystanderPair::counts).collect()
    }
}
