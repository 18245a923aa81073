//! The families of metrics, each defined once. A *family* has a name, a type, a unit and labels; its samples differ in
//! the values of the labels.
//!
//! Names are permanent, because users' dashboards and alerts depend on them. A family is encoded only if it is in a
//! table, in this file or in the file of a kind of port.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Prefix of the names of all metrics.
pub const PREFIX: &str = "netvale";

/// A family of metrics: the samples of one name and type, which differ in their labels' values.
#[derive(Debug)]
pub struct MetricFamily {
    /// The family's name without prefix, unit and suffix.
    pub name: &'static str,
    /// Type of the values. A counter only rises, until the object to which it belongs, such as a port, is created anew.
    /// The values of an info are the constant 1; its labels describe an object.
    pub of: MetricType,
    /// Base unit of the values; `None` if they have none.
    pub unit: Option<Unit>,
    /// Label names.
    pub labels: &'static [&'static str],
    /// The meaning of the values, in one sentence.
    pub help: &'static str,
}

impl MetricFamily {
    /// Returns the name of the family's samples; for a histogram, the prefix of their names.
    #[must_use]
    pub fn sample(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let suffix = match self.of {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Histogram | MetricType::Unknown => "",
        };
        format!("{PREFIX}_{}{unit}{suffix}", self.name)
    }

    /// Returns the names of all samples of the family.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        let suffixes: &[&str] = if self.of == MetricType::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        suffixes.iter().map(|suffix| self.sample() + suffix).collect()
    }
}

