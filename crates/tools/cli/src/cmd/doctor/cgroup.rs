//! The CPU time limit of control groups: version 1 (`cpu.cfs_quota_us`) and version 2 (`cpu.max`).

use std::path::{Path, PathBuf};

/// CPU time available to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Quota {
    /// The quota cannot be determined.
    #[default]
    Unknown,
    /// No limit.
    Unlimited,
    /// A limit: at most `quota_us` of CPU time in each period.
    Limited {
        /// Microseconds of CPU time in a period, over all CPUs.
        quota_us: u64,
        /// The period in microseconds.
        period_us: u64,
    },
}

impl Quota {
    /// Returns the quota as a number of CPUs; `None` if there is no limit, or if the quota is unknown.
    pub fn cpus(self) -> Option<f64> {
        let Quota::Limited { quota_us, period_us } = self else { return None };
        Some(quota_us as f64 / period_us as f64)
    }

    /// Returns the microseconds that remain in a period after one CPU has used up the quota; `None` if there is no
    /// limit, or if the quota is unknown.
    pub fn pause_us(self) -> Option<u64> {
        let Quota::Limited { quota_us, period_us } = self else { return None };
        Some(period_us.saturating_sub(quota_us))
    }
}

/// Returns the tightest quota on the path from a process's group to the top of the hierarchy. `groups` is the text of
/// `/proc/PID/cgroup`, `mounts` is the text of `/proc/self/mountinfo`, and `read` reads a file.
pub fn quota(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Quota {
    let folders: Vec<_> = groups.lines().filter_map(|line| folder(line, mounts)).collect();
    if folders.is_empty() {
        return Quota::Unknown;
    }
    let levels = folders.iter().flat_map(|(top, leaf)| leaf.ancestors().take_while(move |at| at.starts_with(top)));
    let limits = levels.filter_map(|level| version_2(level, &read).or_else(|| version_1(level, &read)));
    let tightest = limits.min_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)));
    tightest.map_or(Quota::Unlimited, |(quota_us, period_us)| Quota::Limited { quota_us, period_us })
}

/// Returns the mount point of the hierarchy in a line of `/proc/PID/cgroup`, and the process's folder below it; `None`
/// if the hierarchy cannot limit CPU time.
fn folder(line: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
    let is_wanted = |kind: &str, options: &str| match controllers {
        "" => kind == "cgroup2",
        _ => kind == "cgroup" && controllers.split(',').any(|c| c == "cpu") && options.split(',').any(|o| o == "cpu"),
    };
    mounts.lines().find_map(|mount| {
        let (place, what) = mount.split_once(" - ")?;
        let mut what = what.split(' ');
        let kind = what.next()?;
        let options = what.nth(1)?;
        let mut place = place.split(' ').skip(3);
        let root = place.next()?;
        let top = Path::new(place.next()?);
        // Inside a container, the container's own group is the top of the hierarchy. The group may be listed with its
        // path outside the container, which does not exist inside.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        is_wanted(kind, options).then(|| (top.to_path_buf(), top.join(below)))
    })
}

fn version_2(folder: &Path, read: &impl Fn(&Path) -> Option<String>) -> Option<(u64, u64)> {
    let text = read(&folder.join("cpu.max"))?;
    let (quota, period) = text.trim().split_once(' ')?;
    limit(quota, period)
}

fn version_1(folder: &Path, read: &impl Fn(&Path) -> Option<String>) -> Option<(u64, u64)> {
    limit(read(&folder.join("cpu.cfs_quota_us"))?.trim(), read(&folder.join("cpu.cfs_period_us"))?.trim())
}

/// Parses a quota and its period. Returns `None` if the quota is `max` or -1, which mean that there is no limit, or if
/// a number is malformed.
fn limit(quota: &str, period: &str) -> Option<(u64, u64)> {
    let period = period.parse().ok().filter(|&period| period > 0)?;
    Some((quota.parse().ok()?, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    fn files<'a>(files: &'a [(&str, &str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        move |path| files.iter().find(|(name, _)| path == Path::new(name)).map(|(_, text)| (*text).to_owned())
    }

    /// Objective: the quotas of both versions are read, `max` and -1 mean no limit, and the tightest quota of all
    /// levels applies.
    #[test]
    fn the_tightest_quota_of_all_levels_counts() {
        let v1 = [
            ("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "10000\n"),
            ("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ];
        let ten_percent = Quota::Limited { quota_us: 10_000, period_us: 100_000 };
        assert_eq!(quota("3:cpu,cpuacct:/a/b\n2:cpuset:/x\n0::/\n", MOUNTS, files(&v1)), ten_percent);
        let v2 = [
            ("/sys/fs/cgroup/unified/u/s/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/unified/u/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/unified/cpu.max", "200000 100000\n"),
        ];
        assert_eq!(quota("0::/u/s\n", MOUNTS, files(&v2)).cpus(), Some(1.5));
        assert_eq!(quota("0::/v\n", MOUNTS, files(&[])), Quota::Unlimited);
    }

    /// Objective: in a container, whose group has another path outside the container, the quota of the highest visible
    /// group applies.
    #[test]
    fn the_visible_top_counts_in_a_container() {
        let mounts = "41 31 0:38 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let limited = [("/sys/fs/cgroup/cpu.max", "50000 100000")];
        for group in ["0::/docker/1", "0::/", "0::/../.."] {
            assert_eq!(quota(group, mounts, files(&limited)).cpus(), Some(0.5), "{group}");
        }
    }

    /// Objective: without control groups, or without their file systems, the quota is unknown, not unlimited.
    #[test]
    fn a_quota_without_control_groups_is_unknown() {
        assert_eq!(quota("", MOUNTS, files(&[])), Quota::Unknown);
        assert_eq!(quota("0::/\n", "", files(&[])), Quota::Unknown);
        assert_eq!(quota("nonsense", "nonsense - x", files(&[])), Quota::Unknown);
    }
}
