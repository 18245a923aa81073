//! Whose time a thread's is.
//!
//! Memory of another user can make anyone who touches it wait for as long as that user likes: a page of a file in
//! which a hole is just being made is not there before the whole hole is. No call is interrupted then, not even by
//! SIGKILL. So memory of a user is touched by that user's own worker only; others hand their frames over
//! ([`crate::handed_over`]).

use std::cell::Cell;
use std::fmt;

/// A user whose memory and calls take the time of that user's ports only. Root and the daemon's own user are trusted
/// with everybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeDomain(Option<u32>);

thread_local! {
    static HERE: Cell<TimeDomain> = const { Cell::new(TimeDomain::TRUSTED) };
}

impl TimeDomain {
    /// Of those who are trusted.
    pub const TRUSTED: TimeDomain = TimeDomain(None);

    /// Of users who are not trusted, and of whom it is not known who they are.
    pub const SOMEBODY: TimeDomain = TimeDomain(Some(u32::MAX));

    /// Of the user of that number, who is not.
    #[must_use]
    pub fn of_user(uid: u32) -> TimeDomain {
        TimeDomain(Some(uid))
    }

    /// The user; none if trusted.
    #[must_use]
    pub fn user(self) -> Option<u32> {
        self.0
    }

    /// From now on, this thread works for them.
    pub fn enter(self) {
        HERE.set(self);
    }

    /// Whether this thread works for them.
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
