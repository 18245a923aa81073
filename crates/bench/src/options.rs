//! The options of the command line, and the whole run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::case::Case;
use crate::contender::{Contender, Env};
use crate::error::{BenchError, Result, Skip};
use crate::progress::Progress;
use crate::record::{Line, Skipped};
use crate::runner::{Plan, run_case};
use crate::scenarios::{self, Scenario, Sweep};
use crate::{interrupt, pin, rivals, table};

/// The peers that run beside us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rivals {
    /// None.
    #[default]
    None,
    /// All peers that fit the scenario.
    All,
    /// Those named.
    Named(Vec<String>),
}

impl Rivals {
    /// Reads the values of `--against`: names, or `all`.
    #[must_use]
    pub fn from_names(names: &[String]) -> Self {
        match names {
            [] => Self::None,
            names if names.iter().any(|name| name == "all") => Self::All,
            names => Self::Named(names.to_vec()),
        }
    }

    fn include(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|wanted| wanted == name),
        }
    }
}

/// The options of `netvale-bench`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Scenarios by name; empty means all.
    pub scenarios: Vec<String>,
    /// `--variant`: only variants that are called so, or in whose name one of these stands; empty means all.
    pub variants: Vec<String>,
    /// `--against`: the peers.
    pub against: Rivals,
    /// `--peers-only`: measure the peers alone, each a line of its own.
    pub peers_only: bool,
    /// `--runs`: runs that count, per contender and case.
    pub runs: usize,
    /// `--seconds`: length of one run.
    pub seconds: f64,
    /// `--frame-bytes`: lengths to go through, without FCS; empty means the scenario's own.
    pub frame_bytes: Vec<u32>,
    /// `--batch`: batches to go through; empty means the scenario's own.
    pub batch: Vec<u32>,
    /// `--ports`: numbers of ports or rings to go through; empty means the scenario's own.
    pub ports: Vec<u32>,
    /// `--foreign`: numbers of foreign threads to go through; empty means the scenario's own.
    pub foreign: Vec<u32>,
    /// `--cpus`: CPUs to pin to, in order of use; empty means the first two allowed.
    pub cpus: Vec<usize>,
    /// `--quick`: three runs of a quarter of a second, to see that all works; no figures to publish.
    pub quick: bool,
    /// `--json`: one object a line on stdout instead of the table.
    pub json: bool,
    /// `--save`: the same lines into this file, for a report, whatever goes to stdout.
    pub save: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scenarios: Vec::new(),
            variants: Vec::new(),
            against: Rivals::None,
            peers_only: false,
            runs: 5,
            seconds: 1.0,
            frame_bytes: Vec::new(),
            batch: Vec::new(),
            ports: Vec::new(),
            foreign: Vec::new(),
            cpus: Vec::new(),
            quick: false,
            json: false,
            save: None,
        }
    }
}

impl Options {
    pub(crate) fn plan(&self) -> Result<Plan> {
        if self.runs == 0 || !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(BenchError::Usage("--runs must be at least 1 and --seconds above 0, at most 3600".into()));
        }
        let window = Duration::from_secs_f64(self.seconds);
        if self.quick {
            let quarter = Duration::from_millis(250);
            return Ok(Plan { runs: self.runs.min(3), window: window.min(quarter), warm_up: quarter / 2 });
        }
        Ok(Plan { runs: self.runs, window, warm_up: window.min(Duration::from_millis(500)) })
    }

    fn chosen_scenarios(&self) -> Result<Vec<&'static Scenario>> {
        if self.scenarios.is_empty() {
            return Ok(scenarios::all().iter().collect());
        }
        let find = |name: &String| {
            scenarios::find(name).ok_or_else(|| BenchError::UnknownScenario {
                name: name.clone(),
                known: scenarios::all().iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", "),
            })
        };
        self.scenarios.iter().map(find).collect()
    }

    fn chosen_peers(&self) -> Result<Vec<Box<dyn Contender>>> {
        let all = rivals::all();
        if let Rivals::Named(names) = &self.against
            && let Some(unknown) = names.iter().find(|name| all.iter().all(|peer| peer.name() != name.as_str()))
        {
            let known = all.iter().map(|peer| peer.name().to_owned()).collect::<Vec<_>>().join(", ");
            return Err(BenchError::UnknownPeer { name: unknown.clone(), known });
        }
        let everyone = self.peers_only && self.against == Rivals::None;
        Ok(all.into_iter().filter(|peer| everyone || self.against.include(peer.name())).collect())
    }

    /// A text that is some variant's whole name stands for that one only.
    fn wants(&self, variant: &str, all: &[&str]) -> bool {
        let fits = |part: &String| variant == part || variant.contains(part) && !all.contains(&part.as_str());
        self.variants.is_empty() || self.variants.iter().any(fits)
    }

    fn sweep(&self) -> Sweep {
        Sweep {
            frame_bytes: self.frame_bytes.clone(),
            batch: self.batch.clone(),
            ports: self.ports.clone(),
            foreign: self.foreign.clone(),
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Every line, in order.
    pub lines: Vec<Line>,
}

impl Outcome {
    /// Whether anything was measured at all. A run without a figure should end with an error status.
    #[must_use]
    pub fn measured(&self) -> bool {
        self.lines.iter().any(|line| matches!(line, Line::Record(_)))
    }
}

/// Runs what `options` ask for and writes the result to `out`: with `json` line by line as it comes, otherwise a table
/// at the end. Progress and skipped peers go to stderr.
///
/// # Errors
/// Unknown names, unusable values, an interrupt, or an output that cannot be written. A contender that fails is a
/// `skipped` line, not an error.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Outcome> {
    let plan = options.plan()?;
    let chosen = options.chosen_scenarios()?;
    let peers = options.chosen_peers()?;
    let env = Env { cores: pin::choose(&options.cpus, 2)? };
    let _guard = interrupt::Guard::install()?;
    let cases: Vec<(&Scenario, Case)> = chosen
        .into_iter()
        .flat_map(|scenario| scenario.cases(&options.sweep()).into_iter().map(move |case| (scenario, case)))
        .filter(|(scenario, case)| {
            let all: Vec<&str> = scenario.variants.iter().map(|variant| variant.name).collect();
            options.wants(&case.variant, &all)
        })
        .collect();
    if cases.is_empty() {
        return Err(BenchError::Usage(format!("no variant is called like {}", options.variants.join(", "))));
    }
    let steps = cases.iter().map(|(_, case)| 1 + peers.iter().filter(|peer| peer.fits(case)).count());
    let progress = Progress::new((steps.sum::<usize>() * plan.runs) as u64);
    let mut outcome = Outcome::default();
    let mut save = options.save.as_deref().map(create).transpose()?;
    for (scenario, case) in &cases {
        let ours = if options.peers_only { None } else { scenario.ours.map(|make| make()) };
        let fitting = peers.iter().filter(|peer| peer.fits(case));
        let contenders: Vec<&dyn Contender> = ours.iter().chain(fitting).map(AsRef::as_ref).collect();
        let mut lines = run_case(case, &contenders, ours.is_none(), &env, plan, &progress)?;
        if ours.is_none() && !options.peers_only {
            lines.insert(0, without_ours(case));
        }
        if options.json {
            write_json(&lines, out)?;
        }
        if let Some(file) = &mut save {
            write_json(&lines, file)?;
        }
        outcome.lines.extend(lines);
    }
    drop(progress);
    if !options.json {
        out.write_all(table::render(&outcome.lines).as_bytes()).map_err(BenchError::io("writing the table"))?;
    }
    Ok(outcome)
}

