//! Refusals: counts of refused requests and connections, by user.

use std::collections::HashMap;

use netvale_portspec::printable;

use crate::caller::Caller;

/// Maximum length of a logged reason in characters.
const LONGEST: usize = 300;
/// Maximum number of users who are counted separately. Refusals of further users are counted only in the total.
const MOST: usize = 1024;

/// Counts of refusals.
#[derive(Default)]
pub struct Refusals {
    by_user: HashMap<u32, u64>,
    all: u64,
}

impl Refusals {
    /// Counts and logs a refused request or connection. `why` may contain text from the caller; line breaks in it are
    /// escaped.
    pub fn note(&mut self, caller: Caller, why: &str) {
        let why: String = printable(why).chars().take(LONGEST).collect();
        tracing::info!(uid = caller.uid, pid = caller.pid, "refused: {why}");
        self.all += 1;
        if self.by_user.len() < MOST || self.by_user.contains_key(&caller.uid) {
            *self.by_user.entry(caller.uid).or_default() += 1;
        }
    }

    /// Returns the number of refusals of that user's requests.
    pub fn of(&self, uid: u32) -> u64 {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    /// Returns the number of all refusals.
    pub fn all(&self) -> u64 {
        self.all
    }
}
