//! Time domains: the users who may delay a thread.
//!
//! A user can stall every thread that touches the user's memory, for any length of time. For example, while the user
//! punches a hole into the file behind the memory, a thread that accesses a page of the hole waits until the whole hole
//! is punched, and not even SIGKILL interrupts it. So only a user's own worker touches that user's memory; other
//! workers hand their frames over ([`crate::handed_over`]).

use std::cell::Cell;
use std::fmt;

/// The users whose memory and calls may delay a thread: all trusted users, or one untrusted user, who can then delay
/// only that user's own ports. Root and the daemon's user are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeDomain(Option<u32>);

thread_local! {
    static HERE: Cell<TimeDomain> = const { Cell::new(TimeDomain::TRUSTED) };
}

impl TimeDomain {
    /// The domain of trusted users.
    pub const TRUSTED: TimeDomain = TimeDomain(None);

    /// The domain of untrusted users whose user ID is unknown.
    pub const SOMEBODY: TimeDomain = TimeDomain(Some(u32::MAX));

    /// Returns the domain of an untrusted user.
    #[must_use]
    pub fn of_user(uid: u32) -> TimeDomain {
        TimeDomain(Some(uid))
    }

    /// The user ID; `None` for trusted users.
    #[must_use]
    pub fn user(self) -> Option<u32> {
        self.0
    }

    /// Declares that this thread works for the domain: only users of the domain may delay the thread.
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
            TimeDomain::SOMEBODY => f.write_str("unknown users"),
            TimeDomain(Some(uid)) => write!(f, "user {uid}"),
            TimeDomain(None) => f.write_str("root"),
        }
    }
}
