//! Limits of a capture: the capture's own limit, and an [`Allowance`] that a user's captures share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Size of a portion of an allowance in bytes. Each file takes at least one portion, so an allowance also limits the
/// number of files.
pub const PORTION: u64 = 1 << 20;

/// A quota in portions of [`PORTION`] bytes, shared by several captures.
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

    /// Total number of portions.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the total number of portions.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Number of portions taken.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a portion. Returns false if none was left.
    pub fn take(&self) -> bool {
        let one_more = |used: u64| (used < self.most()).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Counts `now` portions for a file instead of `before`, for example because the file's owner has changed its size.
    pub fn correct(&self, before: u64, now: u64) {
        self.used.fetch_add(now, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }
}

/// The limits of a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureLimit {
    /// Maximum size of the file in bytes; `None`: unlimited.
    pub bytes: Option<u64>,
    /// Allowance shared with the user's other captures; `None`: unlimited. One portion must have been taken for this
    /// capture.
    pub shared: Option<Arc<Allowance>>,
}

/// The limit that ended a capture before its port was detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReachedLimit {
    /// The file has reached the limit of this many bytes.
    Limit(u64),
    /// The user's captures have taken all of this many portions.
    Quota(u64),
}

impl ReachedLimit {
    /// Bounds a value from another process, so that its number of bytes does not overflow.
    pub(crate) fn bounded(self) -> ReachedLimit {
        match self {
            ReachedLimit::Quota(portions) => ReachedLimit::Quota(portions.min(u64::MAX >> 24)),
            limit => limit,
        }
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReachedLimit::Limit(bytes) => write!(f, "ended at its limit of {} MiB", bytes >> 20),
            ReachedLimit::Quota(portions) => {
                write!(f, "ended: its user's captures have used their quota of {} MiB", (portions * PORTION) >> 20)
            }
        }
    }
}

/// Number of bytes written for a capture, checked against its limits.
#[derive(Debug)]
pub(crate) struct CaptureProgress {
    pub(crate) limit: CaptureLimit,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    /// Number of portions taken for the file.
    pub(crate) portions: u64,
}

impl CaptureProgress {
    /// Starts with a file of `bytes` bytes, for which one portion was taken if there is a shared allowance.
    pub(crate) fn new(limit: CaptureLimit, bytes: u64) -> CaptureProgress {
        let portions = u64::from(limit.shared.is_some());
        CaptureProgress { limit, bytes, portions }
    }

    /// Counts `bytes` further bytes, which are about to be written, and takes the portions that they require.
    ///
    /// # Errors
    /// The limit that these bytes would exceed; they are then not counted.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), ReachedLimit> {
        let after = self.bytes + bytes;
        if let Some(most) = self.limit.bytes.filter(|most| after > *most) {
            return Err(ReachedLimit::Limit(most));
        }
        if let Some(shared) = &self.limit.shared {
            while after > self.portions * PORTION {
                if !shared.take() {
                    return Err(ReachedLimit::Quota(shared.most()));
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

    /// Objective: a capture ends at the first frame that would exceed its own limit or the shared allowance.
    #[test]
    fn a_capture_ends_at_the_first_excess_frame() {
        let shared = Arc::new(Allowance::new(3));
        assert!(shared.take());
        let mut one = CaptureProgress::new(CaptureLimit { bytes: Some(100), shared: Some(Arc::clone(&shared)) }, 24);
        assert_eq!((one.add(76), one.add(1)), (Ok(()), Err(ReachedLimit::Limit(100))));
        assert!(shared.take());
        let mut other = CaptureProgress::new(CaptureLimit { bytes: None, shared: Some(Arc::clone(&shared)) }, 24);
        assert_eq!((other.add(2 * PORTION - 24), other.add(1)), (Ok(()), Err(ReachedLimit::Quota(3))));
        assert_eq!((other.portions, shared.used()), (2, 3));
        shared.correct(2, 1);
        assert_eq!((other.add(1), shared.used()), (Ok(()), 3));
        assert_eq!(CaptureProgress::new(CaptureLimit::default(), 0).add(u64::MAX >> 1), Ok(()));
    }
}
