//! A daemon's resources: descriptors, threads, memory, files. They are compared while only the bystanders run.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use netvale::raw;
use netvale_abi::nmreq::NETMAP_REQ_VALE_DELIF;
use netvale_control::device::DeviceRequest;
use netvale_harness::until;
use serde::Serialize;

use crate::netvale::Netvale;

/// Time limit for the release of attackers' resources: ports pause after peers that broke the rules, and sockets
/// linger.
const LIMIT: Duration = Duration::from_secs(45);
/// Maximum growth of a daemon's private memory in kilobytes, however long the daemon runs.
const OWN_KB: u64 = 8 << 10;
/// Maximum growth of a daemon's resident memory in kilobytes, including shared memory.
const RESIDENT_KB: u64 = 48 << 10;

/// Number of items by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameCounts(BTreeMap<String, usize>);

impl NameCounts {
    /// Returns the total number.
    pub fn all(&self) -> usize {
        self.0.values().sum()
    }

    /// Lists the names that occur more often than in `before`.
    fn beyond(&self, before: &NameCounts) -> String {
        let more = self.0.iter().filter_map(|(name, &now)| {
            let then = before.0.get(name).copied().unwrap_or(0);
            (now > then).then(|| format!("{name} {then} to {now}"))
        });
        more.collect::<Vec<_>>().join(", ")
    }
}

impl<S: AsRef<str>> FromIterator<S> for NameCounts {
    /// Counts the names. Digits in them, such as the numbers of inodes and queues, are ignored.
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut counts = BTreeMap::new();
        for name in names {
            let name = name.as_ref().replace(|digit: char| digit.is_ascii_digit(), "");
            *counts.entry(name).or_default() += 1;
        }
        NameCounts(counts)
    }
}

/// A daemon's resources.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResourceCounts {
    /// Open descriptors, by target.
    pub descriptors: NameCounts,
    /// Threads, by name.
    pub threads: NameCounts,
    /// Shared mappings, by file.
    pub mappings: NameCounts,
    /// Private memory in kilobytes (RssAnon).
    pub own_kb: u64,
    /// Resident memory in kilobytes (VmRSS).
    pub resident_kb: u64,
    /// Files in the daemon's run directory.
    pub files: Vec<String>,
    /// Names of the ports.
    pub ports: Vec<String>,
}

impl ResourceCounts {
    /// Returns the daemon's current resources.
    pub fn of(daemon: &Netvale) -> ResourceCounts {
        let path = |what: &str| format!("/proc/{}/{what}", daemon.id());
        let entries = |what: &str| fs::read_dir(path(what)).into_iter().flatten().flatten().map(|entry| entry.path());
        let text = |what: &str| fs::read_to_string(path(what)).unwrap_or_default();
        let status = text("status");
        let kilobytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
            line.and_then(|number| number.parse().ok()).unwrap_or_default()
        };
        let is_shared = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s'));
        // The ports are requested before descriptors are counted, so that each count includes the control connection of
        // this request, whose descriptor the daemon closes a little later.
        let listed = daemon.control().ok().and_then(|mut client| client.ports(None).ok());
        let mut ports: Vec<String> = listed.unwrap_or_default().into_iter().map(|port| port.name).collect();
        ports.sort();
        ResourceCounts {
            descriptors: entries("fd").flat_map(fs::read_link).map(|target| target.display().to_string()).collect(),
            threads: entries("task").flat_map(|task| fs::read_to_string(task.join("comm"))).map(trimmed).collect(),
            mappings: text("maps").lines().filter(is_shared).map(mapped_file).collect(),
            own_kb: kilobytes("RssAnon:"),
            resident_kb: kilobytes("VmRSS:"),
            files: daemon.files(),
            ports,
        }
    }

    /// Lists the resources of which the daemon uses more than in `before`, beyond a tolerance; empty if there are none.
    pub fn beyond(&self, before: &ResourceCounts) -> Vec<String> {
        let mut more = Vec::new();
        let mut check = |is_fine: bool, what: &str, now: u64, then: u64| {
            if !is_fine {
                more.push(format!("{what}: {then} before, {now} now"));
            }
        };
        check(self.own_kb <= before.own_kb + OWN_KB, "private memory (KB)", self.own_kb, before.own_kb);
        let resident = [self.resident_kb, before.resident_kb];
        check(resident[0] <= resident[1] + RESIDENT_KB, "resident memory (KB)", resident[0], resident[1]);
        for (what, now, then) in [
            ("descriptors", &self.descriptors, &before.descriptors),
            ("threads", &self.threads, &before.threads),
            ("shared mappings", &self.mappings, &before.mappings),
        ] {
            if now.all() > then.all() {
                more.push(format!("{what}: {} before, {} now ({})", then.all(), now.all(), now.beyond(then)));
            }
        }
        for (what, now, then) in [("files", &self.files, &before.files), ("ports", &self.ports, &before.ports)] {
            if now != then {
                more.push(format!("{what}: {then:?} before, {now:?} now"));
            }
        }
        more
    }
}

