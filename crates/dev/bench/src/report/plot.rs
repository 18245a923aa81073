//! A plot: the contenders' points, axes, and a legend beside them.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::marks::{Marks, decade_marks, steps};
use crate::error::{BenchError, Result};
use crate::record::{Record, Side};

/// Width and height of a plot in pixels.
const SIZE: (u32, u32) = (980, 520);
/// Minimum and maximum width of the legend's column in pixels.
const LEGEND_WIDTHS: (u32, u32) = (230, 400);
/// Estimated width of a letter in pixels, which determines the width of the longest line of the legend.
const LETTER_WIDTH: u32 = 8;
/// Left edge of the legend's text, in pixels.
const TEXT_LEFT: i32 = 36;
/// The font of all text.
const FONT: &str = "sans-serif";
/// Share of a position's width that its bars fill.
const FILL: f64 = 0.8;
/// The legend's text for the marks of published figures.
const PUBLISHED: &str = "published";
/// Ratio of the largest to the smallest figure above which the axis is logarithmic, because the smaller figures could
/// not be read otherwise.
const FAR_APART: f64 = 30.0;
/// Length of dashes and gaps of peers' lines, in pixels.
const DASH: (u32, u32) = (7, 4);

const OURS: u32 = 0x005ab5;
/// Colours of peers, which the colour-blind can distinguish too (after Okabe and Ito); peers' lines are dashed as well.
const PEERS: [u32; 9] = [0xd55e00, 0x009e73, 0xcc79a7, 0x787878, 0x56b4e9, 0xe69f00, 0x332288, 0x882255, 0x999933];

fn color(rgb: u32) -> RGBColor {
    let [_, red, green, blue] = rgb.to_be_bytes();
    RGBColor(red, green, blue)
}

type DrawError = DrawingAreaErrorKind<std::io::Error>;
type Drawn = std::result::Result<(), DrawError>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Marks, Marks>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A point of a plot, with the range of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Distinguishes and orders the points of a contender.
    pub key: u64,
    /// The point's position, in the units of the axes.
    pub at: (f64, f64),
    /// The smallest and the largest figure of the runs; `None` if no range is drawn.
    pub range: Option<(f64, f64)>,
}

/// A contender's points.
pub struct Series {
    /// The contender.
    pub name: String,
    /// Whether the contender is netvale rather than a peer.
    pub is_ours: bool,
    /// The points, in order.
    pub points: Vec<Point>,
    /// Published figures: positions and values.
    pub marks: Vec<(f64, f64)>,
}

/// Range and marks of an axis, and its label with the unit.
pub type Axis = (Marks, String);

/// A plot to draw.
pub struct Plot {
    /// The plot's title.
    pub title: String,
    /// The name of the plot's file.
    pub file_name: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// All contenders.
    pub series: Vec<Series>,
    /// Whether each point is drawn as a bar; otherwise, a line joins the points.
    pub has_bars: bool,
}

/// Groups records by a common property, in their original order.
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

/// Returns the points of each contender in the records. If several points have the same key, only the first one is
/// used: netvale's figure is repeated in the record of each peer.
pub fn series(records: &[&Record], points: impl Fn(&Record, &Side<'_>) -> Vec<Point>) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (record, side) in records.iter().flat_map(|record| record.sides().map(move |side| (record, side))) {
        for point in points(record, &side) {
            let index = all.iter().position(|series| series.name == side.name).unwrap_or(all.len());
            if index == all.len() {
                let is_ours = side.name == "netvale";
                all.push(Series { name: side.name.to_owned(), is_ours, points: Vec::new(), marks: Vec::new() });
            }
            if all[index].points.iter().all(|old| old.key != point.key) {
                all[index].points.push(point);
            }
        }
    }
    all.iter_mut().for_each(|series| series.points.sort_by_key(|point| point.key));
    all
}

/// Creates a file name from the texts that describe a plot.
pub fn file_name(parts: &[&str]) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let joined: String = parts.join("-").chars().map(clean).collect();
    format!("{joined}.svg")
}

/// How one contender is drawn.
#[derive(Clone, Copy)]
struct Look {
    color: RGBColor,
    is_ours: bool,
}

impl Look {
    /// Returns the style of line and marker.
    fn line(self) -> ShapeStyle {
        ShapeStyle { color: self.color.to_rgba(), filled: true, stroke_width: if self.is_ours { 3 } else { 2 } }
    }

    /// Returns the style of range bars: the same colour, lighter.
    fn faint(self) -> ShapeStyle {
        ShapeStyle { color: self.color.mix(0.5), filled: false, stroke_width: 1 }
    }
}

/// Chooses how contenders are drawn: netvale with a strong solid line, peers dashed and in other colours.
fn looks(are_ours: impl Iterator<Item = bool>) -> Vec<Look> {
    let mut peers = PEERS.iter().cycle();
    let mut look = |is_ours: bool| match is_ours {
        true => Look { color: color(OURS), is_ours },
        false => Look { color: color(*peers.next().unwrap_or(&OURS)), is_ours },
    };
    are_ours.map(&mut look).collect()
}

