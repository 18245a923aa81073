//! Metrics of single kinds of ports. Each kind that has its own metrics has a file in this folder and an entry in
//! [`KINDS`].

mod vxlan;

use std::fmt::Result as Encoded;

use netvale_control::types::PortDetails;

use crate::metrics::families::MetricFamily;
use crate::metrics::samples::Samples;

/// The metrics of a kind of port ([`MetricKind`]).
pub struct MetricKind {
    /// The families of this kind of port.
    pub families: &'static [&'static MetricFamily],
    /// Encodes the counters of that kind's ports.
    pub encode: fn(&mut Samples<'_>, &[PortDetails]) -> Encoded,
}

/// All kinds of ports that have their own families, in the order of encoding.
pub const KINDS: &[MetricKind] = &[vxlan::KIND];
