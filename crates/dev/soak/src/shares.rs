//! How much of its fair share of frames a bystander gets during an attack, after deduction of the time that the machine
//! took from the daemons.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::frames::FlowTally;
use crate::pairs::PairCounts;

/// Minimum share in percent. A smaller share is a failure.
const LEAST: u64 = 80;
/// A share is judged only if the attacks lasted at least this long in total.
const ENOUGH: Duration = Duration::from_millis(500);
/// Percentage of the time above which the machine's part is too large for a judgement.
const BUSY: u64 = 60;

/// A pair's counts at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairMoment {
    wanted: u64,
    sent: u64,
    lost: u64,
    gone: Duration,
}

impl PairMoment {
    /// Returns the current counts.
    pub fn of(books: &PairCounts, gone: Duration) -> PairMoment {
        let lost = books.tallies.iter().map(|tally| FlowTally::get(&tally.lost)).sum();
        let [wanted, sent] = [&books.wanted, &books.offered].map(|count| count.load(Ordering::Relaxed));
        PairMoment { wanted, sent, lost, gone }
    }
}

/// A bystander's frames during all repetitions of an attack.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FairShare {
    /// Frames that the bystander would have sent if no frame had been late, without the time that the machine took from
    /// the daemons; in thousandths of a frame.
    fair: u64,
    /// Frames sent.
    sent: u64,
    /// Time judged, in milliseconds.
    ms: u64,
}

impl FairShare {
    /// Returns how much of its fair share the bystander got, in percent; `None` if the judged time was too short.
    pub fn percent(&self) -> Option<u64> {
        let is_enough = u128::from(self.ms) >= ENOUGH.as_millis() && self.fair > 0;
        is_enough.then(|| (100_000 * self.sent / self.fair).min(100))
    }

    /// Adds an attack, if it can be judged.
    fn add(&mut self, from: PairMoment, to: PairMoment, time: Duration) {
        let taken = (to.gone.saturating_sub(from.gone).as_micros() * 1000 / time.as_micros().max(1)) as u64;
        // An attack is not judged if drops were counted, because floods may fill the rings on their own switch, or if
        // the machine was busy for most of it.
        if to.lost > from.lost || taken > 10 * BUSY {
            return;
        }
        self.fair += (to.wanted - from.wanted) * (1000 - taken);
        self.sent += to.sent - from.sent;
        self.ms += time.as_millis() as u64;
    }
}

/// Maximum time from the loss of a frame until the bystander notices it and sends again.
const FOUND: Duration = Duration::from_millis(400);

/// Attacks that have ended. They are judged once it is known whether a bystander lost frames during them.
#[derive(Debug)]
struct EndedAttack {
    attacks: Vec<String>,
    from: Vec<PairMoment>,
    to: Vec<PairMoment>,
    time: Duration,
    at: Instant,
}

/// The shares of all bystanders during all attacks.
#[derive(Debug, Default)]
pub struct FairShares {
    judged: BTreeMap<String, BTreeMap<&'static str, FairShare>>,
    ended: Vec<EndedAttack>,
}

/// The start of attacks that run together, with the bystanders' counts at that time.
pub struct BegunAttack {
    at: Instant,
    moments: Vec<PairMoment>,
}

impl BegunAttack {
    /// Returns an attack that begins now, with the current counts `moments`.
    pub fn now(moments: Vec<PairMoment>) -> BegunAttack {
        BegunAttack { at: Instant::now(), moments }
    }
}

impl FairShares {
    /// Adds the frames of the named bystanders during these attacks.
    pub fn add(&mut self, attacks: &[&str], names: &[&'static str], begun: BegunAttack, now: &[PairMoment]) {
        self.judge(names, now, FOUND);
        let attacks = attacks.iter().map(|attack| (*attack).to_owned()).collect();
        let time = begun.at.elapsed();
        self.ended.push(EndedAttack { attacks, from: begun.moments, to: now.to_vec(), time, at: Instant::now() });
    }

    /// Judges the attacks that ended at least `ago` before now. Bystanders that have noticed a lost frame since then
    /// are omitted.
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

    /// Returns the bystander with the smallest share for each attack.
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

/// The smallest share of a bystander during an attack.
#[derive(Clone, Debug, Serialize)]
pub struct LeastShare {
    /// Percentage of the fair share.
    pub percent: u64,
    /// Name of the bystander.
    pub bystander: String,
    /// Time judged, in milliseconds.
    pub ms: u64,
}

impl fmt::Display for LeastShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % of {} ms, {}", self.percent, self.ms, self.bystander)
    }
}

impl LeastShare {
    /// Returns whether the share is sufficient.
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

    /// Objective: late frames reduce a share, unless the machine took the time. An attack with drops, on a busy
    /// machine, or of short duration is not judged.
    #[test]
    fn late_frames_reduce_a_share() {
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

    /// Objective: if a bystander notices lost frames after an attack, the attack does not count for that bystander, but
    /// counts for the other bystanders.
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
