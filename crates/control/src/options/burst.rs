//! Default bursts of rate limits.

use netvale_policy::units::{Rate, Size};

/// Minimum default burst: two frames of maximum length.
const LEAST_BURST: u64 = 128 << 10;
/// A default burst contains what the rate allows in this part of a second: 1/100, that is 10 ms.
const BURST_PART: u64 = 100;

/// Returns the default burst of a rate limit.
pub(super) fn usual_burst(rate: Rate) -> Size {
    Size::from_bytes((rate.bits() / 8 / BURST_PART).max(LEAST_BURST))
}
