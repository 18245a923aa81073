//! Rate against batch, frame size, number of ports, spin budget, addresses or foreign threads.

use std::path::Path;

use plotters::prelude::ErrorBar;

use super::canvas::{self, Chart, Drawn};
use super::marks::Marks;
use super::style::{Look, decade_marks, file_name, looks};
use crate::case::{Case, Unit};
use crate::error::Result;
use crate::record::Record;

/// The quantity on the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Batch,
    FrameBytes,
    Ports,
    Spin,
    Addresses,
    Foreign,
}

impl Axis {
    const ALL: [Self; 6] = [Self::Batch, Self::FrameBytes, Self::Ports, Self::Spin, Self::Addresses, Self::Foreign];

    fn of(self, case: &Case) -> Option<u32> {
        match self {
            Self::Batch => Some(case.batch),
            Self::FrameBytes => Some(case.frame_bytes),
            Self::Ports => Some(case.ports),
            Self::Spin => case.spin_us,
            Self::Addresses => case.addresses,
            Self::Foreign => case.foreign,
        }
    }

    /// The case with this dimension left out: cases that then are equal belong to one curve.
    fn without(self, case: &Case) -> Case {
        let mut rest = case.clone();
        match self {
            Self::Batch => rest.batch = 0,
            Self::FrameBytes => rest.frame_bytes = 0,
            Self::Ports => rest.ports = 0,
            Self::Spin => rest.spin_us = None,
            Self::Addresses => rest.addresses = None,
            Self::Foreign => rest.foreign = None,
        }
        rest
    }

    fn label(self) -> &'static str {
        match self {
            Self::Batch => "frames a batch",
            Self::FrameBytes => "frame length, bytes without FCS",
            Self::Ports => "ports or rings",
            Self::Spin => "spin budget, us",
            Self::Addresses => "destination addresses",
            Self::Foreign => "busy foreign threads",
        }
    }

    fn short(self) -> &'static str {
        match self {
            Self::Batch => "by-batch",
            Self::FrameBytes => "by-frame-bytes",
            Self::Ports => "by-ports",
            Self::Spin => "by-spin",
            Self::Addresses => "by-addresses",
            Self::Foreign => "by-foreign",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: u32,
    median: f64,
    min: f64,
    max: f64,
}

struct Series {
    name: String,
    ours: bool,
    points: Vec<Point>,
}

/// One plot.
pub struct Curve {
    axis: Axis,
    rest: Case,
    series: Vec<Series>,
}

impl Curve {
    /// The title of the plot.
    pub fn title(&self) -> String {
        self.rest.to_string()
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        let rest = &self.rest;
        let mut parts = vec![rest.scenario.clone(), rest.variant.clone(), self.axis.short().to_owned()];
        for (value, unit) in [(rest.frame_bytes, "B"), (rest.batch, "batch"), (rest.ports, "ports")] {
            if value > 0 {
                parts.push(format!("{value}{unit}"));
            }
        }
        parts.extend(rest.foreign.map(|foreign| format!("{foreign}foreign")));
        file_name(&parts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn xs(&self) -> Vec<u32> {
        let mut xs: Vec<u32> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.x)).collect();
        xs.sort_unstable();
        xs.dedup();
        xs
    }
}

/// All curves with at least two points on their axis.
pub fn find(records: &[&Record]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for axis in Axis::ALL {
        for record in records {
            let Some(x) = axis.of(&record.case) else { continue };
            let rest = axis.without(&record.case);
            let index = curves.iter().position(|curve| curve.axis == axis && curve.rest == rest).unwrap_or_else(|| {
                curves.push(Curve { axis, rest, series: Vec::new() });
                curves.len() - 1
            });
            if let Some(curve) = curves.get_mut(index) {
                add(curve, x, record);
            }
        }
    }
    curves.retain(|curve| curve.xs().len() > 1);
    curves
}

fn add(curve: &mut Curve, x: u32, record: &Record) {
    let own = &record.summary;
    let alone = record.contender == "netvale";
    put(curve, &record.contender, alone, Point { x, median: own.median, min: own.min, max: own.max });
    if let Some(peer) = &record.against {
        put(curve, &peer.peer, false, Point { x, median: peer.peer_median, min: peer.peer_min, max: peer.peer_max });
    }
}

/// Adds a point; the first of several for one x stays (ours is in the record of each peer).
fn put(curve: &mut Curve, name: &str, ours: bool, point: Point) {
    let series = match curve.series.iter().position(|series| series.name == name) {
        Some(index) => curve.series.get_mut(index),
        None => {
            curve.series.push(Series { name: name.to_owned(), ours, points: Vec::new() });
            curve.series.last_mut()
        }
    };
    if let Some(series) = series.filter(|series| series.points.iter().all(|old| old.x != point.x)) {
        series.points.push(point);
        series.points.sort_by_key(|point| point.x);
    }
}

/// The position of a value on the axis: values of sweeps grow by factors. 0 gets a place half of 1.
fn place(x: u32) -> f64 {
    f64::from(x).max(0.5).log2()
}

