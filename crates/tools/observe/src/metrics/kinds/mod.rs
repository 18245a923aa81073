//! What metrics say of one kind of port alone: each has a file here, and a row of [`KINDS`].

mod vxlan;

use std::fmt::Result as Encoded;

use netvale_control::types::PortDetails;

use crate::metrics::families::Family;
use crate::metrics::samples::Samples;

/// A kind with families of its own.
pub struct Kind {
    /// The families.
    pub families: &'static [&'static Family],
    /// Encodes what ports of that kind have counted.
    pub encode: fn(&mut Samples<'_>, &[PortDetails]) -> Encoded,
}

/// Those kinds, in the order in which they are encoded.
pub const KINDS: &[Kind] = &[vxlan::KIND];
