//! Which task is better off on another worker.

use std::cmp::Reverse;

use crate::worker::TaskId;

/// What a task took of its worker's time in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) task: TaskId,
    pub(super) worker: usize,
    /// In nanoseconds.
    pub(super) time: u64,
    /// Whether it must stay where it is.
    pub(super) stays: bool,
}

/// A task, and the worker that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) task: TaskId,
    pub(super) to: usize,
}

/// Percent of the period from which a worker is busy enough to lose a task.
const BUSY: u64 = 60;
/// Percent of the period that a move has to be worth.
const WORTH: u64 = 10;

/// The move to the worker with the least to do that is worth most: by how much the busier of the two workers has less
/// to do then. `period` is in nanoseconds.
///
/// With the same loads, no move is undone by a later one: it would make the busier of the two busier.
pub(super) fn best(loads: &[Load], workers: usize, period: u64) -> Option<Move> {
    let mut sums = vec![(0, 0); workers];
    for load in loads {
        let (time, tasks) = sums.get_mut(load.worker)?;
        (*time, *tasks) = (*time + load.time, *tasks + 1);
    }
    let (to, &(least, _)) = sums.iter().enumerate().min_by_key(|(_, sum)| **sum)?;
    let worth = |load: &Load| load.time.min(sums[load.worker].0.saturating_sub(load.time + least));
    let may_move = |load: &&Load| !load.stays && sums[load.worker].0 > period * BUSY / 100;
    let valued = loads.iter().filter(may_move).map(|load| (worth(load), Reverse(load.task)));
    let (worth, Reverse(task)) = valued.max()?;
    (worth >= period * WORTH / 100).then_some(Move { task, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads of tasks 1, 2, …, from the worker and percent of the period of each.
    fn loads(tasks: &[(usize, u64)]) -> Vec<Load> {
        let load = |(i, &(worker, time))| Load { task: i as TaskId + 1, worker, time, stays: false };
        tasks.iter().enumerate().map(load).collect()
    }

    fn best_of(tasks: &[(usize, u64)], workers: usize) -> Option<(TaskId, usize)> {
        best(&loads(tasks), workers, 100).map(|Move { task, to }| (task, to))
    }

    /// Objective: a task moves exactly if its worker is busy and it pays, and it is the one that is worth most.
    #[test]
    fn moves() {
        for (tasks, workers, expected) in [
            // Nothing to move, and nowhere to go.
            (&[][..], 2, None),
            (&[(0, 50), (0, 50)], 1, None),
            (&[(0, 50), (0, 50)], 0, None),
            // Two that share a worker part.
            (&[(0, 50), (0, 50)], 2, Some((1, 1))),
            (&[(0, 70), (0, 30)], 2, Some((1, 1))),
            (&[(0, 90), (0, 10)], 2, Some((1, 1))),
            // One alone stays, however busy; so does one that leaves next to nothing behind.
            (&[(0, 100)], 2, None),
            (&[(0, 95), (0, 5)], 2, None),
            // The worker has time left.
            (&[(0, 30), (0, 30)], 2, None),
            (&[(0, 31), (0, 30)], 2, Some((1, 1))),
            // The other one has little less to do.
            (&[(0, 50), (0, 50), (1, 41)], 2, None),
            (&[(0, 40), (0, 10), (0, 50), (1, 60)], 2, Some((2, 1))),
            // To the least busy; of idle ones, to that with the fewest tasks.
            (&[(0, 50), (0, 50), (1, 20), (2, 10)], 3, Some((1, 2))),
            (&[(0, 50), (0, 50), (1, 0), (1, 0), (2, 0)], 3, Some((1, 2))),
            // The busiest one cannot be helped, another one can; two are equally busy.
            (&[(0, 100), (1, 50), (1, 40)], 3, Some((2, 2))),
            (&[(0, 50), (0, 45), (1, 50), (1, 45)], 3, Some((1, 2))),
            // Numbers of workers that there are not.
            (&[(7, 50), (7, 50)], 2, None),
        ] {
            assert_eq!(best_of(tasks, workers), expected, "{tasks:?} on {workers}");
        }
    }

    /// Objective: a task that was moved a moment ago is not, but another one may be.
    #[test]
    fn some_stay() {
        let mut loads = loads(&[(0, 50), (0, 30), (0, 20)]);
        loads[0].stays = true;
        assert_eq!(best(&loads, 2, 100), Some(Move { task: 2, to: 1 }));
        loads.iter_mut().for_each(|load| load.stays = true);
        assert_eq!(best(&loads, 2, 100), None);
    }

    /// Objective: whatever the tasks would take, which is more than the workers have, or about as much, and which
    /// changes a little from period to period, all moves are over soon even if none had to stay, and none comes later.
    #[test]
    fn nothing_goes_back_and_forth() {
        let wanted: [&[u64]; 6] =
            [&[100, 100, 100], &[50, 50, 50, 50], &[90, 60, 30], &[70, 70, 1], &[33; 9], &[1000, 10, 10, 10]];
        for (wanted, workers) in wanted.into_iter().flat_map(|wanted| [(wanted, 2), (wanted, 3), (wanted, 4)]) {
            let mut at = vec![0; wanted.len()];
            let mut last = 0;
            for period in 0..100 {
                // Each gets its part of the worker's time, and up to 3 % more or less.
                let sum = |worker| (0..at.len()).filter(|&i| at[i] == worker).map(|i| wanted[i]).sum::<u64>();
                let got = |i: usize| {
                    let noise = 97 + (period * 31 + i as u64 * 17) % 7;
                    (at[i], wanted[i] * 100 / sum(at[i]).max(100) * noise)
                };
                let tasks: Vec<_> = (0..at.len()).map(got).collect();
                if let Some(Move { task, to }) = best(&loads(&tasks), workers, 10_000) {
                    (at[task as usize - 1], last) = (to, period);
                }
            }
            assert!(last < 10, "{wanted:?} on {workers}: moved in period {last}");
        }
    }
}
