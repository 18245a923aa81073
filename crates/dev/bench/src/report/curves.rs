//! Plots of the rate over the batch, frame size, number of ports, spin budget, addresses or foreign threads.

use std::mem::take;

use super::marks::Marks;
use super::plot::{Plot, Point, file_name, grouped, series, y_axis};
use crate::case::{Case, Unit};
use crate::record::Record;

/// The quantity on the x axis.
struct Dimension {
    label: &'static str,
    short: &'static str,
    /// Removes the quantity from a case and returns it; `None` if the case lacks it. Cases that are equal afterwards
    /// belong to one curve.
    take: fn(&mut Case) -> Option<u32>,
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension { label: "frames a batch", short: "by-batch", take: |case| Some(take(&mut case.batch)) },
    Dimension {
        label: "frame length, bytes without FCS",
        short: "by-frame-bytes",
        take: |case| Some(take(&mut case.frame_bytes)),
    },
    Dimension { label: "ports or rings", short: "by-ports", take: |case| Some(take(&mut case.ports)) },
    Dimension { label: "spin budget, us", short: "by-spin", take: |case| case.spin_us.take() },
    Dimension { label: "destination addresses", short: "by-addresses", take: |case| case.addresses.take() },
    Dimension { label: "busy foreign threads", short: "by-foreign", take: |case| case.foreign.take() },
];

/// Returns a plot for each curve with at least two points on its axis.
pub fn find(records: &[&Record]) -> Vec<Plot> {
    let of = |dimension: &'static Dimension| {
        let rest = |record: &Record| {
            let mut rest = record.case.clone();
            (dimension.take)(&mut rest).map(|_| rest)
        };
        grouped(records, rest).into_iter().filter_map(|(rest, group)| curve(dimension, &rest, &group))
    };
    DIMENSIONS.iter().flat_map(of).collect()
}

fn curve(dimension: &Dimension, rest: &Case, group: &[&Record]) -> Option<Plot> {
    let x = |record: &Record| (dimension.take)(&mut record.case.clone()).unwrap_or(0);
    let mut xs: Vec<u32> = group.iter().map(|record| x(record)).collect();
    xs.sort_unstable();
    xs.dedup();
    if xs.len() < 2 {
        return None;
    }
    let mut series = series(group, |record, side| {
        let at = (place(x(record)), side.median);
        vec![Point { key: x(record).into(), at, range: Some((side.min, side.max)) }]
    });
    let y = y_axis(&mut series, y_label(rest.unit));
    let marks: Vec<(f64, String)> = xs.iter().map(|&x| (place(x), x.to_string())).collect();
    let low = place(*xs.first()?);
    let high = place(*xs.last()?);
    let pad = (high - low) * 0.03;
    let x = (Marks::new((low - pad)..(high + pad), marks), dimension.label.to_owned());
    Some(Plot { title: rest.to_string(), file_name: name(dimension, rest), x, y, series, has_bars: false })
}

fn name(dimension: &Dimension, rest: &Case) -> String {
    let mut parts = vec![rest.scenario.clone(), rest.variant.clone(), dimension.short.to_owned()];
    for (value, unit) in [(rest.frame_bytes, "B"), (rest.batch, "batch"), (rest.ports, "ports")] {
        if value > 0 {
            parts.push(format!("{value}{unit}"));
        }
    }
    parts.extend(rest.foreign.map(|foreign| format!("{foreign}foreign")));
    file_name(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the position of a value on the axis, which is logarithmic because sweeps grow by factors. 0 is placed where
/// 0.5 would be.
pub fn place(x: u32) -> f64 {
    f64::from(x).max(0.5).log2()
}

fn y_label(unit: Unit) -> &'static str {
    match unit {
        Unit::Mpps => "Mpps (millions of frames per second)",
        Unit::Nanos => "time per frame, ns",
        Unit::Micros => "one-way time, us",
        Unit::Percent => "percent of one core",
        Unit::Kib => "KiB",
        Unit::SecondsPerGb => "seconds of CPU time per GB",
        Unit::Gbps => "Gbit/s",
        Unit::PerSecond => "per second",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: numbers of foreign threads have a plot of their own; a single number is part of the names of other
    /// plots.
    #[test]
    fn numbers_of_foreign_threads_make_their_own_plot() {
        let records: Vec<_> = [(0, 256), (8, 256), (8, 64)]
            .into_iter()
            .map(|(foreign, batch)| {
                let mut record = sample(Some("dpdk-memif"));
                record.case.foreign = Some(foreign);
                record.case.batch = batch;
                record
            })
            .collect();
        let curves = find(&records.iter().collect::<Vec<_>>());
        let names: Vec<_> = curves.iter().map(|curve| &*curve.file_name).collect();
        let expected =
            ["pipe-touched-by-batch-60B-2ports-8foreign.svg", "pipe-touched-by-foreign-60B-256batch-2ports.svg"];
        assert_eq!(names, expected);
    }
}
