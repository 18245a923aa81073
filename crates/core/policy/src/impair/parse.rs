//! Reads a [`Spec`] from text.

use core::iter::Peekable;
use core::str::{FromStr, SplitWhitespace};

use super::Spec;
use super::spec::{BitErrors, Chance, DelayShape, DelaySpec, Elliott, FourStates, LinkSpec, Loss, Reorder};
use crate::units::{self, Decimal, Rate, Share, Size, Time};

/// The reason why a text is not a valid specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetemError {
    /// An unknown word.
    #[error(
        "unknown word {0:?}: expected delay, distribution, ordered, loss, duplicate, corrupt, reorder, gap, rate, \
         queue, limit, bytes or seed"
    )]
    Unknown(String),
    /// A word of netem that netvale does not support.
    #[error("netem's parameter {0:?} is not supported")]
    Unsupported(String),
    /// A repeated word.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A word without its value.
    #[error("{0} has no value")]
    Missing(&'static str),
    /// A word with an invalid value.
    #[error("{word}: {reason}")]
    Value {
        /// The word.
        word: &'static str,
        /// What is wrong with the value.
        reason: units::QuantityError,
    },
    /// A word that requires another setting.
    #[error("{word} requires {other}")]
    Needs {
        /// The word.
        word: &'static str,
        /// The other setting.
        other: &'static str,
    },
    /// A word that contradicts another word.
    #[error("{word} and {other} exclude each other")]
    Contradicts {
        /// The word.
        word: &'static str,
        /// The other word.
        other: &'static str,
    },
    /// A word with a value of 0, which would pass no frames.
    #[error("invalid {0} 0: it would pass no frames")]
    Zero(&'static str),
}

impl FromStr for Spec {
    type Err = NetemError;

    fn from_str(text: &str) -> Result<Self, NetemError> {
        let mut draft = Draft::default();
        let mut words = SpecWords(text.split_whitespace().peekable());
        while let Some(word) = words.0.next() {
            draft.read(word, &mut words)?;
        }
        draft.finish()
    }
}

/// The words of a specification that are not read yet.
struct SpecWords<'a>(Peekable<SplitWhitespace<'a>>);

impl SpecWords<'_> {
    /// Reads the value of `word`; an error if the value is missing or invalid.
    fn value<T: FromStr<Err = units::QuantityError>>(&mut self, word: &'static str) -> Result<T, NetemError> {
        let text = self.0.next().ok_or(NetemError::Missing(word))?;
        text.parse().map_err(|reason| NetemError::Value { word, reason })
    }

    /// Whether the next word is a number, and thus a further value of the previous word.
    fn goes_on(&mut self) -> bool {
        let is_number = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit() || "-.".contains(first));
        self.0.peek().is_some_and(is_number)
    }

    /// Reads a further value of `word`; returns `default` if no further value follows.
    fn further<T: FromStr<Err = units::QuantityError>>(
        &mut self,
        word: &'static str,
        default: T,
    ) -> Result<T, NetemError> {
        if self.goes_on() { self.value(word) } else { Ok(default) }
    }

    fn chance(&mut self, word: &'static str) -> Result<Chance, NetemError> {
        Ok(Chance { share: self.value(word)?, correlation: self.further(word, Share::NONE)? })
    }

    fn delay(&mut self) -> Result<DelaySpec, NetemError> {
        let mean = self.value("delay")?;
        let jitter = self.further("delay", Time::default())?;
        let correlation = self.further("delay", Share::NONE)?;
        Ok(DelaySpec { mean, jitter, correlation, ..DelaySpec::default() })
    }

    fn loss(&mut self) -> Result<Loss, NetemError> {
        let word = "loss";
        if self.goes_on() {
            return self.chance(word).map(Loss::Random);
        }
        match self.0.next().ok_or(NetemError::Missing(word))? {
            "random" => self.chance(word).map(Loss::Random),
            "state" => self.states().map(Loss::State),
            "gemodel" => self.elliott().map(Loss::Elliott),
            "ber" => self.value(word).map(Loss::Bits),
            other => {
                let expected = "percentage such as 0.1%, or one of random, state, gemodel and ber";
                Err(NetemError::Value {
                    word,
                    reason: units::QuantityError::Malformed { text: other.to_string(), expected },
                })
            }
        }
    }

    fn states(&mut self) -> Result<FourStates, NetemError> {
        let word = "loss";
        let default = FourStates::new(self.value(word)?);
        let p31 = self.further(word, default.p31)?;
        let p32 = self.further(word, default.p32)?;
        let p23 = self.further(word, default.p23)?;
        let p14 = self.further(word, default.p14)?;
        Ok(FourStates { p31, p32, p23, p14, ..default })
    }

    fn elliott(&mut self) -> Result<Elliott, NetemError> {
        let word = "loss";
        let default = Elliott::new(self.value(word)?);
        let r = self.further(word, default.r)?;
        let bad = self.further(word, default.bad)?;
        let good = self.further(word, default.good)?;
        Ok(Elliott { r, bad, good, ..default })
    }

    fn link(&mut self) -> Result<LinkSpec, NetemError> {
        let word = "rate";
        let rate: Rate = self.value(word)?;
        if rate.bits() == 0 {
            return Err(NetemError::Zero(word));
        }
        let WholeNumber(overhead) = self.further(word, WholeNumber(0))?;
        let WholeNumber(cell) = self.further(word, WholeNumber(0))?;
        let WholeNumber(cell_overhead) = self.further(word, WholeNumber(0))?;
        Ok(LinkSpec { rate, overhead, cell, cell_overhead, queue: None })
    }
}

