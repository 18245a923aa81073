//! Draws a table's plot: measured figures with the range of their runs, and published figures as marks.

use super::figures::PaperFigure;
use super::kept::Kept;
use super::table::{Column, Table, TableRow};
use crate::report::curves::place;
use crate::report::marks::Marks;
use crate::report::plot::{Plot, Point, Series, file_name, y_axis};

/// A column to draw, with its position and its label on the x axis.
struct PlotColumn<'a> {
    index: usize,
    column: &'a Column,
    at: f64,
    label: String,
}

/// Returns the plot of a figure's table; `None` if nothing in the table was measured. `number` is the table's index in
/// the figure, and part of the plot's file name.
pub fn plot_of(figure: &PaperFigure, number: usize, table: &Table, kept: &Kept) -> Option<Plot> {
    let by = quantity(table);
    let columns = columns(table, by);
    let mut series: Vec<Series> = table.rows.iter().filter_map(|row| row_of(table, row, &columns, kept)).collect();
    if series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    let title = if table.title.is_empty() { figure.title } else { table.title };
    let y = y_axis(&mut series, &y_label(table, by.is_some()));
    // The labels of bars are in the middle of their positions.
    let offset = if by.is_some() { 0.0 } else { 0.5 };
    let marks: Vec<(f64, String)> = columns.iter().map(|one| (one.at + offset, one.label.clone())).collect();
    Some(Plot {
        title: format!("{} {title}", figure.number),
        file_name: file_name(&[figure.number, &number.to_string()]),
        x: (Marks::new(range(&columns, by.is_some()), marks), by.map_or("", |by| by.label).to_owned()),
        y,
        series,
        has_bars: by.is_none(),
    })
}

/// A quantity by which a table's columns may differ, such as the message size; its values are the positions on the x
/// axis.
struct ColumnQuantity {
    label: &'static str,
    of: fn(&Column) -> u32,
}

const QUANTITIES: &[ColumnQuantity] = &[
    ColumnQuantity { label: "bytes per message", of: |column| column.bytes },
    ColumnQuantity { label: "frames per burst", of: |column| column.batch },
    ColumnQuantity { label: "share of a processor, %", of: share },
];

/// Returns the share of CPU time in a variant's name, such as `25-percent`; 0 if the name has none.
fn share(column: &Column) -> u32 {
    let percent = column.variant.strip_suffix("-percent").and_then(|percent| percent.parse().ok());
    percent.unwrap_or(0)
}

/// Returns the quantity that has a different value in each column; `None` if there is none. With such a quantity, the
/// plot has lines over it instead of bars.
fn quantity(table: &Table) -> Option<&'static ColumnQuantity> {
    let differ = |quantity: &&ColumnQuantity| {
        let mut values: Vec<u32> = table.columns.iter().map(quantity.of).collect();
        values.dedup();
        values.len() > 1 && values.len() == table.columns.len() && !values.contains(&0)
    };
    QUANTITIES.iter().find(differ)
}

/// Returns the columns to draw. If several columns show the same figure in different units, only the first of them is
/// drawn. If values are not drawn as ratios, all drawn columns have the first column's unit, because they share the y
/// axis.
fn columns<'a>(table: &'a Table, by: Option<&ColumnQuantity>) -> Vec<PlotColumn<'a>> {
    let unit = table.columns.first().map(|column| std::mem::discriminant(&column.reading));
    let is_drawn = |index: usize, column: &Column| {
        let is_first = table.columns[..index].iter().all(|other| !other.is_of_same_case(column));
        is_first && (table.base.is_some() || Some(std::mem::discriminant(&column.reading)) == unit)
    };
    let all = table.columns.iter().enumerate().filter(|(index, column)| is_drawn(*index, column));
    all.enumerate()
        .map(|(number, (index, column))| {
            let value = by.map(|by| (by.of)(column));
            let at = value.map_or(number as f64, place);
            let label = column.head.split(',').next().unwrap_or_default();
            let label = value.map_or_else(|| label.to_owned(), |value| value.to_string());
            PlotColumn { index, column, at, label }
        })
        .collect()
}

