use std::collections::BTreeMap;
use std::sync::Arc;

use netvale_control::types::{
    KindStats, Latency, LatencyPart, MulticastStats, RegionStats, SwitchInfo, TunnelStats, VxlanRemote,
};
use netvale_gateway::control::stats::GatewayStats;
use netvale_gateway::dns::QueryCounts;
use proptest::prelude::*;

use super::*;
use crate::metrics::all;
use crate::metrics::families::MetricFamily;
use crate::metrics::format::TextFormat;

/// Returns the counters of a daemon with every kind of port, region and worker, and of gateways.
fn everything(name: &str) -> Snapshot {
    let rings = |n| vec![RingStats { frames: n, bytes: 60_u64.saturating_mul(n), batches: 1 }, RingStats::default()];
    let remote = VxlanRemote {
        vtep: [10, 0, 0, 2].into(),
        flood: true,
        out_frames: 1,
        out_bytes: 60,
        in_frames: 2,
        in_bytes: 120,
    };
    let part = |up_to_ns, frames| LatencyPart { up_to_ns, frames };
    let rule = RuleStats { drops: true, frames: 9 };
    let port = PortDetails {
        name: name.into(),
        switch: Some("vale0".into()),
        region: Some(2),
        ingress: rings(3),
        egress: rings(u64::MAX),
        in_drops: [("rate".to_owned(), 5), ("filter".to_owned(), 6)].into(),
        kicks_sent: 7,
        policies: Some(PolicyStats {
            blocked: true,
            loops: 1,
            in_rules: vec![rule],
            out_rules: vec![RuleStats::default()],
            in_link: Some(4),
            out_link: None,
        }),
        of_kind: Some(KindStats::Vxlan(TunnelStats {
            vni: 100,
            local: [10, 0, 0, 1].into(),
            addresses: 1,
            vteps: 1,
            remotes: vec![remote],
        })),
        latency: Some(Latency { sum_ns: 5_001_000, parts: vec![part(Some(1_000), 2), part(None, 1)] }),
        ..PortDetails::default()
    };
    let info = SwitchInfo { name: "vale0".into(), ports: 2, table_size: 16_384, ..SwitchInfo::default() };
    let multicast = Some(MulticastStats { reports: 8, ..MulticastStats::default() });
    let worker = WorkerStats { index: 1, cpu: Some(3), busy_ns: 1_500_000_000, slept_ns: 1, ..WorkerStats::default() };
    let stats = Arc::new(AllStats {
        version: "0.1.0".into(),
        switches: vec![SwitchStats { info, multicast }],
        ports: vec![port, PortDetails { name: "vale0:plain".into(), ..PortDetails::default() }],
        workers: vec![worker],
        regions: vec![RegionStats { id: 2, uid: 1000, bytes: 4096, bufs: 10 }],
        refused: 11,
        ..AllStats::default()
    });
    Snapshot { stats, gateways: gateways(name) }
}

/// Returns two gateways: the first has answered, the second has not.
fn gateways(name: &str) -> Arc<[ObservedGateway]> {
    let stats = GatewayStats {
        tcp: 4,
        received: 1000,
        sent: 10,
        reasons: [("policy".to_owned(), 5)].into(),
        queries: QueryCounts { own: 6, ..QueryCounts::default() },
        ..GatewayStats::default()
    };
    let hangs = ObservedGateway { port: "vale1:gateway".into(), stats: None };
    [ObservedGateway { port: format!("{name}:out"), stats: Some(stats) }, hangs].into()
}