/// The settings read so far. Words may be in any order, so their dependencies are checked at the end.
#[derive(Default)]
struct Draft {
    delay: Option<DelaySpec>,
    shape: Option<DelayShape>,
    ordered: Option<bool>,
    loss: Option<Loss>,
    duplicate: Option<Chance>,
    corrupt: Option<Chance>,
    reorder: Option<Chance>,
    gap: Option<WholeNumber<u32>>,
    link: Option<LinkSpec>,
    queue: Option<Size>,
    limit: Option<WholeNumber<u32>>,
    bytes: Option<Size>,
    seed: Option<WholeNumber<u64>>,
}

impl Draft {
    /// Reads the setting `word` and the values that follow it; an error if the word is unknown or repeated.
    fn read(&mut self, word: &str, words: &mut SpecWords<'_>) -> Result<(), NetemError> {
        match word {
            "delay" | "latency" => once(&mut self.delay, "delay", words.delay()?),
            "distribution" => once(&mut self.shape, "distribution", words.value("distribution")?),
            "ordered" => once(&mut self.ordered, "ordered", true),
            "loss" | "drop" => once(&mut self.loss, "loss", words.loss()?),
            "duplicate" => once(&mut self.duplicate, "duplicate", words.chance("duplicate")?),
            "corrupt" => once(&mut self.corrupt, "corrupt", words.chance("corrupt")?),
            "reorder" => once(&mut self.reorder, "reorder", words.chance("reorder")?),
            "gap" => once(&mut self.gap, "gap", words.value("gap")?),
            "rate" => once(&mut self.link, "rate", words.link()?),
            "queue" => once(&mut self.queue, "queue", words.value("queue")?),
            "limit" => once(&mut self.limit, "limit", words.value("limit")?),
            "bytes" => once(&mut self.bytes, "bytes", words.value("bytes")?),
            "seed" => once(&mut self.seed, "seed", words.value("seed")?),
            "slot" | "ecn" => Err(NetemError::Unsupported(word.to_string())),
            _ => Err(NetemError::Unknown(word.to_string())),
        }
    }

    fn finish(self) -> Result<Spec, NetemError> {
        let spec = Spec::default();
        Ok(Spec {
            delay: self.delay()?,
            loss: self.loss,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            reorder: self.reorder()?,
            link: self.link()?,
            limit: self.limit.map_or(spec.limit, |limit| limit.0),
            bytes: self.bytes.unwrap_or(spec.bytes),
            seed: self.seed.map(|seed| seed.0),
        })
        .and_then(Spec::with_room)
    }

