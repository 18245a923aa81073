//! A figure's table: printed and measured values, row by row.

use super::kept::{Kept, Value};
use super::published::PrintedRow;
use crate::case::Unit;
use crate::record::figure;

/// The unit of a column, to which figures are converted from the unit of their case.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// Millions of frames per second.
    Mpps,
    /// Thousands of frames per second.
    Kpps,
    /// 10⁶ bits of payload per second; the value is the number of payload bytes per frame.
    PayloadMbits(u32),
    /// 10⁶ bits per second.
    Mbits,
    /// Thousands per second of events other than frames, such as round trips.
    Thousands,
}

impl Reading {
    /// Returns the unit's name for the label of an axis.
    pub fn unit(self) -> &'static str {
        match self {
            Reading::Mpps => "Mpps",
            Reading::Kpps => "kpps",
            Reading::PayloadMbits(_) | Reading::Mbits => "Mbit/s",
            Reading::Thousands => "thousand per second",
        }
    }

    /// Converts `value`, in the unit `unit` and for frames of `frame_bytes` bytes, to the column's unit.
    pub fn of(self, value: f64, unit: Unit, frame_bytes: u32) -> f64 {
        let bits = f64::from(frame_bytes.max(1)) * 8.0;
        let a_second = match unit {
            Unit::Mpps => value * 1e6,
            Unit::Gbps => value * 1e9 / bits,
            _ => value,
        };
        match self {
            Reading::Mpps => a_second / 1e6,
            Reading::Kpps | Reading::Thousands => a_second / 1e3,
            Reading::PayloadMbits(bytes) => a_second * f64::from(bytes) * 8.0 / 1e6,
            Reading::Mbits if matches!(unit, Unit::Gbps) => value * 1e3,
            Reading::Mbits => a_second * bits / 1e6,
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The column's head, with the unit.
    pub head: &'static str,
    /// The variant whose figures the column shows.
    pub variant: &'static str,
    /// Bytes of a frame or message; 0 if the variant has only one case.
    pub bytes: u32,
    /// Frames per sync or burst; 0 if the variant has only one case.
    pub batch: u32,
    /// The unit of the column's values.
    pub reading: Reading,
}

impl Column {
    /// Creates a column for a variant that has only one case.
    pub const fn of(head: &'static str, variant: &'static str, reading: Reading) -> Column {
        Column { head, variant, bytes: 0, batch: 0, reading }
    }

    /// Returns whether another column shows the same figure, possibly in another unit.
    pub fn is_of_same_case(&self, other: &Column) -> bool {
        self.variant == other.variant && self.bytes == other.bytes && self.batch == other.batch
    }

    /// Returns the contender's figure for the column's case, unconverted; `None` if it was not measured.
    pub fn value(&self, kept: &Kept, contender: &str) -> Option<Value> {
        let fits = |wanted: u32, found: u32| wanted == 0 || wanted == found;
        let mut values = kept.values(self.variant, contender);
        values.find(|value| fits(self.bytes, value.case.frame_bytes) && fits(self.batch, value.case.batch))
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableRow {
    /// The row's name.
    pub name: &'static str,
    /// The row of the document's table, if the document has one.
    pub printed: Option<&'static PrintedRow>,
    /// The contender that is measured for the row.
    pub contender: &'static str,
}

impl TableRow {
    /// Creates a row for a row of the document's table and the contender that corresponds to it.
    pub const fn of(printed: &'static PrintedRow, contender: &'static str) -> TableRow {
        TableRow { name: printed.name, printed: Some(printed), contender }
    }

    /// Creates a row without printed values.
    pub const fn ours(name: &'static str, contender: &'static str) -> TableRow {
        TableRow { name, printed: None, contender }
    }

    /// Returns the published value in a column, given by its index.
    pub fn published(&self, column: usize) -> Option<f64> {
        self.printed?.values.get(column).copied().flatten()
    }
}

/// A table of measured and published figures.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The table's title; empty if the figure has only one table.
    pub title: &'static str,
    /// The table's columns.
    pub columns: &'static [Column],
    /// The table's rows.
    pub rows: &'static [TableRow],
    /// The contender of the base row, to which the values of all rows are given as ratios.
    pub base: Option<&'static str>,
    /// Columns of further facts: each with the fact's name in the results and the column's head.
    pub facts: &'static [(&'static str, &'static str)],
}

impl Table {
    /// A table without title, columns and rows, with absolute values.
    pub const PLAIN: Table = Table { title: "", columns: &[], rows: &[], base: None, facts: &[] };

    /// Returns a contender's figure, converted to a column's unit.
    pub fn cell(&self, column: &Column, contender: &str, kept: &Kept) -> Option<Value> {
        let value = column.value(kept, contender)?;
        let read = |of: f64| column.reading.of(of, value.case.unit, value.case.frame_bytes);
        let [median, min, max] = [value.median, value.min, value.max].map(read);
        Some(Value { median, min, max, ..value })
    }

    /// Returns the values of the base row in a column: the measured value and the published value.
    pub fn base_of(&self, index: usize, kept: &Kept) -> [Option<f64>; 2] {
        let Some(base) = self.base else { return [None, None] };
        let row = self.rows.iter().find(|row| row.contender == base);
        let published = row.and_then(|row| row.published(index));
        [self.cell(&self.columns[index], base, kept).map(|cell| cell.median), published]
    }

    /// Formats the table as Markdown; a row with printed values becomes two lines, one of printed and one of measured
    /// values.
    pub fn render(&self, kept: &Kept) -> String {
        let heads: String = self.columns.iter().map(|column| format!(" {} |", column.head)).collect();
        let facts: String = self.facts.iter().map(|(_, head)| format!(" {head} |")).collect();
        let rule = "--:|".repeat(self.columns.len() + self.facts.len());
        let title = if self.title.is_empty() { String::new() } else { format!("{}:\n\n", self.title) };
        let mut text = format!("{title}| | |{heads}{facts}\n|---|---|{rule}\n");
        for row in self.rows {
            if row.printed.is_some() {
                text.push_str(&format!("| {} | paper |{}{}\n", row.name, self.printed(row, kept), self.blank()));
            }
            let name = if row.printed.is_some() { "" } else { row.name };
            text.push_str(&format!("| {name} | here |{}{}\n", self.measured(row, kept), self.counted(row, kept)));
        }
        text
    }

    fn blank(&self) -> String {
        " |".repeat(self.facts.len())
    }

    fn printed(&self, row: &TableRow, kept: &Kept) -> String {
        let cell = |index: usize| {
            let [_, base] = self.base_of(index, kept);
            let value = row.published(index);
            value.map_or_else(|| " – |".to_owned(), |value| format!(" {}{} |", plain(value), times(value, base)))
        };
        (0..self.columns.len()).map(cell).collect()
    }

    fn measured(&self, row: &TableRow, kept: &Kept) -> String {
        let cell = |index: usize| {
            let Some(cell) = self.cell(&self.columns[index], row.contender, kept) else { return " – |".to_owned() };
            let [base, _] = self.base_of(index, kept);
            let mark = if cell.disturbed { "\\*" } else { "" };
            let range = format!("{} [{} – {}]", figure(cell.median), figure(cell.min), figure(cell.max));
            format!(" {range}{mark}{} |", times(cell.median, base))
        };
        (0..self.columns.len()).map(cell).collect()
    }

    fn counted(&self, row: &TableRow, kept: &Kept) -> String {
        let value = self.columns.first().and_then(|column| column.value(kept, row.contender));
        let cell = |(name, _): &(&str, &str)| {
            let facts = value.iter().flat_map(|value| &value.facts);
            let found = facts.into_iter().find(|(known, _)| known == name);
            found.map_or_else(|| " – |".to_owned(), |(_, value)| format!(" {value} |"))
        };
        self.facts.iter().map(cell).collect()
    }
}

/// Formats a published value with the digits that the document prints.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value}") }
}

fn times(value: f64, base: Option<f64>) -> String {
    base.filter(|base| *base > 0.0).map_or_else(String::new, |base| format!(", {}×", figure(value / base)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::sample;

    /// Objective: figures are converted to the document's units.
    #[test]
    fn readings() {
        assert_eq!(Reading::Kpps.of(30_000.0, Unit::PerSecond, 60), 30.0);
        assert!((Reading::Kpps.of(1.0, Unit::Gbps, 1250) - 100.0).abs() < 1e-9);
        assert!((Reading::PayloadMbits(1000).of(1.0, Unit::Gbps, 1250) - 800.0).abs() < 1e-9);
        assert_eq!(Reading::Mbits.of(1.5, Unit::Gbps, 0), 1500.0);
        assert_eq!(Reading::Thousands.of(17_000.0, Unit::PerSecond, 0), 17.0);
    }

    const PRINTED: PrintedRow = PrintedRow { name: "itr 0", values: &[Some(30.0)] };
    const OTHER: PrintedRow = PrintedRow { name: "itr 100", values: &[Some(82.0)] };

    /// Objective: each row has the printed and the measured values, with their ratios to the base row; a missing value
    /// is a dash.
    #[test]
    fn rows() {
        const COLUMNS: &[Column] = &[Column::of("kpps", "touched", Reading::Kpps)];
        const ROWS: &[TableRow] =
            &[TableRow::of(&PRINTED, "netvale"), TableRow::of(&OTHER, "dpdk-memif"), TableRow::ours("more", "ovs")];
        let base = Some("netvale");
        let table = Table { title: "", columns: COLUMNS, rows: ROWS, base, facts: &[("exits", "exits a packet")] };
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        let mut record = sample(Some("dpdk-memif"));
        record.context.insert("netvale exits".into(), "0.5".into());
        kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
        let expected = "\
| | | kpps | exits a packet |
|---|---|--:|--:|
| itr 0 | paper | 30, 1.00× | |
|  | here | 100000 [95000 – 104000], 1.00× | 0.5 |
| itr 100 | paper | 82, 2.73× | |
|  | here | 40000 [39000 – 41000], 0.400× | – |
| more | here | – | – |
";
        assert_eq!(table.render(&kept), expected);
    }

    /// Objective: a column with a length and a batch shows the case that has both; another column shows any case of its
    /// variant.
    #[test]
    fn cases() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        let record = sample(None);
        kept.add(&record.case, vec![Line::Record(Box::new(record.clone()))]).expect("written");
        let any = Column::of("kpps", "touched", Reading::Kpps);
        let case = record.case;
        let exact = Column { bytes: case.frame_bytes, batch: case.batch, ..any };
        let another = Column { batch: case.batch + 1, ..any };
        let found = [any, exact, another].map(|column| column.value(&kept, "netvale").is_some());
        assert_eq!(found, [true, true, false]);
    }
}
