//! The sequence of a soak. In each round, every step is performed once, in an order that the seed determines. A rest
//! follows, in which the daemons are checked. In some rounds a daemon is killed during an attack.

use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_harness::ChildProcess;
use serde_json::json;

use crate::acts::ACTS;
use crate::bystanders::Bystanders;
use crate::health::{ResourceCounts, rests, settles};
use crate::report::{FlowCounts, LifeResources, SoakReport};
use crate::rng::Rng;
use crate::roles::{self, ROLES, UP};
use crate::shares::{BegunAttack, FairShares};
use crate::stalls::StallWatch;
use crate::world::{ATTACKED, ATTACKED_TUNNEL, ATTACKED_VNI, ATTACKED_VTEP, ATTACKING_VTEP, World};

/// Time limit for an attack to take hold, and for an attacker's output after its end.
const BEGIN: Duration = Duration::from_secs(8);
/// Number of rounds without a kill before a round that kills a daemon.
const ROUNDS_OF_A_LIFE: u64 = 2;
/// Maximum number of recorded failures, because a broken daemon repeats them.
const MOST_FAILURES: usize = 40;

/// A step of a round.
#[derive(Clone, Copy)]
enum RoundStep {
    /// Run the attacker with that index in [`ROLES`].
    Role(usize),
    /// Run the action with that index in [`ACTS`].
    Act(usize),
}

impl RoundStep {
    fn name(self) -> &'static str {
        match self {
            RoundStep::Role(number) => ROLES[number].name,
            RoundStep::Act(number) => ACTS[number].0,
        }
    }
}

/// Returns how many steps, counted from the first one, can run together: a device has only one guest at a time.
fn at_once(deeds: &[RoundStep]) -> usize {
    let device = |deed: &RoundStep| if let RoundStep::Role(number) = deed { ROLES[*number].device } else { None };
    let is_free =
        |&at: &usize| device(&deeds[at]).is_none() || !deeds[..at].iter().any(|d| device(d) == device(&deeds[at]));
    (0..deeds.len()).take_while(is_free).count()
}

/// The resources of a daemon during its life, from a start of its process to the next.
#[derive(Default)]
struct LifeRecord {
    first: Option<ResourceCounts>,
    last: ResourceCounts,
    rests: u64,
}

/// A soak in progress.
pub struct Soak {
    world: World,
    bystanders: Bystanders,
    watch: StallWatch,
    rng: Rng,
    report: SoakReport,
    begun: Instant,
    length: Duration,
    observed: [LifeRecord; 2],
    shares: FairShares,
    rounds_left: u64,
    /// Whether each daemon was started during the current round, and has therefore not seen all of the round's attacks.
    began: [bool; 2],
}

const NAMES: [&str; 2] = ["first daemon", "second daemon"];

impl Soak {
    /// Starts daemons and bystanders.
    pub fn new(netvale: &Path, seed: u64, length: Duration) -> Result<Soak, String> {
        let world = World::new(netvale)?;
        let bystanders = Bystanders::start(&world);
        let mut report = SoakReport { seed, left_out: bystanders.left_out.clone(), ..SoakReport::default() };
        for (what, why) in [
            ("steps of the wall clock", "namespaces share the wall clock; netvale reads CLOCK_MONOTONIC"),
            (
                "a memory limit by cgroup",
                "RLIMIT_AS is used instead: a cgroup's limit kills the daemon with SIGKILL, as the soak does anyway",
            ),
        ] {
            report.left_out.insert(what.into(), why.into());
        }
        let watch = StallWatch::start(bystanders.books(), Arc::clone(&world.machine.gone.processes))
            .map_err(|e| e.to_string())?;
        let begun = Instant::now();
        let rng = Rng::new(seed);
        let mut this = Soak {
            world,
            bystanders,
            watch,
            rng,
            report,
            begun,
            length,
            observed: Default::default(),
            shares: FairShares::default(),
            rounds_left: 0,
            began: [false; 2],
        };
        this.attach_for_attackers()?;
        this.rounds_left = ROUNDS_OF_A_LIFE;
        Ok(this)
    }