/// Creates a y axis: linear from 0, or logarithmic if figures differ much, in which case the points are changed to
/// logarithms.
pub fn y_axis(all: &mut [Series], label: &str) -> Axis {
    let ranges = || all.iter().flat_map(|series| series.points.iter().filter_map(|point| point.range));
    let marks = || all.iter().flat_map(|series| series.marks.iter().map(|mark| mark.1));
    let high = ranges().map(|range| range.1).chain(marks()).fold(0.0, f64::max);
    let low = ranges().map(|range| range.0).chain(marks()).fold(f64::MAX, f64::min);
    if low > 0.0 && high / low > FAR_APART {
        for series in all {
            for point in &mut series.points {
                point.at.1 = point.at.1.log10();
                point.range = point.range.map(|(low, high)| (low.log10(), high.log10()));
            }
            series.marks.iter_mut().for_each(|mark| mark.1 = mark.1.log10());
        }
        let range = (low.log10() - 0.1)..(high.log10() + 0.1);
        return (decade_marks(range), format!("{label}, logarithmic"));
    }
    let high = if high > 0.0 { high * 1.08 } else { 1.0 };
    (Marks::new(0.0..high, steps(high, 10)), label.to_owned())
}

/// Writes a plot to a file.
pub fn draw(plot: Plot, path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let looks = looks(plot.series.iter().map(|series| series.is_ours));
    let drawn = area.fill(&WHITE).and_then(|()| {
        let (left, right) = area.split_horizontally(SIZE.0 - legend_width(&plot.series));
        let floor = plot.y.0.low();
        let mut chart = chart(&left, &plot.title, plot.x, plot.y)?;
        let width = FILL / plot.series.len() as f64;
        for (index, (series, look)) in plot.series.iter().zip(&looks).enumerate() {
            match plot.has_bars {
                true => {
                    let places = BarPlaces { width, left: (1.0 - FILL) / 2.0 + width * index as f64, floor };
                    bars(&mut chart, series, *look, places)?;
                }
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

/// Draws published figures, above everything else.
fn published(chart: &mut Chart<'_, '_>, marks: impl Iterator<Item = (f64, f64)>) -> Drawn {
    let style = ShapeStyle { color: BLACK.to_rgba(), filled: false, stroke_width: 2 };
    chart.draw_series(marks.map(|at| Cross::new(at, 5, style))).map(drop)
}

/// Draws a contender's line with its points.
fn line(chart: &mut Chart<'_, '_>, series: &Series, look: Look) -> Drawn {
    chart.draw_series(series.points.iter().filter_map(|point| range(point.at.0, point, look, 8)))?;
    let points: Vec<_> = series.points.iter().map(|point| point.at).collect();
    chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, look.line())))?;
    match look.is_ours {
        true => chart.draw_series(LineSeries::new(points, look.line()))?,
        false => chart.draw_series(DashedLineSeries::new(points, DASH.0, DASH.1, look.line()))?,
    };
    published(chart, series.marks.iter().copied())
}

/// Place of a contender's bars: their width, their offset from each position on the x axis, and their lower end.
#[derive(Clone, Copy)]
struct BarPlaces {
    width: f64,
    left: f64,
    floor: f64,
}

/// Draws the bars of a contender.
fn bars(chart: &mut Chart<'_, '_>, series: &Series, look: Look, places: BarPlaces) -> Drawn {
    let BarPlaces { width, left, floor } = places;
    for point in &series.points {
        let from = point.at.0 + left;
        let bar = Rectangle::new([(from, floor), (from + width * 0.9, point.at.1)], look.line());
        chart.draw_series(std::iter::once(bar))?;
        chart.draw_series(range(from + width * 0.45, point, look, 5))?;
    }
    published(chart, series.marks.iter().map(|mark| (mark.0 + left + width * 0.45, mark.1)))
}

/// Returns the width of the legend, with room for the longest name.
fn legend_width(all: &[Series]) -> u32 {
    let longest = all.iter().map(|series| series.name.chars().count() as u32).max().unwrap_or(0);
    (TEXT_LEFT as u32 + LETTER_WIDTH * longest).clamp(LEGEND_WIDTHS.0, LEGEND_WIDTHS.1)
}

/// Draws a piece of each contender's line (two dashes for a peer) and its name, beside the chart, so that no point is
/// covered.
fn legend(area: &Area<'_>, all: &[Series], looks: &[Look]) -> Drawn {
    for (index, (series, look)) in all.iter().zip(looks).enumerate() {
        let y = 70 + 26 * index as i32;
        let pieces: &[(i32, i32)] = if look.is_ours { &[(0, 28)] } else { &[(0, 11), (17, 28)] };
        for &(from, to) in pieces {
            area.draw(&PathElement::new(vec![(from, y), (to, y)], look.line()))?;
        }
        area.draw(&Text::new(series.name.clone(), (TEXT_LEFT, y - 8), (FONT, 16)))?;
    }
    if all.iter().any(|series| !series.marks.is_empty()) {
        let y = 70 + 26 * all.len() as i32;
        let style = ShapeStyle { color: BLACK.to_rgba(), filled: false, stroke_width: 2 };
        area.draw(&Cross::new((14, y), 5, style))?;
        area.draw(&Text::new(PUBLISHED, (TEXT_LEFT, y - 8), (FONT, 16)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: no two contenders of a plot look alike, whether netvale is among them or not; only netvale's line is
    /// solid.
    #[test]
    fn contenders_differ() {
        for first in [true, false] {
            let looks = looks([first, false, false, false].into_iter());
            let mut colors: Vec<_> = looks.iter().map(|look| look.line().color.to_rgba().rgb()).collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), 4);
            assert_eq!(looks.first().is_some_and(|look| look.is_ours), first);
        }
    }
}
