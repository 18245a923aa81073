//! Variants of one kind side by side, a bar for each contender: `to-host mergeable`, `to-host vector`, … make one plot.

use std::path::Path;

use plotters::prelude::{ErrorBar, Rectangle};

use super::canvas::{self, Chart, Drawn};
use super::marks::Marks;
use super::style::{Look, file_name, looks};
use crate::case::Unit;
use crate::error::Result;
use crate::record::Record;

/// Part of a variant's width that its bars fill.
const FILL: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bar {
    variant: usize,
    median: f64,
    min: f64,
    max: f64,
}

struct Series {
    name: String,
    bars: Vec<Bar>,
}

/// One plot.
pub struct Bars {
    scenario: String,
    kind: String,
    frame_bytes: u32,
    unit: Unit,
    variants: Vec<String>,
    series: Vec<Series>,
}

impl Bars {
    /// The title of the plot.
    pub fn title(&self) -> String {
        format!("{}: {}, {} bytes", self.scenario, self.kind, self.frame_bytes)
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        file_name(&[&self.scenario, &self.kind, &format!("{}B", self.frame_bytes)])
    }

    fn top(&self) -> f64 {
        self.series.iter().flat_map(|series| &series.bars).map(|bar| bar.max).fold(1.0, f64::max) * 1.05
    }
}

/// All kinds with at least two variants.
pub fn find(records: &[&Record]) -> Vec<Bars> {
    let mut all: Vec<Bars> = Vec::new();
    for record in records {
        let case = &record.case;
        let Some((kind, variant)) = case.variant.split_once(' ') else { continue };
        let same = |b: &Bars| {
            b.scenario == case.scenario && b.kind == kind && b.frame_bytes == case.frame_bytes && b.unit == case.unit
        };
        let index = all.iter().position(same).unwrap_or_else(|| {
            let (scenario, kind) = (case.scenario.clone(), kind.to_owned());
            let (variants, series) = (Vec::new(), Vec::new());
            all.push(Bars { scenario, kind, frame_bytes: case.frame_bytes, unit: case.unit, variants, series });
            all.len() - 1
        });
        if let Some(bars) = all.get_mut(index) {
            add(bars, variant, record);
        }
    }
    all.retain(|bars| bars.variants.len() > 1);
    all
}

fn add(bars: &mut Bars, variant: &str, record: &Record) {
    let variant = bars.variants.iter().position(|known| known == variant).unwrap_or_else(|| {
        bars.variants.push(variant.to_owned());
        bars.variants.len() - 1
    });
    let own = &record.summary;
    put(bars, &record.contender, Bar { variant, median: own.median, min: own.min, max: own.max });
    if let Some(peer) = &record.against {
        put(bars, &peer.peer, Bar { variant, median: peer.peer_median, min: peer.peer_min, max: peer.peer_max });
    }
}

/// Adds a bar; the first of several for one variant stays (ours is in the record of each peer).
fn put(bars: &mut Bars, name: &str, bar: Bar) {
    let index = bars.series.iter().position(|series| series.name == name).unwrap_or_else(|| {
        bars.series.push(Series { name: name.to_owned(), bars: Vec::new() });
        bars.series.len() - 1
    });
    if let Some(series) = bars.series.get_mut(index)
        && series.bars.iter().all(|known| known.variant != bar.variant)
    {
        series.bars.push(bar);
    }
}

/// Writes the plot to `path`.
///
/// # Errors
/// The file cannot be written.
pub fn draw(bars: &Bars, path: &Path) -> Result<()> {
    let names = bars.variants.iter().enumerate().map(|(i, name)| (i as f64 + 0.5, name.clone()));
    let x = canvas::Axis { marks: Marks::new(0.0..bars.variants.len() as f64, names.collect()), label: String::new() };
    let y = canvas::Axis { marks: Marks::new(0.0..bars.top(), steps(bars.top())), label: bars.unit.to_string() };
    let looks = looks(bars.series.iter().map(|series| series.name == "netvale"));
    let entries: Vec<_> = bars.series.iter().map(|series| series.name.as_str()).zip(looks.iter().copied()).collect();
    canvas::page(path, &bars.title(), (x, y), &entries, |chart| {
        let width = FILL / bars.series.len() as f64;
        bars.series.iter().zip(&looks).enumerate().try_for_each(|(i, (series, look))| {
            let left = (1.0 - FILL) / 2.0 + width * i as f64;
            series.bars.iter().try_for_each(|bar| one(chart, bar, left, width, *look))
        })
    })
}

fn one(chart: &mut Chart<'_, '_>, bar: &Bar, left: f64, width: f64, look: Look) -> Drawn {
    let from = bar.variant as f64 + left;
    chart.draw_series(std::iter::once(Rectangle::new([(from, 0.0), (from + width * 0.9, bar.median)], look.line)))?;
    let middle = from + width * 0.45;
    let range = ErrorBar::new_vertical(middle, bar.min, bar.median, bar.max, look.faint, 5);
    chart.draw_series(std::iter::once(range))?;
    Ok(())
}

/// Marks at about six round places from 0 to `top`.
fn steps(top: f64) -> Vec<(f64, String)> {
    let rough = top / 6.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= rough).unwrap_or(rough);
    let marks = (0..).map(|i| f64::from(i) * step).take_while(|mark| *mark <= top);
    marks.map(|mark| (mark, format!("{mark}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: variants of a kind become one plot with a bar for each contender; a kind of one variant, none.
    #[test]
    fn kinds() {
        let mut records = Vec::new();
        for variant in ["io mergeable", "io vector", "mac vector", "touched"] {
            for peer in ["dpdk-pvp", "netvale-both"] {
                let mut record = sample(Some(peer));
                record.case.variant = variant.into();
                records.push(record);
            }
        }
        let found = find(&records.iter().collect::<Vec<_>>());
        let [bars] = &found[..] else { panic!("one kind has two variants") };
        assert_eq!(bars.variants, ["mergeable", "vector"]);
        let names: Vec<_> = bars.series.iter().map(|series| (series.name.as_str(), series.bars.len())).collect();
        assert_eq!(names, [("netvale", 2), ("dpdk-pvp", 2), ("netvale-both", 2)]);
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(bars.file_name());
        draw(bars, &path).expect("drawn");
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(text.contains("mergeable") && text.contains("Mpps") && text.contains("dpdk-pvp"), "{text}");
    }

    /// Objective: marks are round, from 0 to the top.
    #[test]
    fn marks() {
        let labels: Vec<String> = steps(63.0).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "20", "40", "60"]);
    }
}
