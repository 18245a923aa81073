//! The user whose time a thread spends.
//!
//! Memory of another user can stall anyone who touches it for as long as that user likes: a page of a file in which a
//! hole is being punched is absent until the whole hole is. Nothing interrupts a call then, not even SIGKILL. So only a
//! user's own worker touches that user's memory; other workers hand their frames over ([`crate::handed_over`]).

use std::cell::Cell;
use std::fmt;

/// A user whose memory and calls may delay only that user's own ports. Root and the daemon's own user are trusted with
/// everyone's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeDomain(Option<u32>);

thread_local! {
    static HERE: Cell<TimeDomain> = const { Cell::new(TimeDomain::TRUSTED) };
}

impl TimeDomain {
    /// The domain of trusted users.
    pub const TRUSTED: TimeDomain = TimeDomain(None);

    /// The domain of untrusted users whose number is unknown.
    pub const SOMEBODY: TimeDomain = TimeDomain(Some(u32::MAX));

    /// The domain of an untrusted user.
    #[must_use]
    pub fn of_user(uid: u32) -> TimeDomain {
        TimeDomain(Some(uid))
    }

    /// The user; `None` if trusted.
    #[must_use]
    pub fn user(self) -> Option<u32> {
        self.0
    }

    /// Makes this thread work for the domain.
    pub fn enter(self) {
        HERE.set(self);
    }

    /// Whether this thread works for the domain.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        HERE.get() == self
    }
}

impl fmt::Display for TimeDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TimeDomain::SOMEBODY => f.write_str("users who are not known"),
            TimeDomain(Some(uid)) => write!(f, "user {uid}"),
            TimeDomain(None) => f.write_str("root"),
        }
    }
}
