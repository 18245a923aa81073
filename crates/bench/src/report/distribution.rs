//! Latency distributions: the share of frames that took at most so long.

use std::path::Path;

use super::canvas::{self, Axis};
use super::marks::Marks;
use super::style::{decade_marks, file_name, looks};
use crate::case::Case;
use crate::error::Result;
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
    /// The title of the plot.
    pub fn title(&self) -> String {
        format!("{}: distribution", self.case)
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        let spin = self.case.spin_us.map_or_else(String::new, |spin| format!("spin{spin}-"));
        let foreign = self.case.foreign.map_or_else(String::new, |foreign| format!("foreign{foreign}-"));
        let size = format!("{spin}{foreign}{}B", self.case.frame_bytes);
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
    let looks = looks(plot.series.iter().map(|series| series.ours));
    let entries: Vec<_> = plot.series.iter().map(|series| series.name.as_str()).zip(looks.iter().copied()).collect();
    canvas::page(path, &plot.title(), (x_axis(plot), y_axis()), &entries, |chart| {
        plot.series.iter().zip(looks).try_for_each(|(series, look)| {
            let points: Vec<_> = series.points.iter().map(|&(us, percent)| (us.log10(), percent)).collect();
            canvas::line(chart, &points, look)
        })
    })
}

fn x_axis(plot: &Distribution) -> Axis {
    let times = plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.0.log10()));
    let (low, high) = times.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    let range = (low - 0.05)..(high + 0.05);
    let marks = decade_marks(range.start, range.end);
    Axis { marks: Marks::new(range, marks), label: "one-way time, us, logarithmic".into() }
}

fn y_axis() -> Axis {
    let marks = (0..=10).map(|tenth| (f64::from(tenth) * 10.0, (tenth * 10).to_string())).collect();
    Axis { marks: Marks::new(0.0..102.0, marks), label: "percent of frames that took at most so long".into() }
}
