//! How much of its fair share a bystander had while an attack was made, without what the machine took.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::frames::Tally;
use crate::pairs::Books;

/// The least share, in percent. Below it an attack is a failure.
const LEAST: u64 = 80;
/// Less time than that says nothing.
const ENOUGH: Duration = Duration::from_millis(500);
/// The part of the time, in percent, that the machine may take: beyond it an attack is not judged.
const BUSY: u64 = 60;

/// What a pair had at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairMoment {
    wanted: u64,
    sent: u64,
    lost: u64,
    gone: Duration,
}

impl PairMoment {
    /// Now.
    pub fn of(books: &Books, gone: Duration) -> PairMoment {
        let lost = books.tallies.iter().map(|tally| Tally::get(&tally.lost)).sum();
        let [wanted, sent] = [&books.wanted, &books.offered].map(|count| count.load(Ordering::Relaxed));
        PairMoment { wanted, sent, lost, gone }
    }
}

/// Frames of a bystander while an attack was made, as often as it was.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FairShare {
    /// Thousandths of the frames that it would have sent, in the time that the machine left it, if none had been late.
    fair: u64,
    /// Frames that it sent.
    sent: u64,
    /// Milliseconds of that.
    ms: u64,
}

impl FairShare {
    /// What it had, in percent of its fair share; `None` if there was too little time to tell.
    pub fn percent(&self) -> Option<u64> {
        let is_enough = u128::from(self.ms) >= ENOUGH.as_millis() && self.fair > 0;
        is_enough.then(|| (100_000 * self.sent / self.fair).min(100))
    }

    /// Adds an attack, if it can be judged.
    fn add(&mut self, from: PairMoment, to: PairMoment, time: Duration) {
        let taken = (to.gone.saturating_sub(from.gone).as_micros() * 1000 / time.as_micros().max(1)) as u64;
        // Frames that were dropped, and counted: floods may fill the rings of who is on their switch.
        if to.lost > from.lost || taken > 10 * BUSY {
            return;
        }
        self.fair += (to.wanted - from.wanted) * (1000 - taken);
        self.sent += to.sent - from.sent;
        self.ms += time.as_millis() as u64;
    }
}

/// A loss is found when frames are sent again, so long after they were lost at most.
const FOUND: Duration = Duration::from_millis(400);

/// Attacks that are over, and are judged once it is known whether a bystander's frames were lost in them.
#[derive(Debug)]
struct EndedAttack {
    attacks: Vec<String>,
    from: Vec<PairMoment>,
    to: Vec<PairMoment>,
    time: Duration,
    at: Instant,
}

/// Fair shares by attack and bystander.
#[derive(Debug, Default)]
pub struct FairShares {
    judged: BTreeMap<String, BTreeMap<&'static str, FairShare>>,
    ended: Vec<EndedAttack>,
}

/// An attack, or several, from its beginning on.
pub struct BegunAttack {
    at: Instant,
    moments: Vec<PairMoment>,
}

impl BegunAttack {
    /// Now.
    pub fn now(moments: Vec<PairMoment>) -> BegunAttack {
        BegunAttack { at: Instant::now(), moments }
    }
}

impl FairShares {
    /// Adds what the bystanders of those names had while those attacks were made.
    pub fn add(&mut self, attacks: &[&str], names: &[&'static str], begun: BegunAttack, now: &[PairMoment]) {
        self.judge(names, now, FOUND);
        let attacks = attacks.iter().map(|attack| (*attack).to_owned()).collect();
        let time = begun.at.elapsed();
        self.ended.push(EndedAttack { attacks, from: begun.moments, to: now.to_vec(), time, at: Instant::now() });
    }

    /// Judges the attacks that ended so long ago: not for who has found a loss since.
    fn judge(&mut self, names: &[&'static str], now: &[PairMoment], ago: Duration) {
        let ripe = self.ended.extract_if(.., |ended| ended.at.elapsed() >= ago);
        for EndedAttack { attacks, from, to, time, .. } in ripe {
            for attack in attacks {
                let shares = self.judged.entry(attack).or_default();
                for (index, name) in names.iter().enumerate() {
                    let until = PairMoment { lost: now[index].lost, ..to[index] };
                    shares.entry(name).or_default().add(from[index], until, time);
                }
            }
        }
    }

    /// For each attack who had least, and how much of their share in percent.
    pub fn least(&mut self, names: &[&'static str], now: &[PairMoment]) -> BTreeMap<String, LeastShare> {
        self.judge(names, now, Duration::ZERO);
        let least = |shares: &BTreeMap<&'static str, FairShare>| {
            let of = |(name, share): (&&'static str, &FairShare)| {
                Some(LeastShare { percent: share.percent()?, bystander: (*name).to_owned(), ms: share.ms })
            };
            shares.iter().filter_map(of).min_by_key(|least| least.percent)
        };
        self.judged.iter().filter_map(|(attack, shares)| Some((attack.clone(), least(shares)?))).collect()
    }
}

/// Who had least beside an attack.
#[derive(Clone, Debug, Serialize)]
pub struct LeastShare {
    /// Of its fair share.
    pub percent: u64,
    /// Who it was.
    pub bystander: String,
    /// Milliseconds that were judged.
    pub ms: u64,
}

impl fmt::Display for LeastShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % of {} ms, {}", self.percent, self.ms, self.bystander)
    }
}

impl LeastShare {
    /// Whether that is enough.
    pub fn is_fair(&self) -> bool {
        self.percent >= LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wanted: u64, sent: u64, gone_ms: u64) -> PairMoment {
        PairMoment { wanted, sent, lost: 0, gone: Duration::from_millis(gone_ms) }
    }

    /// Objective: frames that are late cost a share, unless the machine took the time. Not judged is a time in which
    /// frames were dropped, the machine was busy, or that was too short.
    #[test]
    fn percents() {
        let of = |to: PairMoment, ms: u64| {
            let mut share = FairShare::default();
            share.add(PairMoment::default(), to, Duration::from_millis(ms));
            share.percent()
        };
        assert_eq!(of(moment(1000, 1000, 0), 2000), Some(100));
        assert_eq!(of(moment(1000, 500, 0), 2000), Some(50));
        assert_eq!(of(moment(1000, 500, 1000), 2000), Some(100));
        assert_eq!(of(moment(1000, 0, 1300), 2000), None);
        assert_eq!(of(moment(1000, 500, 0), 400), None);
        assert_eq!(of(PairMoment { lost: 1, ..moment(1000, 500, 0) }, 2000), None);
    }

    /// Objective: frames that turn out to be lost after an attack are no share that was taken, and other bystanders are
    /// judged all the same.
    #[test]
    fn losses_are_found_later() {
        let names = ["one", "other"];
        let begun = || BegunAttack { at: Instant::now() - Duration::from_secs(1), moments: vec![moment(0, 0, 0); 2] };
        let ended = [moment(1000, 500, 0), moment(1000, 900, 0)];
        let found = [PairMoment { lost: 3, ..ended[0] }, ended[1]];
        let mut shares = FairShares::default();
        shares.add(&["flood"], &names, begun(), &ended);
        let least = shares.least(&names, &found).remove("flood").expect("judged");
        assert_eq!((least.bystander.as_str(), least.percent), ("other", 90));
        let mut shares = FairShares::default();
        shares.add(&["flood"], &names, begun(), &ended);
        assert_eq!(shares.least(&names, &ended)["flood"].percent, 50);
    }
}
