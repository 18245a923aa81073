//! Result lines: one JSON object per line, which the report reads back.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::stats::Summary;

/// One figure, and a peer's figure if a peer was measured as well.
///
/// In JSON, it is one flat object with at least `scenario`, `variant`, `frame_bytes`, `batch`, `unit`, `median`, `min`,
/// `max`, `runs`, `cores`, `touched`, and, if a peer was measured, also `peer`, `peer_median`, `peer_min`, `peer_max`,
/// `ratio`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The contender to which `median` belongs: `netvale`, or the name of a peer that was measured alone.
    pub contender: String,
    /// The figure.
    #[serde(flatten)]
    pub summary: Summary,
    /// A description of how the cores were used.
    pub cores: String,
    /// Whether the frames' bytes were read or written, not only their descriptors.
    pub touched: bool,
    /// Whether a run was kept although every attempt at it was disturbed.
    pub disturbed: bool,
    /// Latencies as `[percentile, microseconds]`, if the scenario has them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub percentiles: Vec<(f64, f64)>,
    /// Share of all CPUs' time that the programs got, in per cent, if the scenario measures it: the median of the runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_percent: Option<f64>,
    /// The peer's figure.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub against: Option<Against>,
    /// Further facts: settings, drops, kicks per frame.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub context: BTreeMap<String, String>,
}

/// A peer's figure from the same invocation; its runs alternated with netvale's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The peer's name.
    pub peer: String,
    /// The median of the peer's runs.
    pub peer_median: f64,
    /// The smallest figure of the peer's runs.
    pub peer_min: f64,
    /// The largest figure of the peer's runs.
    pub peer_max: f64,
    /// The number of the peer's runs.
    pub peer_runs: usize,
    /// The factor by which the contender is better than the peer: above 1 if it is better, in any unit. `None` if a
    /// figure is zero.
    pub ratio: Option<f64>,
    /// A description of how the peer used the cores.
    pub peer_cores: String,
    /// Whether the peer touched the frames' bytes.
    pub peer_touched: bool,
    /// Whether a run of the peer was kept although every attempt at it was disturbed.
    pub peer_disturbed: bool,
    /// The peer's latencies at percentiles.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peer_percentiles: Vec<(f64, f64)>,
    /// Share of CPU time that the peer got, in per cent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer_cpu_percent: Option<f64>,
}

/// The fields that both sides of a record have: the contender's side and the peer's side.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The contender's name.
    pub name: &'a str,
    /// The median.
    pub median: f64,
    /// The smallest figure of a run.
    pub min: f64,
    /// The largest figure of a run.
    pub max: f64,
    /// How the cores were used.
    pub cores: &'a str,
    /// Latencies at percentiles.
    pub percentiles: &'a [(f64, f64)],
}

impl Side<'_> {
    /// Formats the figure with its range.
    pub fn range(&self) -> String {
        range(self.median, self.min, self.max)
    }
}

/// Formats a figure with its range.
pub fn range(median: f64, min: f64, max: f64) -> String {
    format!("{} [{} - {}]", figure(median), figure(min), figure(max))
}

/// Formats a figure with three significant digits, which is more than the accuracy of such measurements.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        small if small >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

impl Record {
    /// Returns the contender's side.
    pub fn own(&self) -> Side<'_> {
        let Summary { median, min, max, .. } = self.summary;
        Side { name: &self.contender, median, min, max, cores: &self.cores, percentiles: &self.percentiles }
    }

    /// Returns the peer's side, if there is one.
    pub fn peer(&self) -> Option<Side<'_>> {
        self.against.as_ref().map(|peer| Side {
            name: &peer.peer,
            median: peer.peer_median,
            min: peer.peer_min,
            max: peer.peer_max,
            cores: &peer.peer_cores,
            percentiles: &peer.peer_percentiles,
        })
    }

    /// Returns the factor by which the contender is better than the peer, if there is a peer.
    pub fn ratio(&self) -> Option<f64> {
        self.against.as_ref()?.ratio
    }

    /// Returns both sides.
    pub fn sides(&self) -> impl Iterator<Item = Side<'_>> {
        std::iter::once(self.own()).chain(self.peer())
    }
}

/// A contender that did not run, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Skipped {
    /// The scenario in which the contender would have run.
    pub scenario: String,
    /// The contender's name.
    pub contender: String,
    /// The reason, with what to install if that helps.
    pub skipped: String,
}