/// Says why a scenario's lines hold peers only.
fn without_ours(case: &Case) -> Line {
    let reason = Skip::NotBuilt("this build has only the peers' side of the scenario");
    Line::Skipped(Skipped { scenario: case.scenario.clone(), contender: "netvale".into(), skipped: reason.to_string() })
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(BenchError::io(format!("creating {}", path.display())))
}

fn write_json(lines: &[Line], out: &mut dyn Write) -> Result<()> {
    for line in lines {
        let text = line.to_json().map_err(|error| BenchError::Usage(format!("a figure cannot be written: {error}")))?;
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(BenchError::io("writing a result"))?;
    }
    Ok(())
}

/// Lists scenarios and peers, and whether each peer can run here.
///
/// # Errors
/// The CPUs cannot be found out, or `out` cannot be written.
pub fn list(out: &mut dyn Write) -> Result<()> {
    let env = Env { cores: pin::choose(&[], 2)? };
    let mut text = String::from("scenarios:\n");
    for scenario in scenarios::all() {
        text.push_str(&format!("  {:22} {}\n", scenario.name, scenario.about));
    }
    text.push_str("peers (--against):\n");
    for peer in rivals::all() {
        let state = peer.available(&env).map_or_else(|skip| format!(" [skipped: {skip}]"), |()| String::new());
        text.push_str(&format!("  {:22} {}{state}\n", peer.name(), peer.about()));
    }
    out.write_all(text.as_bytes()).map_err(BenchError::io("writing the list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Rivals {
        Rivals::from_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    /// Objective: unknown names are refused with the list of known ones, before anything is started.
    #[test]
    fn unknown_names() {
        let scenario = Options { scenarios: vec!["pip".into()], ..Options::default() };
        let error = run(&scenario, &mut Vec::new()).expect_err("no such scenario");
        assert!(error.to_string().contains("pipe"), "{error}");
        let peer = Options { against: named(&["dpdk"]), ..Options::default() };
        let error = run(&peer, &mut Vec::new()).expect_err("no such peer");
        assert!(error.to_string().contains("dpdk-memif"), "{error}");
    }

    /// Objective: values that cannot be used are refused.
    #[test]
    fn unusable_values() {
        for (runs, seconds) in [(0, 1.0), (5, 0.0), (5, f64::NAN), (5, -1.0), (5, 1e9)] {
            assert!(Options { runs, seconds, ..Options::default() }.plan().is_err());
        }
        assert!(Options { quick: true, ..Options::default() }.plan().is_ok_and(|plan| plan.runs == 3));
    }

    /// Objective: `--against` takes names, `all`, or nothing.
    #[test]
    fn rivals() {
        assert_eq!(named(&[]), Rivals::None);
        assert_eq!(named(&["x", "all"]), Rivals::All);
        assert!(named(&["x"]).include("x") && !named(&["x"]).include("y"));
    }

    /// Objective: the self-test scenario runs from options to a JSON line with its peer and a ratio, with the agreed
    /// fields.
    #[test]
    fn copy_end_to_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            scenarios: vec!["copy".into()],
            against: Rivals::All,
            runs: 1,
            // Long enough for each side to get a turn on a machine with other work.
            seconds: 0.25,
            quick: true,
            json: true,
            save: Some(folder.path().join("saved.jsonl")),
            ..Options::default()
        };
        let mut out = Vec::new();
        let outcome = run(&options, &mut out).expect("it needs nothing special");
        assert!(outcome.measured());
        assert_eq!(std::fs::read(folder.path().join("saved.jsonl")).expect("saved"), out);
        let text = String::from_utf8(out).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(value["peer"], "stride-2048");
        assert!(value["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0));
    }
}
