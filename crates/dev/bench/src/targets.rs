//! Targets of scenarios, which the table compares with the figures.

use crate::case::Unit;
use crate::record::{Record, figure};

/// What is wanted of netvale's figure.
#[derive(Clone, Copy, Debug)]
enum Want {
    /// At least this many times better than the figure of the named peer.
    Times(&'static str, f64),
    /// At most this much more than the figure of the named peer, in the case's unit.
    Above(&'static str, f64),
    /// At least this figure.
    AtLeast(f64),
    /// With more than two ports, at least this share of the figure with two ports.
    Unchanged(f64),
}

#[derive(Clone, Copy, Debug)]
struct Target {
    scenario: &'static str,
    /// How the names of the target's variants begin.
    prefix: &'static str,
    want: Want,
}

const fn target(scenario: &'static str, prefix: &'static str, want: Want) -> Target {
    Target { scenario, prefix, want }
}

const ALL: &[Target] = &[
    target("sockets", "", Want::Times("vde-switch", 3.0)),
    target("sockets", "", Want::Times("gvproxy", 3.0)),
    target("sockets", "", Want::Unchanged(0.95)),
    target("sockets", "", Want::Above("socket-forwarder", 30.0)),
    target("gateway", "tcp-", Want::Times("slirp4netns", 2.0)),
    target("gateway", "tcp-", Want::Times("gvproxy", 2.0)),
    target("gateway", "tcp-", Want::Times("pasta", 0.8)),
    target("gateway", "tcp-", Want::Times("pasta-sid", 0.8)),
    target("gateway", "connections-", Want::AtLeast(10_000.0)),
    target("gateway", "dns", Want::AtLeast(20_000.0)),
    target("gateway", "", Want::Above("kernel-routed", 30.0)),
];

/// Returns a line for each target of the records' cases, with the figure and whether the target is met.
pub fn render(records: &[&Record]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for record in records.iter().filter(|record| record.contender == "netvale") {
        for line in ALL.iter().filter_map(|target| judged(target, record, records)) {
            let line = format!("  {}: {line}\n", record.case);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    if lines.is_empty() { String::new() } else { format!("targets:\n{}", lines.concat()) }
}

fn judged(target: &Target, record: &Record, records: &[&Record]) -> Option<String> {
    let case = &record.case;
    if case.scenario != target.scenario || !case.variant.starts_with(target.prefix) {
        return None;
    }
    let peer = record.against.as_ref();
    let own = record.summary.median;
    let is_time = case.unit == Unit::Micros;
    match target.want {
        Want::Times(who, times) if matches!(case.unit, Unit::Mpps | Unit::Gbps) => {
            let ratio = peer.filter(|peer| peer.peer == who)?.ratio?;
            Some(said(format!("at least {times} times {who}"), ratio, ratio >= times))
        }
        Want::Above(who, most) if is_time => {
            let above = own - peer.filter(|peer| peer.peer == who)?.peer_median;
            Some(said(format!("at most {most} {} above {who}", case.unit), above, above <= most))
        }
        Want::AtLeast(least) => Some(said(format!("at least {least} {}", case.unit), own, own >= least)),
        Want::Unchanged(share) if case.ports > 2 => {
            let mut two = case.clone();
            two.ports = 2;
            let base = records.iter().find(|other| other.case == two && other.contender == record.contender)?;
            let ratio = case.unit.ratio(own, base.summary.median)?;
            Some(said(format!("at least {share} times as good as with 2 ports"), ratio, ratio >= share))
        }
        _ => None,
    }
}

fn said(wanted: String, found: f64, is_met: bool) -> String {
    format!("{wanted}: {}, {}", figure(found), if is_met { "met" } else { "missed" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::record::tests::sample;

    fn record(variant: &str, unit: Unit, peer: Option<&str>) -> Record {
        let mut record = sample(peer);
        record.case = Case { frame_bytes: 64, ports: 2, ..Case::new("sockets", variant, unit) };
        record
    }

    /// Objective: a ratio, a difference of times, and the figure beside idle ports are each compared with their target,
    /// and scenarios without targets have no lines.
    #[test]
    fn targets_are_compared_with_the_figures() {
        let ratio = record("vde", Unit::Mpps, Some("vde-switch"));
        let mut idle = record("vde", Unit::Mpps, None);
        idle.case.ports = 6;
        idle.summary.median = 90.0;
        let time = record("vde-round-trip", Unit::Micros, Some("socket-forwarder"));
        let text = render(&[&ratio, &idle, &time]);
        for wanted in [
            "sockets vde 64 B: at least 3 times vde-switch: 2.50, missed",
            "sockets vde 64 B 6 ports: at least 0.95 times as good as with 2 ports: 0.900, missed",
            "sockets vde-round-trip 64 B: at most 30 us above socket-forwarder: 60.0, missed",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        assert_eq!(render(&[&sample(Some("dpdk-memif"))]), "");
    }
}
