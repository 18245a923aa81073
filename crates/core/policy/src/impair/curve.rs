//! The distributions of delays: tables of inverse distribution functions.
//!
//! The kernel gets such tables from iproute2, which generates them with programs (`netem/normal.c`, `pareto.c`,
//! `paretonormal.c`). The tables here use the same formulas, evaluated in the middle of each step, by functions with
//! the same results on every machine.

use std::sync::LazyLock;

use super::spec::DelayShape;

/// The table entry for a deviation of one jitter from the mean.
pub(super) const SCALE: i64 = 8192;

/// Number of steps of a table: a power of two, so that the first bits of a random number are the index of a step.
pub(super) const STEPS: usize = 1 << STEPS_BITS;
const STEPS_BITS: u32 = 12;

/// Equally likely deviations from the mean, from lowest to highest, in units of the jitter / [`SCALE`].
pub(super) type DeviationTable = [i32; STEPS];

/// The maximum deviation that netem's 16-bit tables can hold. It cuts off the tail of the Pareto distributions.
const MOST: f64 = i16::MAX as f64 / SCALE as f64;

static NORMAL: LazyLock<DeviationTable> = LazyLock::new(|| normal().map(scaled));
static PARETO: LazyLock<DeviationTable> = LazyLock::new(|| pareto().map(scaled));
static EXPONENTIAL: LazyLock<DeviationTable> = LazyLock::new(|| middles().map(exponential).map(scaled));
static PARETO_NORMAL: LazyLock<DeviationTable> = LazyLock::new(|| {
    let mut values = pareto();
    for (value, normal) in values.iter_mut().zip(normal()) {
        *value = 0.75 * *value + 0.25 * normal;
    }
    values.map(scaled)
});

impl DelayShape {
    /// The table of this distribution, computed on first use. `None` for the uniform distribution, which needs no
    /// table.
    pub fn table(self) -> Option<&'static DeviationTable> {
        match self {
            Self::Uniform => None,
            Self::Normal => Some(&NORMAL),
            Self::Pareto => Some(&PARETO),
            Self::ParetoNormal => Some(&PARETO_NORMAL),
            Self::Exponential => Some(&EXPONENTIAL),
        }
    }
}

/// Returns the entry of `table` that the random number `drawn` selects: the first entry for 0, the last entry for
/// `u32::MAX`.
#[inline]
pub(super) fn pick(table: &DeviationTable, drawn: u32) -> i64 {
    i64::from(table[(drawn >> (u32::BITS - STEPS_BITS)) as usize])
}

fn scaled(value: f64) -> i32 {
    libm::round(value * SCALE as f64) as i32
}

/// Returns the middle of each step, between 0 and 1.
fn middles() -> [f64; STEPS] {
    core::array::from_fn(|step| (step as f64 + 0.5) / STEPS as f64)
}

/// Returns the quantiles of the normal distribution with mean 0 and standard deviation 1, in the middle of each step.
fn normal() -> [f64; STEPS] {
    let mut values = [0.0; STEPS];
    // The density is symmetric. Above the mean the distribution function is concave, so Newton's steps from the
    // previous value approach from one side and never overshoot.
    let mut value = 0.0;
    for step in STEPS / 2..STEPS {
        let part = (step as f64 + 0.5) / STEPS as f64;
        for _ in 0..8 {
            let below = 1.0 - 0.5 * libm::erfc(value / core::f64::consts::SQRT_2);
            let density = libm::exp(-0.5 * value * value) / libm::sqrt(core::f64::consts::TAU);
            value += (part - below) / density;
        }
        values[step] = value;
        values[STEPS - 1 - step] = -value;
    }
    values
}

/// Returns the quantiles of the Pareto distribution with exponent 3, shifted by its mean of 3/2 and stretched by 4/3,
/// as in NIST Net.
fn pareto() -> [f64; STEPS] {
    middles().map(|part| ((1.0 / libm::cbrt(1.0 - part) - 1.5) * 4.0 / 3.0).min(MOST))
}

/// Returns the quantile `part` of the exponential distribution, shifted by its mean of 1. The standard deviation is 1.
fn exponential(part: f64) -> f64 {
    -libm::log(1.0 - part) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the tables agree with printed quantiles of the distributions.
    #[test]
    fn tables_agree_with_printed_quantiles() {
        let at = |table: &DeviationTable, part: f64| table[(part * STEPS as f64) as usize] as f64 / SCALE as f64;
        let normal = DelayShape::Normal.table().unwrap();
        for (part, value) in [(0.5, 0.0), (0.8413, 1.0), (0.975, 1.96), (0.0228, -2.0), (0.999, 3.09)] {
            assert!((at(normal, part) - value).abs() < 0.05, "{part}: {} for {value}", at(normal, part));
        }
        let pareto = DelayShape::Pareto.table().unwrap();
        assert!((at(pareto, 0.0) + 2.0 / 3.0).abs() < 0.001);
        assert!((at(pareto, 0.875) - 2.0 / 3.0).abs() < 0.01);
        assert_eq!(pareto[STEPS - 1], i32::from(i16::MAX));
        let exponential = DelayShape::Exponential.table().unwrap();
        assert!((at(exponential, 0.5) - (core::f64::consts::LN_2 - 1.0)).abs() < 0.001);
        assert!(DelayShape::Uniform.table().is_none());
    }

    /// Objective: tables are sorted, so that neighbouring random numbers select neighbouring delays.
    #[test]
    fn tables_rise() {
        for (_, shape) in DelayShape::NAMES {
            if let Some(table) = shape.table() {
                assert!(table.is_sorted());
                assert_eq!(pick(table, 0), i64::from(table[0]));
                assert_eq!(pick(table, u32::MAX), i64::from(table[STEPS - 1]));
            }
        }
    }
}
