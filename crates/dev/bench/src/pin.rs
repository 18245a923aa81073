//! Pins threads to CPUs.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::error::{BenchError, Result};

/// Returns the CPUs on which this thread may run, in ascending order.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(BenchError::io("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread to `cpu`.
pub fn pin(cpu: usize) -> Result<()> {
    let what = || format!("pinning a thread to CPU {cpu} (choose other CPUs with --cpus)");
    if cpu >= CpuSet::MAX_CPU {
        return Err(BenchError::Usage(what()));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(BenchError::io(what()))
}

/// Pins a thread of another process to `cpu`. The id of a process is the id of its first thread.
pub fn pin_other(thread: u32, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(Pid::from_raw(thread.cast_signed()), &set)
        .map_err(BenchError::io(format!("pinning thread {thread} to CPU {cpu}")))
}

/// Lets all threads of a process run on all CPUs on which this thread may run.
pub fn release(process: u32) -> Result<()> {
    let set = sched_getaffinity(None).map_err(BenchError::io("sched_getaffinity"))?;
    let folder = format!("/proc/{process}/task");
    let entries = std::fs::read_dir(&folder).map_err(BenchError::io(folder.clone()))?;
    let threads = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    for thread in threads {
        sched_setaffinity(Some(thread), &set).map_err(BenchError::io(format!("unpinning a thread of {process}")))?;
    }
    Ok(())
}

/// Returns the CPUs to use: the requested CPUs, or the first `want` allowed CPUs. If fewer CPUs are allowed, returns
/// all allowed CPUs; contenders that need more CPUs are then skipped.
pub fn choose(asked: &[usize], want: usize) -> Result<Vec<usize>> {
    let allowed = allowed()?;
    if asked.is_empty() {
        return Ok(allowed.into_iter().take(want).collect());
    }
    match asked.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(asked.to_vec()),
        Some(cpu) => Err(BenchError::Usage(format!("CPU {cpu} is not available; this process may use {allowed:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a pinned thread runs on that CPU only, and other threads are unaffected.
    #[test]
    fn a_pinned_thread_runs_on_one_cpu() {
        let before = allowed().expect("affinity");
        let cpu = *before.last().expect("some CPU");
        let inside = std::thread::spawn(move || {
            pin(cpu).expect("an allowed CPU");
            allowed().expect("affinity")
        });
        assert_eq!(inside.join().expect("no panic"), vec![cpu]);
        assert_eq!(allowed().expect("affinity"), before);
    }

    /// Objective: after release, a thread of another process may run on all CPUs again; a process that has ended is an
    /// error.
    #[test]
    fn a_released_thread_may_run_everywhere() {
        let all = allowed().expect("affinity");
        let told = std::sync::Barrier::new(2);
        let asked = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                pin(*all.last().expect("some CPU")).expect("an allowed CPU");
                told.wait();
                asked.wait();
                allowed().expect("affinity")
            });
            told.wait();
            let released = release(std::process::id());
            asked.wait();
            assert_eq!(pinned.join().expect("no panic"), all);
            released.expect("our own threads");
        });
        assert!(release(u32::MAX).is_err());
    }

    /// Objective: a CPU that does not exist is refused with an error, not a panic.
    #[test]
    fn an_absent_cpu_is_refused_with_an_error() {
        assert!(pin(CpuSet::MAX_CPU - 1).is_err());
        assert!(pin(usize::MAX).is_err());
        assert!(matches!(choose(&[CpuSet::MAX_CPU + 1], 2), Err(BenchError::Usage(_))));
    }
}
