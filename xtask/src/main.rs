//! Checks of the workspace that the compiler does not perform.
//!
//! `cargo run -p xtask -- CHECK…` runs the named checks over the workspace (if none is named, all in `CHECKS`) and
//! prints every finding. The exit status is 1 if there is a finding, and 2 if a check could not run. `times` is not a
//! check: it writes the measured times of the tests into the pages that state them, and runs only if it is named.

mod circles;
mod counters;
mod files;
mod glossary;
mod layer_table;
mod layers;
mod links;
mod module_tables;
mod modules;
mod names;
mod source;
mod test_targets;
mod times;
mod unsafe_gate;
mod words;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The findings of a check, one line per finding; empty if the check passes.
type Findings = Vec<String>;

/// A check: its name on the command line, and its function. `Err` states why the check could not run.
type GateCheck = (&'static str, fn(&Path) -> Result<Findings, String>);

const CHECKS: [GateCheck; 10] = [
    ("layers", layers::run),
    ("circles", circles::run),
    ("unsafe-gate", unsafe_gate::run),
    ("names", names::run),
    ("words", words::run),
    ("links", links::run),
    ("glossary", glossary::run),
    ("test-targets", test_targets::run),
    ("module-tables", module_tables::run),
    ("counters", counters::run),
];

/// Commands that change files and do not count as checks.
const WRITERS: [GateCheck; 1] = [("times", times::write)];

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    match select(&wanted) {
        Ok(checks) => run_all(&checks, &workspace_root()),
        Err(unknown) => {
            let known: Vec<_> = CHECKS.iter().chain(&WRITERS).map(|(name, _)| *name).collect();
            let known = known.join(", ");
            eprintln!("xtask: unknown check {unknown:?}; known: {known}");
            ExitCode::from(2)
        }
    }
}

/// Returns the checks that `wanted` names, or all checks if `wanted` is empty. The error is about the first unknown
/// name.
fn select(wanted: &[String]) -> Result<Vec<GateCheck>, String> {
    if wanted.is_empty() {
        return Ok(CHECKS.to_vec());
    }
    let find = |name: &String| {
        let found = CHECKS.iter().chain(&WRITERS).find(|(known, _)| known == name);
        found.copied().ok_or_else(|| name.clone())
    };
    wanted.iter().map(find).collect()
}

fn run_all(checks: &[GateCheck], root: &Path) -> ExitCode {
    let mut worst = 0;
    for (name, check) in checks {
        worst = worst.max(report(name, check(root)));
    }
    ExitCode::from(worst)
}

/// Prints a check's result. Returns its exit status.
fn report(name: &str, outcome: Result<Findings, String>) -> u8 {
    match outcome {
        Ok(findings) if findings.is_empty() => {
            println!("{name}: ok");
            0
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{name}: {finding}");
            }
            eprintln!("{name}: {} finding(s)", findings.len());
            1
        }
        Err(reason) => {
            eprintln!("{name}: could not run: {reason}");
            2
        }
    }
}

/// Returns the workspace's root: the folder above this crate's folder, which cargo names in the environment at run
/// time, so that a binary in a shared target directory checks the tree in which it was started. Without cargo, returns
/// the current folder.
fn workspace_root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match manifest_dir.as_deref().and_then(Path::parent) {
        Some(root) => root.to_path_buf(),
        None => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: if no check is named, every check runs; an unknown name is reported, not ignored.
    #[test]
    fn checks_are_chosen_by_name() {
        assert_eq!(select(&[]).map(|c| c.len()), Ok(CHECKS.len()));
        let one = select(&["names".to_owned()]).unwrap_or_default();
        assert_eq!(one.iter().map(|c| c.0).collect::<Vec<_>>(), ["names"]);
        let writer = select(&["times".to_owned()]).unwrap_or_default();
        assert_eq!(writer.len(), 1, "what writes is chosen by its name alone");
        assert_eq!(select(&["layer".to_owned()]).err(), Some("layer".to_owned()));
    }

    /// Objective: the exit status distinguishes a finding (1) from a check that could not run (2).
    #[test]
    fn status_tells_findings_from_failures() {
        assert_eq!(report("t", Ok(vec![])), 0);
        assert_eq!(report("t", Ok(vec!["x".to_owned()])), 1);
        assert_eq!(report("t", Err("no git".to_owned())), 2);
    }
}
