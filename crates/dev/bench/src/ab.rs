//! Compares two builds: two programs measure the same cases in alternating rounds.
//!
//! The build that goes first changes from round to round, so that slow changes of the machine affect both builds
//! equally. Ratios are computed from the figures of one round.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::measure::Measure;
use crate::record::{Line, Record, range, read_lines, to_json};
use crate::scenarios;
use crate::stats::Summary;

/// One of the two builds to compare: its benchmark program, and how to call it.
#[derive(Clone, Debug)]
pub struct Build {
    program: PathBuf,
    /// Whether measuring is a subcommand, as it was before `netvale-bench` became a separate program.
    subcommand: bool,
}

/// A case measured with both builds.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The results of the older build.
    pub old: Summary,
    /// The results of the newer build.
    pub new: Summary,
    /// For each round, the factor by which the newer build is better. Above 1, the newer build is better, whatever the
    /// unit.
    pub ratio: Summary,
}

impl Pair {
    /// Returns whether the newer build is at most `percent` per cent worse.
    pub fn is_within(&self, percent: f64) -> bool {
        self.ratio.median >= 1.0 - percent / 100.0
    }
}

impl Build {
    /// Returns the build of which `program` is part.
    pub fn at(program: &Path) -> Result<Build> {
        let found = program.canonicalize();
        let program = found.map_err(BenchError::io(format!("finding {}", program.display())))?;
        let subcommand = program.file_name() == Some(OsStr::new("netvale"));
        Ok(Build { program, subcommand })
    }

    /// Runs one round, in which each case is measured once.
    fn round(&self, scenario: &str, options: &Measure) -> Result<Vec<Record>> {
        interrupt::check()?;
        let mut command = Command::new(&self.program);
        if self.subcommand {
            command.arg("bench");
        }
        command.args([scenario, "--json", "--runs", "1", "--seconds", &options.seconds.to_string()]);
        let mut list = |flag: &str, values: Vec<String>| {
            if !values.is_empty() {
                command.args([flag, &values.join(",")]);
            }
        };
        let numbers = |values: &[u32]| values.iter().map(u32::to_string).collect::<Vec<_>>();
        list("--variant", options.variant.clone());
        list("--frame-bytes", numbers(&options.frame_bytes));
        list("--batch", numbers(&options.batch));
        list("--ports", numbers(&options.ports));
        list("--foreign", numbers(&options.foreign));
        list("--cpus", options.cpus.iter().map(usize::to_string).collect());
        self.records(command)
    }

    fn records(&self, mut command: Command) -> Result<Vec<Record>> {
        let program = self.program.display().to_string();
        let output = command.output().map_err(BenchError::spawn(&program))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = read_lines(&text, &self.program)?;
        let records: Vec<Record> = lines.into_iter().filter_map(Line::into_record).collect();
        if !records.is_empty() {
            return Ok(records);
        }
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        Err(BenchError::failed(program, output.status, &said))
    }
}

/// The results of each case in all rounds: the results of the older build, then the results of the newer build.
type Rounds = BTreeMap<String, (Case, [Vec<f64>; 2])>;

/// Runs `options.runs` rounds with each of the builds, scenario by scenario, and writes the comparison to `out`.
pub fn run(builds: &[Build; 2], options: &Measure, json: bool, out: &mut dyn Write) -> Result<Vec<Pair>> {
    options.plan(false)?;
    let _guard = interrupt::Guard::install()?;
    let all = || scenarios::ALL.iter().map(|scenario| scenario.name.to_owned()).collect();
    let chosen: Vec<String> = if options.scenarios.is_empty() { all() } else { options.scenarios.clone() };
    let mut pairs = Vec::new();
    for scenario in &chosen {
        let mut rounds = Rounds::new();
        for round in 0..options.runs {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                for record in builds[which].round(scenario, options)? {
                    let entry =
                        rounds.entry(record.case.to_string()).or_insert_with(|| (record.case, Default::default()));
                    entry.1[which].push(record.summary.median);
                }
            }
        }
        pairs.extend(rounds.into_values().filter_map(|(case, values)| pair(case, &values)));
    }
    let text = if json { lines(&pairs)? } else { render(&pairs) };
    out.write_all(text.as_bytes()).map_err(BenchError::io("writing the comparison"))?;
    Ok(pairs)
}

/// Compares the results of a case, round by round. `None` if one of the builds lacks the case, or measured nothing.
fn pair(case: Case, [old, new]: &[Vec<f64>; 2]) -> Option<Pair> {
    let ratios: Vec<f64> = old.iter().zip(new).filter_map(|(old, new)| case.unit.ratio(*new, *old)).collect();
    Some(Pair { old: Summary::of(old)?, new: Summary::of(new)?, ratio: Summary::of(&ratios)?, case })
}

fn lines(pairs: &[Pair]) -> Result<String> {
    pairs.iter().map(|pair| to_json(pair).map(|text| text + "\n")).collect()
}

fn render(pairs: &[Pair]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["case", "old [min - max]", "new [min - max]", "unit", "new / old [min - max]"]);
    for pair in pairs {
        let ratio = format!("{:.2} [{:.2} - {:.2}]", pair.ratio.median, pair.ratio.min, pair.ratio.max);
        let unit = pair.case.unit.to_string();
        table.add_row([pair.case.to_string(), shown(&pair.old), shown(&pair.new), unit, ratio]);
    }
    format!("{table}\n")
}

fn shown(summary: &Summary) -> String {
    range(summary.median, summary.min, summary.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    fn case() -> Case {
        sample(None).case
    }

    /// Objective: ratios are computed from the two figures of the same round, and the tolerance applies only to
    /// slowdowns.
    #[test]
    fn a_ratio_is_made_of_each_rounds_own_figures() {
        let pair = pair(case(), &[vec![100.0, 200.0, 100.0], vec![95.0, 190.0, 110.0]]).expect("three rounds");
        assert_eq!((pair.ratio.median, pair.ratio.min, pair.ratio.max), (0.95, 0.95, 1.1));
        assert!(pair.is_within(6.0) && !pair.is_within(4.0));
        assert!(render(&[pair]).contains("0.95 [0.95 - 1.10]"));
    }

    /// Objective: a case is omitted if only one of the builds has it.
    #[test]
    fn a_case_of_only_one_build_is_left_out() {
        assert!(pair(case(), &[vec![1.0], Vec::new()]).is_none());
        assert!(pair(case(), &[vec![0.0], vec![0.0]]).is_none());
    }

    /// Objective: the lines of a program are parsed as results; a program that prints no results yields an error with
    /// the last lines of its output.
    #[test]
    fn lines_of_a_program_are_read_as_results() {
        let build = Build { program: "/bin/sh".into(), subcommand: false };
        let line = to_json(&Line::Record(Box::new(sample(None)))).expect("finite");
        let mut echo = Command::new("echo");
        echo.arg(&line);
        assert_eq!(build.records(echo).expect("a record").len(), 1);
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo no such scenario >&2; exit 2"]);
        let error = build.records(fails).expect_err("nothing measured");
        assert!(error.to_string().contains("no such scenario"), "{error}");
    }
}
