//! The traffic of a case, its direction, and the set-up that is booted for it, all derived from the variant's name.

use super::*;

/// Suffix of variants whose machines have two processors.
const TWO_CPUS: &str = "-2cpus";

/// Suffixes of variants, with the direction of their traffic.
const DIRECTIONS: &[(&str, Direction)] = &[
    ("-tap", Direction::Up),
    ("-in", Direction::In),
    ("-between", Direction::Between),
    ("-bridged", Direction::Bridged),
];

/// The traffic of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The name of the agent's task.
    pub task: &'static str,
    /// The direction of the traffic.
    pub direction: Direction,
    /// Whether the agent's count is the result, rather than the count of frames from the guest at its port.
    pub by_agent: bool,
    /// Whether the machines have two processors.
    has_two_cpus: bool,
}

/// The direction of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the guest: single datagrams and netmap frames to the sink, other traffic to the host's services.
    Out,
    /// From the guest to the host's stack, through a TAP.
    Up,
    /// From the host to the guest.
    In,
    /// From the guest to another guest.
    Between,
    /// From the guest to another guest, with both guests' TAPs on the kernel's bridge.
    Bridged,
}

/// What is booted and connected. Cases with the same arrangement can be measured without booting again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// Whether there are two machines.
    pub is_pair: bool,
    /// Whether each machine's TAP is on the kernel's bridge.
    pub is_bridged: bool,
    /// Whether the machines have two processors.
    pub has_two_cpus: bool,
}

impl Traffic {
    /// Returns the traffic of a case; `None` if no guest is booted for it.
    pub fn of(case: &Case) -> Option<Traffic> {
        let variant = case.variant.strip_suffix(TWO_CPUS);
        let has_two_cpus = variant.is_some();
        let variant = variant.unwrap_or(&case.variant);
        let found = DIRECTIONS.iter().find_map(|(end, direction)| Some((variant.strip_suffix(*end)?, *direction)));
        let (what, direction) = found.unwrap_or((variant, Direction::Out));
        let task = task(what, direction == Direction::In)?;
        let by_agent =
            !matches!(direction, Direction::Out | Direction::Up) || !matches!(task, "udp" | "netmap" | "pktgen");
        Some(Traffic { task, direction, by_agent, has_two_cpus })
    }

    /// Returns the arrangement for this traffic.
    pub fn arrangement(self) -> Arrangement {
        let is_bridged = self.direction == Direction::Bridged;
        let is_pair = is_bridged || self.direction == Direction::Between;
        Arrangement { is_pair, is_bridged, has_two_cpus: self.has_two_cpus }
    }

    /// Returns whether the traffic consists of round trips.
    pub fn is_round_trips(self) -> bool {
        matches!(self.task, "trips" | "rr" | "tcprr")
    }

    /// Returns whether bytes are counted rather than frames.
    pub fn is_stream(self) -> bool {
        matches!(self.task, "tcp" | "tcpw" | "taketcp" | "taketcpw")
    }

    /// Returns the task of the receiving guest's agent, if that agent counts the traffic.
    pub fn taker(self) -> Option<&'static str> {
        match self.task {
            "udp" => Some("take"),
            "netmap" => Some("takenetmap"),
            "netmap-header" => Some("takenetmap-header"),
            _ => None,
        }
    }
}

/// Returns the agent's task for a variant without its suffixes; `None` if no guest is booted for it. `comes` is true if
/// the traffic comes from the host.
fn task(what: &str, comes: bool) -> Option<&'static str> {
    Some(match (what, comes) {
        ("round-trips", _) => "trips",
        ("udp-rr", _) => "rr",
        ("tcp-rr", _) => "tcprr",
        ("udp-messages", _) => "messages",
        ("tcp", false) => "tcp",
        ("tcp", true) => "taketcp",
        ("tcp-wide", false) => "tcpw",
        ("tcp-wide", true) => "taketcpw",
        ("netmap" | "netmap-small" | "netmap-large", false) => "netmap",
        ("netmap" | "netmap-small" | "netmap-large", true) => "takenetmap",
        ("netmap-header", false) => "netmap-header",
        ("pktgen", false) => "pktgen",
        ("udp-small" | "udp-large", false) => "udp",
        ("udp-small" | "udp-large", true) => "take",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variant: &str) -> Traffic {
        Traffic::of(&Case::new("e1000", variant, Unit::PerSecond)).expect("it is booted")
    }

    /// Objective: a variant's name determines the traffic, its direction, and what is booted.
    #[test]
    fn names_say_all() {
        let rows = [
            ("udp-small", "udp", Direction::Out, false),
            ("udp-large-tap-2cpus", "udp", Direction::Up, false),
            ("udp-small-in", "take", Direction::In, true),
            ("tcp", "tcp", Direction::Out, true),
            ("tcp-wide-in-2cpus", "taketcpw", Direction::In, true),
            ("tcp-rr-between", "tcprr", Direction::Between, true),
            ("udp-messages-between", "messages", Direction::Between, true),
            ("udp-small-bridged-2cpus", "udp", Direction::Bridged, true),
            ("netmap", "netmap", Direction::Out, false),
            ("netmap-small-in-2cpus", "takenetmap", Direction::In, true),
            ("netmap-large-between-2cpus", "netmap", Direction::Between, true),
            ("netmap-header-between", "netmap-header", Direction::Between, true),
            ("pktgen", "pktgen", Direction::Out, false),
        ];
        for (variant, task, direction, by_agent) in rows {
            let traffic = of(variant);
            assert_eq!((traffic.task, traffic.direction, traffic.by_agent), (task, direction, by_agent), "{variant}");
            assert_eq!(traffic.arrangement().has_two_cpus, variant.ends_with("2cpus"), "{variant}");
        }
    }

    /// Objective: each variant of these scenarios has traffic, except for the variants with simulated guests.
    #[test]
    fn all_are_known() {
        for scenario in [&SCENARIO, &pairs::SCENARIO, &pktgen::SCENARIO, &e1000::SCENARIO] {
            for case in scenario.cases(&crate::measure::Measure::default()) {
                assert_eq!(Traffic::of(&case).is_none(), case.variant.starts_with("played"), "{case}");
            }
        }
    }

    /// Objective: both directions between guest and host use the same machine; other traffic uses other machines.
    #[test]
    fn arrangements() {
        let same = |one: &str, other: &str| of(one).arrangement() == of(other).arrangement();
        assert!(same("udp-small-tap", "tcp-in") && same("tcp", "udp-small-in"));
        assert!(same("udp-small-between-2cpus", "tcp-rr-between-2cpus"));
        assert!(!same("udp-small", "udp-small-tap-2cpus") && !same("tcp-between", "tcp-bridged"));
    }
}
