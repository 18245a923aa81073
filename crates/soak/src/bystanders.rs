//! All pairs of bystanders, from one life of the daemons to the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frames::Tally;
use crate::kinds::{KINDS, Kind};
use crate::pairs::{Books, Flow, Running};
use crate::report::FlowCounts;
use crate::world::World;

/// A bystander may wait so long for a frame, on a machine that is busy with attackers. Longer is a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Numbers of flows between those of two kinds.
const FLOWS: u32 = 16;

struct Bystander {
    kind: &'static Kind,
    running: Option<Running>,
    books: Arc<Books>,
    flows: Vec<Flow>,
    ports: Vec<(usize, String)>,
    epoch: u32,
    /// Frames lost before the daemon last started: its counts began anew.
    lost_before: u64,
    /// Frames received when last looked at, for each flow, and since when.
    seen: Vec<(u64, Instant)>,
}

/// All of them.
pub struct Bystanders {
    all: Vec<Bystander>,
    /// Kinds that could not be had here.
    pub left_out: BTreeMap<String, String>,
}

fn received(books: &Books) -> Vec<u64> {
    books.tallies.iter().map(|tally| Tally::get(&tally.received)).collect()
}

impl Bystander {
    fn lost(&self) -> u64 {
        self.books.tallies.iter().map(|tally| Tally::get(&tally.lost)).sum()
    }

    /// Opens its ports, and goes on with the books it has.
    fn start(&mut self, w: &World, number: u32) -> Result<(), String> {
        self.running = None;
        let pair = (self.kind.make)(w)?;
        if self.books.tallies.is_empty() {
            let tallies = pair.flows.iter().map(|_| Tally::default()).collect();
            self.books = Arc::new(Books { tallies, ..Books::default() });
        }
        (self.flows, self.ports) = (pair.flows.clone(), pair.ports.clone());
        self.lost_before = self.lost();
        self.seen = received(&self.books).into_iter().map(|frames| (frames, Instant::now())).collect();
        self.epoch += 1;
        let started = Running::start(pair, number * FLOWS, self.epoch, Arc::clone(&self.books));
        self.running = Some(started.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// What is wrong with it.
    fn check(&mut self, w: &World) -> Vec<String> {
        let name = self.kind.name;
        let mut wrong = Vec::new();
        for ((flow, now), (frames, since)) in self.flows.iter().zip(received(&self.books)).zip(&mut self.seen) {
            if now > *frames {
                (*frames, *since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                wrong.push(format!("{name}, {}: no frame for {} s", flow.name, since.elapsed().as_secs()));
                *since = Instant::now();
            }
        }
        // Counted before the daemon is asked: what it counts is never behind.
        let lost = self.lost() - self.lost_before;
        let count = || self.ports.iter().map(|(d, p)| w.daemons[*d].drops(p)).sum();
        let drops: Option<u64> = if lost == 0 { Some(0) } else { count() };
        // A daemon that does not answer now is asked again at the next look.
        if let Some(drops) = drops.filter(|&drops| lost > drops) {
            wrong.push(format!("{name}: {lost} frames lost, but {drops} counted as dropped"));
            self.lost_before += lost;
        }
        wrong
    }

    fn counts(&self) -> impl Iterator<Item = FlowCounts> + '_ {
        self.flows.iter().zip(&self.books.tallies).map(|(flow, tally)| FlowCounts {
            name: format!("{}: {}", self.kind.name, flow.name),
            sent: Tally::get(&tally.sent),
            received: Tally::get(&tally.received),
            lost: Tally::get(&tally.lost),
            disordered: Tally::get(&tally.disordered),
            stale: Tally::get(&tally.stale),
            longest_pause_ms: Tally::get(&tally.longest_pause_ms),
        })
    }
}

impl Bystanders {
    /// Starts all that can be had here.
    pub fn start(w: &World) -> Bystanders {
        let mut this = Bystanders { all: Vec::new(), left_out: BTreeMap::new() };
        for kind in KINDS {
            let (running, books, flows, ports, seen) = Default::default();
            let mut one = Bystander { kind, running, books, flows, ports, epoch: 0, lost_before: 0, seen };
            match one.start(w, this.all.len() as u32) {
                Ok(()) => this.all.push(one),
                Err(why) => _ = this.left_out.insert(format!("bystanders, {}", kind.name), why),
            }
        }
        this
    }

    /// Closes all ports of pairs that were on the daemon of that number.
    pub fn close(&mut self, daemon: usize) {
        self.all.iter_mut().filter(|one| daemon == 0 || one.kind.needs_second).for_each(|one| one.running = None);
    }

    /// Opens those again. Returns what did not work.
    pub fn open(&mut self, w: &World, daemon: usize) -> Vec<String> {
        let which = self.all.iter_mut().enumerate().filter(|(_, one)| daemon == 0 || one.kind.needs_second);
        let restart = |(number, one): (usize, &mut Bystander)| {
            let why = one.start(w, number as u32).err()?;
            Some(format!("{}, after a restart: {why}", one.kind.name))
        };
        which.filter_map(restart).collect()
    }

    /// What is wrong now, and was not when last asked.
    pub fn check(&mut self, w: &World) -> Vec<String> {
        self.all.iter_mut().flat_map(|one| one.check(w)).collect()
    }

    /// Names and books of all pairs.
    pub fn books(&self) -> Vec<(&'static str, Arc<Books>)> {
        self.all.iter().map(|one| (one.kind.name, Arc::clone(&one.books))).collect()
    }

    /// Damaged frames.
    pub fn corrupt(&self) -> u64 {
        self.all.iter().map(|one| Tally::get(&one.books.corrupt)).sum()
    }

    /// Counts of all flows.
    pub fn counts(&self) -> Vec<FlowCounts> {
        self.all.iter().flat_map(Bystander::counts).collect()
    }
}
