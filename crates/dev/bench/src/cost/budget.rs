//! The file of budgets: instructions per frame, by path and batch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{BenchError, Result};
use crate::sys::read_if_present;

/// Share of the budget by which a path may exceed its budget.
const TOLERANCE: f64 = 0.02;

/// The comment at the top of the file.
const HEAD: &str = "\
# Instructions a frame, by path and batch: what `netvale-bench cost` counts (release build, callgrind).
#
# `make check` fails when a path takes over 2 % more. A change that has a reason to cost more changes its figures here,
# and says the reason in its commit; one that made a path cheaper lowers them: `netvale-bench cost --update`.
";

/// Budgets by path and batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets(BTreeMap<String, BTreeMap<String, f64>>);

/// The result of comparing a count with its budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The budget; `None` if the path has no budget.
    pub budget: Option<f64>,
    /// Whether there is a budget, which the count does not exceed by more than the tolerance.
    pub is_kept: bool,
    /// The note for the table.
    pub note: &'static str,
}

impl Budgets {
    /// Reads the file of budgets. If the file is missing, there are no budgets.
    pub fn read(file: &Path) -> Result<Budgets> {
        let Some(text) = read_if_present(file)? else { return Ok(Budgets::default()) };
        let parsed = toml::from_str(&text).map(Budgets);
        parsed.map_err(|error| BenchError::Usage(format!("{}: {error}", file.display())))
    }

    /// Writes the file.
    pub fn write(&self, file: &Path) -> Result<()> {
        let tables = self.0.iter().map(|(path, batches)| {
            let lines = batches.iter().map(|(batch, cost)| format!("{batch} = {cost:.1}\n"));
            format!("\n[{path}]\n{}", lines.collect::<String>())
        });
        let text = format!("{HEAD}{}", tables.collect::<String>());
        fs::write(file, text).map_err(BenchError::io(format!("writing {}", file.display())))
    }

    /// Sets the budget of a path and batch to the present cost of that path and batch.
    pub fn set(&mut self, path: &str, batch: u32, cost: f64) {
        self.0.entry(path.to_owned()).or_default().insert(batch.to_string(), cost);
    }

    /// Compares a cost with its budget.
    pub fn judge(&self, path: &str, batch: u32, cost: f64) -> Verdict {
        let budget = self.0.get(path).and_then(|batches| batches.get(&batch.to_string())).copied();
        let (is_kept, note) = match budget {
            None => (false, "NO BUDGET"),
            Some(budget) if cost > budget * (1.0 + TOLERANCE) => (false, "OVER"),
            Some(budget) if cost < budget * (1.0 - TOLERANCE) => (true, "cheaper: lower the budget"),
            Some(_) => (true, ""),
        };
        Verdict { budget, is_kept, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a path that exceeds its budget by more than 2 %, or has no budget, is reported; a path below its
    /// budget passes.
    #[test]
    fn a_path_over_its_budget_is_found() {
        let mut budgets = Budgets::default();
        budgets.set("pipe", 32, 100.0);
        let over = Verdict { budget: Some(100.0), is_kept: false, note: "OVER" };
        let cheaper = Verdict { budget: Some(100.0), is_kept: true, note: "cheaper: lower the budget" };
        assert_eq!(budgets.judge("pipe", 32, 102.0), Verdict { note: "", ..cheaper });
        assert_eq!(budgets.judge("pipe", 32, 102.1), over);
        assert_eq!(budgets.judge("pipe", 32, 90.0), cheaper);
        assert_eq!(budgets.judge("pipe", 256, 1.0), Verdict { budget: None, is_kept: false, note: "NO BUDGET" });
    }

    /// Objective: a file that was written can be read again; a file with other content is refused.
    #[test]
    fn a_written_file_is_read_again() {
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
