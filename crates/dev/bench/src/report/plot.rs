//! A plot: contenders' points, axes, and the page with a legend beside them.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::marks::Marks;
use crate::error::{BenchError, Result};
use crate::record::{Record, Side};

/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (980, 520);
/// Width of the legend's column, pixels.
const LEGEND_WIDTH: u32 = 230;
/// The font of all text.
const FONT: &str = "sans-serif";
/// Part of a place's width that its bars fill.
const FILL: f64 = 0.8;
/// Length of dash and gap of peers' lines, pixels.
const DASH: (u32, u32) = (7, 4);

const OURS: u32 = 0x005ab5;
/// Distinguishable for the colour-blind too (after Okabe and Ito), and dashed.
const PEERS: [u32; 6] = [0xd55e00, 0x009e73, 0xcc79a7, 0x787878, 0x56b4e9, 0xe69f00];

fn color(rgb: u32) -> RGBColor {
    let [_, red, green, blue] = rgb.to_be_bytes();
    RGBColor(red, green, blue)
}

type DrawError = DrawingAreaErrorKind<std::io::Error>;
type Drawn = std::result::Result<(), DrawError>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Marks, Marks>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A point on the axes, and the range of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What distinguishes it from the contender's others, and orders them.
    pub key: u64,
    /// Where it is.
    pub at: (f64, f64),
    /// The range around it.
    pub range: Option<(f64, f64)>,
}

/// A contender's points.
pub struct Series {
    /// The contender.
    pub name: String,
    /// The points, in order.
    pub points: Vec<Point>,
}

/// Range and marks of an axis, and what it says beside it, with the unit.
pub type Axis = (Marks, String);

/// A plot.
pub struct Plot {
    /// Its title.
    pub title: String,
    /// The name of its file.
    pub file_name: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// All contenders.
    pub series: Vec<Series>,
    /// Whether each point is a bar; otherwise a line joins them.
    pub has_bars: bool,
}

/// Records that have the same in common, in the order in which they come.
pub fn grouped<'a, K: PartialEq>(
    records: &[&'a Record],
    common: impl Fn(&Record) -> Option<K>,
) -> Vec<(K, Vec<&'a Record>)> {
    let mut groups: Vec<(K, Vec<&Record>)> = Vec::new();
    for &record in records {
        let Some(key) = common(record) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(record),
            None => groups.push((key, vec![record])),
        }
    }
    groups
}

/// The points of all sides. The first of several with one key stays: ours is in the record of each peer.
pub fn series(records: &[&Record], points: impl Fn(&Record, &Side<'_>) -> Vec<Point>) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (record, side) in records.iter().flat_map(|record| record.sides().map(move |side| (record, side))) {
        for point in points(record, &side) {
            let index = all.iter().position(|series| series.name == side.name).unwrap_or(all.len());
            if index == all.len() {
                all.push(Series { name: side.name.to_owned(), points: Vec::new() });
            }
            if all[index].points.iter().all(|old| old.key != point.key) {
                all[index].points.push(point);
            }
        }
    }
    all.iter_mut().for_each(|series| series.points.sort_by_key(|point| point.key));
    all
}

/// A file name of what describes a plot.
pub fn file_name(parts: &[&str]) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let joined: String = parts.join("-").chars().map(clean).collect();
    format!("{joined}.svg")
}

/// One contender's looks.
#[derive(Clone, Copy)]
struct Look {
    color: RGBColor,
    is_ours: bool,
}

impl Look {
    /// Line and marker.
    fn line(self) -> ShapeStyle {
        ShapeStyle { color: self.color.to_rgba(), filled: true, stroke_width: if self.is_ours { 3 } else { 2 } }
    }

    /// Range bars: the same colour, lighter.
    fn faint(self) -> ShapeStyle {
        ShapeStyle { color: self.color.mix(0.5), filled: false, stroke_width: 1 }
    }
}

/// The looks of the contenders: ours in one strong solid line, peers, numbered apart, dashed in other colours.
fn looks<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Look> {
    let mut peers = PEERS.iter().cycle();
    let mut look = |name: &str| match name {
        "netvale" => Look { color: color(OURS), is_ours: true },
        _ => Look { color: color(*peers.next().unwrap_or(&OURS)), is_ours: false },
    };
    names.map(&mut look).collect()
}

