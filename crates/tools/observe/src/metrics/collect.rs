//! Conversion of a daemon's answer, a *snapshot*, into samples, family by family.

use std::fmt::Result as Encoded;
use std::sync::Arc;

use netvale_control::types::{
    AllStats, Drops, PolicyStats, PortDetails, PortState, RingStats, RuleStats, SwitchStats, WorkerStats,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::gateways::ObservedGateway;
use crate::metrics::families as f;
use crate::metrics::samples::SampleValue::{self, Count, Nanoseconds};
use crate::metrics::samples::{Label, NONE, Samples, both, whose};
use crate::metrics::{gateways, kinds};

/// The counters of a daemon, and of gateways, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The daemon's counters.
    pub stats: Arc<AllStats>,
    /// The gateways' counters.
    pub gateways: Arc<[ObservedGateway]>,
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Encoded {
        let all = &*self.stats;
        let mut samples = Samples(encoder);
        samples.info(&f::BUILD, [[("version", all.version.as_str())]])?;
        samples.all(&f::STALLS, [(NONE, Count(all.stalls))])?;
        samples.all(&f::REFUSALS, [(NONE, Count(all.refused))])?;
        samples.all(&f::EVICTIONS, [(NONE, Count(all.evicted))])?;
        switches(&mut samples, &all.switches)?;
        ports(&mut samples, &all.ports)?;
        rings(&mut samples, &all.ports)?;
        policies(&mut samples, &all.ports)?;
        kinds::KINDS.iter().try_for_each(|kind| (kind.encode)(&mut samples, &all.ports))?;
        regions(&mut samples, all)?;
        workers(&mut samples, &all.workers)?;
        gateways::encode(&mut samples, &self.gateways)
    }
}

fn switches(samples: &mut Samples<'_>, switches: &[SwitchStats]) -> Encoded {
    fn label(switch: &SwitchStats) -> [Label<'_>; 1] {
        [("switch", switch.info.name.as_str())]
    }
    let mut of = |family, value: fn(&SwitchStats) -> Option<u64>| {
        samples.all(family, switches.iter().filter_map(|one| Some((label(one), Count(value(one)?)))))
    };
    of(&f::SWITCH_PORTS, |one| Some(one.info.ports.into()))?;
    of(&f::SWITCH_ADDRESSES, |one| Some(one.info.addresses))?;
    of(&f::SWITCH_TABLE_SIZE, |one| Some(one.info.table_size))?;
    of(&f::SWITCH_REFUSED, |one| Some(one.info.refused_addresses))?;
    of(&f::MULTICAST_MEMBERSHIPS, |one| Some(one.multicast?.memberships))?;
    of(&f::MULTICAST_REPORTS, |one| Some(one.multicast?.reports))?;
    of(&f::MULTICAST_QUERIES, |one| Some(one.multicast?.queries))?;
    of(&f::MULTICAST_REFUSED, |one| Some(one.multicast?.refused_joins))?;
    of(&f::MULTICAST_MALFORMED, |one| Some(one.multicast?.malformed))?;
    of(&f::MULTICAST_LOST, |one| Some(one.multicast?.lost))
}

fn ports(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let regions: Vec<_> = ports.iter().map(|port| port.region.map(|id| id.to_string()).unwrap_or_default()).collect();
    let infos = ports.iter().zip(&regions);
    samples.info(
        &f::PORT,
        infos.map(|(port, region)| (whose(port), [("kind", port.kind.as_str()), ("region", region)])),
    )?;
    samples.all(&f::PORT_OPEN, ports.iter().map(|port| (whose(port), Count((port.state == PortState::Open).into()))))
}

fn rings(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let mut of = |family, value: fn(&RingStats) -> u64| {
        let rings = ports.iter().flat_map(|port| {
            both(&port.ingress, &port.egress).into_iter().flat_map(move |(direction, rings)| {
                let numbered = rings.iter().enumerate();
                numbered.map(move |(i, ring)| ((whose(port), (direction, [("ring", i)])), Count(value(ring))))
            })
        });
        samples.all(family, rings)
    };
    of(&f::PORT_FRAMES, |ring| ring.frames)?;
    of(&f::PORT_BYTES, |ring| ring.bytes)?;
    of(&f::PORT_BATCHES, |ring| ring.batches)?;
    drops(samples, ports)?;
    let mut counts = |family, value: fn(&PortDetails) -> u64| {
        samples.all(family, ports.iter().map(|port| (whose(port), Count(value(port)))))
    };
    counts(&f::PORT_IDLE_FRAMES, |port| port.idle)?;
    counts(&f::PORT_KICKS_SENT, |port| port.kicks_sent)?;
    counts(&f::PORT_KICKS_SUPPRESSED, |port| port.kicks_suppressed)?;
    counts(&f::PORT_KICKS_RECEIVED, |port| port.kicks_received)?;
    let timed = ports.iter().filter_map(|port| Some((whose(port), port.latency.as_ref()?)));
    samples.histograms(&f::PORT_LATENCY, timed)
}

