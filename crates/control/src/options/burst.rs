//! How much may be sent together at a rate.

use netvale_policy::units::{Rate, Size};

/// The least that may be sent together if nothing is said: two of the longest frames.
const LEAST_BURST: u64 = 128 << 10;
/// The part of a second of which a rate is the burst if nothing is said.
const BURST_PART: u64 = 100;

/// What is sent together if nothing is said.
pub(super) fn usual_burst(rate: Rate) -> Size {
    Size::from_bytes((rate.bits() / 8 / BURST_PART).max(LEAST_BURST))
}
