//! The result lines: one JSON object a line, read back by the report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::stats::Summary;

/// One figure, and a peer's figure where one ran beside it.
///
/// As JSON it is one flat object with at least `scenario`, `variant`, `frame_bytes`, `batch`, `unit`, `median`, `min`,
/// `max`, `runs`, `cores`, `touched`, and with a peer `peer`, `peer_median`, `peer_min`, `peer_max`, `ratio`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The case that was measured.
    #[serde(flatten)]
    pub case: Case,
    /// The contender that `median` belongs to: `netvale`, or a peer's name where peers were measured alone.
    pub contender: String,
    /// The figure.
    #[serde(flatten)]
    pub summary: Summary,
    /// A description of how the cores were used.
    pub cores: String,
    /// Whether the bytes of the frames were read or written, not just descriptors.
    pub touched: bool,
    /// Whether a run was kept although it was disturbed each time it was tried.
    pub disturbed: bool,
    /// Latencies at these percentiles, `[percentile, microseconds]`, where the scenario has them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub percentiles: Vec<(f64, f64)>,
    /// Share of the time of all CPUs that the programs got, per cent, where the scenario looks at it: the middle of the
    /// runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_percent: Option<f64>,
    /// The peer's side.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub against: Option<Against>,
    /// Anything else worth keeping: settings, drops, kicks a frame.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub context: BTreeMap<String, String>,
}

/// A peer's figure from the same invocation, its runs interleaved with ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The peer's name.
    pub peer: String,
    /// The middle of its runs.
    pub peer_median: f64,
    /// The smallest run of the peer.
    pub peer_min: f64,
    /// The largest run of the peer.
    pub peer_max: f64,
    /// The number of runs of the peer.
    pub peer_runs: usize,
    /// How many times better ours is (> 1 is better for us, in every unit). `None` if a figure is zero.
    pub ratio: Option<f64>,
    /// A description of how the peer used the cores.
    pub peer_cores: String,
    /// Whether it touched the frames' bytes.
    pub peer_touched: bool,
    /// Whether a run of it was kept although disturbed.
    pub peer_disturbed: bool,
    /// The peer's latencies at percentiles.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peer_percentiles: Vec<(f64, f64)>,
    /// The share of CPU time that the peer got, per cent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer_cpu_percent: Option<f64>,
}

/// A contender that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Skipped {
    /// The scenario it would have run in.
    pub scenario: String,
    /// Its name.
    pub contender: String,
    /// The reason, with what to install where that helps.
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
    /// The line as JSON, without the newline.
    ///
    /// # Errors
    /// A figure that is not a number cannot be written.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::case::Unit;

    /// A record with a peer, for the tests of everything that shows records.
    pub(crate) fn sample(peer: Option<&str>) -> Record {
        Record {
            case: Case {
                scenario: "pipe".into(),
                variant: "touched".into(),
                frame_bytes: 60,
                batch: 256,
                ports: 2,
                spin_us: None,
                addresses: None,
                foreign: None,
                unit: Unit::Mpps,
            },
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

    /// Objective: every field that other programs rely on is there, flat, with the agreed names and units.
    #[test]
    fn agreed_fields_are_flat() {
        let json = Line::Record(Box::new(sample(Some("dpdk-memif")))).to_json().expect("finite");
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

    /// Objective: without a peer no peer fields appear, and both forms survive being read back.
    #[test]
    fn lines_round_trip() {
        let skipped = Skipped { scenario: "pipe".into(), contender: "x".into(), skipped: "no CPU".into() };
        for line in
            [Line::Record(Box::new(sample(None))), Line::Record(Box::new(sample(Some("p")))), Line::Skipped(skipped)]
        {
            let json = line.to_json().expect("finite");
            assert_eq!(serde_json::from_str::<Line>(&json).expect("own output"), line);
        }
        assert!(!Line::Record(Box::new(sample(None))).to_json().expect("finite").contains("peer"));
    }

    /// Objective: the unit's names are the agreed ones.
    #[test]
    fn unit_names() {
        for (unit, name) in
            [(Unit::Mpps, "Mpps"), (Unit::Gbps, "Gbit/s"), (Unit::Micros, "us"), (Unit::Percent, "percent")]
        {
            assert_eq!(serde_json::to_string(&unit).expect("text"), format!("\"{name}\""));
            assert_eq!(unit.to_string(), name);
        }
    }
}
