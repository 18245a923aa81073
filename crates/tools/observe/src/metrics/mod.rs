//! Metrics of a daemon: its counters as *families* with stable names, each documented in docs/reference/metrics.md.
//!
//! | module | what it is |
//! |---|---|
//! | [`families`] | tables: name, type, unit, labels and meaning of each family |
//! | [`collect`] | turns a daemon's answer into samples of these families |
//! | [`kinds`] | families of one kind of port only |
//! | [`gateways`] | families of gateways |
//! | [`samples`] | encoding of samples, with labels and values |
//! | [`mod@format`] | the two text formats, and a client's choice between them |

pub mod collect;
pub mod families;
pub mod format;
pub mod gateways;
pub mod kinds;
pub mod samples;

use families::{FIRST, MetricFamily, REST};
use gateways::GATEWAYS;

/// Returns all families, in the order of encoding.
pub fn all() -> impl Iterator<Item = &'static MetricFamily> {
    let of_kinds = kinds::KINDS.iter().map(|kind| kind.families);
    [FIRST].into_iter().chain(of_kinds).chain([REST, GATEWAYS]).flatten().copied()
}