    /// Returns the delay with its distribution; `None` without a delay. Refuses `distribution` and `ordered` without a
    /// suitable delay.
    fn delay(&self) -> Result<Option<DelaySpec>, NetemError> {
        let Some(delay) = self.delay else {
            return match (self.shape, self.ordered) {
                (Some(_), _) => Err(NetemError::Needs { word: "distribution", other: "a delay with jitter" }),
                (None, Some(_)) => Err(NetemError::Needs { word: "ordered", other: "a delay" }),
                (None, None) => Ok(None),
            };
        };
        let nothing = Time::default();
        if self.shape.is_some() && (delay.mean == nothing || delay.jitter == nothing) {
            return Err(NetemError::Needs { word: "distribution", other: "a delay with jitter" });
        }
        Ok(Some(DelaySpec { shape: self.shape.unwrap_or_default(), ordered: self.ordered.is_some(), ..delay }))
    }

    /// Returns the reordering; `None` if it is not set. Refuses reordering without a delay, and together with
    /// `ordered`.
    fn reorder(&self) -> Result<Option<Reorder>, NetemError> {
        let Some(chance) = self.reorder else {
            return match self.gap {
                Some(_) => Err(NetemError::Needs { word: "gap", other: "reorder" }),
                None => Ok(None),
            };
        };
        if self.delay.is_none_or(|delay| delay.mean == Time::default()) {
            return Err(NetemError::Needs { word: "reorder", other: "a delay" });
        }
        if self.ordered.is_some() {
            return Err(NetemError::Contradicts { word: "reorder", other: "ordered" });
        }
        Ok(Some(Reorder { chance, gap: self.gap.map_or(1, |gap| gap.0.max(1)) }))
    }

    fn link(&self) -> Result<Option<LinkSpec>, NetemError> {
        match (self.link, self.queue) {
            (None, Some(_)) => Err(NetemError::Needs { word: "queue", other: "a rate" }),
            (link, queue) => Ok(link.map(|link| LinkSpec { queue, ..link })),
        }
    }
}

impl Spec {
    /// Refuses a specification whose limits allow no frames.
    fn with_room(self) -> Result<Self, NetemError> {
        match (self.limit, self.bytes.bytes()) {
            (0, _) => Err(NetemError::Zero("limit")),
            (_, 0) => Err(NetemError::Zero("bytes")),
            _ => Ok(self),
        }
    }
}

/// Sets the value of `word`. Refuses a second value.
fn once<T>(place: &mut Option<T>, word: &'static str, value: T) -> Result<(), NetemError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(NetemError::Twice(word)),
    }
}

#[derive(Clone, Copy)]
struct WholeNumber<T>(T);

impl<T: FromStr> FromStr for WholeNumber<T> {
    type Err = units::QuantityError;

    fn from_str(text: &str) -> Result<Self, units::QuantityError> {
        let expected = "whole number that is not too large";
        text.parse().map(Self).map_err(|_| units::QuantityError::Malformed { text: text.to_string(), expected })
    }
}

impl FromStr for DelayShape {
    type Err = units::QuantityError;

    fn from_str(text: &str) -> Result<Self, units::QuantityError> {
        let expected = "uniform, normal, pareto, paretonormal or exponential distribution";
        let named = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        named
            .map(|(_, shape)| shape)
            .ok_or_else(|| units::QuantityError::Malformed { text: text.to_string(), expected })
    }
}

impl FromStr for BitErrors {
    type Err = units::QuantityError;

