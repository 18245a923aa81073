//! The table of results for people.

use comfy_table::{CellAlignment, Table, presets};

use crate::case::Unit;
use crate::record::{Line, Record, Side, Skipped};
use crate::runner::LINE_NS;
use crate::targets;

/// The heads of the table's columns, separated by `|`.
const HEADS: &str =
    "scenario|variant|bytes|batch|ports|contender|median [min - max]|unit|peer|peer median [min - max]|ratio|notes";
/// Indices of the columns with numbers, which are aligned to the right.
const NUMBERS: [usize; 6] = [2, 3, 4, 6, 9, 10];

/// Formats the records as a table, followed by the use of cores, the targets, and the skipped contenders.
pub fn render(lines: &[Line]) -> String {
    let records: Vec<&Record> = lines.iter().filter_map(as_record).collect();
    let mut text = String::new();
    if !records.is_empty() {
        text.push_str(&format!("{}\n", grid(&records)));
        text.push_str(&footnotes(&records));
        text.push_str(&targets::render(&records));
    }
    for skipped in distinct(lines.iter().filter_map(as_skipped)) {
        text.push_str(&format!("skipped: {} in {}: {}\n", skipped.contender, skipped.scenario, skipped.skipped));
    }
    text
}

pub(crate) fn as_record(line: &Line) -> Option<&Record> {
    if let Line::Record(record) = line { Some(record) } else { None }
}

pub(crate) fn as_skipped(line: &Line) -> Option<&Skipped> {
    if let Line::Skipped(skipped) = line { Some(skipped) } else { None }
}

pub(crate) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn grid(records: &[&Record]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEADS.split('|'));
    for record in records {
        table.add_row(row(record));
    }
    for index in NUMBERS {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(record: &Record) -> [String; 12] {
    let case = &record.case;
    [
        case.scenario.clone(),
        case.label(),
        or_dash(case.frame_bytes),
        or_dash(case.batch),
        or_dash(case.ports),
        record.contender.clone(),
        record.own().range(),
        case.unit.to_string(),
        record.peer().map_or_else(String::new, |peer| peer.name.to_owned()),
        record.peer().map_or_else(String::new, |peer| peer.range()),
        record.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        notes(record),
    ]
}

fn or_dash(value: u32) -> String {
    if value == 0 { "-".into() } else { value.to_string() }
}

/// Returns what a reader must know to compare fairly: whether bytes were touched, CPU use, and disturbances.
pub fn notes(record: &Record) -> String {
    let mut notes = vec![if record.touched { "bytes touched" } else { "descriptors only" }];
    let peer = record.against.as_ref();
    if let Some(peer) = peer.filter(|peer| peer.peer_touched != record.touched) {
        notes.push(if peer.peer_touched { "peer: bytes touched" } else { "peer: descriptors only" });
    }
    let shares = [("CPU", record.cpu_percent), ("peer CPU", peer.and_then(|peer| peer.peer_cpu_percent))];
    let shares = shares.map(|(who, share)| share.map(|share| format!("{who} {share:.0} %")));
    notes.extend(shares.iter().flatten().map(String::as_str));
    if record.disturbed {
        notes.push("DISTURBED");
    }
    if peer.is_some_and(|peer| peer.peer_disturbed) {
        notes.push("peer DISTURBED");
    }
    let hops = record.context.get(LINE_NS).map(|range| format!("lines {range} ns"));
    notes.extend(hops.as_deref());
    notes.join(", ")
}

fn footnotes(records: &[&Record]) -> String {
    let lines = |of: fn(&Record) -> Option<Side<'_>>| {
        records.iter().filter_map(move |record| of(record).map(|side| (&record.case.scenario, side.name, side.cores)))
    };
    let mut text = String::new();
    if records.iter().any(|record| record.context.contains_key(LINE_NS)) {
        text.push_str(
            "\nlines: times that a cache line took between the CPUs, before each run; they differ by place\n",
        );
    }
    text.push_str("\ncores:\n");
    for (scenario, who, cores) in distinct(lines(|record| Some(record.own())).chain(lines(Record::peer))) {
        text.push_str(&format!("  {scenario}, {who}: {cores}\n"));
    }
    if records.iter().any(|record| record.case.unit.lower_is_better()) {
        text.push_str(&format!("ratio: above 1 is better for us, also in {} and {}\n", Unit::Micros, Unit::Percent));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: the table has figures, ratio, cores, whether bytes were touched, and skipped peers.
    #[test]
    fn the_table_shows_what_matters() {
        let mut disturbed = sample(Some("dpdk-ring-io"));
        disturbed.disturbed = true;
        disturbed.cpu_percent = Some(59.6);
        if let Some(peer) = &mut disturbed.against {
            peer.peer_touched = false;
            peer.peer_cpu_percent = Some(40.2);
        }
        let skipped = Skipped { scenario: "vale".into(), contender: "ovs".into(), skipped: "not installed".into() };
        let lines = [
            Line::Record(Box::new(sample(Some("dpdk-memif")))),
            Line::Record(Box::new(disturbed)),
            Line::Skipped(skipped.clone()),
            Line::Skipped(skipped),
        ];
        let text = render(&lines);
        for wanted in [
            "100 [95.0 - 104]",
            "40.0 [39.0 - 41.0]",
            "2.50",
            "Mpps",
            "bytes touched",
            "CPU 60 %, peer CPU 40 %, DISTURBED",
            "peer: descriptors only",
            "pipe, netvale: sender 0, receiver 1",
            "skipped: ovs in vale: not installed",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        assert_eq!(text.matches("not installed").count(), 1, "said once");
        assert_eq!(text.matches("netvale: sender").count(), 1, "said once");
    }
}
