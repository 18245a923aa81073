//! The command line's options, and the measuring run.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::case::Case;
use crate::contender::Contender;
use crate::error::{BenchError, Result};
use crate::measure::Measure;
use crate::progress::Progress;
use crate::record::{Line, to_json};
use crate::runner::{HeldSessions, run_case};
use crate::scenarios::{self, Scenario};
use crate::{interrupt, pin, rivals, table};

/// The options of `netvale-bench`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What to measure.
    #[command(flatten)]
    pub measure: Measure,

    /// Few short runs, to check that everything works; not for published figures.
    #[arg(long)]
    pub quick: bool,

    /// Peers to measure as well, by name, or `all`.
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    pub against: Vec<String>,

    /// Measure only the peers.
    #[arg(long)]
    pub peers_only: bool,

    /// Print one JSON object a line instead of the table.
    #[arg(long)]
    pub json: bool,

    /// Also write the results to this file, one JSON object a line, for `netvale-bench report`.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

impl Options {
    /// Returns the requested cases.
    fn cases(&self) -> Result<Vec<(&'static Scenario, Case)>> {
        let mut cases = Vec::new();
        for scenario in scenarios::named(&self.measure.scenarios)? {
            let all: Vec<&str> = scenario.variants.iter().map(|variant| variant.name).collect();
            let wanted = scenario.cases(&self.measure).into_iter().filter(|x| self.measure.wants(&x.variant, &all));
            cases.extend(wanted.map(|case| (scenario, case)));
        }
        if cases.is_empty() {
            let texts = self.measure.variant.join(", ");
            return Err(BenchError::Usage(format!("no variant matches {texts}")));
        }
        Ok(cases)
    }

    fn peers(&self) -> Result<Vec<Contender>> {
        let all = rivals::all();
        let is_named = |name: &str| self.against.iter().any(|wanted| wanted == name);
        if is_named("all") || self.peers_only && self.against.is_empty() {
            return Ok(all);
        }
        if let Some(unknown) = self.against.iter().find(|name| all.iter().all(|peer| peer.name != name.as_str())) {
            let known = all.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
            return Err(BenchError::Unknown("peer", unknown.clone(), known + ", and `all`"));
        }
        Ok(all.into_iter().filter(|peer| is_named(peer.name)).collect())
    }
}

/// Measures what `options` request and writes the result to `out`: with `json`, each line as soon as it is ready;
/// otherwise, a table at the end. Progress and skipped peers are printed on stderr. Returns whether anything was
/// measured.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<bool> {
    let plan = options.measure.plan(options.quick)?;
    let cases = options.cases()?;
    let peers = options.peers()?;
    let cpus = pin::choose(&options.measure.cpus, 2)?;
    let _guard = interrupt::Guard::install()?;
    let steps = cases.iter().map(|(_, case)| 1 + peers.iter().filter(|peer| peer.fits(case)).count());
    let progress = Progress::new((steps.sum::<usize>() * plan.runs) as u64);
    let create = |path: &PathBuf| File::create(path).map_err(BenchError::io(format!("creating {}", path.display())));
    let mut save = options.save.as_ref().map(create).transpose()?;
    let mut all = Vec::new();
    for (scenario, case) in &cases {
        let ours = (!options.peers_only).then(|| scenario.ours());
        let contenders: Vec<&Contender> = ours.iter().chain(peers.iter().filter(|peer| peer.fits(case))).collect();
        let lines =
            run_case(case, &contenders, &mut HeldSessions::default(), options.peers_only, &cpus, plan, &progress)?;
        if options.json {
            write_json(&lines, out)?;
        }
        if let Some(file) = &mut save {
            write_json(&lines, file)?;
        }
        all.extend(lines);
    }
    drop(progress);
    if !options.json {
        out.write_all(table::render(&all).as_bytes()).map_err(BenchError::io("writing the table"))?;
    }
    Ok(all.iter().any(|line| matches!(line, Line::Record(_))))
}

fn write_json(lines: &[Line], out: &mut dyn Write) -> Result<()> {
    for line in lines {
        let text = to_json(line)?;
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(BenchError::io("writing a result"))?;
    }
    Ok(())
}

/// Lists scenarios and peers, and whether each peer can run here.
pub fn list(out: &mut dyn Write) -> Result<()> {
    let cpus = pin::choose(&[], 2)?;
    let mut text = String::from("scenarios:\n");
    for scenario in scenarios::ALL {
        text.push_str(&format!("  {:22} {}\n", scenario.name, scenario.about));
    }
    text.push_str("peers (--against):\n");
    for peer in rivals::all() {
        let state = peer.available(&cpus).map_or_else(|skip| format!(" [skipped: {skip}]"), |()| String::new());
        text.push_str(&format!("  {:22} {}{state}\n", peer.name, peer.about));
    }
    out.write_all(text.as_bytes()).map_err(BenchError::io("writing the list"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Line::parse_from(["netvale-bench"].into_iter().chain(words.split_whitespace())).options
    }

    /// Objective: unknown names are refused before anything is started, and the message lists the known names.
    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = run(&options("pip"), &mut Vec::new()).expect_err("no such scenario");
        assert!(error.to_string().contains("pipe"), "{error}");
        let error = run(&options("--against dpdk"), &mut Vec::new()).expect_err("no such peer");
        assert!(error.to_string().contains("dpdk-memif"), "{error}");
    }

    /// Objective: invalid values are refused.
    #[test]
    fn unusable_values_are_refused() {
        for (runs, seconds) in [(0, 1.0), (5, 0.0), (5, f64::NAN), (5, -1.0), (5, 1e9)] {
            assert!(Measure { runs, seconds, ..Measure::default() }.plan(false).is_err());
        }
        assert!(options("--quick").measure.plan(true).is_ok_and(|plan| plan.runs == 3));
    }

    /// Objective: `--against` accepts names, `all`, or nothing.
    #[test]
    fn against_takes_names_or_all_or_nothing() {
        assert!(options("").peers().expect("none").is_empty());
        assert_eq!(options("--against eventfd,all").peers().expect("all").len(), super::rivals::all().len());
        let named = options("--against eventfd").peers().expect("there is one");
        assert!(matches!(&named[..], [one] if one.name == "eventfd"));
    }

    /// Objective: the self-test scenario runs from options to a JSON line that has a peer, a ratio and the documented
    /// fields.
    #[test]
    fn copy_end_to_end() {
        let folder = tempfile::tempdir().expect("a folder");
        // This is long enough for each contender to run on a machine with other work.
        let mut options = options("copy --against all --runs 1 --seconds 0.25 --quick --json");
        options.save = Some(folder.path().join("saved.jsonl"));
        let mut out = Vec::new();
        assert!(run(&options, &mut out).expect("it has no requirements"));
        assert_eq!(std::fs::read(folder.path().join("saved.jsonl")).expect("saved"), out);
        let text = String::from_utf8(out).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(value["peer"], "stride-2048");
        assert!(value["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0));
    }
}
