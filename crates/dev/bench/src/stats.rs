//! Median and range of several runs.

use serde::{Deserialize, Serialize};

/// The summary of several runs, in the runs' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The figure of the middle run, or the mean of the two middle figures.
    pub median: f64,
    /// The smallest figure of a run.
    pub min: f64,
    /// The largest figure of a run.
    pub max: f64,
    /// Number of runs.
    pub runs: usize,
}

impl Summary {
    /// Summarizes `values`; `None` if there are no values, or if a value is not a finite number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { median: middle(&sorted)?, min: *sorted.first()?, max: *sorted.last()?, runs: sorted.len() })
    }
}

/// Returns the median; `None` in the same cases as [`Summary::of`].
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Objective: the median is the middle figure of an odd number of runs, and the mean of the two middle figures of
    /// an even number of runs.
    #[test]
    fn median_is_the_middle() {
        let odd = Summary::of(&[3.0, 1.0, 2.0]).expect("three runs");
        assert_eq!((odd.median, odd.min, odd.max, odd.runs), (2.0, 1.0, 3.0, 3));
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).expect("four runs");
        assert_eq!(even.median, 2.5);
    }

    /// Objective: without runs, or with a run that is not a number, there is no summary.
    #[test]
    fn bad_runs_give_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }

    proptest! {
        /// Objective: min ≤ median ≤ max, whatever the order of the runs.
        #[test]
        fn median_lies_within(values in proptest::collection::vec(-1e9f64..1e9, 1..20)) {
            let summary = Summary::of(&values).expect("runs");
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
            let mut reversed = values.clone();
            reversed.reverse();
            prop_assert_eq!(Summary::of(&reversed), Some(summary));
        }
    }
}
