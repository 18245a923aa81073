//! How many workers there are, and on which CPUs.

use std::num::NonZero;

use super::{ConfigError, MAX_WORKERS};

/// The number of workers where nothing says how many.
fn usual_workers() -> usize {
    workers_for(std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// A quarter of the CPUs at most: the others are for the programs and virtual machines whose frames are forwarded.
fn workers_for(cpus: usize) -> usize {
    (cpus / 4).clamp(1, 8)
}

/// The CPU of each worker, if it is pinned.
///
/// # Errors
/// [`ConfigError::Value`] if there are too few or too many.
pub(super) fn workers(count: Option<usize>, cpus: Option<Vec<usize>>) -> Result<Vec<Option<usize>>, ConfigError> {
    let bad = |value: usize, expected| ConfigError::Value { name: "workers", value: value.to_string(), expected };
    let count = count.or(cpus.as_ref().map(Vec::len)).unwrap_or_else(usual_workers);
    if count == 0 || count > MAX_WORKERS {
        return Err(bad(count, "between 1 and 64 workers are possible"));
    }
    let Some(cpus) = cpus else { return Ok(vec![None; count]) };
    if cpus.is_empty() {
        return Err(bad(0, "the list of CPUs is empty"));
    }
    Ok(cpus.iter().cycle().take(count).map(|&c| Some(c)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    /// Objective: a quarter of the CPUs get a worker, at least one and at most eight.
    #[test]
    fn number_of_workers() {
        let expected = [(1, 1), (2, 1), (3, 1), (4, 1), (7, 1), (8, 2), (31, 7), (64, 8), (256, 8)];
        assert_eq!(expected.map(|(cpus, _)| (cpus, workers_for(cpus))), expected);
        let number = |text| File::parse(text).unwrap().into_config().unwrap().workers.len();
        assert_eq!(number(""), usual_workers());
        assert_eq!((number("cpus = [0, 0]"), number("workers = 3")), (2, 3));
    }
}
