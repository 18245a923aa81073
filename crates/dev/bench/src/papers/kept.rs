//! The results of a figure so far. They are in a file with a line for each measured case. After an interruption, the
//! cases that the file does not contain are measured.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::record::{Line, Record, to_json};
use crate::runner::LINE_NS;
use crate::sys::{append_line, read_if_present};
use crate::table::{as_record, as_skipped};

/// The version of the file format. It increases when the format changes so that old versions cannot read it.
const VERSION: u32 = 1;

/// The first line of the file, with the version.
#[derive(Serialize, Deserialize)]
struct Head {
    papers: u32,
}

/// A measured case, and the result lines of all contenders for that case.
#[derive(Serialize, Deserialize)]
struct Measured {
    case: Case,
    lines: Vec<Line>,
}

/// The stored results of a figure.
pub struct Kept {
    path: PathBuf,
    all: Vec<Measured>,
}

/// A contender's figure for a case.
#[derive(Clone, Debug)]
pub struct Value {
    /// The case.
    pub case: Case,
    /// The median of the runs.
    pub median: f64,
    /// The smallest figure of a run.
    pub min: f64,
    /// The largest figure of a run.
    pub max: f64,
    /// Whether other work on the machine disturbed a run.
    pub disturbed: bool,
    /// Further facts about the measurement, as pairs of name and value.
    pub facts: Vec<(String, String)>,
}

impl Kept {
    /// Reads the results of the figure `number` from its file in `folder`; if the file is missing, there are no
    /// results. With `again`, removes the file before reading it.
    pub fn open(folder: &Path, number: &str, again: bool) -> Result<Kept> {
        let path = folder.join(format!("{number}.jsonl"));
        if again {
            remove(&path)?;
        }
        let all = read_if_present(&path)?.map(|text| read(&text, &path)).transpose()?;
        Ok(Kept { all: all.unwrap_or_default(), path })
    }

    /// Returns whether there are no results.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether the case was measured without disturbance by other work on the machine.
    pub fn has(&self, case: &Case) -> bool {
        self.all.iter().any(|measured| measured.case == *case && !measured.is_disturbed())
    }

