//! The clock of policies, traces and timing.

use std::sync::LazyLock;
use std::time::Instant;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the nanoseconds since a fixed moment in the past.
#[inline]
pub fn now() -> u64 {
    BEGIN.elapsed().as_nanos() as u64
}
