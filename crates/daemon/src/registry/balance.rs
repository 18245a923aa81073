//! Chooses the task that should move to another worker.

use std::cmp::Reverse;

use crate::worker::TaskId;

/// A task's share of its worker's time in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskLoad {
    pub(super) task: TaskId,
    pub(super) worker: usize,
    /// Time in nanoseconds.
    pub(super) time: u64,
    /// Whether the task must stay on its worker.
    pub(super) stays: bool,
}

/// A task, and the worker to which it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskMove {
    pub(super) task: TaskId,
    pub(super) to: usize,
}

/// Load, in percent of the period, above which a worker gives tasks away.
const BUSY: u64 = 60;
/// Minimum gain of a move, in percent of the period: the time by which the load of the busier of the two workers
/// decreases.
const WORTH: u64 = 10;

/// Returns the move that gains most, to the least loaded worker; `None` if no gain is worth a move. The gain is the
/// time by which the load of the busier of the two workers decreases. `period` is in nanoseconds.
///
/// While loads are unchanged, no later move undoes an earlier move, because that would increase the load of the busier
/// worker.
pub(super) fn best(loads: &[TaskLoad], workers: usize, period: u64) -> Option<TaskMove> {
    let mut sums = vec![(0, 0); workers];
    for load in loads {
        let (time, tasks) = sums.get_mut(load.worker)?;
        *time += load.time;
        *tasks += 1;
    }
    let (to, &(least, _)) = sums.iter().enumerate().min_by_key(|(_, sum)| **sum)?;
    let worth = |load: &TaskLoad| load.time.min(sums[load.worker].0.saturating_sub(load.time + least));
    let may_move = |load: &&TaskLoad| !load.stays && sums[load.worker].0 > period * BUSY / 100;
    let valued = loads.iter().filter(may_move).map(|load| (worth(load), Reverse(load.task)));
    let (worth, Reverse(task)) = valued.max()?;
    (worth >= period * WORTH / 100).then_some(TaskMove { task, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates loads of tasks 1, 2, …, from each task's worker and percent of the period.
    fn loads(tasks: &[(usize, u64)]) -> Vec<TaskLoad> {
        let load = |(i, &(worker, time))| TaskLoad { task: i as TaskId + 1, worker, time, stays: false };
        tasks.iter().enumerate().map(load).collect()
    }

    fn best_of(tasks: &[(usize, u64)], workers: usize) -> Option<(TaskId, usize)> {
        best(&loads(tasks), workers, 100).map(|TaskMove { task, to }| (task, to))
    }

    /// Objective: a task moves if and only if its worker is busy and the move is worth it; the task that gains most
    /// moves.
    #[test]
    fn the_most_profitable_task_moves_if_that_pays() {
        for (tasks, workers, expected) in [
            // Nothing moves if there are no tasks, or if there is no other worker.
            (&[][..], 2, None),
            (&[(0, 50), (0, 50)], 1, None),
            (&[(0, 50), (0, 50)], 0, None),
            // Two tasks on one worker are separated.
            (&[(0, 50), (0, 50)], 2, Some((1, 1))),
            (&[(0, 70), (0, 30)], 2, Some((1, 1))),
            (&[(0, 90), (0, 10)], 2, Some((1, 1))),
            // A single task stays, however busy it is. A task also stays if its worker would have almost no load
            // without that task.
            (&[(0, 100)], 2, None),
            (&[(0, 95), (0, 5)], 2, None),
            // A worker with spare time (a load of at most 60 %) keeps its tasks.
            (&[(0, 30), (0, 30)], 2, None),
            (&[(0, 31), (0, 30)], 2, Some((1, 1))),
            // A task does not move to a worker whose load is almost as high.
            (&[(0, 50), (0, 50), (1, 41)], 2, None),
            (&[(0, 40), (0, 10), (0, 50), (1, 60)], 2, Some((2, 1))),
            // The task moves to the least loaded worker; if several workers are idle, to the idle worker with the
            // fewest tasks.
            (&[(0, 50), (0, 50), (1, 20), (2, 10)], 3, Some((1, 2))),
            (&[(0, 50), (0, 50), (1, 0), (1, 0), (2, 0)], 3, Some((1, 2))),
            // In the first case, the busiest worker cannot be relieved, but another worker can. In the second case, two
            // workers are equally busy.
            (&[(0, 100), (1, 50), (1, 40)], 3, Some((2, 2))),
            (&[(0, 50), (0, 45), (1, 50), (1, 45)], 3, Some((1, 2))),
            // Tasks of workers that do not exist are ignored.
            (&[(7, 50), (7, 50)], 2, None),
        ] {
            assert_eq!(best_of(tasks, workers), expected, "{tasks:?} on {workers}");
        }
    }

    /// Objective: a recently moved task stays on its worker, but another task may move.
    #[test]
    fn a_recently_moved_task_stays() {
        let mut loads = loads(&[(0, 50), (0, 30), (0, 20)]);
        loads[0].stays = true;
        assert_eq!(best(&loads, 2, 100), Some(TaskMove { task: 2, to: 1 }));
        loads.iter_mut().for_each(|load| load.stays = true);
        assert_eq!(best(&loads, 2, 100), None);
    }

    /// Objective: even if the tasks ask for more time than the workers have, and their loads fluctuate from period to
    /// period, moves soon stop, although no task is marked as staying, and no further moves follow.
    #[test]
    fn nothing_goes_back_and_forth() {
        let wanted: [&[u64]; 6] =
            [&[100, 100, 100], &[50, 50, 50, 50], &[90, 60, 30], &[70, 70, 1], &[33; 9], &[1000, 10, 10, 10]];
        for (wanted, workers) in wanted.into_iter().flat_map(|wanted| [(wanted, 2), (wanted, 3), (wanted, 4)]) {
            let mut at = vec![0; wanted.len()];
            let mut last = 0;
            for period in 0..100 {
                // Each task gets its share of the worker's time, with a deviation of up to 3 %.
                let sum = |worker| (0..at.len()).filter(|&i| at[i] == worker).map(|i| wanted[i]).sum::<u64>();
                let got = |i: usize| {
                    let noise = 97 + (period * 31 + i as u64 * 17) % 7;
                    (at[i], wanted[i] * 100 / sum(at[i]).max(100) * noise)
                };
                let tasks: Vec<_> = (0..at.len()).map(got).collect();
                if let Some(TaskMove { task, to }) = best(&loads(&tasks), workers, 10_000) {
                    at[task as usize - 1] = to;
                    last = period;
                }
            }
            assert!(last < 10, "{wanted:?} on {workers}: moved in period {last}");
        }
    }
}
