//! A case: one point of a scenario to measure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Suffix of variants whose figure is the 99th percentile of the latency, instead of the median.
pub const P99: &str = "-p99";

/// The unit of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    /// Millions of frames per second.
    #[default]
    Mpps,
    /// 10⁹ bits of frames per second (without preamble, gap and FCS).
    #[serde(rename = "Gbit/s")]
    Gbps,
    /// Frames, or round trips, per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Per cent of one core.
    #[serde(rename = "percent")]
    Percent,
    /// Units of 1,024 bytes of memory.
    #[serde(rename = "KiB")]
    Kib,
    /// Seconds of CPU time for 10⁹ bytes.
    #[serde(rename = "s/GB")]
    SecondsPerGb,
}

impl Unit {
    /// Returns whether a smaller figure is better.
    pub fn lower_is_better(self) -> bool {
        matches!(self, Self::Nanos | Self::Micros | Self::Percent | Self::Kib | Self::SecondsPerGb)
    }

    /// Returns how many times better `ours` is than `theirs`. Above 1, `ours` is better, whatever the unit. `None` if a
    /// figure is zero.
    pub fn ratio(self, ours: f64, theirs: f64) -> Option<f64> {
        let (over, under) = if self.lower_is_better() { (theirs, ours) } else { (ours, theirs) };
        let ratio = over / under;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Converts `frames` frames of `frame_bytes` bytes in `seconds` to this unit; `None` if the unit is not a rate.
    pub fn rate(self, frames: u64, frame_bytes: u32, seconds: f64) -> Option<f64> {
        let per_second = frames as f64 / seconds;
        match self {
            Self::Mpps => Some(per_second / 1e6),
            Self::PerSecond => Some(per_second),
            Self::Gbps => Some(per_second * f64::from(frame_bytes) * 8.0 / 1e9),
            Self::Nanos | Self::Micros | Self::Percent | Self::Kib | Self::SecondsPerGb => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A case: one point of a scenario to measure. All contenders of a case move frames of the same length in the same
/// pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// The scenario's name: `pipe`, `vale`, …
    pub scenario: String,
    /// The variant: `touched`, `daemon`, … If its name ends in `untouched`, no program reads or writes the frames'
    /// bytes.
    pub variant: String,
    /// Frame length without FCS; 0 if frames have no fixed length (TCP streams).
    pub frame_bytes: u32,
    /// Frames per sync or burst; 0 if there are no batches.
    pub batch: u32,
    /// Number of ports or rings.
    pub ports: u32,
    /// Microseconds for which a waiter polls before it sleeps; `None` if no thread waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spin_us: Option<u32>,
    /// Number of destination addresses that the frames use in turn; `None` if the scenario does not vary them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub addresses: Option<u32>,
    /// Number of foreign threads: busy threads that do not belong to the contender. `None` if the scenario adds no such
    /// threads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign: Option<u32>,
    /// The unit of the figure.
    pub unit: Unit,
}

impl Case {
    /// Creates a case whose variable parts are all zero or `None`.
    pub fn new(scenario: &str, variant: &str, unit: Unit) -> Self {
        Self { scenario: scenario.to_owned(), variant: variant.to_owned(), unit, ..Self::default() }
    }

    /// Returns the variant together with the parts of the case that have no column in the table.
    pub fn label(&self) -> String {
        let addresses = self.addresses.map_or_else(String::new, |addresses| format!(" {addresses}"));
        let spin = self.spin_us.map_or_else(String::new, |spin| format!(" {spin} us"));
        let foreign = self.foreign.map_or_else(String::new, |foreign| format!(" {foreign} foreign"));
        format!("{}{addresses}{spin}{foreign}", self.variant)
    }

    /// Returns whether the applications write and read the frames' bytes, not just slots. A peer can be compared only
    /// if it does the same.
    pub fn touches(&self) -> bool {
        !self.variant.ends_with("untouched")
    }

    /// Converts frames per second to the case's unit; 0 if the unit is not a rate.
    pub fn rate(&self, frames_a_second: f64) -> f64 {
        self.unit.rate(1_000_000, self.frame_bytes, 1.0).unwrap_or(0.0) * frames_a_second / 1e6
    }

    /// Returns the burst for a peer: the case's batch, but at most `best`, above which the peer gets slower. Returns
    /// `best` if the case has no batch.
    pub fn burst(&self, best: u32) -> u32 {
        if self.batch == 0 { best } else { self.batch.min(best) }
    }

    /// Variant with VLANs and port security on all ports.
    pub const SECURED: &str = "switch-secured";

    /// Returns whether frames cross a switch from one of its ports to another, and programs touch the frames' bytes.
    /// The peers' switches support these cases as well.
    pub fn is_across_a_switch(&self) -> bool {
        match self.scenario.as_str() {
            "vale" => matches!(self.variant.as_str(), "daemon" | "daemon-large"),
            "policies" => self.variant == "switch" || self.is_secured(),
            _ => false,
        }
    }

    /// Returns whether the ports must be in a VLAN and accept only their own addresses.
    pub fn is_secured(&self) -> bool {
        self.scenario == "policies" && self.variant == Self::SECURED
    }

    /// Returns whether the case is the given variant of the scenario `crowded`, or the variant's 99th percentile.
    pub fn is_crowded(&self, variant: &str) -> bool {
        self.scenario == "crowded" && self.variant.strip_suffix(P99).unwrap_or(&self.variant) == variant
    }

    /// For a case with sleeping threads, returns whether a thread is woken on another core (`Some(true)`) or on the
    /// core of the thread that wakes it (`Some(false)`); `None` for other cases.
    pub fn sleeps_across(&self) -> Option<bool> {
        match self.variant.as_str() {
            "sleeping" if self.scenario == "latency" => Some(true),
            "sleeping-one-core" if self.scenario == "latency" => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scenario, self.variant)?;
        let some = |value: u32, least: u32| (value > least).then_some(value);
        let rest = [
            (" ", some(self.frame_bytes, 0), " B"),
            (" batch ", some(self.batch, 0), ""),
            (" ", some(self.ports, 2), " ports"),
            (" ", self.addresses, " addresses"),
            (" spin ", self.spin_us, " us"),
            (" ", self.foreign, " foreign threads"),
        ];
        let mut shown = rest.iter().filter_map(|(before, value, after)| Some((before, (*value)?, after)));
        shown.try_for_each(|(before, value, after)| write!(f, "{before}{value}{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a ratio above 1 means that the first figure is better, for rates and for times.
    #[test]
    fn ratio_always_favours_ours_above_one() {
        assert_eq!(Unit::Mpps.ratio(20.0, 10.0), Some(2.0));
        assert_eq!(Unit::Micros.ratio(10.0, 20.0), Some(2.0));
        assert_eq!(Unit::Percent.ratio(0.5, 1.0), Some(2.0));
        assert_eq!(Unit::Mpps.ratio(1.0, 0.0), None);
        assert_eq!(Unit::Micros.ratio(0.0, 1.0), None);
    }

    /// Objective: the name shows all variable parts, and the case with a variant's 99th percentile belongs to that
    /// variant.
    #[test]
    fn names_show_what_varies() {
        let mut case = crate::record::tests::sample(None).case;
        assert_eq!((case.label().as_str(), case.to_string().as_str()), ("touched", "pipe touched 60 B batch 256"));
        case.foreign = Some(4);
        case.spin_us = Some(5);
        assert_eq!(case.label(), "touched 5 us 4 foreign");
        assert_eq!(case.to_string(), "pipe touched 60 B batch 256 spin 5 us 4 foreign threads");
        case.scenario = "crowded".into();
        case.variant = "ping-p99".into();
        assert!(case.is_crowded("ping") && !case.is_crowded("pipe"));
    }

    /// Objective: counts are converted to rates in the requested unit.
    #[test]
    fn counts_become_rates_in_the_unit_asked_for() {
        assert_eq!(Unit::Mpps.rate(3_000_000, 60, 2.0), Some(1.5));
        assert_eq!(Unit::Gbps.rate(1_000_000, 1250, 1.0), Some(10.0));
        assert_eq!(Unit::Micros.rate(1, 60, 1.0), None);
    }

    /// Objective: a peer's burst is neither larger than its best burst, nor larger than requested.
    #[test]
    fn a_peer_gets_its_best_burst() {
        let mut case = crate::record::tests::sample(None).case;
        for (batch, expected) in [(0, 64), (1, 1), (64, 64), (256, 64)] {
            case.batch = batch;
            assert_eq!(case.burst(64), expected);
        }
        assert!((case.rate(2e6) - 2.0).abs() < 1e-9);
    }
}
