//! Latency distributions: the share of frames that took at most so long.

use std::path::Path;

use plotters::prelude::*;

use super::marks::Marks;
use super::style::{FONT, SIZE, columns, decade_marks, file_name, legend, looks};
use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::record::Record;

struct Series {
    name: String,
    ours: bool,
    /// `(microseconds, percentile)`.
    points: Vec<(f64, f64)>,
}

/// One plot.
pub struct Distribution {
    case: Case,
    series: Vec<Series>,
}

impl Distribution {
    /// What it shows.
    pub fn title(&self) -> String {
        format!("{}: distribution", self.case)
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        let spin = self.case.spin_us.map_or_else(String::new, |spin| format!("spin{spin}-"));
        let size = format!("{spin}{}B", self.case.frame_bytes);
        file_name(&[&self.case.scenario, &self.case.variant, "distribution", &size])
    }
}

/// The distributions of all cases that have them.
pub fn find(records: &[&Record]) -> Vec<Distribution> {
    let mut plots: Vec<Distribution> = Vec::new();
    for record in records.iter().filter(|record| !record.percentiles.is_empty()) {
        let index = plots.iter().position(|plot| plot.case == record.case).unwrap_or_else(|| {
            plots.push(Distribution { case: record.case.clone(), series: Vec::new() });
            plots.len() - 1
        });
        let Some(plot) = plots.get_mut(index) else { continue };
        put(plot, &record.contender, record.contender == "netvale", &record.percentiles);
        if let Some(peer) = &record.against {
            put(plot, &peer.peer, false, &peer.peer_percentiles);
        }
    }
    plots
}

/// Adds a contender once (ours is in the record of each peer). Times of zero have no place on the axis.
fn put(plot: &mut Distribution, name: &str, ours: bool, percentiles: &[(f64, f64)]) {
    let points: Vec<_> = percentiles.iter().filter(|(_, us)| *us > 0.0).map(|&(percent, us)| (us, percent)).collect();
    if !points.is_empty() && plot.series.iter().all(|series| series.name != name) {
        plot.series.push(Series { name: name.to_owned(), ours, points });
    }
}

/// Draws one distribution.
///
/// # Errors
/// The file cannot be written.
pub fn draw(plot: &Distribution, path: &Path) -> Result<()> {
    let reason = |reason: String| BenchError::Plot { file: path.to_owned(), reason };
    try_draw(plot, path).map_err(|error| reason(error.to_string()))
}

fn try_draw(plot: &Distribution, path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = columns(&area);
    let times = plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.0.log10()));
    let (low, high) = times.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    let range = (low - 0.05)..(high + 0.05).max(low + 0.1);
    let marks = decade_marks(range.start, range.end);
    let mut chart = ChartBuilder::on(&left)
        .caption(plot.title(), (FONT, 22))
        .margin(14)
        .x_label_area_size(52)
        .y_label_area_size(70)
        .build_cartesian_2d(Marks::new(range, marks), 0.0..102.0)?;
    chart
        .configure_mesh()
        .x_desc("one-way time, us (logarithmic)")
        .y_desc("percent of frames that took at most so long")
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style((FONT, 16))
        .axis_desc_style((FONT, 17))
        .draw()?;
    let looks = looks(plot.series.iter().map(|series| series.ours));
    for (series, &look) in plot.series.iter().zip(&looks) {
        let points: Vec<(f64, f64)> = series.points.iter().map(|&(us, percent)| (us.log10(), percent)).collect();
        chart.draw_series(points.iter().map(|&at| Circle::new(at, 3, look.line)))?;
        match look.dash {
            None => chart.draw_series(LineSeries::new(points, look.line))?,
            Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(points, dash, gap, look.line))?,
        };
    }
    let entries: Vec<_> = plot.series.iter().map(|series| series.name.as_str()).zip(looks).collect();
    legend(&right, &entries)?;
    area.present()?;
    Ok(())
}