/// Returns name, labels and value of each sample in a text.
fn samples(text: &str) -> Vec<(String, BTreeMap<String, String>, f64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let mut labels = BTreeMap::new();
    let mut rest = &line[name.len()..];
    while let Some(text) = rest.strip_prefix(['{', ',']) {
        let (key, text) = text.split_once("=\"").expect("a label");
        let mut value = String::new();
        let mut chars = text.chars();
        loop {
            match chars.next().expect("a value ends") {
                '"' => break,
                '\\' => value.push(match chars.next().expect("an escaped character") {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
        rest = chars.as_str();
    }
    let value = rest.strip_prefix('}').unwrap_or(rest).trim();
    (name, labels, value.parse().unwrap_or_else(|_| panic!("a number: {line}")))
}

/// Returns the name of the family to which a sample's name belongs.
fn family_of(name: &str) -> String {
    let has = |family: &&MetricFamily| family.samples().iter().any(|one| one == name);
    all().find(has).map_or_else(|| name.to_owned(), |family| family.sample())
}

/// Objective: exactly the families in the tables are encoded, in the tables' order and with their labels.
#[test]
fn as_in_the_table() {
    for format in [TextFormat::OpenMetrics, TextFormat::Prometheus] {
        let text = format.encode(&everything("vale0:a"));
        let mut encoded: Vec<_> = samples(&text).into_iter().map(|(name, labels, _)| (name, labels)).collect();
        for (name, labels) in &encoded {
            let is_it = |family: &&MetricFamily| family.sample() == family_of(name);
            let family = all().find(is_it).unwrap_or_else(|| panic!("{name}"));
            let mut wanted = family.labels.to_vec();
            wanted.extend(name.ends_with("_bucket").then_some("le"));
            wanted.sort_unstable();
            assert_eq!(labels.keys().collect::<Vec<_>>(), wanted, "{name}");
        }
        encoded.dedup_by(|one, other| family_of(&one.0) == family_of(&other.0));
        let wanted: Vec<_> = all().map(|family| family.sample()).collect();
        assert_eq!(encoded.iter().map(|(name, _)| family_of(name)).collect::<Vec<_>>(), wanted);
        assert_eq!(text.ends_with("\n# EOF\n"), format == TextFormat::OpenMetrics);
    }
}

/// Objective: no sample occurs twice, in either format, and both formats have the same samples.
#[test]
fn no_sample_occurs_twice() {
    let [open, own] = [TextFormat::OpenMetrics, TextFormat::Prometheus].map(|format| {
        let mut samples = samples(&format.encode(&everything("a")));
        // The order of a histogram's samples and the notation of a bound depend on the format.
        for bound in samples.iter_mut().filter_map(|(_, labels, _)| labels.get_mut("le")) {
            *bound = bound.parse::<f64>().unwrap().to_string();
        }
        samples.sort_by(|(a, of_a, _), (b, of_b, _)| (a, of_a).cmp(&(b, of_b)));
        samples
    });
    assert_eq!(open, own);
    let mut keys: Vec<_> = open.into_iter().map(|(name, labels, _)| (name, labels)).collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
}

/// Objective: samples have the daemon's values, with times converted to seconds, and summed over rings where the family
/// has no ring label.
#[test]
fn values_are_those_of_the_daemon() {
    let text = TextFormat::OpenMetrics.encode(&everything("vale0:a"));
    for line in [
        r#"netvale_port_frames_total{port="vale0:a",switch="vale0",direction="out",ring="0"} 18446744073709551615"#,
        r#"netvale_port_bytes_total{port="vale0:a",switch="vale0",direction="in",ring="0"} 180"#,
        r#"netvale_port_drops_total{port="vale0:a",switch="vale0",direction="in"} 11"#,
        r#"netvale_port_drops_total{port="vale0:plain",switch="",direction="in"} 0"#,
        r#"netvale_port_rule_frames_total{port="vale0:a",switch="vale0",direction="in",rule="0",action="drop"} 9"#,
        r#"netvale_port_link_frames{port="vale0:a",switch="vale0",direction="in"} 4"#,
        r#"netvale_tunnel_bytes_total{port="vale0:a",switch="vale0",vtep="10.0.0.2",direction="in"} 120"#,
        r#"netvale_tunnel_info{port="vale0:a",switch="vale0",vni="100",local="10.0.0.1"} 1"#,
        r#"netvale_worker_seconds_total{worker="1",mode="busy"} 1.5"#,
        r#"netvale_worker_seconds_total{worker="1",mode="slept"} 1e-9"#,
        r#"netvale_region_bytes{region="2",uid="1000"} 4096"#,
        r#"netvale_port_latency_seconds_sum{port="vale0:a",switch="vale0"} 0.005001"#,
        r#"netvale_port_latency_seconds_count{port="vale0:a",switch="vale0"} 3"#,
        r#"netvale_port_latency_seconds_bucket{le="5e-7",port="vale0:a",switch="vale0"} 0"#,
        r#"netvale_port_latency_seconds_bucket{le="0.000001",port="vale0:a",switch="vale0"} 2"#,
        r#"netvale_port_latency_seconds_bucket{le="+Inf",port="vale0:a",switch="vale0"} 3"#,
        "# UNIT netvale_port_bytes bytes",
        "# TYPE netvale_port_bytes counter",
        "netvale_refusals_total 11",
        r#"netvale_gateway_up{port="vale0:a:out",switch="vale0"} 1"#,
        r#"netvale_gateway_up{port="vale1:gateway",switch="vale1"} 0"#,
        r#"netvale_gateway_flows{port="vale0:a:out",switch="vale0",protocol="tcp"} 4"#,
        r#"netvale_gateway_flows_refused_total{port="vale0:a:out",switch="vale0",reason="policy"} 5"#,
        r#"netvale_gateway_bytes_total{port="vale0:a:out",switch="vale0",direction="in"} 1000"#,
        r#"netvale_gateway_dns_queries_total{port="vale0:a:out",switch="vale0",outcome="own"} 6"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

proptest! {
    /// Objective: any port name is encoded as one label's value and decodes unchanged.
    #[test]
    fn odd_names_decode_unchanged(name in r#"([a-z"\\{}=,\n #]|\PC){0,20}"#) {
        let text = TextFormat::Prometheus.encode(&everything(&name));
        let found = samples(&text).into_iter().find(|(sample, ..)| sample == "netvale_port_kicks_sent_total");
        prop_assert_eq!(found.and_then(|(_, labels, _)| labels.get("port").cloned()), Some(name));
    }
}
