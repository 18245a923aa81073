//! Filters of a port: rules in order, of which the first that a frame fits decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_mem::steps::{self, Step};
use netvale_policy::bpf::Program;
use netvale_port::stage::HEAD;

/// Bytes of a long frame that filters see at least: a tag may have been taken away from its copied ones.
const SEEN: usize = HEAD - 4;

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Whether frames that fit it are dropped; otherwise they pass, whatever later rules say.
    pub drops: bool,
    /// Says of each frame whether it fits.
    pub program: Program,
    frames: AtomicU64,
}

impl Rule {
    /// Creates a rule.
    #[must_use]
    pub fn new(drops: bool, program: Program) -> Arc<Rule> {
        Arc::new(Rule { drops, program, frames: AtomicU64::new(0) })
    }

    /// Number of frames that it decided about.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Counts frames that another process's rule decided about.
    pub fn count(&self, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
    }
}

/// Rules in order.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    rules: Vec<Arc<Rule>>,
    is_deep: bool,
}

impl Filters {
    /// Creates them.
    #[must_use]
    pub fn new(rules: Vec<Arc<Rule>>) -> Filters {
        let reaches = |rule: &Arc<Rule>| rule.program.reach().is_none_or(|reach| reach as usize > SEEN);
        let is_deep = rules.iter().any(reaches);
        Filters { rules, is_deep }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Whether they may look at more of a frame than its first bytes.
    #[must_use]
    pub fn are_deep(&self) -> bool {
        self.is_deep
    }

    /// Whether a frame of `len` bytes passes, of which `head` are the first, or all if they are [deep](Filters::are_deep).
    #[inline]
    pub(crate) fn pass(&self, head: &[u8], len: usize) -> bool {
        self.rules.is_empty() || self.decide(head, len)
    }

    /// Says that a rule decides, and how. The last thing that is done, so that nothing is saved for the call where nobody traces.
    #[cold]
    fn tell(&self, rule: &Arc<Rule>) -> bool {
        let number = self.rules.iter().position(|one| Arc::ptr_eq(one, rule)).unwrap_or_default();
        steps::step(Step::Rule(number as u16, rule.drops));
        !rule.drops
    }

    fn decide(&self, head: &[u8], len: usize) -> bool {
        // What a rule cannot see it does not fit: all that it may look at has been copied.
        let fits = |rule: &&Arc<Rule>| rule.program.run(head, len as u32).is_ok_and(|verdict| verdict != 0);
        match self.rules.iter().find(fits) {
            Some(rule) => {
                rule.count(1);
                if steps::are_wanted() {
                    return self.tell(rule);
                }
                !rule.drops
            }
            None => true,
        }
    }
}
