//! The file of budgets: instructions a frame, by path and batch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{BenchError, Result};

/// The share by which a path may exceed its budget.
const TOLERANCE: f64 = 0.02;

/// The comment before the figures.
const HEAD: &str = "\
# Instructions a frame, by path and batch: what `netvale-bench cost` counts (release build, callgrind).
#
# `make check` fails when a path takes over 2 % more. A change that has a reason to cost more changes its figures here,
# and says the reason in its commit; one that made a path cheaper lowers them: `netvale-bench cost --update`.
";

/// Budgets by path, then batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets(BTreeMap<String, BTreeMap<String, f64>>);

/// The judgement of a count, with the budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is known of this path.
    Unknown,
    /// Within its budget.
    Kept(f64),
    /// So much cheaper that the budget should be lowered.
    Cheaper(f64),
    /// Over its budget.
    Over(f64),
}

impl Verdict {
    /// The budget.
    pub fn budget(&self) -> Option<f64> {
        match self {
            Verdict::Unknown => None,
            Verdict::Kept(budget) | Verdict::Cheaper(budget) | Verdict::Over(budget) => Some(*budget),
        }
    }

    /// Whether nothing has to be done.
    pub fn is_kept(&self) -> bool {
        matches!(self, Verdict::Kept(_) | Verdict::Cheaper(_))
    }

    /// What has to be done.
    pub fn words(&self) -> &'static str {
        match self {
            Verdict::Unknown => "NO BUDGET",
            Verdict::Kept(_) => "",
            Verdict::Cheaper(_) => "cheaper: lower it",
            Verdict::Over(_) => "OVER",
        }
    }
}

impl Budgets {
    /// Reads the file; one that is not there holds nothing.
    pub fn read(file: &Path) -> Result<Budgets> {
        match fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text)
                .map(Budgets)
                .map_err(|error| BenchError::Usage(format!("{}: {error}", file.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Budgets::default()),
            Err(error) => Err(BenchError::io(format!("reading {}", file.display()))(error)),
        }
    }

    /// Writes it anew.
    pub fn write(&self, file: &Path) -> Result<()> {
        let tables = self.0.iter().map(|(path, batches)| {
            let lines = batches.iter().map(|(batch, cost)| format!("{batch} = {cost:.1}\n"));
            format!("\n[{path}]\n{}", lines.collect::<String>())
        });
        let text = format!("{HEAD}{}", tables.collect::<String>());
        fs::write(file, text).map_err(BenchError::io(format!("writing {}", file.display())))
    }

    /// The budget of a path at a batch is what it costs now.
    pub fn set(&mut self, path: &str, batch: u32, cost: f64) {
        self.0.entry(path.to_owned()).or_default().insert(batch.to_string(), cost);
    }

    /// Judges a cost.
    pub fn judge(&self, path: &str, batch: u32, cost: f64) -> Verdict {
        match self.0.get(path).and_then(|batches| batches.get(&batch.to_string())) {
            None => Verdict::Unknown,
            Some(&budget) if cost > budget * (1.0 + TOLERANCE) => Verdict::Over(budget),
            Some(&budget) if cost < budget * (1.0 - TOLERANCE) => Verdict::Cheaper(budget),
            Some(&budget) => Verdict::Kept(budget),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a path that costs more than 2 % over its budget, or has none, is found; one that became cheaper
    /// passes.
    #[test]
    fn verdicts() {
        let mut budgets = Budgets::default();
        budgets.set("pipe", 32, 100.0);
        assert_eq!(budgets.judge("pipe", 32, 102.0), Verdict::Kept(100.0));
        assert_eq!(budgets.judge("pipe", 32, 102.1), Verdict::Over(100.0));
        assert_eq!(budgets.judge("pipe", 32, 90.0), Verdict::Cheaper(100.0));
        assert_eq!(budgets.judge("pipe", 256, 1.0), Verdict::Unknown);
        assert!(!Verdict::Unknown.is_kept() && !Verdict::Over(1.0).is_kept() && Verdict::Cheaper(1.0).is_kept());
    }

    /// Objective: what was written is read again; a file that is something else is refused.
    #[test]
    fn files() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("budgets.toml");
        assert_eq!(Budgets::read(&file).expect("none yet"), Budgets::default());
        let mut budgets = Budgets::default();
        budgets.set("vale-1-to-8", 256, 61.5);
        budgets.set("pipe", 32, 20.0);
        budgets.write(&file).expect("written");
        assert_eq!(Budgets::read(&file).expect("read"), budgets);
        fs::write(&file, "pipe = [").expect("written");
        assert!(Budgets::read(&file).is_err());
    }
}
