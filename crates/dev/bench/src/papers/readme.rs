//! README's table: some of the figures, beside the programs that users know.

use std::fs;
use std::path::Path;

use super::FigureResults;
use super::table::{Column, Reading};
use crate::error::{BenchError, Result};
use crate::record::figure;

/// The lines of README before and after the table.
const MARKS: [&str; 2] = ["<!-- figures: written by netvale-bench papers -->\n", "<!-- end of figures -->\n"];

/// A row of the table.
struct ReadmeRow {
    /// What was measured.
    what: &'static str,
    /// The number of the figure that has the values.
    number: &'static str,
    column: Column,
    /// netvale's contender.
    ours: &'static str,
    /// Other programs: each with its name in the table and its contender.
    others: &'static [(&'static str, &'static str)],
}

const ROWS: [ReadmeRow; 7] = [
    ReadmeRow {
        what: "from process to process, through the switch",
        number: "1.1",
        column: Column::of("", "100-percent", Reading::Mpps),
        ours: "netvale-vale",
        others: &[("packet sockets", "af-packet"), ("UDP sockets", "udp-sendmmsg")],
    },
    ReadmeRow {
        what: "from process to process, through a pipe",
        number: "1.1",
        column: Column::of("", "100-percent", Reading::Mpps),
        ours: "netvale-pipe",
        others: &[],
    },
    ReadmeRow {
        what: "from one network interface (veth, by AF_XDP) to another, by a netmap program",
        number: "1.2",
        column: Column::of("", "bridge", Reading::Mpps),
        ours: "netvale",
        others: &[
            ("kernel bridge", "linux-bridge"),
            ("DPDK's testpmd", "dpdk-af-xdp"),
            ("Open vSwitch on packet sockets", "ovs-netdev"),
        ],
    },
    ReadmeRow {
        what: "to a guest that forwards, and back (virtio-net, mergeable buffers)",
        number: "4.1",
        column: Column::of("", "io mergeable", Reading::Mpps),
        ours: "netvale-both",
        others: &[("DPDK", "dpdk-pvp")],
    },
    ReadmeRow {
        what: "by the kernel's packet generator in an emulated guest (ptnet, bursts of 32)",
        number: "3.4",
        column: Column { batch: 32, ..Column::of("", "pktgen", Reading::Mpps) },
        ours: "netvale",
        others: &[("QEMU's virtio-net on a TAP", "qemu-virtio")],
    },
    ReadmeRow {
        what: "by UDP sockets in an emulated guest with an e1000",
        number: "2.1",
        column: Column::of("", "udp-small-tap", Reading::Mpps),
        ours: "netvale",
        others: &[("QEMU's e1000 on a TAP", "qemu-e1000")],
    },
    ReadmeRow {
        what: "by UDP sockets between two emulated guests (ptnet)",
        number: "3.3",
        column: Column { bytes: 64, ..Column::of("", "udp-messages-between", Reading::Mpps) },
        ours: "netvale",
        others: &[("QEMU's virtio-net on TAPs and the kernel's bridge", "qemu-virtio")],
    },
];

/// Replaces the table in README by one with the present results. Leaves the file unchanged if it has no table, or if
/// the results lack the figure of a row.
pub fn update(path: &Path, all: &[FigureResults]) -> Result<()> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let (Some(table), Some(parts)) = (table(all), parts(&text)) else { return Ok(()) };
    let text = [parts[0], &table, parts[1]].concat();
    fs::write(path, text).map_err(BenchError::io(format!("writing {}", path.display())))
}

/// Returns the text up to the table, and the text after it; `None` if a mark is missing.
fn parts(text: &str) -> Option<[&str; 2]> {
    let from = text.find(MARKS[0])? + MARKS[0].len();
    let to = from + text[from..].find(MARKS[1])?;
    Some([&text[..from], &text[to..]])
}

fn table(all: &[FigureResults]) -> Option<String> {
    let rows = ROWS.iter().map(|row| row.render(all)).collect::<Option<String>>()?;
    Some(format!(
        "| short frames, in millions per second | netvale | other programs | figure |\n|---|--:|--:|---|\n{rows}"
    ))
}

impl ReadmeRow {
    fn render(&self, all: &[FigureResults]) -> Option<String> {
        let kept = &all.iter().find(|one| one.figure.number == self.number)?.kept;
        let value = |contender: &str| {
            let value = self.column.value(kept, contender)?;
            Some(figure(self.column.reading.of(value.median, value.case.unit, value.case.frame_bytes)))
        };
        let others = self.others.iter().map(|(name, contender)| Some(format!("{name} {}", value(contender)?)));
        let others = others.collect::<Option<Vec<_>>>()?.join(", ");
        let number = self.number;
        let link = number.replace('.', "");
        let title = all.iter().find(|one| one.figure.number == number)?.figure.title;
        let anchor = format!("{link}-{}", slug(title));
        Some(format!("| {} | {} | {others} | [{number}](docs/papers.md#{anchor}) |\n", self.what, value(self.ours)?))
    }
}

/// Returns the part of a section's anchor that derives from its title.
fn slug(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: only the text between the marks is replaced; a file without marks has no place for a table.
    #[test]
    fn the_table_stands_between_its_marks() {
        let text = format!("before\n{}old\n{}after\n", MARKS[0], MARKS[1]);
        let [before, after] = parts(&text).expect("marks");
        assert_eq!([before, after], [format!("before\n{}", MARKS[0]), format!("{}after\n", MARKS[1])]);
        assert_eq!(parts("no marks"), None);
    }

    /// Objective: every row names a figure, and contenders that the figure measures.
    #[test]
    fn every_row_has_its_figure() {
        for row in &ROWS {
            let figure =
                super::super::figures::ALL.iter().find(|figure| figure.number == row.number).expect("a figure");
            let measured = figure.contenders(row.column.variant);
            let names = row.others.iter().map(|(_, contender)| *contender).chain([row.ours]);
            names.for_each(|name| assert!(measured.contains(&name), "{}: {name}", row.what));
        }
    }

    /// Objective: the anchor derived from a title is the one that the book gives to the heading.
    #[test]
    fn titles_become_anchors() {
        assert_eq!(
            slug("Forwarding in the guest, frames untouched (io)"),
            "forwarding-in-the-guest-frames-untouched-io"
        );
    }
}