/// Draws one curve.
///
/// # Errors
/// The file cannot be written.
pub fn draw(curve: &Curve, path: &Path) -> Result<()> {
    let height = Height::of(curve);
    let looks = looks(curve.series.iter().map(|series| series.ours));
    let entries: Vec<_> = curve.series.iter().map(|series| series.name.as_str()).zip(looks.iter().copied()).collect();
    let axes = (x_axis(curve), height.axis(curve.rest.unit));
    canvas::page(path, &curve.title(), axes, &entries, |chart| {
        let drawn = curve.series.iter().zip(looks);
        drawn.into_iter().try_for_each(|(series, look)| draw_series(chart, series, &height, look))
    })
}

fn draw_series(chart: &mut Chart<'_, '_>, series: &Series, height: &Height, look: Look) -> Drawn {
    let at = |figure| height.place(figure);
    chart.draw_series(series.points.iter().map(|point| {
        ErrorBar::new_vertical(place(point.x), at(point.min), at(point.median), at(point.max), look.faint, 8)
    }))?;
    let points: Vec<_> = series.points.iter().map(|point| (place(point.x), at(point.median))).collect();
    canvas::line(chart, &points, look)
}

fn x_axis(curve: &Curve) -> canvas::Axis {
    let xs = curve.xs();
    let marks: Vec<(f64, String)> = xs.iter().map(|&x| (place(x), x.to_string())).collect();
    let (low, high) = (xs.first().map_or(0.0, |&x| place(x)), xs.last().map_or(1.0, |&x| place(x)));
    let pad = (high - low) * 0.03;
    canvas::Axis { marks: Marks::new((low - pad)..(high + pad), marks), label: curve.axis.label().to_owned() }
}

/// The y axis: linear from 0, or logarithmic where the contenders lie so far apart that the lower ones could not be
/// read.
struct Height {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Height {
    /// From this ratio of the largest to the smallest figure on.
    const FAR_APART: f64 = 30.0;

    fn of(curve: &Curve) -> Self {
        let points = || curve.series.iter().flat_map(|series| &series.points);
        let high = points().map(|point| point.max).fold(0.0, f64::max);
        let low = points().map(|point| point.min).fold(f64::MAX, f64::min);
        let logarithmic = low > 0.0 && high / low > Self::FAR_APART;
        if logarithmic {
            return Self { logarithmic, low: low.log10() - 0.1, high: high.log10() + 0.1 };
        }
        Self { logarithmic, low: 0.0, high: if high > 0.0 { high * 1.08 } else { 1.0 } }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    fn axis(&self, unit: Unit) -> canvas::Axis {
        let marks = if self.logarithmic { decade_marks(self.low, self.high) } else { round_steps(self.high) };
        let logarithmic = if self.logarithmic { ", logarithmic" } else { "" };
        canvas::Axis { marks: Marks::new(self.low..self.high, marks), label: format!("{}{logarithmic}", y_label(unit)) }
    }
}

/// Up to ten steps of 1, 2 or 5 times a power of ten, from 0 to `high`.
fn round_steps(high: f64) -> Vec<(f64, String)> {
    let power = 10f64.powf((high / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| high / step <= 10.0);
    let step = step.unwrap_or(high);
    let decimals = if step < 1.0 { (-step.log10()).ceil() as usize } else { 0 };
    let marks = (0..=10).map(|index| f64::from(index) * step).filter(|mark| *mark <= high);
    marks.map(|mark| (mark, format!("{mark:.decimals$}"))).collect()
}

fn y_label(unit: Unit) -> String {
    match unit {
        Unit::Mpps => "Mpps (millions of frames a second)".into(),
        Unit::Nanos => "time a frame, ns".into(),
        Unit::Micros => "one-way time, us".into(),
        Unit::Percent => "percent of one core".into(),
        Unit::Kib => "KiB".into(),
        Unit::Gbps => "Gbit/s".into(),
        Unit::PerSecond => "a second".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: numbers of foreign threads make a plot of their own, and one number alone is part of the other plots'
    /// names.
    #[test]
    fn by_foreign_threads() {
        let records: Vec<_> = [(0, 256), (8, 256), (8, 64)]
            .into_iter()
            .map(|(foreign, batch)| {
                let mut record = sample(Some("dpdk-memif"));
                (record.case.foreign, record.case.batch) = (Some(foreign), batch);
                record
            })
            .collect();
        let curves = find(&records.iter().collect::<Vec<_>>());
        let names: Vec<_> = curves.iter().map(Curve::file_name).collect();
        let expected =
            ["pipe-touched-by-batch-60B-2ports-8foreign.svg", "pipe-touched-by-foreign-60B-256batch-2ports.svg"];
        assert_eq!(names, expected);
    }

    /// Objective: at most ten round steps at any size, labelled without loss.
    #[test]
    fn steps() {
        let labels = |high| round_steps(high).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(433.0), ["0", "50", "100", "150", "200", "250", "300", "350", "400"]);
        assert_eq!(labels(0.34), ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]);
        assert!(labels(1e6).len() <= 11);
    }
}
