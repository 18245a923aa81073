//! Metrics of one kind of port only: each kind has a file here and a row in [`KINDS`].

mod vxlan;

use std::fmt::Result as Encoded;

use netvale_control::types::PortDetails;

use crate::metrics::families::MetricFamily;
use crate::metrics::samples::Samples;

/// A kind of port with families of its own.
pub struct MetricKind {
    /// The families.
    pub families: &'static [&'static MetricFamily],
    /// Encodes the counters of that kind's ports.
    pub encode: fn(&mut Samples<'_>, &[PortDetails]) -> Encoded,
}

/// All such kinds, in the order of encoding.
pub const KINDS: &[MetricKind] = &[vxlan::KIND];
