//! An axis whose marks are given: the values of a sweep, or round numbers on a logarithmic axis.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// A linear axis of places, with labelled marks at some of them.
pub struct Marks {
    range: Range<f64>,
    marks: Vec<(f64, String)>,
}

impl Marks {
    /// An axis over `range` with a label at each place of `marks`.
    pub fn new(range: Range<f64>, marks: Vec<(f64, String)>) -> Self {
        Self { range, marks }
    }
}

impl Ranged for Marks {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Marks {
    fn format_ext(&self, value: &f64) -> String {
        let near = self.marks.iter().find(|(place, _)| (place - value).abs() < 1e-9);
        near.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: places map to pixels linearly, and only marks have labels.
    #[test]
    fn places_and_labels() {
        let axis = Marks::new(0.0..10.0, vec![(5.0, "five".into())]);
        assert_eq!(axis.map(&0.0, (100, 200)), 100);
        assert_eq!(axis.map(&5.0, (100, 200)), 150);
        assert_eq!(axis.format_ext(&5.0), "five");
        assert_eq!(axis.format_ext(&6.0), "");
    }
}
