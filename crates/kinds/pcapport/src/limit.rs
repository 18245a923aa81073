//! Limits of a capture: one of its own, and an [`Allowance`] shared by a user's captures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Bytes of a portion of an allowance: a file takes at least one, which limits the number of files, too.
pub const PORTION: u64 = 1 << 20;

/// Portions of [`PORTION`] bytes, shared by several captures.
#[derive(Debug)]
pub struct Allowance {
    most: AtomicU64,
    used: AtomicU64,
}

impl Allowance {
    /// Creates an allowance of `most` portions.
    pub fn new(most: u64) -> Allowance {
        Allowance { most: most.into(), used: AtomicU64::new(0) }
    }

    /// Creates an allowance with `used` portions taken.
    pub fn with_used(most: u64, used: u64) -> Allowance {
        Allowance { most: most.into(), used: used.into() }
    }

    /// Number of portions in all.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the number of portions.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Number of portions taken.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a portion. Returns whether one was left.
    pub fn take(&self) -> bool {
        let one_more = |used: u64| (used < self.most()).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Corrects a file's portions from `before` to `now`: its owner may have changed the file.
    pub fn correct(&self, before: u64, now: u64) {
        self.used.fetch_add(now, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }
}

/// What ends a capture.
#[derive(Clone, Debug, Default)]
pub struct Limit {
    /// Most bytes of its file.
    pub bytes: Option<u64>,
    /// Allowance shared with other captures; one portion is already taken for this one.
    pub shared: Option<Arc<Allowance>>,
}

/// The limit that ended a capture before its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Its file has reached its limit, this many bytes.
    Limit(u64),
    /// Its user's captures have used all their portions, this many.
    Quota(u64),
}

impl Ended {
    /// Bounds another process's value, so that its bytes can be computed.
    pub(crate) fn bounded(self) -> Ended {
        match self {
            Ended::Quota(portions) => Ended::Quota(portions.min(u64::MAX >> 24)),
            limit => limit,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Limit(bytes) => write!(f, "ended at its limit of {} MiB", bytes >> 20),
            Ended::Quota(portions) => {
                write!(f, "ended, because its user's captures have {} MiB, their quota", (portions * PORTION) >> 20)
            }
        }
    }
}

/// Bytes written for a capture, and the limits left.
#[derive(Debug)]
pub(crate) struct Written {
    limit: Limit,
    bytes: u64,
    portions: u64,
}

impl Written {
    /// Starts with a file of `bytes` bytes.
    pub(crate) fn new(limit: Limit, bytes: u64) -> Written {
        let portions = u64::from(limit.shared.is_some());
        Written { limit, bytes, portions }
    }

    /// Starts with a file of `bytes` bytes for which `portions` portions were taken.
    pub(crate) fn continued(limit: Limit, bytes: u64, portions: u64) -> Written {
        Written { limit, bytes, portions }
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Portions taken for it.
    pub(crate) fn portions(&self) -> u64 {
        self.portions
    }

    /// Counts bytes to write.
    ///
    /// # Errors
    /// The limit that forbids them.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), Ended> {
        let after = self.bytes + bytes;
        if let Some(most) = self.limit.bytes.filter(|most| after > *most) {
            return Err(Ended::Limit(most));
        }
        if let Some(shared) = &self.limit.shared {
            while after > self.portions * PORTION {
                if !shared.take() {
                    return Err(Ended::Quota(shared.most()));
                }
                self.portions += 1;
            }
        }
        self.bytes = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a capture ends at the first frame that exceeds its own limit or the shared allowance.
    #[test]
    fn limits() {
        let shared = Arc::new(Allowance::new(3));
        assert!(shared.take());
        let mut one = Written::new(Limit { bytes: Some(100), shared: Some(Arc::clone(&shared)) }, 24);
        assert_eq!((one.add(76), one.add(1)), (Ok(()), Err(Ended::Limit(100))));
        assert!(shared.take());
        let mut other = Written::new(Limit { bytes: None, shared: Some(Arc::clone(&shared)) }, 24);
        assert_eq!((other.add(2 * PORTION - 24), other.add(1)), (Ok(()), Err(Ended::Quota(3))));
        assert_eq!((other.portions(), shared.used()), (2, 3));
        shared.correct(2, 1);
        assert_eq!((other.add(1), shared.used()), (Ok(()), 3));
        assert_eq!(Written::new(Limit::default(), 0).add(u64::MAX >> 1), Ok(()));
    }
}
