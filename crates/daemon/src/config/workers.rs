//! The number of workers, and their CPUs.

use std::num::NonZero;

use super::Config;

/// Returns the default number of workers, if no CPUs are configured.
fn usual_workers() -> usize {
    workers_for(std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the number of workers for that many CPUs: one worker for every four CPUs, because programs and virtual
/// machines need the other CPUs; at least one, at most eight.
fn workers_for(cpus: usize) -> usize {
    (cpus / 4).clamp(1, 8)
}

impl Config {
    /// Fills in the default number of workers. If CPUs are configured, pins each worker to one of them.
    pub(super) fn place_workers(&mut self) {
        if self.workers == 0 {
            self.workers = self.cpus.as_ref().map_or_else(usual_workers, Vec::len);
        }
        self.cpus = self.cpus.take().map(|cpus| cpus.into_iter().cycle().take(self.workers).collect());
    }

    /// Returns the CPU of each worker; `None` for a worker that is not pinned.
    #[must_use]
    pub fn cpu_of_each(&self) -> Vec<Option<usize>> {
        let pinned = |cpus: &Vec<usize>| cpus.iter().copied().map(Some).collect();
        self.cpus.as_ref().map_or_else(|| vec![None; self.workers], pinned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConfigFile;
    use super::*;

    /// Objective: there is one worker for every four CPUs, but at least one and at most eight workers.
    #[test]
    fn a_quarter_of_the_cpus_get_a_worker() {
        let expected = [(1, 1), (2, 1), (3, 1), (4, 1), (7, 1), (8, 2), (31, 7), (64, 8), (256, 8)];
        assert_eq!(expected.map(|(cpus, _)| (cpus, workers_for(cpus))), expected);
        let number = |text| ConfigFile::parse(text).unwrap().into_config().cpu_of_each().len();
        assert_eq!(number(""), usual_workers());
        assert_eq!((number("cpus = [0, 0]"), number("workers = 3")), (2, 3));
    }
}
