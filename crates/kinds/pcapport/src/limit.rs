//! How much a capture may write: a limit of its own, and an [`Allowance`] that a user's captures share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// In what portions an allowance is used up: a file counts as at least one, so that their number is limited, too.
pub const PORTION: u64 = 1 << 20;

/// Portions of [`PORTION`] bytes that several captures may write together.
#[derive(Debug)]
pub struct Allowance {
    most: AtomicU64,
    used: AtomicU64,
}

impl Allowance {
    /// An allowance of `most` portions.
    pub fn new(most: u64) -> Allowance {
        Allowance { most: most.into(), used: AtomicU64::new(0) }
    }

    /// An allowance of which some portions are used up.
    pub fn with_used(most: u64, used: u64) -> Allowance {
        Allowance { most: most.into(), used: used.into() }
    }

    /// The portions that there are.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets how many portions there are, from now on.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// The portions that are used up.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a portion. Returns whether there was one.
    pub fn take(&self) -> bool {
        let one_more = |used: u64| (used < self.most()).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Corrects what a file takes, from `before` to `now` portions: its owner may have changed it.
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
    /// What it shares with others; one portion has been taken for it.
    pub shared: Option<Arc<Allowance>>,
}

/// Why a capture ended before its port did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Its file has as many bytes as it may.
    Limit(u64),
    /// The captures of its user have used up their portions: that many.
    Quota(u64),
}

impl Ended {
    /// What another process says, so that its bytes can be told.
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

/// What a capture has written, and what it may still write.
#[derive(Debug)]
pub(crate) struct Written {
    limit: Limit,
    bytes: u64,
    portions: u64,
}

impl Written {
    /// A file that has that many bytes.
    pub(crate) fn new(limit: Limit, bytes: u64) -> Written {
        let portions = u64::from(limit.shared.is_some());
        Written { limit, bytes, portions }
    }

    /// A file that has that many bytes, and for which that many portions were taken.
    pub(crate) fn continued(limit: Limit, bytes: u64, portions: u64) -> Written {
        Written { limit, bytes, portions }
    }

    /// The bytes that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Portions that were taken for it.
    pub(crate) fn portions(&self) -> u64 {
        self.portions
    }

    /// Counts bytes that are to be written.
    ///
    /// # Errors
    /// Why they may not be.
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

    /// Objective: a capture ends at the first frame that does not fit: into its own limit, or into what it shares.
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
