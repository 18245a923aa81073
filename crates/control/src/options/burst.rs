//! Default bursts of rates.

use netvale_policy::units::{Rate, Size};

/// Minimum default burst: two frames of maximum length.
const LEAST_BURST: u64 = 128 << 10;
/// Part of a second whose frames a default burst allows at the rate: 1/100.
const BURST_PART: u64 = 100;

/// Returns the default burst of a rate.
pub(super) fn usual_burst(rate: Rate) -> Size {
    Size::from_bytes((rate.bits() / 8 / BURST_PART).max(LEAST_BURST))
}