/// Defines families by rows (constant, type, name, unit, labels, meaning), and a list of them in the order of encoding.
macro_rules! families {
    (
        $(#[doc = $doc:literal])+ $all:ident:
        $($constant:ident = $of:ident $name:literal $(in $unit:ident)? [$($label:literal),*] $help:literal;)*
    ) => {
        $(
            #[doc = $help]
            pub static $constant: $crate::metrics::families::MetricFamily = $crate::metrics::families::MetricFamily {
                name: $name,
                of: prometheus_client::metrics::MetricType::$of,
                unit: $crate::metrics::families::families!(@unit $($unit)?),
                labels: &[$($label),*],
                help: $help,
            };
        )*

        $(#[doc = $doc])+
        pub const $all: &[&$crate::metrics::families::MetricFamily] = &[$(&$constant),*];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(prometheus_client::registry::Unit::$unit) };
}

pub(crate) use families;

families! {
    /// The families that are encoded before the families of single kinds of ports.
    FIRST:
    BUILD = Info "build" ["version"] "The daemon's release.";
    STALLS = Counter "stalls" [] "How often the daemon's main thread was held up for more than 100 ms.";
    REFUSALS = Counter "refusals" [] "Requests and connections that the daemon refused.";
    EVICTIONS = Counter "evictions" [] "Programs that lost their port: they broke a rule, or their memory was gone.";

    SWITCH_PORTS = Gauge "switch_ports" ["switch"] "Ports on the switch, without monitors.";
    SWITCH_ADDRESSES = Gauge "switch_addresses" ["switch"] "Addresses in the forwarding table.";
    SWITCH_TABLE_SIZE = Gauge "switch_table_size" ["switch"] "Maximum number of addresses in the forwarding table.";
    SWITCH_REFUSED = Counter "switch_refused_addresses" ["switch"]
        "Frames whose source was not learned: it belongs to another user, or its user has too many.";
    MULTICAST_MEMBERSHIPS = Gauge "switch_multicast_memberships" ["switch"]
        "Memberships in multicast groups: pairs of a group and a port that receives it.";
    MULTICAST_REPORTS = Counter "switch_multicast_reports" ["switch"] "Messages of hosts that join or leave groups.";
    MULTICAST_QUERIES = Counter "switch_multicast_queries" ["switch"] "Queries from other queriers.";
    MULTICAST_REFUSED = Counter "switch_multicast_refused_joins" ["switch"] "Joins beyond the limits.";
    MULTICAST_MALFORMED = Counter "switch_multicast_malformed" ["switch"] "Malformed messages about groups.";
    MULTICAST_LOST = Counter "switch_multicast_lost" ["switch"]
        "Messages about groups that arrived while too many waited.";

    PORT = Info "port" ["port", "switch", "kind", "region"] "A port, its kind, and the region of its rings.";
    PORT_OPEN = Gauge "port_open" ["port", "switch"] "1 if a program has the port open, and for devices; else 0.";
    PORT_FRAMES = Counter "port_frames" ["port", "switch", "direction", "ring"] "Frames that passed.";
    PORT_BYTES = Counter "port" in Bytes ["port", "switch", "direction", "ring"]
        "Bytes of the frames that passed, without virtio-net headers.";
    PORT_BATCHES = Counter "port_batches" ["port", "switch", "direction", "ring"] "Batches in which frames passed.";
    PORT_DROPS = Counter "port_drops" ["port", "switch", "direction"] "Frames that were dropped, for any reason.";
    PORT_DROPS_BY_REASON = Counter "port_drops_by_reason" ["port", "switch", "direction", "reason"]
        "Frames that were dropped, by reason. Reasons without a drop are omitted.";
    PORT_IDLE_FRAMES = Counter "port_idle_frames" ["port", "switch"]
        "Frames for the port that arrived while it had no receiver; they do not count as drops.";
    PORT_KICKS_SENT = Counter "port_kicks_sent" ["port", "switch"] "Kicks that the daemon sent to the port's program.";
    PORT_KICKS_SUPPRESSED = Counter "port_kicks_suppressed" ["port", "switch"]
        "Kicks that were saved because the program had not armed them.";
    PORT_KICKS_RECEIVED = Counter "port_kicks_received" ["port", "switch"]
        "Kicks that the daemon received from the program.";
    PORT_LATENCY = Histogram "port_latency" in Seconds ["port", "switch"]
        "Time from just before the port's frames are taken from their ring until they are delivered or dropped, for \
         batches that are timed.";
    PORT_BLOCKED = Gauge "port_blocked" ["port", "switch"]
        "1 while the loop guard blocks a port with policies; else 0.";
    PORT_LOOPS = Counter "port_loops" ["port", "switch"] "How often the loop guard has blocked a port with policies.";
    PORT_RULE_FRAMES = Counter "port_rule_frames" ["port", "switch", "direction", "rule", "action"]
        "Frames decided by a rule of the port's filter.";
    PORT_LINK_FRAMES = Gauge "port_link_frames" ["port", "switch", "direction"]
        "Frames in flight on the port's link: delayed, or waiting for their rate.";
}

families! {
    /// The families that are encoded after the families of single kinds of ports.
    REST:
    REGION_BYTES = Gauge "region" in Bytes ["region", "uid"] "Memory of a region.";
    REGION_BUFFERS = Gauge "region_buffers" ["region", "uid"] "Buffers of a region.";

    WORKER = Info "worker" ["worker", "cpu"] "A worker, and the CPU to which it is pinned.";
    WORKER_TIME = Counter "worker" in Seconds ["worker", "mode"]
        "Time in which a worker forwarded (busy), looked for frames without finding any (polled), or slept.";
    WORKER_WAITED = Counter "worker_waited" in Seconds ["worker"]
        "Part of the time asleep in which frames waited for room at a receiver.";
    WORKER_PREEMPTED = Counter "worker_preempted" in Seconds ["worker"]
        "Part of the time busy and polling in which other threads had the CPU.";
    WORKER_INGRESSES = Gauge "worker_ingresses" ["worker"] "Ingresses from which a worker takes frames.";
    WORKER_STALLS = Counter "worker_stalls" ["worker"] "How often a worker was held up for more than 100 ms.";
}
