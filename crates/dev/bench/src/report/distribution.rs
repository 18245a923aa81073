//! Plots of latency distributions: the share of frames whose latency is at most a given time.

use super::marks::{Marks, decade_marks};
use super::plot::{Plot, Point, file_name, grouped, series};
use crate::case::Case;
use crate::record::Record;

/// Returns a plot for each case whose records have latencies.
pub fn find(records: &[&Record]) -> Vec<Plot> {
    let case = |record: &Record| (!record.percentiles.is_empty()).then(|| record.case.clone());
    grouped(records, case).into_iter().map(|(case, group)| distribution(&case, &group)).collect()
}

fn distribution(case: &Case, group: &[&Record]) -> Plot {
    let series = series(group, |_, side| {
        // A time of zero has no position on a logarithmic axis.
        let times = side.percentiles.iter().filter(|(_, us)| *us > 0.0);
        times.map(|&(percent, us)| Point { key: percent.to_bits(), at: (us.log10(), percent), range: None }).collect()
    });
    let times = series.iter().flat_map(|series| series.points.iter().map(|point| point.at.0));
    let (low, high) = times.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    let tenths = (0..=10).map(|tenth| (f64::from(tenth) * 10.0, (tenth * 10).to_string())).collect();
    let spin = case.spin_us.map_or_else(String::new, |spin| format!("spin{spin}-"));
    let foreign = case.foreign.map_or_else(String::new, |foreign| format!("foreign{foreign}-"));
    let size = format!("{spin}{foreign}{}B", case.frame_bytes);
    Plot {
        title: format!("{case}: distribution"),
        file_name: file_name(&[&case.scenario, &case.variant, "distribution", &size]),
        x: (decade_marks((low - 0.05)..(high + 0.05)), "one-way time, us, logarithmic".into()),
        y: (Marks::new(0.0..102.0, tenths), "percent of frames within this time".into()),
        series,
        has_bars: false,
    }
}
