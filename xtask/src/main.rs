//! Checks that the compiler does not make.
//!
//! `cargo run -p xtask -- CHECK…` runs the named checks (`CHECKS` lists them; all without a name) over the workspace,
//! prints every finding, and exits with 1 if there is one and with 2 if a check could not run. `times` is not a check:
//! it writes the measured times of the tests into the pages that state them, and runs only when named.

mod circles;
mod counters;
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

/// The findings of a check, one line of text each; empty when all is well.
type Findings = Vec<String>;

/// A check: its name on the command line, and its function. `Err` says why it could not run at all.
type Check = (&'static str, fn(&Path) -> Result<Findings, String>);

const CHECKS: [Check; 10] = [
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
const WRITERS: [Check; 1] = [("times", times::write)];

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    match select(&wanted) {
        Ok(checks) => run_all(&checks, &workspace_root()),
        Err(unknown) => {
            let known: Vec<_> = CHECKS.iter().chain(&WRITERS).map(|(name, _)| *name).collect();
            let known = known.join(", ");
            eprintln!("xtask: no check is called {unknown:?}; there are: {known}");
            ExitCode::from(2)
        }
    }
}

/// The checks named by `wanted`, or all without a name. `Err` holds the first unknown name.
fn select(wanted: &[String]) -> Result<Vec<Check>, String> {
    if wanted.is_empty() {
        return Ok(CHECKS.to_vec());
    }
    let find = |name: &String| {
        let found = CHECKS.iter().chain(&WRITERS).find(|(known, _)| known == name);
        found.copied().ok_or_else(|| name.clone())
    };
    wanted.iter().map(find).collect()
}

fn run_all(checks: &[Check], root: &Path) -> ExitCode {
    let mut worst = 0;
    for (name, check) in checks {
        worst = worst.max(report(name, check(root)));
    }
    ExitCode::from(worst)
}

/// Prints one check's outcome and returns its exit status.
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

/// The workspace's root: the parent of this crate as cargo names it at run time, so that a binary from a shared target
/// directory checks the tree it was started in.
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

    /// No name means every check; an unknown name is reported, not ignored.
    #[test]
    fn checks_are_chosen_by_name() {
        assert_eq!(select(&[]).map(|c| c.len()), Ok(CHECKS.len()));
        let one = select(&["names".to_owned()]).unwrap_or_default();
        assert_eq!(one.iter().map(|c| c.0).collect::<Vec<_>>(), ["names"]);
        let writer = select(&["times".to_owned()]).unwrap_or_default();
        assert_eq!(writer.len(), 1, "what writes is chosen by its name alone");
        assert_eq!(select(&["layer".to_owned()]).err(), Some("layer".to_owned()));
    }

    /// The exit status tells a finding (1) from a check that could not run (2).
    #[test]
    fn status_tells_findings_from_failures() {
        assert_eq!(report("t", Ok(vec![])), 0);
        assert_eq!(report("t", Ok(vec!["x".to_owned()])), 1);
        assert_eq!(report("t", Err("no git".to_owned())), 2);
    }
}