/// A line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A contender that did not run.
    Skipped(Skipped),
    /// A figure.
    Record(Box<Record>),
}

impl Line {
    /// Returns the record if the line is one.
    pub fn into_record(self) -> Option<Record> {
        if let Self::Record(record) = self { Some(*record) } else { None }
    }
}

/// Parses the result lines in `text`, which was read from the file or program `from`.
pub fn read_lines(text: &str, from: &Path) -> Result<Vec<Line>> {
    let numbered = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let at = |number: usize| format!("{}:{number}", from.display());
    let read = |(number, line)| serde_json::from_str(line).map_err(|e| BenchError::BadLine(at(number), e));
    numbered.map(read).collect()
}

/// Formats a result as JSON, without a line feed.
pub fn to_json(result: &impl Serialize) -> Result<String> {
    serde_json::to_string(result).map_err(|e| BenchError::Usage(format!("cannot write a result as JSON: {e}")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::case::Unit;

    /// Returns a record with a peer, for tests of code that shows records.
    pub(crate) fn sample(peer: Option<&str>) -> Record {
        Record {
            case: Case { frame_bytes: 60, batch: 256, ports: 2, ..Case::new("pipe", "touched", Unit::Mpps) },
            contender: "netvale".into(),
            summary: Summary { median: 100.0, min: 95.0, max: 104.0, runs: 5 },
            cores: "sender 0, receiver 1".into(),
            touched: true,
            disturbed: false,
            percentiles: Vec::new(),
            cpu_percent: None,
            against: peer.map(|name| Against {
                peer: name.into(),
                peer_median: 40.0,
                peer_min: 39.0,
                peer_max: 41.0,
                peer_runs: 5,
                ratio: Some(2.5),
                peer_cores: "a 0, b 1".into(),
                peer_touched: true,
                peer_disturbed: false,
                peer_percentiles: Vec::new(),
                peer_cpu_percent: None,
            }),
            context: BTreeMap::new(),
        }
    }

    /// Objective: every documented field is present, in one flat object, with the documented names and units.
    #[test]
    fn agreed_fields_are_flat() {
        let json = to_json(&Line::Record(Box::new(sample(Some("dpdk-memif"))))).expect("finite");
        assert!(!json.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&json).expect("own output");
        for field in [
            "scenario",
            "variant",
            "frame_bytes",
            "batch",
            "unit",
            "median",
            "min",
            "max",
            "runs",
            "cores",
            "touched",
            "disturbed",
            "peer",
            "peer_median",
            "peer_min",
            "peer_max",
            "ratio",
        ] {
            assert!(value.get(field).is_some(), "{field} is missing in {json}");
        }
        assert_eq!(value["unit"], "Mpps");
        assert_eq!(value["ratio"], 2.5);
    }

    /// Objective: without a peer there are no peer fields, and records and skipped contenders are unchanged after being
    /// read back.
    #[test]
    fn lines_survive_being_read_back() {
        let skipped = Skipped { scenario: "pipe".into(), contender: "x".into(), skipped: "no CPU".into() };
        for line in
            [Line::Record(Box::new(sample(None))), Line::Record(Box::new(sample(Some("p")))), Line::Skipped(skipped)]
        {
            let json = to_json(&line).expect("finite");
            assert_eq!(serde_json::from_str::<Line>(&json).expect("own output"), line);
        }
        assert!(!to_json(&Line::Record(Box::new(sample(None)))).expect("finite").contains("peer"));
    }

    /// Objective: units have the documented names.
    #[test]
    fn the_names_of_units_are_the_agreed_ones() {
        for (unit, name) in
            [(Unit::Mpps, "Mpps"), (Unit::Gbps, "Gbit/s"), (Unit::Micros, "us"), (Unit::Percent, "percent")]
        {
            assert_eq!(serde_json::to_string(&unit).expect("text"), format!("\"{name}\""));
            assert_eq!(unit.to_string(), name);
        }
    }

    /// Objective: figures keep three digits at every size.
    #[test]
    fn figures_keep_three_digits_at_every_size() {
        assert_eq!(figure(0.1234), "0.123");
        assert_eq!(figure(1.2345), "1.23");
        assert_eq!(figure(12.345), "12.3");
        assert_eq!(figure(1234.5), "1234");
    }
}
