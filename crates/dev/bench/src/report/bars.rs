//! Plots of the variants of one kind side by side, with a bar for each contender: `to-host mergeable`,
//! `to-host vector`, … make one plot.

use super::marks::{Marks, steps};
use super::plot::{Plot, Point, file_name, grouped, series};
use crate::case::Unit;
use crate::record::Record;
use crate::table::distinct;

/// Returns a plot for each kind with at least two variants.
pub fn find(records: &[&Record]) -> Vec<Plot> {
    let kind = |record: &Record| {
        let case = &record.case;
        let (kind, _) = case.variant.split_once(' ')?;
        Some((case.scenario.clone(), kind.to_owned(), case.frame_bytes, case.unit))
    };
    let plot = |((scenario, kind, frame_bytes, unit), group): ((String, String, u32, Unit), Vec<&Record>)| {
        let variants = distinct(group.iter().map(|record| variant(record)));
        if variants.len() < 2 {
            return None;
        }
        let series = series(&group, |record, side| {
            let index = variants.iter().position(|known| *known == variant(record)).unwrap_or(0);
            vec![Point { key: index as u64, at: (index as f64, side.median), range: Some((side.min, side.max)) }]
        });
        let highs = series.iter().flat_map(|series| series.points.iter().filter_map(|point| point.range));
        let top = highs.map(|range| range.1).fold(1.0, f64::max) * 1.05;
        let names = variants.iter().enumerate().map(|(i, name)| (i as f64 + 0.5, (*name).to_owned()));
        Some(Plot {
            title: format!("{scenario}: {kind}, {frame_bytes} bytes"),
            file_name: file_name(&[&scenario, &kind, &format!("{frame_bytes}B")]),
            x: (Marks::new(0.0..variants.len() as f64, names.collect()), String::new()),
            y: (Marks::new(0.0..top, steps(top, 6)), unit.to_string()),
            series,
            has_bars: true,
        })
    };
    grouped(records, kind).into_iter().filter_map(plot).collect()
}

fn variant(record: &Record) -> &str {
    record.case.variant.split_once(' ').map_or("", |(_, variant)| variant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;
    use crate::report::plot::draw;

    /// Objective: the variants of a kind become one plot with a bar for each contender; a kind with one variant has no
    /// plot.
    #[test]
    fn variants_of_a_kind_become_one_plot() {
        let mut records = Vec::new();
        for variant in ["io mergeable", "io vector", "mac vector", "touched"] {
            for peer in ["dpdk-pvp", "netvale-both"] {
                let mut record = sample(Some(peer));
                record.case.variant = variant.into();
                records.push(record);
            }
        }
        let mut found = find(&records.iter().collect::<Vec<_>>());
        assert_eq!(found.len(), 1, "one kind has two variants");
        let bars = found.remove(0);
        let names: Vec<_> = bars.series.iter().map(|series| (series.name.as_str(), series.points.len())).collect();
        assert_eq!(names, [("netvale", 2), ("dpdk-pvp", 2), ("netvale-both", 2)]);
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(&bars.file_name);
        draw(bars, &path).expect("drawn");
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(text.contains("mergeable") && text.contains("vector"), "{text}");
        assert!(text.contains("Mpps") && text.contains("dpdk-pvp"), "{text}");
    }
}
