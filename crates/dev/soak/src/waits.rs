//! Judges long waits of bystanders by comparison with pairs whose frames no daemon moves: if both pairs wait at the
//! same time, the wait is not the daemon's fault. Pairs whose frames the stack moves are also compared with sockets.

use std::time::{Duration, Instant};

use crate::kinds::PairKind;
use crate::pairs::LongWait;

/// Waits longer than this are failures.
const PROMPT: Duration = Duration::from_millis(100);
/// Minimum part of a wait that must be the daemon's own. If the machine's part is larger, the wait is not judged.
const OWN: f64 = 0.4;
/// Age at which a wait is judged, because another pair's wait may end a little later.
const RIPE: Duration = Duration::from_secs(2);

/// A long wait of a bystander, with its pair.
#[derive(Clone, Copy, Debug)]
pub struct WaitOf {
    /// The pair's number.
    pub pair: usize,
    /// Whether the kernel's network stack also moves the pair's frames.
    pub is_by_stack: bool,
    /// The wait.
    pub wait: LongWait,
}

/// Waits that are not judged yet, and waits of the pairs for comparison.
#[derive(Debug, Default)]
pub struct LongWaits {
    pending: Vec<WaitOf>,
    compared: Vec<WaitOf>,
}

impl LongWaits {
    /// Records waits of the pair with the index `pair`, which is of the kind `kind`.
    pub fn add(&mut self, pair: usize, kind: &PairKind, waits: Vec<LongWait>) {
        let all = if kind.is_compared { &mut self.compared } else { &mut self.pending };
        all.extend(waits.into_iter().map(|wait| WaitOf { pair, is_by_stack: kind.is_by_stack, wait }));
    }

    /// Returns the waits that are old enough to be judged or, if `all` is true, all waits. Each wait is reduced by the
    /// longest simultaneous wait of a pair whose frames no daemon moves.
    pub fn judged(&mut self, all: bool) -> Vec<WaitOf> {
        let mut judged = Vec::new();
        self.pending.retain(|one| {
            let is_ripe = all || one.wait.until.elapsed() > RIPE;
            judged.extend(is_ripe.then_some(*one));
            !is_ripe
        });
        for WaitOf { is_by_stack, wait, .. } in &mut judged {
            let alike = self.compared.iter().filter(|other| *is_by_stack || !other.is_by_stack);
            let meanwhile = alike.filter(|other| wait.overlaps(&other.wait)).map(|other| other.wait.own);
            wait.own = wait.own.saturating_sub(meanwhile.max().unwrap_or_default());
        }
        self.compared.retain(|other| other.wait.until.elapsed() < 30 * RIPE);
        judged
    }
}

impl LongWait {
    /// Returns the start of the wait.
    pub fn since(&self) -> Instant {
        self.until.checked_sub(self.whole).unwrap_or(self.until)
    }

    fn overlaps(&self, other: &LongWait) -> bool {
        self.since() < other.until && other.since() < self.until
    }

    /// Returns whether the wait is a failure of the daemon.
    pub fn is_too_long(&self) -> bool {
        self.own > PROMPT && self.own > self.whole.mul_f64(OWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    fn kind(name: &str) -> &'static PairKind {
        KINDS.iter().find(|kind| kind.name == name).expect("a kind")
    }

    /// Objective: a wait is reduced by the simultaneous wait of a compared pair, but not by an earlier wait; the waits
    /// of sockets reduce only the waits of pairs whose frames the stack moves.
    #[test]
    fn beside_the_other_pair() {
        let start = Instant::now();
        let wait = |from: u64, until: u64| {
            let whole = Duration::from_millis(until - from);
            LongWait { flow: 0, until: start + Duration::from_millis(until), whole, own: whole }
        };
        let mut waits = LongWaits::default();
        waits.add(0, kind("pipe"), vec![wait(500, 800)]);
        waits.add(2, kind("sockets"), vec![wait(100, 350)]);
        waits.add(1, kind("local"), vec![wait(100, 400), wait(600, 950), wait(550, 980)]);
        waits.add(3, kind("tap"), vec![wait(100, 400), wait(600, 950)]);
        assert!(waits.judged(false).is_empty());
        let judged = waits.judged(true);
        assert_eq!(judged.iter().map(|one| one.wait.own.as_millis()).collect::<Vec<_>>(), [300, 50, 130, 50, 50]);
        // The third wait still exceeds 100 ms, but the simultaneous wait of the pipe explains most of it.
        assert_eq!(
            judged.iter().map(|one| one.wait.is_too_long()).collect::<Vec<_>>(),
            [true, false, false, false, false]
        );
        assert!(waits.judged(true).is_empty());
    }
}
