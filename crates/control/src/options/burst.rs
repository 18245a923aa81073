//! Default bursts of rates.

use netvale_policy::units::{Rate, Size};

/// Minimum default burst: two of the longest frames.
const LEAST_BURST: u64 = 128 << 10;
/// The default burst is one part in this many of a second, at the rate.
const BURST_PART: u64 = 100;

/// The default burst of a rate.
pub(super) fn usual_burst(rate: Rate) -> Size {
    Size::from_bytes((rate.bits() / 8 / BURST_PART).max(LEAST_BURST))
}