    /// Appends the results of a case to the file. The new results replace earlier results of the same case, unless
    /// other work disturbed the new results more.
    pub fn add(&mut self, case: &Case, lines: Vec<Line>) -> Result<()> {
        let measured = Measured { case: case.clone(), lines };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(BenchError::io(format!("writing {}", self.path.display())))?;
        }
        append_line(&self.path, &to_json(&Head { papers: VERSION })?, &to_json(&measured)?)?;
        replace(&mut self.all, measured);
        Ok(())
    }

    /// Returns a contender's figures for all cases of a variant.
    pub fn values<'a>(&'a self, variant: &'a str, contender: &'a str) -> impl Iterator<Item = Value> + 'a {
        let records = self.all.iter().flat_map(|measured| measured.lines.iter().filter_map(as_record));
        records.filter(move |record| record.case.variant == variant).filter_map(move |record| value(record, contender))
    }

    /// Returns the shortest and the longest recorded time that a cache line took between the CPUs, in nanoseconds;
    /// `None` if no time was recorded.
    pub fn line_times(&self) -> Option<(f64, f64)> {
        let records = self.all.iter().flat_map(|measured| measured.lines.iter().filter_map(as_record));
        let ranges = records.filter_map(|record| record.context.get(LINE_NS)?.split_once(" - "));
        let ranges = ranges.filter_map(|(min, max)| Some((min.parse::<f64>().ok()?, max.parse::<f64>().ok()?)));
        ranges.reduce(|(min, max), (other_min, other_max)| (min.min(other_min), max.max(other_max)))
    }

    /// Returns the contenders that did not run: each with its name and the reason.
    pub fn skipped(&self) -> Vec<(String, String)> {
        let lines = self.all.iter().flat_map(|measured| measured.lines.iter().filter_map(as_skipped));
        let mut all: Vec<_> = lines.map(|one| (one.contender.clone(), one.skipped.clone())).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Measured {
    fn is_disturbed(&self) -> bool {
        self.disturbed_sides() > 0
    }

    /// Returns the number of contenders with disturbed runs.
    fn disturbed_sides(&self) -> usize {
        let records = self.lines.iter().filter_map(as_record);
        let of_peer = |record: &Record| record.against.as_ref().is_some_and(|peer| peer.peer_disturbed);
        records.map(|record| usize::from(record.disturbed) + usize::from(of_peer(record))).sum()
    }

    /// Returns the widest range of one contender's runs, as a fraction of the median of those runs.
    fn spread(&self) -> f64 {
        let records = self.lines.iter().filter_map(as_record);
        let sides = records.flat_map(|record| [Some(record.own()), record.peer()]).flatten();
        sides.map(|side| (side.max - side.min) / side.median.abs().max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
    }

    /// Returns whether other work disturbed this result more than `other`. Whether the figures are better is not
    /// considered.
    fn is_worse_than(&self, other: &Measured) -> bool {
        let by_sides = self.disturbed_sides().cmp(&other.disturbed_sides());
        by_sides.then(self.spread().total_cmp(&other.spread())).is_gt()
    }
}

/// Adds a result, but keeps an earlier result of the same case if that was disturbed less.
fn replace(all: &mut Vec<Measured>, measured: Measured) {
    match all.iter().position(|old| old.case == measured.case) {
        Some(at) if measured.is_disturbed() && measured.is_worse_than(&all[at]) => {}
        Some(at) => all[at] = measured,
        None => all.push(measured),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Parses the file's text. An incomplete last line, which an interruption may leave, is ignored.
fn read(text: &str, path: &Path) -> Result<Vec<Measured>> {
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let head: Option<Head> = lines.next().and_then(|line| serde_json::from_str(line).ok());
    if head.is_none_or(|head| head.papers != VERSION) {
        let what = "was written by another version of netvale-bench; use --again to replace it";
        return Err(BenchError::Usage(format!("{} {what}", path.display())));
    }
    let at = |number: usize| format!("{}:{number}", path.display());
    let mut all = Vec::new();
    for (number, line) in (2..).zip(lines) {
        replace(&mut all, serde_json::from_str(line).map_err(|e| BenchError::BadLine(at(number), e))?);
    }
    Ok(all)
}

fn value(record: &Record, contender: &str) -> Option<Value> {
    let is_ours = record.contender == contender;
    let side = if is_ours { Some(record.own()) } else { record.peer() }.filter(|side| side.name == contender)?;
    let disturbed = match &record.against {
        Some(peer) if !is_ours => peer.peer_disturbed,
        _ => record.disturbed,
    };
    let own = format!("{contender} ");
    let facts = record.context.iter().filter_map(|(name, value)| Some((name.strip_prefix(&own)?, value)));
    let facts = facts.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    Some(Value { case: record.case.clone(), median: side.median, min: side.min, max: side.max, disturbed, facts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    fn lines() -> Vec<Line> {
        vec![Line::Record(Box::new(sample(Some("dpdk-memif"))))]
    }

    /// Objective: results survive the end of the program, except for an incomplete line; the figures of netvale and of
    /// a peer are found; `--again` discards all results.
    #[test]
    fn results_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let case = sample(None).case;
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        assert!(!kept.has(&case));
        kept.add(&case, lines()).expect("written");
        let path = folder.path().join("9.1.jsonl");
        let text = fs::read_to_string(&path).expect("there");
        fs::write(&path, text + "{\"case\":").expect("written");
        let kept = Kept::open(folder.path(), "9.1", false).expect("kept");
        assert!(kept.has(&case));
        let median = |who| kept.values("touched", who).next().map(|value| value.median);
        assert_eq!([median("netvale"), median("dpdk-memif"), median("ovs")], [Some(100.0), Some(40.0), None]);
        assert!(!Kept::open(folder.path(), "9.1", true).expect("anew").has(&case));
    }

    /// Objective: a case whose runs were disturbed must be measured again, and the later result replaces the earlier
    /// result.
    #[test]
    fn disturbed_cases_are_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = sample(None);
        record.disturbed = true;
        let case = record.case.clone();
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        kept.add(&case, vec![Line::Record(Box::new(record.clone()))]).expect("written");
        assert!(!kept.has(&case) && kept.values("touched", "netvale").all(|value| value.disturbed));
        record.disturbed = false;
        kept.add(&case, vec![Line::Record(Box::new(record))]).expect("written");
        for kept in [kept, Kept::open(folder.path(), "9.1", false).expect("kept")] {
            assert!(kept.has(&case));
            assert_eq!(kept.values("touched", "netvale").count(), 1);
        }
    }

    /// Objective: of two disturbed results, the result with the smaller spread is kept, whichever was measured first.
    #[test]
    fn of_two_disturbed_results_the_steadier_one_is_kept() {
        for order in [[5.0, 50.0], [50.0, 5.0]] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
            for spread in order {
                let mut record = sample(None);
                record.disturbed = true;
                record.summary.min = record.summary.median - spread;
                record.summary.max = record.summary.median + spread;
                kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
            }
            for kept in [kept, Kept::open(folder.path(), "9.1", false).expect("kept")] {
                let values: Vec<_> = kept.values("touched", "netvale").map(|value| value.max - value.min).collect();
                assert_eq!(values, [10.0]);
            }
        }
    }

    /// Objective: files of another version, and damaged files, are refused with their names and the remedy.
    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("9.1.jsonl");
        for (text, word) in
            [("{\"papers\":0}\n", "--again"), ("x\n", "--again"), ("{\"papers\":1}\n{}\n", "9.1.jsonl:2")]
        {
            fs::write(&path, text).expect("written");
            let error = Kept::open(folder.path(), "9.1", false).err().expect("refused").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
