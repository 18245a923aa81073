//! Limits a process to a share of one CPU, by a control group (version 1 or 2) with a quota of CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result, Skip};

/// The period of the quota. A shorter period makes the process run more evenly; the kernel accepts quotas of 1 ms or
/// more.
const PERIOD_US: u32 = 10_000;
/// Time limit for the kernel to notice that a group's last process has ended.
const PATIENCE: Duration = Duration::from_secs(1);
const MISSING: &str = "needs control groups with a quota of CPU time (the controller `cpu`, of version 1 or 2)";

/// Number of groups that this process has made, which is part of their names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A group with a quota. It must be dropped after its process has ended, and is then removed.
#[derive(Debug)]
pub struct CpuQuota {
    folder: PathBuf,
}

impl CpuQuota {
    /// Limits the process `pid`, with all its threads, to `percent` per cent of one CPU.
    pub fn of(pid: u32, percent: u32) -> Result<CpuQuota> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let root = hierarchy(&mounts).ok_or(Skip::NotBuilt(MISSING))?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(root).join(format!("netvale-bench-{}-{number}", std::process::id()));
        fs::create_dir(&folder).map_err(BenchError::io(format!("creating the control group {}", folder.display())))?;
        let this = CpuQuota { folder };
        let quota = PERIOD_US * percent / 100;
        if this.folder.join("cpu.max").exists() {
            this.write("cpu.max", format!("{quota} {PERIOD_US}"))?;
        } else if this.folder.join("cpu.cfs_quota_us").exists() {
            this.write("cpu.cfs_period_us", PERIOD_US.to_string())?;
            this.write("cpu.cfs_quota_us", quota.to_string())?;
        } else {
            return Err(Skip::NotBuilt(MISSING).into());
        }
        this.write("cgroup.procs", pid.to_string())?;
        Ok(this)
    }

    fn write(&self, file: &str, text: String) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(BenchError::io(format!("writing {}", path.display())))
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the mount point of the hierarchy in which to make groups with quotas: version 1's hierarchy if it has the
/// controller, else version 2's hierarchy; `None` if there is neither. Only the files in a new group show whether
/// version 2's hierarchy has the controller.
fn hierarchy(mounts: &str) -> Option<&str> {
    let of = |wanted: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, place, kind, options, ..] = words[..] else { return None };
            (kind == wanted && options.split(',').any(|one| one == option)).then_some(place)
        })
    };
    of("cgroup", "cpu").or_else(|| of("cgroup2", "rw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the controller is found in either version, and is not found if it is absent.
    #[test]
    fn versions() {
        let first = "cgroup /g/set cgroup rw,relatime,cpuset 0 0\ncgroup /g/cpu cgroup rw,cpu,cpuacct 0 0\n";
        let second = "cgroup2 /g/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(hierarchy(&format!("{second}{first}")), Some("/g/cpu"));
        assert_eq!(hierarchy(second), Some("/g/unified"));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n"), None);
        assert_eq!(hierarchy("cgroup2 /g cgroup2 ro 0 0\n"), None);
    }
}
