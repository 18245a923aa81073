//! The page of a plot: chart on the left, legend on the right, axes with labels.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::marks::Marks;
use super::style::{FONT, Look};
use crate::error::{BenchError, Result};

/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (980, 520);
/// Width of the legend's column, pixels.
const LEGEND_WIDTH: u32 = 230;

/// The chart that a plot draws its series on.
pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Marks, Marks>>;
/// The result of drawing something.
pub type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// An axis and what it says beside it, with the unit.
pub struct Axis {
    /// Range and marks.
    pub marks: Marks,
    /// Its label.
    pub label: String,
}

/// Writes a plot to `path`: `content` draws the series.
///
/// # Errors
/// The file cannot be written.
pub fn page(
    path: &Path,
    title: &str,
    axes: (Axis, Axis),
    entries: &[(&str, Look)],
    content: impl FnOnce(&mut Chart<'_, '_>) -> Drawn,
) -> Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = area.fill(&WHITE).and_then(|()| {
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let mut chart = chart(&left, title, axes)?;
        content(&mut chart)?;
        legend(&right, entries)?;
        area.present()
    });
    drawn.map_err(|error| BenchError::Plot { file: path.to_owned(), reason: error.to_string() })
}

fn chart<'a, 'b>(
    area: &'a Area<'b>,
    title: &str,
    (x, y): (Axis, Axis),
) -> std::result::Result<Chart<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 22))
        .margin(14)
        .x_label_area_size(52)
        .y_label_area_size(70)
        .build_cartesian_2d(x.marks, y.marks)?;
    chart
        .configure_mesh()
        .x_desc(x.label)
        .y_desc(y.label)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style((FONT, 16))
        .axis_desc_style((FONT, 17))
        .draw()?;
    Ok(chart)
}

/// Draws a line with its points.
///
/// # Errors
/// The file cannot be written.
pub fn line(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], look: Look) -> Drawn {
    chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, look.line)))?;
    let points = points.to_vec();
    match look.dash {
        None => chart.draw_series(LineSeries::new(points, look.line))?,
        Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(points, dash, gap, look.line))?,
    };
    Ok(())
}

/// A piece of each contender's line (two dashes for a peer), and its name. Beside the chart it covers no point.
fn legend(area: &Area<'_>, entries: &[(&str, Look)]) -> Drawn {
    for (index, (name, look)) in entries.iter().enumerate() {
        let y = 70 + 26 * index as i32;
        let pieces: &[(i32, i32)] = if look.dash.is_some() { &[(0, 11), (17, 28)] } else { &[(0, 28)] };
        for &(from, to) in pieces {
            area.draw(&PathElement::new(vec![(from, y), (to, y)], look.line))?;
        }
        area.draw(&Text::new((*name).to_owned(), (36, y - 8), (FONT, 16)))?;
    }
    Ok(())
}
