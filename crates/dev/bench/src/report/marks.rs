//! An axis with given marks: the values of a sweep, or round numbers on a logarithmic axis.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// A linear axis, with labelled marks at some positions.
pub struct Marks {
    range: Range<f64>,
    marks: Vec<(f64, String)>,
}

impl Marks {
    /// Creates an axis over `range` with a label at each position of `marks`.
    pub fn new(range: Range<f64>, marks: Vec<(f64, String)>) -> Self {
        Self { range, marks }
    }

    /// Returns the lower end of the axis.
    pub fn low(&self) -> f64 {
        self.range.start
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

/// Creates an axis of decimal logarithms with marks at 1, 2 and 5 in each decade.
pub fn decade_marks(range: Range<f64>) -> Marks {
    let decades = (range.start.floor() as i32)..=(range.end.ceil() as i32);
    let places = decades.flat_map(|decade| [1.0f64, 2.0, 5.0].map(|step| step.log10() + f64::from(decade)));
    // The label without the rounding error of the logarithm: 0.05, 0.1, 2, 500.
    let label = |place: f64| ((10f64.powf(place) * 1e6).round() / 1e6).to_string();
    let within = (range.start)..=(range.end);
    Marks::new(range, places.filter(|place| within.contains(place)).map(|place| (place, label(place))).collect())
}

/// Returns at most `most` steps of 1, 2 or 5 times a power of ten, from 0 to `high`.
pub fn steps(high: f64, most: u32) -> Vec<(f64, String)> {
    let rough = high / f64::from(most);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(high);
    let decimals = if step < 1.0 { (-step.log10()).ceil() as usize } else { 0 };
    let marks = (0..=most).map(|index| f64::from(index) * step).filter(|mark| *mark <= high);
    marks.map(|mark| (mark, format!("{mark:.decimals$}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: positions map to pixels linearly, and only marks have labels.
    #[test]
    fn places_map_linearly_and_only_marks_have_labels() {
        let axis = Marks::new(0.0..10.0, vec![(5.0, "five".into())]);
        assert_eq!(axis.map(&0.0, (100, 200)), 100);
        assert_eq!(axis.map(&5.0, (100, 200)), 150);
        assert_eq!(axis.format_ext(&5.0), "five");
        assert_eq!(axis.format_ext(&6.0), "");
    }

    fn labels(marks: &[(f64, String)]) -> Vec<&str> {
        marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    /// Objective: the marks are the round numbers of the range.
    #[test]
    fn marks_are_the_round_numbers_of_the_range() {
        assert_eq!(labels(&decade_marks(-0.1..2.05).marks), ["1", "2", "5", "10", "20", "50", "100"]);
    }

    /// Objective: there are round steps from 0 to the top, at most as many as requested for any range, with exact
    /// labels.
    #[test]
    fn steps_are_round_and_not_too_many() {
        let tenths = ["0", "50", "100", "150", "200", "250", "300", "350", "400"];
        assert_eq!(labels(&steps(433.0, 10)), tenths);
        assert_eq!(labels(&steps(0.34, 10)), ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]);
        assert!(steps(1e6, 10).len() <= 11);
        assert_eq!(labels(&steps(63.0, 6)), ["0", "20", "40", "60"]);
    }
}
