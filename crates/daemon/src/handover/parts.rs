//! What several items say: a caller, the counters of a ring.

use netvale_mem::drops::{DropReason, RingCounters};
use serde::{Deserialize, Serialize};

use crate::caller::Caller;

/// A caller: connection, user, process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CallerItem {
    pub(super) client: u64,
    uid: u32,
    pid: i32,
}

impl From<Caller> for CallerItem {
    fn from(Caller { client, uid, pid }: Caller) -> Self {
        CallerItem { client, uid, pid }
    }
}

impl From<CallerItem> for Caller {
    fn from(CallerItem { client, uid, pid }: CallerItem) -> Self {
        Caller { client, uid, pid }
    }
}

/// Counters of a ring.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    frames: u64,
    bytes: u64,
    #[serde(default)]
    batches: u64,
    drops: Vec<(String, u64)>,
}

impl Counts {
    /// Reads counters.
    pub fn of(counters: &RingCounters) -> Counts {
        let drops = counters.all_drops().map(|(why, n)| (why.name().to_owned(), n)).collect();
        Counts { frames: counters.frames(), bytes: counters.bytes(), batches: counters.batches(), drops }
    }

    /// Counts frames that were dropped.
    pub fn drop(&mut self, why: DropReason, frames: u64) {
        match self.drops.iter_mut().find(|(name, _)| name == why.name()) {
            Some((_, count)) => *count += frames,
            None => self.drops.extend((frames > 0).then(|| (why.name().to_owned(), frames))),
        }
    }

    /// Adds them to others. A reason that this version does not know is left out.
    pub fn add_to(&self, counters: &RingCounters) {
        counters.passed_in(self.batches, self.frames, self.bytes);
        for (name, n) in &self.drops {
            let reason = DropReason::ALL.iter().find(|why| why.name() == name);
            reason.into_iter().for_each(|why| counters.dropped(*why, *n));
        }
    }
}
