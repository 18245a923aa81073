//! What a daemon has: descriptors, threads, memory, files. Compared when nobody but the bystanders is there.

use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use netvale::raw;
use netvale_abi::nmreq::NETMAP_REQ_VALE_DELIF;
use netvale_control::device::DeviceRequest;
use netvale_harness::until;
use serde::Serialize;

use crate::netvale::Netvale;

/// How long what attackers had may take to go: ports pause after peers that broke the rules, and sockets linger.
const LIMIT: Duration = Duration::from_secs(45);
/// Kilobytes by which a daemon's own memory may grow, over any time.
const OWN_KB: u64 = 16 << 10;
/// The same with all that it shares.
const RESIDENT_KB: u64 = 48 << 10;

/// What a daemon has.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Shared mappings.
    pub mappings: usize,
    /// Memory of its own, in kilobytes (RssAnon).
    pub own_kb: u64,
    /// All its memory, in kilobytes (VmRSS).
    pub resident_kb: u64,
    /// Files in its run directory.
    pub files: Vec<String>,
    /// Ports.
    pub ports: Vec<String>,
}

impl Counts {
    /// What a daemon has now.
    pub fn of(daemon: &Netvale) -> Counts {
        let path = |what: &str| format!("/proc/{}/{what}", daemon.id());
        let entries = |what: &str| fs::read_dir(path(what)).map_or(0, Iterator::count);
        let text = |what: &str| fs::read_to_string(path(what)).unwrap_or_default();
        let status = text("status");
        let kilobytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
            line.and_then(|number| number.parse().ok()).unwrap_or_default()
        };
        let is_shared = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s'));
        // Asked first: a connection to control that just ended still has its descriptor.
        let listed = daemon.control().ok().and_then(|mut client| client.ports(None).ok());
        let mut ports: Vec<String> = listed.unwrap_or_default().into_iter().map(|port| port.name).collect();
        ports.sort();
        Counts {
            descriptors: entries("fd"),
            threads: entries("task"),
            mappings: text("maps").lines().filter(is_shared).count(),
            own_kb: kilobytes("RssAnon:"),
            resident_kb: kilobytes("VmRSS:"),
            files: daemon.files(),
            ports,
        }
    }

    /// What it has more than `before`; nothing if all is well.
    pub fn beyond(&self, before: &Counts) -> Vec<String> {
        let mut more = Vec::new();
        let mut check = |is_fine: bool, what: &str, now: u64, then: u64| {
            if !is_fine {
                more.push(format!("{what}: {then} before, {now} now"));
            }
        };
        let number = |n: usize| n as u64;
        let fds = [self, before].map(|counts| number(counts.descriptors));
        check(fds[0] <= fds[1], "descriptors", fds[0], fds[1]);
        check(self.threads <= before.threads, "threads", number(self.threads), number(before.threads));
        check(self.mappings <= before.mappings, "shared mappings", number(self.mappings), number(before.mappings));
        check(self.own_kb <= before.own_kb + OWN_KB, "memory of its own (KB)", self.own_kb, before.own_kb);
        let resident = [self.resident_kb, before.resident_kb];
        check(resident[0] <= resident[1] + RESIDENT_KB, "resident memory (KB)", resident[0], resident[1]);
        for (what, now, then) in [("files", &self.files, &before.files), ("ports", &self.ports, &before.ports)] {
            if now != then {
                more.push(format!("{what}: {then:?} before, {now:?} now"));
            }
        }
        more
    }
}

/// Removes the persistent ports that attackers made: such a port stays for its user, within the quota, when its maker
/// ends. Noise makes one now and then, by a request that happens to be right.
fn remove_persistent(daemon: &Netvale, counts: &Counts, before: &Counts) {
    let new = counts.ports.iter().filter(|port| !before.ports.contains(port));
    for name in new.filter_map(|port| port.strip_prefix("netmap:")) {
        let request =
            DeviceRequest { reqtype: NETMAP_REQ_VALE_DELIF, name: name.to_owned(), ..DeviceRequest::default() };
        // One that is none is still there at the next look, and counted.
        let _ = raw::connect_to(Some(daemon.dir())).map(|line| raw::request(line.as_fd(), &request));
    }
}

/// Waits until a daemon has no more than `before`. Returns what it has, and what it has too much.
pub fn settles(daemon: &Netvale, before: &Counts) -> (Counts, Vec<String>) {
    let mut last = (Counts::default(), Vec::new());
    until(LIMIT, Duration::from_millis(50), || {
        let counts = Counts::of(daemon);
        remove_persistent(daemon, &counts, before);
        let more = counts.beyond(before);
        last = (counts, more);
        last.1.is_empty()
    });
    let missing: Vec<_> = before.ports.iter().filter(|port| !last.0.ports.contains(port)).collect();
    last.1.extend(daemon.reasons(&missing));
    last
}

/// Waits until what a daemon has stays the same for a while, longer than it waits before it gives memory back.
pub fn rests(daemon: &Netvale) -> Counts {
    const SAME: u32 = 30;
    let key = |counts: &Counts| (counts.descriptors, counts.threads, counts.mappings, counts.ports.clone());
    let (mut last, mut same) = (Counts::of(daemon), 0);
    until(LIMIT, Duration::from_millis(100), || {
        let now = Counts::of(daemon);
        same = if key(&now) == key(&last) { same + 1 } else { 0 };
        last = now;
        same >= SAME
    });
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: less is no leak, some memory is none, and anything else more is named.
    #[test]
    fn leaks() {
        let before = Counts { descriptors: 9, threads: 3, mappings: 2, own_kb: 1000, ..Counts::default() };
        assert!(Counts { descriptors: 8, own_kb: 9000, ..before.clone() }.beyond(&before).is_empty());
        let now = Counts { descriptors: 10, threads: 4, own_kb: 99_000, files: vec!["x".into()], ..before.clone() };
        assert_eq!(now.beyond(&before).len(), 4);
    }
}