    /// Attaches devices for attacking virtual machines, and a tunnel for attacking VTEPs.
    fn attach_for_attackers(&self) -> Result<(), String> {
        let first = self.world.first();
        let tunnel = format!("vxlan:{ATTACKED_VNI},local={ATTACKED_VTEP},remote={ATTACKING_VTEP}");
        first.attach(ATTACKED, &tunnel, json!({"name": ATTACKED_TUNNEL}))?;
        ["vhost", "ptnet", "e1000"].into_iter().try_for_each(|device| {
            let socket = roles::socket(first.dir(), device);
            first.attach(ATTACKED, &format!("{device}:{}", socket.display()), json!({"name": format!("x{device}")}))
        })
    }

    fn fail(&mut self, what: impl IntoIterator<Item = String>) {
        for one in what {
            if self.report.failures.len() < MOST_FAILURES {
                self.report.failures.push(format!("after {} s: {one}", self.begun.elapsed().as_secs()));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.length
    }

    /// Runs rounds until the time is up.
    pub fn run(mut self) -> SoakReport {
        while !self.is_over() && self.report.failures.len() < MOST_FAILURES {
            self.round();
            self.rest();
        }
        self.end()
    }

    /// Performs each step once. A daemon may be killed during an attack.
    fn round(&mut self) {
        self.began = [false; 2];
        let mut deeds: Vec<RoundStep> =
            (0..ROLES.len()).map(RoundStep::Role).chain((0..ACTS.len()).map(RoundStep::Act)).collect();
        self.rng.shuffle(&mut deeds);
        let kills = self.rounds_left == 0;
        let moment = self.rng.index(deeds.len());
        // Later lives may be longer, because a slow leak only shows in a long soak.
        let longer = 2 + self.length.as_secs() / 60;
        self.rounds_left = if kills { ROUNDS_OF_A_LIFE + self.rng.below(longer) } else { self.rounds_left - 1 };
        let mut at = 0;
        while at < deeds.len() && !self.is_over() {
            let most = (1 + self.rng.index(3)).min(deeds.len() - at);
            let together = at_once(&deeds[at..at + most]);
            let killed = (kills && (at..at + together).contains(&moment)).then(|| usize::from(self.rng.one_in(3)));
            self.attack(&deeds[at..at + together], killed);
            at += together;
            self.look();
        }
    }

    /// Runs several attacks together, and kills a daemon in the middle if requested.
    fn attack(&mut self, deeds: &[RoundStep], killed: Option<usize>) {
        let mut attackers = Vec::new();
        for deed in deeds {
            if let RoundStep::Role(number) = deed {
                attackers.extend(self.begin(*number));
            }
        }
        let begun = BegunAttack::now(self.bystanders.moments(&self.world));
        let life = Duration::from_millis(100 + self.rng.below(500));
        for deed in deeds {
            if let RoundStep::Act(number) = deed {
                self.act(*number, life);
            }
        }
        std::thread::sleep(life);
        let names: Vec<&str> = deeds.iter().map(|deed| deed.name()).collect();
        self.shares.add(&names, &self.bystanders.names(), begun, &self.bystanders.moments(&self.world));
        if let Some(daemon) = killed {
            self.kill(daemon);
        }
        for (number, process, start) in attackers {
            self.finish(number, process, start);
        }
    }

    fn act(&mut self, number: usize, life: Duration) {
        let (name, act) = ACTS[number];
        let start = Instant::now();
        let outcome = act(&self.world, &mut self.rng, life);
        let counts = self.report.attacks.entry(name.into()).or_default();
        counts.longest_ms = counts.longest_ms.max(start.elapsed().as_millis() as u64);
        counts.made += 1;
        counts.took_hold += u64::from(outcome.is_ok());
        self.fail(outcome.err().map(|why| format!("{name}: {why}")));
    }

    /// Starts an attacker, and waits until its attack takes hold. Returns its number, its process, and the time of the
    /// start; `None` if it cannot be started, which is recorded as a failure.
    fn begin(&mut self, number: usize) -> Option<(usize, ChildProcess, Instant)> {
        let role = &ROLES[number];
        // Some attackers end by themselves instead of being killed.
        let life = if self.rng.one_in(3) { self.rng.below(400) } else { 60_000 };
        let mut command = Command::new(&self.world.program);
        command.arg("role").arg(role.name).arg(self.world.first().dir());
        command.arg(self.rng.word().to_string()).arg(life.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.world.attacker.filter(|_| role.device.is_none()) {
            // Each attacker has a different user, because a user whose port made a worker wait gets no port for a
            // while.
            let user = user + self.report.attacks.values().map(|counts| counts.made as u32).sum::<u32>();
            command.uid(user).gid(user);
        }
        let counts = self.report.attacks.entry(role.name.into()).or_default();
        counts.made += 1;
        let start = Instant::now();
        let mut process = match ChildProcess::start(&mut command) {
            Ok(process) => process,
            Err(why) => {
                self.fail([why.to_string()]);
                return None;
            }
        };
        counts.took_hold += u64::from(is_up(&mut process));
        Some((number, process, start))
    }

    /// Ends an attacker by SIGKILL, unless it has ended.
    fn finish(&mut self, number: usize, mut process: ChildProcess, start: Instant) {
        let name = ROLES[number].name;
        let has_ended = matches!(process.child().try_wait(), Ok(Some(_)));
        let counts = self.report.attacks.entry(name.into()).or_default();
        counts.killed += u64::from(!has_ended);
        counts.longest_ms = counts.longest_ms.max(start.elapsed().as_millis() as u64);
        // The process may have ended in between, and its TAP may be missing; neither matters.
        let _ = process.child().kill();
        let tap = roles::tap_of(process.id());
        let _ = self.world.first().control().map(|mut client| client.detach(ATTACKED, &tap));
        let said = process.output(Some(BEGIN)).map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        let wrong = said.into_iter().filter(|text| text.contains("not refused") || text.contains("panicked"));
        self.fail(wrong.map(|text| format!("{name}: {}", text.trim())));
    }

    /// Checks the requirements that hold even during attacks.
    fn look(&mut self) {
        for (number, name) in NAMES.into_iter().enumerate() {
            let Some(how) = self.world.daemons[number].has_ended() else { continue };
            self.fail([format!("the {name} ended unexpectedly: {how}")]);
            self.restart(number, "ended by itself");
        }
        let wrong = self.bystanders.check(&self.world, &self.watch);
        self.fail(wrong);
    }

    fn kill(&mut self, number: usize) {
        let counts = self.report.attacks.entry(format!("{} killed", NAMES[number])).or_default();
        counts.made += 1;
        counts.took_hold += 1;
        counts.killed += 1;
        let wrong = self.bystanders.check(&self.world, &self.watch);
        self.fail(wrong);
        self.restart(number, "killed");
    }

    /// Kills a daemon, unless it has already ended, restarts it, and attaches and opens all its ports again.
    fn restart(&mut self, number: usize, how: &str) {
        self.bury(number, how);
        self.began[number] = true;
        self.world.machine.look_at([0; 2]);
        self.world.daemons[number].kill();
        let gone = Instant::now();
        self.bystanders.close(number);
        let started = self.world.daemons[number].start_again();
        let mut wrong: Vec<String> = started.err().into_iter().collect();
        if number == 0 {
            // To open the bystanders again, both the device and the driver of the vhost pair are attached anew. The
            // other daemon, which still runs, therefore detaches its port of the pair.
            let _ = self.world.daemons[1]
                .control()
                .and_then(|mut c| c.detach("vale5", "driver").map_err(|e| e.to_string()));
        } else {
            let _ =
                self.world.first().control().and_then(|mut c| c.detach("vale5", "device").map_err(|e| e.to_string()));
        }
        wrong.extend(self.bystanders.open(&self.world, number));
        if number == 0 {
            wrong.extend(self.attach_for_attackers().err());
        }
        self.world.watch_over();
        self.report.back_after_ms.push(gone.elapsed().as_millis() as u64);
        self.fail(wrong);
    }

    /// Records the life of a daemon that ends.
    fn bury(&mut self, number: usize, how: &str) {
        let LifeRecord { first, last, rests } = std::mem::take(&mut self.observed[number]);
        let Some(first) = first else { return };
        let daemon = NAMES[number].into();
        let ended_by = how.into();
        let ended_at = self.begun.elapsed().as_secs();
        self.report.lives.push(LifeResources { daemon, ended_at, ended_by, rests, first, last });
    }

    /// Compares the daemons' resources with the resources after the first complete round of their current lives. During
    /// the comparison, only the bystanders run.
    fn rest(&mut self) {
        let began = self.began;
        for number in (0..2).filter(|number| !began[*number]) {
            let daemon = &self.world.daemons[number];
            let observed = &mut self.observed[number];
            let leaks = match &observed.first {
                None => {
                    observed.last = rests(daemon);
                    observed.first = Some(observed.last.clone());
                    Vec::new()
                }
                Some(first) => {
                    let (counts, leaks) = settles(daemon, first);
                    observed.last = counts;
                    observed.rests += 1;
                    leaks
                }
            };
            if !leaks.is_empty() {
                // With the present resources as the new base, the same leak is not reported again.
                observed.first = Some(observed.last.clone());
            }
            self.fail(leaks.into_iter().map(|leak| format!("the {} leaks: {leak}", NAMES[number])));
        }
        self.look();
    }

    fn end(mut self) -> SoakReport {
        self.look();
        let waits = self.bystanders.waits(true, &self.watch);
        self.fail(waits);
        self.report.stalls = self.watch.found();
        self.world.machine.look_at([0; 2]);
        self.report.flows = self.bystanders.counts();
        let moments = self.bystanders.moments(&self.world);
        self.report.least = self.shares.least(&self.bystanders.names(), &moments);
        self.report.corrupt = self.bystanders.corrupt(false);
        self.report.sent_again = self.bystanders.corrupt(true);
        self.report.damages = self.bystanders.damages(self.begun);
        self.bystanders.close(0);
        for (number, name) in NAMES.into_iter().enumerate() {
            self.bury(number, "stopped");
            let mut wrong = self.world.daemons[number].stop();
            wrong.extend(self.world.daemons[number].panics());
            self.fail(wrong.into_iter().map(|what| format!("{name}: {what}")));
        }
        self.judge();
        self.report.seconds = self.begun.elapsed().as_secs();
        self.report
    }

    /// Judges the counts of the whole soak.
    fn judge(&mut self) {
        let mut wrong = Vec::new();
        if self.report.corrupt > 0 {
            wrong.push(format!("{} damaged frames", self.report.corrupt));
        }
        for FlowCounts { name, received, disordered, is_sent_again, .. } in &self.report.flows {
            if *disordered > 0 && !is_sent_again {
                wrong.push(format!("{name}: {disordered} frames out of order or duplicated"));
            }
            if *received == 0 {
                wrong.push(format!("{name}: received no frames"));
            }
        }
        let unfair = self.report.least.iter().filter(|(_, least)| !least.is_fair());
        wrong.extend(
            unfair.map(|(attack, least)| format!("during '{attack}', a bystander's share was too small: {least}")),
        );
        let vain = self.report.attacks.iter().filter(|(_, counts)| counts.made >= 3 && counts.took_hold == 0);
        wrong.extend(vain.map(|(name, counts)| format!("the attack '{name}' had no effect in {} runs", counts.made)));
        self.fail(wrong);
    }
}

/// Returns whether an attacker reports in time that its attack takes hold.
fn is_up(process: &mut ChildProcess) -> bool {
    let Some(mut lines) = process.lines() else { return false };
    let (said, says) = std::sync::mpsc::channel();
    // The thread need not be joined, because it ends when the process closes its output.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = lines.read_line(&mut line);
        let _ = said.send(line.trim() == UP);
        // Further output is read and discarded, because a closed pipe would be an error for the attacker.
        let _ = std::io::copy(&mut lines, &mut std::io::sink());
    });
    says.recv_timeout(BEGIN).unwrap_or(false)
}
