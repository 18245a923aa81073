//! Counters for `top` and for metrics. They are read from the workers' memory without a lock; memory that programs can
//! write is not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_control::types::{
    AllStats, AllStatsParams, Direction, Drops, KindStats, Latency, LatencyPart, MulticastStats, PolicyStats,
    PortDetails, PortState, RegionStats, RingStats, RuleStats, SwitchStats, WorkerStats,
};
use netvale_mem::latency::{PARTS, bounds};
use netvale_port::RingCounters;
use netvale_switch::Switch;
use netvale_switch::filters::Filters;

use super::inspect::switch_info;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort, Kicks};
use crate::permission::{controls, is_trusted, may_join};
use crate::registry::events::now_ns;
use crate::worker::Worker;

/// Approximate maximum number of counters in an answer; the client gets the remaining ports by further requests. This
/// keeps an answer below the limit of unread bytes, and lets the main thread do other work between the requests.
const MOST_COUNTERS: usize = 30_000;

/// Returns the counters of the ports that the caller may see. With `after`, the answer begins after the port of that
/// name; without `after`, it also contains the counters of switches, workers and regions.
pub fn all_stats(d: &Daemon, params: &AllStatsParams, caller: Caller) -> AllStats {
    let mut ports = Vec::new();
    let mut next = None;
    let mut counters = 0;
    let after = params.after.as_deref();
    for (name, record) in seen(d, caller).filter(|(name, _)| after.is_none_or(|after| *name > after)) {
        if counters > MOST_COUNTERS {
            next = ports.last().map(|port: &PortDetails| port.name.clone());
            break;
        }
        let port = details(record, name);
        counters += counters_in(&port);
        ports.push(port);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let ports = AllStats { now_ns: now_ns(), version, ports, next, ..AllStats::default() };
    if after.is_some() {
        return ports;
    }
    AllStats {
        switches: d.switches.iter().filter(|s| may_join(d, s.name(), caller).is_ok()).map(|s| switch(d, s)).collect(),
        workers: workers(d, caller),
        regions: regions(d, caller),
        refused: refused(d, caller),
        evicted: if is_trusted(caller) { d.evictions.count() } else { 0 },
        stalls: d.watched.stalls(),
        ..ports
    }
}

fn seen(d: &Daemon, caller: Caller) -> impl Iterator<Item = (&str, &DaemonPort)> {
    d.ports.iter().filter(move |(_, record)| controls(caller, record.owner.uid))
}

fn refused(d: &Daemon, caller: Caller) -> u64 {
    if is_trusted(caller) { d.refusals.all() } else { d.refusals.of(caller.uid) }
}

fn workers(d: &Daemon, caller: Caller) -> Vec<WorkerStats> {
    let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
    let worker = |(i, w): (usize, &Worker)| WorkerStats {
        index: i as u32,
        cpu: w.cpu().map(|c| c as u32),
        busy_ns: get(&w.stats().busy_ns),
        polled_ns: get(&w.stats().polled_ns),
        slept_ns: w.stats().slept(),
        waited_ns: get(&w.stats().waited_ns),
        preempted_ns: get(&w.stats().preempted_ns),
        ingresses: get(&w.stats().ingresses),
        stalls: w.stalls(),
    };
    let sees = |w: &Worker| w.domain().user().is_none_or(|uid| controls(caller, uid));
    d.workers.each().filter(|(_, w)| sees(w)).map(worker).collect()
}

fn regions(d: &Daemon, caller: Caller) -> Vec<RegionStats> {
    let own = d.regions.iter().filter(|(entry, _)| controls(caller, entry.uid));
    let stats = own.map(|(entry, region)| {
        let layout = region.layout();
        RegionStats { id: entry.id, uid: entry.uid, bytes: layout.total, bufs: layout.sizes.bufs.num }
    });
    stats.collect()
}

fn switch(d: &Daemon, s: &Arc<Switch>) -> SwitchStats {
    let multicast = d.snoops.get(s.name()).map(|known| {
        let counters = known.snoop.counters();
        MulticastStats {
            memberships: known.snoop.memberships().count() as u64,
            reports: counters.reports,
            queries: counters.queries,
            refused_joins: counters.refused_joins,
            malformed: counters.malformed,
            lost: known.snooping.lost(),
        }
    });
    SwitchStats { info: switch_info(s), multicast }
}

fn details(record: &DaemonPort, name: &str) -> PortDetails {
    let (kicks_sent, kicks_suppressed, kicks_received) = kicks(record);
    let mut port = PortDetails {
        name: name.to_owned(),
        switch: record.switch.as_ref().map(|switch| switch.name().to_owned()),
        kind: record.behind.kind(),
        state: if record.is_idle() { PortState::Idle } else { PortState::Open },
        region: record.rings().map(|rings| rings.mem_id),
        ingress: record.ingress.iter().map(|counters| ring(counters)).collect(),
        egress: record.egress.iter().map(|counters| ring(counters)).collect(),
        in_drops: drops(&record.ingress),
        out_drops: drops(&record.egress),
        idle: record.egress.iter().map(|counters| counters.idle()).sum(),
        kicks_sent,
        kicks_suppressed,
        kicks_received,
        policies: policies(record),
        latency: latency(&record.ingress),
        of_kind: None,
    };
    record.behind.count(&mut port);
    port
}

fn counters_in(port: &PortDetails) -> usize {
    let rules = port.policies.as_ref().map_or(0, |policies| policies.in_rules.len() + policies.out_rules.len());
    let of_kind = port.of_kind.as_ref().map_or(0, KindStats::counters);
    let parts = port.latency.as_ref().map_or(0, |latency| latency.parts.len());
    8 + 3 * (port.ingress.len() + port.egress.len())
        + port.in_drops.len()
        + port.out_drops.len()
        + rules
        + of_kind
        + parts
}

fn ring(counters: &RingCounters) -> RingStats {
    RingStats { frames: counters.frames(), bytes: counters.bytes(), batches: counters.batches() }
}

fn drops(rings: &[Arc<RingCounters>]) -> Drops {
    let mut sum = Drops::new();
    for (why, frames) in rings.iter().flat_map(|counters| counters.all_drops()) {
        *sum.entry(why.name().to_owned()).or_default() += frames;
    }
    sum
}

/// Returns the latencies of the timed frames of all rings; `None` if no frame was timed.
fn latency(rings: &[Arc<RingCounters>]) -> Option<Latency> {
    let mut sum_ns = 0;
    let mut all = [0; PARTS];
    for histogram in rings.iter().map(|counters| counters.latency()) {
        sum_ns += histogram.sum();
        all.iter_mut().zip(histogram.parts()).for_each(|(all, frames)| *all += frames);
    }
    let parts = all.into_iter().zip(bounds()).filter(|&(frames, _)| frames > 0);
    let parts: Vec<_> = parts.map(|(frames, up_to_ns)| LatencyPart { up_to_ns, frames }).collect();
    (!parts.is_empty()).then_some(Latency { sum_ns, parts })
}

/// Returns the sums of all rings' kicks: kicks sent, suppressed and received.
fn kicks(record: &DaemonPort) -> Kicks {
    let rings = record.rings();
    let behind = &record.behind;
    let sent = (0..record.ingress.len()).map(|i| match rings.and_then(|rings| rings.tx.get(i)) {
        Some(tx) => (tx.kicks.sent(), tx.kicks.suppressed(), tx.kicks.received()),
        None => behind.ring_kicks(Direction::In, i),
    });
    let got = (0..record.egress.len()).map(|i| match rings.and_then(|rings| rings.rx.get(i)) {
        Some(rx) => (rx.host().kicks().sent(), rx.host().kicks().suppressed(), 0),
        None => {
            let (sent, suppressed, _) = behind.ring_kicks(Direction::Out, i);
            (sent, suppressed, 0)
        }
    });
    let sum = sent.chain(got).fold((0, 0, 0), |all, one| (all.0 + one.0, all.1 + one.1, all.2 + one.2));
    behind.kicks().map_or(sum, |(sent, received)| (sent, sum.1, received))
}

fn policies(record: &DaemonPort) -> Option<PolicyStats> {
    let switch = record.switch.as_ref()?;
    let id = record.id?;
    let known = switch.policies(id)?;
    let state = switch.policy_state(id)?;
    let rules = |filters: &Filters| {
        let rules = filters.rules().iter();
        rules.map(|rule| RuleStats { drops: rule.drops, frames: rule.frames() }).collect()
    };
    let [in_link, out_link] = record.links.each_ref().map(|link| Some(link.as_ref()?.link.under_way()));
    Some(PolicyStats {
        blocked: state.is_blocked(),
        loops: state.loops(),
        in_rules: rules(&known.filters[0]),
        out_rules: rules(&known.filters[1]),
        in_link,
        out_link,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the histograms of all rings are added up, empty buckets are omitted, and the buckets have the bounds
    /// that the protocol documents.
    #[test]
    fn the_histograms_of_all_rings_are_summed() {
        let rings = [Arc::<RingCounters>::default(), Arc::default()];
        assert_eq!(latency(&rings), None);
        rings[0].latency().add(400, 3);
        rings[1].latency().add(500, 1);
        rings[1].latency().add(3_000_000_000, 2);
        let part = |up_to_ns, frames| LatencyPart { up_to_ns, frames };
        let parts = vec![part(Some(500), 4), part(None, 2)];
        let found = latency(&rings).unwrap();
        assert_eq!((found.frames(), &found), (6, &Latency { sum_ns: 1200 + 500 + 6_000_000_000, parts }));
        assert_eq!(Latency::BOUNDS_NS, netvale_mem::latency::BOUNDS);
    }
}