fn trimmed(name: String) -> String {
    name.trim_end().to_owned()
}

/// Returns the file in a line of /proc/PID/maps.
fn mapped_file(line: &str) -> String {
    line.split_ascii_whitespace().skip(5).collect::<Vec<_>>().join(" ")
}

/// Removes persistent ports that attackers made. Such a port stays after its maker has ended, within its user's quota.
/// Attackers that send random bytes make one now and then, when a request happens to be valid.
fn remove_persistent(daemon: &Netvale, counts: &ResourceCounts, before: &ResourceCounts) {
    let new = counts.ports.iter().filter(|port| !before.ports.contains(port));
    for name in new.filter_map(|port| port.strip_prefix("netmap:")) {
        let request =
            DeviceRequest { reqtype: NETMAP_REQ_VALE_DELIF, name: name.to_owned(), ..DeviceRequest::default() };
        // A port that cannot be removed still exists at the next check, which counts it.
        let _ = raw::connect_to(Some(daemon.dir())).map(|line| raw::request(line.as_fd(), &request));
    }
}

/// Waits until no resource of a daemon exceeds `before`. Returns the daemon's resources, and descriptions of what still
/// exceeds `before` and of ports that were evicted.
pub fn settles(daemon: &Netvale, before: &ResourceCounts) -> (ResourceCounts, Vec<String>) {
    let mut last = (ResourceCounts::default(), Vec::new());
    until(LIMIT, Duration::from_millis(50), || {
        let counts = ResourceCounts::of(daemon);
        remove_persistent(daemon, &counts, before);
        let more = counts.beyond(before);
        last = (counts, more);
        last.1.is_empty()
    });
    let missing: Vec<_> = before.ports.iter().filter(|port| !last.0.ports.contains(port)).collect();
    last.1.extend(daemon.reasons(&missing));
    last
}

/// Waits until a daemon's resources have been stable for longer than the daemon delays the return of memory. Returns
/// the resources.
pub fn rests(daemon: &Netvale) -> ResourceCounts {
    const SAME: u32 = 30;
    let key = |counts: &ResourceCounts| {
        (counts.descriptors.all(), counts.threads.all(), counts.mappings.all(), counts.ports.clone())
    };
    let mut last = ResourceCounts::of(daemon);
    let mut same = 0;
    until(LIMIT, Duration::from_millis(100), || {
        let now = ResourceCounts::of(daemon);
        same = if key(&now) == key(&last) { same + 1 } else { 0 };
        last = now;
        same >= SAME
    });
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: fewer resources are no leak, nor is a little more memory; any other growth is reported by name.
    #[test]
    fn only_growth_is_named_a_leak() {
        let names = |names: &[&str]| names.iter().collect::<NameCounts>();
        let descriptors = names(&["socket:[12]", "socket:[13]", "anon_inode:[eventfd]"]);
        let before =
            ResourceCounts { descriptors, threads: names(&["main"]), own_kb: 1000, ..ResourceCounts::default() };
        let less = names(&["anon_inode:[eventfd]", "socket:[99]"]);
        assert!(ResourceCounts { descriptors: less, own_kb: 9000, ..before.clone() }.beyond(&before).is_empty());
        let descriptors = names(&["socket:[14]", "socket:[15]", "anon_inode:[eventfd]", "/dev/net/tun"]);
        let now =
            ResourceCounts { descriptors, threads: names(&["main", "worker/1"]), own_kb: 99_000, ..before.clone() };
        let more = ResourceCounts { files: vec!["x".into()], ..now }.beyond(&before);
        assert_eq!(more.len(), 4, "{more:?}");
        assert!(more.contains(&"descriptors: 3 before, 4 now (/dev/net/tun 0 to 1)".to_owned()), "{more:?}");
        assert!(more.contains(&"threads: 1 before, 2 now (worker/ 0 to 1)".to_owned()), "{more:?}");
    }
}