/// Returns the points and marks of a row. Bars show ratios to the table's base row, if the table has a base row; lines
/// show absolute values.
fn row_of(table: &Table, row: &TableRow, columns: &[PlotColumn<'_>], kept: &Kept) -> Option<Series> {
    let mut points = Vec::new();
    let mut marks = Vec::new();
    for one in columns {
        let bases = if quantity(table).is_some() { [Some(1.0); 2] } else { bases(table, one.index, kept) };
        let cell = table.cell(one.column, row.contender, kept);
        if let Some((cell, base)) = cell.zip(bases[0]) {
            let range = Some((cell.min / base, cell.max / base));
            points.push(Point { key: one.index as u64, at: (one.at, cell.median / base), range });
        }
        let published = row.published(one.index).zip(bases[1]);
        marks.extend(published.map(|(value, base)| (one.at, value / base)));
    }
    let is_ours = row.contender == "netvale";
    let name = legend(row.name).to_owned();
    (!points.is_empty() || !marks.is_empty()).then_some(Series { name, is_ours, points, marks })
}

/// Shortens a row's name for the legend to the part before the first comma, semicolon or parenthesis.
fn legend(name: &str) -> &str {
    name.split([',', ';', '(']).next().unwrap_or_default().trim()
}

/// Returns two divisors for a column's figures: the divisor of the measured figures, and the divisor of the published
/// figures.
fn bases(table: &Table, index: usize, kept: &Kept) -> [Option<f64>; 2] {
    if table.base.is_none() { [Some(1.0); 2] } else { table.base_of(index, kept) }
}

fn y_label(table: &Table, is_curve: bool) -> String {
    let base = table.base.filter(|_| !is_curve);
    let base = base.and_then(|base| table.rows.iter().find(|row| row.contender == base));
    let unit = || table.columns.first().map_or("", |column| column.reading.unit());
    base.map_or_else(|| unit().to_owned(), |row| format!("ratio to: {}", row.name))
}

fn range(columns: &[PlotColumn<'_>], is_curve: bool) -> std::ops::Range<f64> {
    if !is_curve {
        return 0.0..columns.len() as f64;
    }
    let places = || columns.iter().map(|one| one.at);
    let low = places().fold(f64::MAX, f64::min);
    let high = places().fold(f64::MIN, f64::max);
    let pad = (high - low) * 0.03;
    (low - pad)..(high + pad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures::ALL;
    use crate::papers::published::PrintedRow;
    use crate::papers::table::Reading;
    use crate::record::Line;
    use crate::record::tests::sample;
    use crate::report::plot::draw;

    const PUBLISHED: PrintedRow = PrintedRow { name: "itr 0 BASE", values: &[Some(30.0), Some(30.0)] };
    const OTHER: PrintedRow = PrintedRow { name: "itr 100", values: &[Some(82.0), Some(82.0)] };

    /// Objective: the rows of a table have different names in its plot's legend.
    #[test]
    fn legends() {
        for (figure, table) in ALL.iter().flat_map(|figure| figure.tables.iter().map(move |table| (figure, table))) {
            let mut names: Vec<_> = table.rows.iter().map(|row| legend(row.name)).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.rows.len(), "{} {}: {names:?}", figure.number, table.title);
        }
    }

    /// Objective: a table of ratios is drawn as bars, with the published ratios as marks; a figure that the table
    /// contains in two units is drawn once; without measured values, there is no plot.
    #[test]
    fn bars_and_marks() {
        let column = |head| Column::of(head, "touched", Reading::Kpps);
        let columns = [column("UDP8, kpps"), column("the same, Mbit/s")];
        let rows = [TableRow::of(&PUBLISHED, "netvale"), TableRow::of(&OTHER, "dpdk-memif")];
        let columns: &'static [Column] = Box::leak(Box::new(columns));
        let rows: &'static [TableRow] = Box::leak(Box::new(rows));
        let table = Table { title: "", columns, rows, base: Some("netvale"), facts: &[] };
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), "9.1", false).expect("none yet");
        assert!(plot_of(&ALL[0], 1, &table, &kept).is_none());
        let record = sample(Some("dpdk-memif"));
        kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
        let plot = plot_of(&ALL[0], 1, &table, &kept).expect("measured");
        assert!(plot.has_bars);
        let drawn: Vec<_> = plot.series.iter().map(|one| (one.points[0].at.1, one.marks[0].1)).collect();
        assert_eq!(drawn[0], (1.0, 1.0));
        assert!((drawn[1].0 - 0.4).abs() < 1e-9 && (drawn[1].1 - 82.0 / 30.0).abs() < 1e-9, "{drawn:?}");
        assert!(plot.series.iter().all(|one| one.points.len() == 1 && one.marks.len() == 1));
        let path = folder.path().join(&plot.file_name);
        draw(plot, &path).expect("drawn");
        let text = std::fs::read_to_string(&path).expect("written");
        for word in ["UDP8", "ratio to: itr 0 BASE", "published", "itr 100"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
