//! How delays spread: tables of the inverses of distribution functions.
//!
//! The kernel gets such tables from iproute2, which has programs that make them (`netem/normal.c`, `pareto.c`,
//! `paretonormal.c`). These are of the same formulas, evaluated in the middle of each step, by functions that give the
//! same results on each machine.

use std::sync::LazyLock;

use super::spec::Shape;

/// What a deviation of 1 is in a table.
pub(super) const SCALE: i64 = 8192;

/// How many steps a table has. A power of two, so that a random number's first bits name a step.
pub(super) const STEPS: usize = 1 << STEPS_BITS;
const STEPS_BITS: u32 = 12;

/// Deviations from the mean, from the lowest to the highest, each as likely. In units of 1 / [`SCALE`].
pub(super) type Table = [i32; STEPS];

/// The most that a table of netem's holds, as it has 16 bits. It cuts the tail of the Pareto curves.
const MOST: f64 = i16::MAX as f64 / SCALE as f64;

static NORMAL: LazyLock<Table> = LazyLock::new(|| normal().map(scaled));
static PARETO: LazyLock<Table> = LazyLock::new(|| pareto().map(scaled));
static EXPONENTIAL: LazyLock<Table> = LazyLock::new(|| middles().map(exponential).map(scaled));
static PARETO_NORMAL: LazyLock<Table> = LazyLock::new(|| {
    let mut values = pareto();
    for (value, normal) in values.iter_mut().zip(normal()) {
        *value = 0.75 * *value + 0.25 * normal;
    }
    values.map(scaled)
});

impl Shape {
    /// The table of this shape, made when it is first asked for. None for a uniform one, which needs none.
    pub fn table(self) -> Option<&'static Table> {
        match self {
            Self::Uniform => None,
            Self::Normal => Some(&NORMAL),
            Self::Pareto => Some(&PARETO),
            Self::ParetoNormal => Some(&PARETO_NORMAL),
            Self::Exponential => Some(&EXPONENTIAL),
        }
    }
}

/// The entry of `table` that is as far from its start as `drawn` is from 0.
#[inline]
pub(super) fn pick(table: &Table, drawn: u32) -> i64 {
    i64::from(table[(drawn >> (u32::BITS - STEPS_BITS)) as usize])
}

fn scaled(value: f64) -> i32 {
    libm::round(value * SCALE as f64) as i32
}

/// The middle of each step, between 0 and 1.
fn middles() -> [f64; STEPS] {
    core::array::from_fn(|step| (step as f64 + 0.5) / STEPS as f64)
}

/// The normal distribution, of mean 0 and standard deviation 1.
fn normal() -> [f64; STEPS] {
    let mut values = [0.0; STEPS];
    // The bell is the same to both sides. To its right the distribution function bends down, so that Newton's steps
    // from the value before come near from one side and never go too far.
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

/// The Pareto distribution of exponent 3, from its mean of 3/2 and stretched by 4/3, as NIST Net has it.
fn pareto() -> [f64; STEPS] {
    middles().map(|part| ((1.0 / libm::cbrt(1.0 - part) - 1.5) * 4.0 / 3.0).min(MOST))
}

/// The exponential distribution, from its mean of 1. Its standard deviation is 1.
fn exponential(part: f64) -> f64 {
    -libm::log(1.0 - part) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: values of the tables are those of the distributions, by figures from printed tables.
    #[test]
    fn known_quantiles() {
        let at = |table: &Table, part: f64| table[(part * STEPS as f64) as usize] as f64 / SCALE as f64;
        let normal = Shape::Normal.table().unwrap();
        for (part, value) in [(0.5, 0.0), (0.8413, 1.0), (0.975, 1.96), (0.0228, -2.0), (0.999, 3.09)] {
            assert!((at(normal, part) - value).abs() < 0.05, "{part}: {} for {value}", at(normal, part));
        }
        let pareto = Shape::Pareto.table().unwrap();
        assert!((at(pareto, 0.0) + 2.0 / 3.0).abs() < 0.001);
        assert!((at(pareto, 0.875) - 2.0 / 3.0).abs() < 0.01);
        assert_eq!(pareto[STEPS - 1], i32::from(i16::MAX));
        let exponential = Shape::Exponential.table().unwrap();
        assert!((at(exponential, 0.5) - (core::f64::consts::LN_2 - 1.0)).abs() < 0.001);
        assert!(Shape::Uniform.table().is_none());
    }

    /// Objective: tables rise, so that a random number that is near another picks a delay that is near the other's.
    #[test]
    fn tables_rise() {
        for (_, shape) in Shape::NAMES {
            if let Some(table) = shape.table() {
                assert!(table.is_sorted());
                assert_eq!(pick(table, 0), i64::from(table[0]));
                assert_eq!(pick(table, u32::MAX), i64::from(table[STEPS - 1]));
            }
        }
    }
}