    fn from_str(text: &str) -> Result<Self, units::QuantityError> {
        let malformed =
            || units::QuantityError::Malformed { text: text.to_string(), expected: "rate of bit errors such as 1e-6" };
        let (number, "") = Decimal::read(text).ok_or_else(malformed)? else { return Err(malformed()) };
        let errors = number.times(u128::from(Self::ALL), 1).and_then(|errors| u64::try_from(errors).ok());
        let most = |errors: &u64| *errors <= Self::ALL;
        errors.filter(most).map(Self).ok_or_else(|| units::QuantityError::TooMuch { text: text.to_string(), most: "1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Spec>().unwrap().to_string()
    }

    fn refused(text: &str) -> String {
        text.parse::<Spec>().unwrap_err().to_string()
    }

    /// Objective: settings are printed in one form, whatever their order and units.
    #[test]
    fn words_are_shown_in_one_form() {
        for (text, words) in [
            ("", ""),
            ("limit 100000 bytes 64m", ""),
            ("delay 0.07s", "delay 70ms"),
            ("latency 70000 10ms 25 distribution normal", "delay 70ms 10ms 25% distribution normal"),
            ("distribution uniform delay 1ms 1ms", "delay 1ms 1ms"),
            ("delay 1ms 0ms 25%", "delay 1ms 0ns 25%"),
            ("ordered delay 1ms 1ms distribution exponential", "delay 1ms 1ms distribution exponential ordered"),
            ("drop 1", "loss 1%"),
            ("loss random 1% 25%", "loss 1% 25%"),
            ("loss state 10%", "loss state 10%"),
            ("loss state 1% 30%", "loss state 1% 30%"),
            ("loss state 1 2 3 4 5", "loss state 1% 2% 3% 4% 5%"),
            ("loss gemodel 1%", "loss gemodel 1%"),
            ("loss gemodel 1% 10% 100% 0%", "loss gemodel 1% 10%"),
            ("loss gemodel 1% 10% 70% .1%", "loss gemodel 1% 10% 70% 0.1%"),
            ("loss ber 0.000025", "loss ber 25e-6"),
            ("duplicate 1% corrupt 0.1% 50%", "duplicate 1% corrupt 0.1% 50%"),
            ("gap 5 reorder 25% 50% delay 10ms", "delay 10ms reorder 25% 50% gap 5"),
            ("reorder 25% gap 0 delay 10ms", "delay 10ms reorder 25%"),
            ("rate 1mbps", "rate 8mbit"),
            ("rate 10mbit -14 48 5 queue 9000", "rate 10mbit -14 48 5 queue 9000b"),
            ("rate 1gbit 0 48", "rate 1gbit 0 48"),
            ("seed 7 limit 10 bytes 1mb", "limit 10 bytes 1mb seed 7"),
        ] {
            assert_eq!(canonical(text), words, "{text}");
            assert_eq!(canonical(words), words);
        }
    }

    /// Objective: an invalid setting is refused with the name of the word at fault.
    #[test]
    fn unsupported_requests_are_refused_by_name() {
        for (text, sentence) in [
            ("delay 1ms slot 1ms", "netem's parameter \"slot\" is not supported"),
            ("loss 1% ecn", "netem's parameter \"ecn\" is not supported"),
            ("delay 1ms delay 2ms", "delay is given twice"),
            ("loss 1% loss state 1%", "loss is given twice"),
            ("delay", "delay has no value"),
            ("loss gemodel", "loss has no value"),
            ("delay fast", "delay: expected a time such as 70ms, found \"fast\""),
            ("duplicate 101%", "duplicate: \"101%\" is too large: expected at most 100%"),
            ("loss ber 1.1", "loss: \"1.1\" is too large: expected at most 1"),
            (
                "loss often",
                "loss: expected a percentage such as 0.1%, or one of random, state, gemodel and ber, found \"often\"",
            ),
            ("limit -1", "limit: expected a whole number that is not too large, found \"-1\""),
            ("reorder 1%", "reorder requires a delay"),
            ("delay 0ms 1ms reorder 1%", "reorder requires a delay"),
            ("delay 1ms gap 5", "gap requires reorder"),
            ("delay 1ms ordered reorder 1%", "reorder and ordered exclude each other"),
            ("distribution normal", "distribution requires a delay with jitter"),
            ("delay 1ms distribution normal", "distribution requires a delay with jitter"),
            ("ordered", "ordered requires a delay"),
            ("queue 10kb", "queue requires a rate"),
            ("rate 0", "invalid rate 0: it would pass no frames"),
            ("limit 0", "invalid limit 0: it would pass no frames"),
            ("bytes 0", "invalid bytes 0: it would pass no frames"),
        ] {
            assert_eq!(refused(text), sentence, "{text}");
        }
        assert!(refused("delay 1ms jitter 1ms").starts_with("unknown word \"jitter\": expected delay,"));
        assert!(refused("delay 1ms 1ms distribution odd").contains("expected a uniform, normal,"));
    }
}
