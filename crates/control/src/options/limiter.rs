//! Rates as cloud-hypervisor's `rate_limiter_config` says them, for ports whose virtual machines are described for it.
//!
//! There as here, they hold for what a machine sends and for what it gets, each by itself.

use netvale_policy::units::{Rate, Size};
use serde::{Deserialize, Serialize};

const MILLISECONDS: u64 = 1000;

/// Rates of a port in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimiter {
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Tokens>,
    /// Frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<Tokens>,
}

/// A bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// How many may pass together.
    pub size: u64,
    /// Accepted, and without effect: the bucket begins with `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_time_burst: Option<u64>,
    /// Milliseconds in which an empty bucket gets full.
    pub refill_time: u64,
}

impl Tokens {
    fn a_second(self) -> u64 {
        (u128::from(self.size) * u128::from(MILLISECONDS) / u128::from(self.refill_time.max(1)))
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

impl RateLimiter {
    /// Whether it lets something pass.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_open = |tokens: &Tokens| tokens.refill_time > 0 && tokens.a_second() > 0;
        self.bandwidth.iter().all(is_open) && self.ops.iter().all(is_open)
    }

    /// Bits a second, and bytes together.
    #[must_use]
    pub fn bits(&self) -> Option<(Rate, Size)> {
        let of = |tokens: Tokens| (Rate::from_bits(tokens.a_second().saturating_mul(8)), Size::from_bytes(tokens.size));
        self.bandwidth.map(of)
    }

    /// Frames a second.
    #[must_use]
    pub fn frames(&self) -> Option<u32> {
        self.ops.map(|tokens| tokens.a_second().try_into().unwrap_or(u32::MAX))
    }
}
