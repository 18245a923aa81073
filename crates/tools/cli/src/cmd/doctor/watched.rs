//! Reads a daemon's counters at the start and the end of the watch.

use std::collections::{BTreeMap, BTreeSet};

use netvale_control::client::Client;
use netvale_control::types::{AllStats, PortInfo, PortKind};

use crate::CliError;
use crate::ctx::DaemonClient;

/// The counters and ports of a daemon at one moment.
#[derive(Clone, Debug, Default)]
pub struct DaemonReading {
    pub stats: AllStats,
    /// The ports, with their drops by reason.
    pub ports: Vec<PortInfo>,
}

impl DaemonReading {
    /// Reads the daemon's counters and ports.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn take(daemon: &mut DaemonClient) -> Result<DaemonReading, CliError> {
        Ok(DaemonReading { stats: daemon.ask(Client::all_stats)?, ports: daemon.ask(|client| client.ports(None))? })
    }
}

/// A daemon's readings at the start and the end of the watch.
#[derive(Clone, Debug, Default)]
pub struct WatchedDaemon {
    /// The daemon's process id; `None` if the daemon's process is not visible to this process.
    pub pid: Option<u32>,
    pub before: DaemonReading,
    pub after: DaemonReading,
}

/// A worker's time during the watch. The shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerLoad {
    pub index: u32,
    /// The CPU to which the worker is pinned; `None` if it is not pinned.
    pub cpu: Option<u32>,
    /// Share of the worker's time spent forwarding.
    pub busy: f64,
    /// Share of the worker's time spent polling without finding work.
    pub polled: f64,
    /// Number of the worker's ingresses: the queues from which it forwards frames.
    pub ingresses: u64,
}

impl WorkerLoad {
    /// Returns the share of time during which the worker was asleep. It is computed as the remainder, because the
    /// worker's own counter does not include a sleep that is still in progress.
    pub fn asleep(&self) -> f64 {
        (1.0 - self.busy - self.polled).max(0.0)
    }
}

/// The rate of frames that a port dropped for lack of room.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomDrops {
    pub port: String,
    pub per_second: f64,
}

impl WatchedDaemon {
    /// Returns the number of seconds between the two readings, by the daemon's clock.
    pub fn seconds(&self) -> f64 {
        self.after.stats.now_ns.saturating_sub(self.before.stats.now_ns).max(1) as f64 / 1e9
    }

    /// Returns how each worker spent its time.
    pub fn loads(&self) -> Vec<WorkerLoad> {
        let passed_ns = self.seconds() * 1e9;
        let before: BTreeMap<_, _> = self.before.stats.workers.iter().map(|w| (w.index, *w)).collect();
        let load = |worker: &netvale_control::types::WorkerStats| {
            let first = before.get(&worker.index).copied().unwrap_or_default();
            let share = |now: u64, then: u64| (now.saturating_sub(then) as f64 / passed_ns).min(1.0);
            WorkerLoad {
                index: worker.index,
                cpu: worker.cpu,
                busy: share(worker.busy_ns, first.busy_ns),
                polled: share(worker.polled_ns, first.polled_ns),
                ingresses: worker.ingresses,
            }
        };
        self.after.stats.workers.iter().map(load).collect()
    }

    /// Returns the ports that dropped frames for lack of room during the watch, worst first.
    pub fn no_room(&self) -> Vec<RoomDrops> {
        let before: BTreeMap<_, _> = self.before.ports.iter().map(|port| (&port.name, no_room(port))).collect();
        let grown = self.after.ports.iter().filter_map(|port| {
            let now = no_room(port);
            // If the counter is lower than before, it belongs to a new port of the same name, whose counter began at
            // zero.
            let then = before.get(&port.name).copied().filter(|&then| then <= now).unwrap_or(0);
            let per_second = (now - then) as f64 / self.seconds();
            (now > then).then(|| RoomDrops { port: port.name.clone(), per_second })
        });
        let mut ports: Vec<_> = grown.collect();
        ports.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
        ports
    }

    /// Returns the process ids of the programs that have a port.
    pub fn clients(&self) -> BTreeSet<u32> {
        self.after.ports.iter().filter_map(|port| u32::try_from(port.owner?.pid).ok()).collect()
    }

    /// Returns the size of the ports' memory in bytes: the part in ordinary pages, and the part in huge pages. A region
    /// shared by several ports counts once.
    pub fn memory(&self) -> (u64, u64) {
        let regions = self.after.ports.iter().filter_map(|port| port.region.as_ref());
        let regions: BTreeMap<_, _> = regions.map(|region| (region.id, (region.bytes, region.huge))).collect();
        let sum = |of_huge| regions.values().filter(|(_, huge)| *huge == of_huge).map(|(bytes, _)| bytes).sum();
        (sum(false), sum(true))
    }

    /// Returns the number of bytes of memory locked for network interfaces (AF_XDP).
    pub fn locked(&self) -> u64 {
        let interfaces = self.after.ports.iter().filter(|port| port.kind == PortKind::Nic);
        interfaces.filter_map(|port| port.region.as_ref()).map(|region| region.bytes).sum()
    }
}

fn no_room(port: &PortInfo) -> u64 {
    port.drops.get("no-room").copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{RegionInfo, WorkerStats};

    use super::*;

    fn port(name: &str, drops: u64, region: u32) -> PortInfo {
        PortInfo {
            name: name.into(),
            drops: [("no-room".to_owned(), drops), ("no-port".to_owned(), 5 * drops)].into(),
            region: Some(RegionInfo { id: region as _, bytes: 4 << 20, buf_size: 2112, bufs: 2050, huge: region == 9 }),
            ..PortInfo::default()
        }
    }

    fn reading(now_ns: u64, busy_ns: u64, ports: Vec<PortInfo>) -> DaemonReading {
        let worker = WorkerStats { busy_ns, polled_ns: busy_ns / 4, ..WorkerStats::default() };
        DaemonReading { stats: AllStats { now_ns, workers: vec![worker], ..AllStats::default() }, ports }
    }

    /// Objective: shares and rates use the daemon's clock; a new port's counter began at zero; shared memory counts
    /// once.
    #[test]
    fn rates_use_the_daemons_clock() {
        let before = reading(1_000_000_000, 0, vec![port("vale0:a", 100, 1), port("vale0:b", 900, 1)]);
        let ports = vec![port("vale0:a", 300, 1), port("vale0:b", 100, 1), port("vale0:c", 0, 9)];
        let watched = WatchedDaemon { pid: None, before, after: reading(3_000_000_000, 1_000_000_000, ports) };
        let [load] = watched.loads()[..] else { panic!("one worker") };
        assert_eq!((load.busy, load.polled, load.asleep()), (0.5, 0.125, 0.375));
        let grown: Vec<_> = watched.no_room().into_iter().map(|port| (port.port, port.per_second)).collect();
        assert_eq!(grown, [("vale0:a".to_owned(), 100.0), ("vale0:b".to_owned(), 50.0)]);
        assert_eq!(watched.memory(), (4 << 20, 4 << 20));
    }
}
