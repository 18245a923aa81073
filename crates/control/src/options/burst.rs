//! Default bursts of rate limits.

use netvale_policy::units::{Rate, Size};

/// Minimum default burst in bytes: two frames of the maximum length, 64 KiB.
const LEAST_BURST: u64 = 128 << 10;
/// The default burst is the number of bytes that the rate allows in 1/`BURST_PART` of a second, 10 ms.
const BURST_PART: u64 = 100;

/// Returns the default burst of a rate limit.
pub(super) fn usual_burst(rate: Rate) -> Size {
    Size::from_bytes((rate.bits() / 8 / BURST_PART).max(LEAST_BURST))
}
