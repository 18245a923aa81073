//! The clock of the policies.

use std::sync::LazyLock;
use std::time::Instant;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since a moment before the first call.
#[inline]
pub fn now() -> u64 {
    BEGIN.elapsed().as_nanos() as u64
}
