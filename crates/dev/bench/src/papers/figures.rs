//! The documents' experiments, one constant for each experiment.

mod e1000;
mod programs;
mod ptnet;
mod pvp;

use super::published::*;
use super::table::{Column, Reading, Table, TableRow};

/// A document whose design netvale implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// The document's number, which is the first part of its figures' numbers.
    pub number: &'static str,
    /// The document's title, and where it was published.
    pub title: &'static str,
    /// The machine on which the document's authors measured.
    pub machine: &'static str,
}

/// The documents whose experiments are repeated.
pub const DOCUMENTS: &[Document] = &[
    Document {
        number: "1",
        title: "Revisiting Network I/O APIs: The Netmap Framework (Communications of the ACM, 2012)",
        machine: "one 10 Gbit/s interface: 14.88 Mpps of 64-byte frames, 812 kpps of 1,518",
    },
    Document {
        number: "2",
        title: "Speeding Up Packet I/O in Virtual Machines (ANCS 2013)",
        machine: "QEMU with KVM, its e1000 extended; FreeBSD guests; TSO off",
    },
    Document {
        number: "3",
        title: "ptnet: netmap passthrough",
        machine: "Linux 4.4 on an i7-3770K at 3.5 GHz; guests with one processor; netperf, 10 s, 10 times",
    },
    Document {
        number: "4",
        title: "DPDK's vhost and virtio paths (2017)",
        machine: "Xeon E5-2680 v2 at 2.8 GHz, DPDK 17.05, 64-byte frames",
    },
];

/// A scenario whose variants a figure's tables show.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The scenario.
    pub scenario: &'static str,
    /// Estimated time for setting up one contender, in seconds for each case. If one set-up serves several cases, the
    /// time is divided by the number of cases.
    pub setup: u32,
}

/// An experiment of a document, and how it is repeated here.
#[derive(Clone, Copy, Debug)]
pub struct PaperFigure {
    /// The document's number and the figure's number in the document, e.g. `2.1`.
    pub number: &'static str,
    /// The figure's title on the page.
    pub title: &'static str,
    /// What the document measured.
    pub about: &'static str,
    /// The differences between the document's measurement and the measurement here.
    pub here: &'static str,
    /// The interpretation of the values.
    pub see: &'static str,
    /// The scenarios that are measured for this figure.
    pub runs: &'static [Run],
    /// Tables of published and measured values.
    pub tables: &'static [Table],
    /// Contenders and values of the document that are not measured here, each with the reason why not.
    pub missing: &'static [&'static str],
}

impl PaperFigure {
    /// Returns the figure's document.
    pub fn document(&self) -> &'static Document {
        let of = |document: &&Document| self.number.split('.').next() == Some(document.number);
        DOCUMENTS.iter().find(of).unwrap_or(&DOCUMENTS[0])
    }

    /// Returns the contenders whose figures for a variant are shown in the tables; none if no table contains the
    /// variant.
    pub fn contenders(&self, variant: &str) -> Vec<&'static str> {
        let shows = |table: &&Table| table.columns.iter().any(|column| column.variant == variant);
        let rows = self.tables.iter().filter(shows).flat_map(|table| table.rows);
        rows.map(|row| row.contender).collect()
    }
}

/// A description of the guests, which several figures use.
const EMULATED: &str = "Guests run Linux and are emulated in software, without hardware virtualisation. Their network \
        stack and the emulation limit the rates, so only ratios are comparable.";

const fn mpps(head: &'static str, variant: &'static str) -> Column {
    Column::of(head, variant, Reading::Mpps)
}

/// Creates a column for one frame or message size of a variant.
const fn by(head: &'static str, variant: &'static str, bytes: u32, reading: Reading) -> Column {
    Column { bytes, ..Column::of(head, variant, reading) }
}

/// All figures in order.
pub const ALL: &[PaperFigure] = &[
    programs::GENERATORS_BY_CLOCK,
    programs::FORWARDED,
    programs::PARTS_OF_SENDING,
    programs::PACKET_FILTER,
    e1000::OUT,
    e1000::IN,
    e1000::BETWEEN,
    e1000::PLAYED,
    e1000::OUT_TWO,
    e1000::IN_TWO,
    e1000::PKT_GEN,
    e1000::BRIDGED,
    ptnet::ROUND_TRIPS,
    ptnet::STREAM,
    ptnet::DATAGRAMS,
    ptnet::PKTGEN,
    ptnet::PROGRAMS,
    ptnet::PASSED,
    pvp::FORWARDED_UNTOUCHED,
    pvp::FORWARDED_WRITTEN,
    pvp::BY_RELEASE,
    pvp::GENERATOR_OUTSIDE,
    pvp::BOOTED,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;
    use crate::scenarios::Scenario;
    use crate::{rivals, scenarios};

    /// Objective: each figure belongs to a document, has its own number, and names existing scenarios, variants and
    /// peers; each column of its tables is measured by exactly one of its runs.
    #[test]
    fn figures_name_what_there_is() {
        let peers: Vec<_> = rivals::all().iter().map(|peer| peer.name).chain(["netvale"]).collect();
        for figure in ALL {
            let number = figure.number;
            assert_eq!(ALL.iter().filter(|other| other.number == number).count(), 1, "{number}");
            assert!(number.starts_with(figure.document().number), "{number}");
            let names: Vec<_> = figure.runs.iter().map(|run| run.scenario.to_owned()).collect();
            let scenarios = scenarios::named(&names).expect("scenarios");
            for column in figure.tables.iter().flat_map(|table| table.columns) {
                let measures = |scenario: &&&Scenario| {
                    scenario.cases(&Measure::default()).iter().any(|case| case.variant == column.variant)
                };
                assert_eq!(scenarios.iter().filter(measures).count(), 1, "{number}: {}", column.variant);
            }
            for (table, row) in figure.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row))) {
                assert!(peers.contains(&row.contender), "{number}: {}", row.name);
                let columns = table.columns.len();
                assert!(row.printed.is_none_or(|printed| printed.values.len() >= columns), "{number}: {}", row.name);
            }
        }
    }
}