fn drops(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let sums = ports.iter().flat_map(|port| {
        let sum = |drops: &Drops| Count(drops.values().sum());
        both(&port.in_drops, &port.out_drops).map(|(direction, drops)| ((whose(port), direction), sum(drops)))
    });
    samples.all(&f::PORT_DROPS, sums)?;
    let reasons = ports.iter().flat_map(|port| {
        both(&port.in_drops, &port.out_drops).into_iter().flat_map(move |(direction, drops)| {
            let reasons = drops.iter();
            reasons.map(move |(why, frames)| ((whose(port), (direction, [("reason", why)])), Count(*frames)))
        })
    });
    samples.all(&f::PORT_DROPS_BY_REASON, reasons)
}

fn policies(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let policed = || ports.iter().filter_map(|port| Some((port, port.policies.as_ref()?)));
    samples.all(&f::PORT_BLOCKED, policed().map(|(port, known)| (whose(port), Count(known.blocked.into()))))?;
    samples.all(&f::PORT_LOOPS, policed().map(|(port, known)| (whose(port), Count(known.loops))))?;
    let rules = policed().flat_map(|(port, known)| {
        both(&known.in_rules, &known.out_rules).into_iter().flat_map(move |(direction, rules)| {
            let of = move |(i, rule): (usize, &RuleStats)| {
                let action = if rule.drops { "drop" } else { "pass" };
                ((whose(port), (direction, ([("rule", i)], [("action", action)]))), Count(rule.frames))
            };
            rules.iter().enumerate().map(of)
        })
    });
    samples.all(&f::PORT_RULE_FRAMES, rules)?;
    let links = policed().flat_map(|(port, known): (_, &PolicyStats)| {
        let both = both(known.in_link, known.out_link).into_iter();
        both.filter_map(move |(direction, frames)| Some(((whose(port), direction), Count(frames?))))
    });
    samples.all(&f::PORT_LINK_FRAMES, links)
}

fn regions(samples: &mut Samples<'_>, all: &AllStats) -> Encoded {
    let labels = |id: u32, uid: u32| [("region", u64::from(id)), ("uid", u64::from(uid))];
    samples.all(&f::REGION_BYTES, all.regions.iter().map(|one| (labels(one.id, one.uid), Count(one.bytes))))?;
    samples.all(&f::REGION_BUFFERS, all.regions.iter().map(|one| (labels(one.id, one.uid), Count(one.bufs.into()))))
}

fn workers(samples: &mut Samples<'_>, workers: &[WorkerStats]) -> Encoded {
    fn label(worker: &WorkerStats) -> [(&'static str, u32); 1] {
        [("worker", worker.index)]
    }
    let cpu = |worker: &WorkerStats| worker.cpu.map(|cpu| cpu.to_string()).unwrap_or_default();
    samples.info(&f::WORKER, workers.iter().map(|one| (label(one), [("cpu", cpu(one))])))?;
    let times = workers.iter().flat_map(|one| {
        let times = [("busy", one.busy_ns), ("polled", one.polled_ns), ("slept", one.slept_ns)];
        times.map(|(mode, ns)| ((label(one), [("mode", mode)]), Nanoseconds(ns)))
    });
    samples.all(&f::WORKER_TIME, times)?;
    let mut of = |family, value: fn(&WorkerStats) -> SampleValue| {
        samples.all(family, workers.iter().map(|one| (label(one), value(one))))
    };
    of(&f::WORKER_WAITED, |one| Nanoseconds(one.waited_ns))?;
    of(&f::WORKER_PREEMPTED, |one| Nanoseconds(one.preempted_ns))?;
    of(&f::WORKER_INGRESSES, |one| Count(one.ingresses))?;
    of(&f::WORKER_STALLS, |one| Count(one.stalls))
}

#[cfg(test)]
mod tests;
