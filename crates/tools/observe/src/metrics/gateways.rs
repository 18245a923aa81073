//! Metrics of gateways. Each gateway is a separate process, from which its counters are requested.

use std::fmt::Result as Encoded;

use netvale_gateway::control::stats::GatewayStats;

use crate::gateways::ObservedGateway;
use crate::metrics::families::{MetricFamily, families};
use crate::metrics::samples::SampleValue::Count;
use crate::metrics::samples::{Label, Samples};

families! {
    /// The families of metrics of gateways.
    GATEWAYS:
    UP = Gauge "gateway_up" ["port", "switch"]
        "1 if the gateway has answered within the limits; else 0, and it has no other metrics.";
    FLOWS = Gauge "gateway_flows" ["port", "switch", "protocol"]
        "TCP connections, UDP ports and ping identifiers of guests in use.";
    OPENED = Counter "gateway_flows_opened" ["port", "switch"] "Flows that were opened.";
    REFUSED = Counter "gateway_flows_refused" ["port", "switch", "reason"]
        "Flows that were refused or could not be opened, by reason. Reasons without a flow are omitted.";
    CLOSED = Counter "gateway_flows_closed" ["port", "switch"] "Flows that were closed.";
    PAYLOAD = Counter "gateway" in Bytes ["port", "switch", "direction"]
        "Payload of flows: from the gateway into the switch, for guests (in), and from guests (out).";
    QUERIES = Counter "gateway_dns_queries" ["port", "switch", "outcome"] "DNS queries of guests.";
    PENDING = Gauge "gateway_dns_pending" ["port", "switch"] "DNS queries that wait for a name server.";
    LEASES = Gauge "gateway_leases" ["port", "switch"] "DHCP leases.";
    DROPPED = Counter "gateway_limited_datagrams" ["port", "switch"]
        "Datagrams and pings that were dropped, because their guest's rate did not let them pass.";
    WAITS = Counter "gateway_limited_waits" ["port", "switch"]
        "How often a TCP connection has waited for its guest's rate.";
    LOST = Counter "gateway_lost_frames" ["port", "switch"]
        "Frames for guests that were dropped, because the gateway's port had no room.";
}

/// Encodes the counters of all gateways.
pub(super) fn encode(samples: &mut Samples<'_>, gateways: &[ObservedGateway]) -> Encoded {
    let up = gateways.iter().map(|gateway| (whose(gateway), Count(gateway.stats.is_some().into())));
    samples.all(&UP, up)?;
    let mut all = GatewaySamples { samples, gateways };
    all.labelled(&FLOWS, "protocol", |stats| vec![("tcp", stats.tcp), ("udp", stats.udp), ("icmp", stats.pings)])?;
    all.one(&OPENED, |stats| stats.opened)?;
    all.labelled(&REFUSED, "reason", |stats| {
        stats.reasons.iter().map(|(reason, count)| (reason.as_str(), *count)).collect()
    })?;
    all.one(&CLOSED, |stats| stats.closed)?;
    all.labelled(&PAYLOAD, "direction", |stats| vec![("in", stats.received), ("out", stats.sent)])?;
    all.labelled(&QUERIES, "outcome", |stats| {
        let of = &stats.queries;
        vec![("own", of.own), ("forwarded", of.forwarded), ("refused", of.refused), ("failed", of.failed)]
    })?;
    all.one(&PENDING, |stats| stats.questions)?;
    all.one(&LEASES, |stats| stats.leases)?;
    all.one(&DROPPED, |stats| stats.dropped)?;
    all.one(&WAITS, |stats| stats.waits)?;
    all.one(&LOST, |stats| stats.lost_frames)
}

struct GatewaySamples<'a, 'b> {
    samples: &'a mut Samples<'b>,
    gateways: &'a [ObservedGateway],
}

impl GatewaySamples<'_, '_> {
    /// Encodes a family with one sample for each gateway.
    fn one(&mut self, family: &MetricFamily, value: fn(&GatewayStats) -> u64) -> Encoded {
        let samples = self.gateways.iter().filter_map(|one| Some((whose(one), Count(value(one.stats.as_ref()?)))));
        self.samples.all(family, samples)
    }

    /// Encodes a family with samples for each gateway that differ in one label.
    fn labelled(
        &mut self,
        family: &MetricFamily,
        label: &'static str,
        values: fn(&GatewayStats) -> Vec<(&str, u64)>,
    ) -> Encoded {
        let answered = self.gateways.iter().filter_map(|one| Some((whose(one), one.stats.as_ref()?)));
        let all = answered.flat_map(|(labels, stats)| {
            values(stats).into_iter().map(move |(word, count)| ((labels, [(label, word)]), Count(count)))
        });
        self.samples.all(family, all)
    }
}

fn whose(gateway: &ObservedGateway) -> [Label<'_>; 2] {
    [("port", gateway.port.as_str()), ("switch", gateway.switch())]
}
