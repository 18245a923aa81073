//! A daemon's answer as samples: a *snapshot* that the encoder goes through, family by family. A sample has labels and
//! a *value*.

use std::fmt::Result as Encoded;

use netvale_control::types::{
    AllStats, Drops, Latency, PolicyStats, PortDetails, PortState, RingStats, RuleStats, SwitchStats, TunnelStats,
    WorkerStats,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};

use crate::metrics::families::{self as f, Family, Type};

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A time, in nanoseconds, which is encoded in seconds.
    Nanoseconds(u64),
}

use Value::{Count, Nanoseconds};

/// A daemon's counters at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(pub std::sync::Arc<AllStats>);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Encoded {
        let (all, mut samples) = (&*self.0, Samples(encoder));
        samples.info(&f::BUILD, [[("version", all.version.as_str())]])?;
        samples.all(&f::STALLS, [(NONE, Count(all.stalls))])?;
        samples.all(&f::REFUSALS, [(NONE, Count(all.refused))])?;
        samples.all(&f::EVICTIONS, [(NONE, Count(all.evicted))])?;
        switches(&mut samples, &all.switches)?;
        ports(&mut samples, &all.ports)?;
        rings(&mut samples, &all.ports)?;
        policies(&mut samples, &all.ports)?;
        tunnels(&mut samples, &all.ports)?;
        regions(&mut samples, all)?;
        workers(&mut samples, &all.workers)
    }
}

/// A label, and several of them. Their values are escaped when they are encoded.
type Label<'a> = (&'static str, &'a str);
const NONE: [Label<'static>; 0] = [];

/// Encodes families.
struct Samples<'a>(DescriptorEncoder<'a>);

impl Samples<'_> {
    fn all<L: EncodeLabelSet>(&mut self, family: &Family, samples: impl IntoIterator<Item = (L, Value)>) -> Encoded {
        let mut encoder =
            self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.of.encoded())?;
        for (labels, value) in samples {
            let mut one = encoder.encode_family(&labels)?;
            match (family.of, value) {
                (Type::Counter, Count(n)) => one.encode_counter::<NoLabelSet, _, u64>(&n, None)?,
                (Type::Counter, Nanoseconds(n)) => one.encode_counter::<NoLabelSet, _, u64>(&seconds(n), None)?,
                (_, Count(n)) => one.encode_gauge(&n)?,
                (_, Nanoseconds(n)) => one.encode_gauge(&seconds(n))?,
            }
        }
        Ok(())
    }

    fn histograms<'a, L: EncodeLabelSet>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = (L, &'a Latency)>,
    ) -> Encoded {
        let mut encoder =
            self.0.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.of.encoded())?;
        for (labels, latency) in samples {
            let one = &mut encoder.encode_family(&labels)?;
            let (sum, parts) = (seconds(latency.sum_ns), parts(latency));
            let frames = parts.iter().map(|(_, frames)| frames).sum();
            one.encode_histogram::<NoLabelSet>(sum, frames, &parts, None)?;
        }
        Ok(())
    }

    fn info<L: EncodeLabelSet>(&mut self, family: &Family, samples: impl IntoIterator<Item = L>) -> Encoded {
        let mut encoder = self.0.encode_descriptor(family.name, family.help, None, family.of.encoded())?;
        samples.into_iter().try_for_each(|labels| encoder.encode_info(&labels))
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The frames up to each bound in seconds, those of the bounds before left out.
fn parts(latency: &Latency) -> Vec<(f64, u64)> {
    let frames = |bound| latency.parts.iter().filter(|part| part.up_to_ns == bound).map(|part| part.frames).sum();
    let bounds = Latency::BOUNDS_NS.into_iter().map(|bound| (seconds(bound), frames(Some(bound))));
    bounds.chain([(f64::INFINITY, frames(None))]).collect()
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

/// The labels of all that is a port's.
fn whose(port: &PortDetails) -> [Label<'_>; 2] {
    [("port", port.name.as_str()), ("switch", port.switch.as_deref().unwrap_or_default())]
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

/// Both directions of a port.
fn both<T>(of_in: T, of_out: T) -> [([Label<'static>; 1], T); 2] {
    [([("direction", "in")], of_in), ([("direction", "out")], of_out)]
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

fn tunnels(samples: &mut Samples<'_>, ports: &[PortDetails]) -> Encoded {
    let tunnels = || ports.iter().filter_map(|port| Some((port, port.tunnel.as_ref()?)));
    let about = |tunnel: &TunnelStats| ([("vni", u64::from(tunnel.vni))], [("local", tunnel.local.to_string())]);
    samples.info(&f::TUNNEL, tunnels().map(|(port, tunnel)| (whose(port), about(tunnel))))?;
    samples.all(&f::TUNNEL_ADDRESSES, tunnels().map(|(port, tunnel)| (whose(port), Count(tunnel.addresses))))?;
    samples.all(&f::TUNNEL_VTEPS, tunnels().map(|(port, tunnel)| (whose(port), Count(tunnel.vteps))))?;
    let mut of = |family, value: fn(&netvale_control::types::VxlanRemote) -> [u64; 2]| {
        let remotes = tunnels().flat_map(|(port, tunnel)| tunnel.remotes.iter().map(move |remote| (port, remote)));
        let counts = remotes.flat_map(|(port, remote)| {
            let [got, sent] = value(remote);
            let vtep = remote.vtep.to_string();
            both(got, sent).map(|(direction, n)| ((whose(port), ([("vtep", vtep.clone())], direction)), Count(n)))
        });
        samples.all(family, counts)
    };
    of(&f::TUNNEL_FRAMES, |remote| [remote.in_frames, remote.out_frames])?;
    of(&f::TUNNEL_BYTES, |remote| [remote.in_bytes, remote.out_bytes])
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
    let mut of = |family, value: fn(&WorkerStats) -> Value| {
        samples.all(family, workers.iter().map(|one| (label(one), value(one))))
    };
    of(&f::WORKER_WAITED, |one| Nanoseconds(one.waited_ns))?;
    of(&f::WORKER_PREEMPTED, |one| Nanoseconds(one.preempted_ns))?;
    of(&f::WORKER_INGRESSES, |one| Count(one.ingresses))?;
    of(&f::WORKER_STALLS, |one| Count(one.stalls))
}

#[cfg(test)]
mod tests;
