//! Refusals: how many requests and connections of each user were refused.

use std::collections::HashMap;

use netvale_portspec::printable;

use crate::caller::Caller;

/// Most characters of a reason that are written into the log.
const LONGEST: usize = 300;
/// Number of users that are counted for themselves.
const MOST: usize = 1024;

/// Counts of refusals.
#[derive(Default)]
pub struct Refusals {
    by_user: HashMap<u32, u64>,
    all: u64,
}

impl Refusals {
    /// Counts a request or connection that was refused, and writes it into the log; `why` says what was wrong, and may
    /// repeat words of the caller's: they begin no line of their own.
    pub fn note(&mut self, caller: Caller, why: &str) {
        let why: String = printable(why).chars().take(LONGEST).collect();
        tracing::info!(uid = caller.uid, pid = caller.pid, "refused: {why}");
        self.all += 1;
        if self.by_user.len() < MOST || self.by_user.contains_key(&caller.uid) {
            *self.by_user.entry(caller.uid).or_default() += 1;
        }
    }

    /// Number of refusals of that user's requests.
    pub fn of(&self, uid: u32) -> u64 {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    /// Number of all refusals.
    pub fn all(&self) -> u64 {
        self.all
    }
}