/// Writes a plot to a file.
pub fn draw(plot: Plot, path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let looks = looks(plot.series.iter().map(|series| series.name.as_str()));
    let drawn = area.fill(&WHITE).and_then(|()| {
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let mut chart = chart(&left, &plot.title, plot.x, plot.y)?;
        let width = FILL / plot.series.len() as f64;
        for (index, (series, look)) in plot.series.iter().zip(&looks).enumerate() {
            match plot.has_bars {
                true => bars(&mut chart, series, *look, width, (1.0 - FILL) / 2.0 + width * index as f64)?,
                false => line(&mut chart, series, *look)?,
            }
        }
        legend(&right, &plot.series, &looks)?;
        area.present()
    });
    drawn.map_err(|error| BenchError::Program(format!("cannot draw {}: {error}", path.display())))
}

fn chart<'a, 'b>(area: &'a Area<'b>, title: &str, x: Axis, y: Axis) -> std::result::Result<Chart<'a, 'b>, DrawError> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 22))
        .margin(14)
        .x_label_area_size(52)
        .y_label_area_size(70)
        .build_cartesian_2d(x.0, y.0)?;
    chart
        .configure_mesh()
        .x_desc(x.1)
        .y_desc(y.1)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style((FONT, 16))
        .axis_desc_style((FONT, 17))
        .draw()?;
    Ok(chart)
}

type RangeBar = ErrorBar<f64, f64, plotters::element::ErrorBarOrientV<f64, f64>>;

fn range(x: f64, point: &Point, look: Look, width: u32) -> Option<RangeBar> {
    point.range.map(|(low, high)| ErrorBar::new_vertical(x, low, point.at.1, high, look.faint(), width))
}

/// Draws a line with its points.
fn line(chart: &mut Chart<'_, '_>, series: &Series, look: Look) -> Drawn {
    chart.draw_series(series.points.iter().filter_map(|point| range(point.at.0, point, look, 8)))?;
    let points: Vec<_> = series.points.iter().map(|point| point.at).collect();
    chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, look.line())))?;
    match look.is_ours {
        true => chart.draw_series(LineSeries::new(points, look.line()))?,
        false => chart.draw_series(DashedLineSeries::new(points, DASH.0, DASH.1, look.line()))?,
    };
    Ok(())
}

/// Draws the bars of a contender, each so wide, and so far right of its place.
fn bars(chart: &mut Chart<'_, '_>, series: &Series, look: Look, width: f64, left: f64) -> Drawn {
    for point in &series.points {
        let from = point.at.0 + left;
        let bar = Rectangle::new([(from, 0.0), (from + width * 0.9, point.at.1)], look.line());
        chart.draw_series(std::iter::once(bar))?;
        chart.draw_series(range(from + width * 0.45, point, look, 5))?;
    }
    Ok(())
}

/// A piece of each contender's line (two dashes for a peer), and its name. Beside the chart it covers no point.
fn legend(area: &Area<'_>, all: &[Series], looks: &[Look]) -> Drawn {
    for (index, (series, look)) in all.iter().zip(looks).enumerate() {
        let y = 70 + 26 * index as i32;
        let pieces: &[(i32, i32)] = if look.is_ours { &[(0, 28)] } else { &[(0, 11), (17, 28)] };
        for &(from, to) in pieces {
            area.draw(&PathElement::new(vec![(from, y), (to, y)], look.line()))?;
        }
        area.draw(&Text::new(series.name.clone(), (36, y - 8), (FONT, 16)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: no two contenders of a plot look alike, with or without ours among them; ours alone is solid.
    #[test]
    fn contenders_differ() {
        for first in ["netvale", "a"] {
            let looks = looks([first, "b", "c", "d"].into_iter());
            let mut colors: Vec<_> = looks.iter().map(|look| look.line().color.to_rgba().rgb()).collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), 4);
            assert_eq!(looks.first().is_some_and(|look| look.is_ours), first == "netvale");
        }
    }
}
