//! The options of netmap's link emulator, tlem.
//!
//! Reads the values of the options `-D`, `-B`, `-L` and `-Q`, as `apps/tlem/tlem.c` documents them, into a [`Spec`]:
//!
//! | option | values | unit | equivalent |
//! |---|---|---|---|
//! | `-D` | `[constant,]T` | seconds | `delay T` |
//! | | `uniform,MIN,MAX` | | `delay MEAN JITTER ordered` |
//! | | `exp,AVG,MIN` | | `delay AVG JITTER distribution exponential ordered` |
//! | `-B` | `[constant,]RATE` | bits per second | `rate RATE` |
//! | | `ether,RATE` | | `rate RATE 24`: adds framing and frame check sequence |
//! | `-L` | `[plr,]PART` | share of frames, up to 1 | `loss PERCENT` |
//! | | `ber,PART` | share of bits, up to 1 | `loss ber PART` |
//! | `-Q` | `SIZE` | bytes, 50000 by default | `queue SIZE`, with a rate |
//!
//! An option that is given once applies to both directions; if it is given twice, the second value applies to the
//! opposite direction. Like tlem, these specifications limit bytes in flight but not frames.

use super::Spec;
use super::spec::{BitErrors, Chance, DEFAULT_BYTES, DelayShape, DelaySpec, LinkSpec, Loss};
use crate::units::{self, Decimal, Rate, Share, Size, Time};

/// Number of bytes that Ethernet adds to a frame: preamble and gap (20 bytes), and the frame check sequence.
const FRAMING: i32 = 24;

/// Default limit of the bytes that wait to be sent at the rate.
const DEFAULT_QUEUE: Size = Size::from_bytes(50_000);

/// The reason why options are not a valid specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlemError {
    /// An option that does not concern the link, or an unknown option.
    #[error("unknown option {0:?}: expected -D, -B, -L or -Q")]
    Unknown(String),
    /// An option without its value.
    #[error("{0} has no value")]
    Missing(String),
    /// An option given more than twice: there are only two directions.
    #[error("{0} is given more than twice")]
    TooOften(&'static str),
    /// An option with an invalid value.
    #[error("{option} {value}: expected {expected}")]
    Value {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
}

/// The options of one direction; `None` for an option that is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlemOptions<'a> {
    /// The value of `-D`: the delay.
    pub delay: Option<&'a str>,
    /// The value of `-B`: the rate.
    pub bandwidth: Option<&'a str>,
    /// The value of `-L`: the loss.
    pub loss: Option<&'a str>,
    /// The value of `-Q`: the size of the queue.
    pub queue: Option<&'a str>,
}

/// A function that returns the field for one option's value.
type OptionAccessor<'a> = for<'o> fn(&'o mut TlemOptions<'a>) -> &'o mut Option<&'a str>;

/// Reads the options of a command line, such as `-D 20ms -B 10m -B 1m`. Returns the settings of the first and of the
/// opposite direction, or the first error.
pub fn directions<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<[Spec; 2], TlemError> {
    let mut both = [TlemOptions::default(); 2];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let unknown = || TlemError::Unknown(word.to_string());
        let (option, value) = word.split_at_checked(2).ok_or_else(unknown)?;
        let (name, place): (_, OptionAccessor<'a>) = match option {
            "-D" => ("-D", |options| &mut options.delay),
            "-B" => ("-B", |options| &mut options.bandwidth),
            "-L" => ("-L", |options| &mut options.loss),
            "-Q" => ("-Q", |options| &mut options.queue),
            _ => return Err(unknown()),
        };
        let value = Some(value).filter(|value| !value.is_empty()).or_else(|| words.next());
        let value = value.ok_or_else(|| TlemError::Missing(word.to_string()))?;
        let free = both.iter_mut().map(place).find(|place| place.is_none());
        *free.ok_or(TlemError::TooOften(name))? = Some(value);
    }
    let [there, back] = both;
    Ok([there.spec()?, back.or(there).spec()?])
}

impl TlemOptions<'_> {
    /// Returns these options; options that are not set are taken from `others`.
    fn or(self, others: Self) -> Self {
        Self {
            delay: self.delay.or(others.delay),
            bandwidth: self.bandwidth.or(others.bandwidth),
            loss: self.loss.or(others.loss),
            queue: self.queue.or(others.queue),
        }
    }

    /// Returns the specification of these options, or the option with an invalid value.
    pub fn spec(self) -> Result<Spec, TlemError> {
        let delay = self.delay.map(delay).transpose()?;
        let queue = self.queue.map(queue).transpose()?.filter(|queue| queue.bytes() != 0).unwrap_or(DEFAULT_QUEUE);
        let link = self.bandwidth.map(bandwidth).transpose()?.filter(|link| link.rate.bits() != 0);
        let link = link.map(|link| LinkSpec { queue: Some(queue), ..link });
        let loss = self.loss.map(loss).transpose()?;
        let bytes = room(delay.unwrap_or_default(), link);
        Ok(Spec { delay, link, loss, bytes, limit: u32::MAX, ..Spec::default() })
    }
}

/// Returns the limit of bytes in flight. With a rate, the limit is the maximum that tlem computes, but at least the
/// default: the bytes that the rate sends in the longest delay plus a millisecond, plus the size of the queue. Without
/// a rate, for which tlem reserves memory for 200 Gbit/s, the limit is the default.
fn room(delay: DelaySpec, link: Option<LinkSpec>) -> Size {
    let spread = if delay.shape == DelayShape::Exponential { 3 } else { 1 };
    let longest = delay.mean.nanos().saturating_add(delay.jitter.nanos().saturating_mul(spread));
    let full = link.map(|link| {
        let bits = u128::from(link.rate.bits()) * (u128::from(longest) + 1_000_000) / 1_000_000_000;
        let queue = link.queue.unwrap_or_default().bytes();
        Size::from_bytes(u64::try_from(bits / 8).unwrap_or(u64::MAX).saturating_add(queue))
    });
    full.unwrap_or_default().max(DEFAULT_BYTES)
}

fn delay(value: &str) -> Result<DelaySpec, TlemError> {
    let expected = "constant,T or uniform,MIN,MAX or exp,AVG,MIN in seconds, such as constant,20ms";
    let wrong = || TlemError::Value { option: "-D", value: value.to_string(), expected };
    let time = |text| number(text, &TIMES).ok_or_else(wrong);
    let jittered = |mean, jitter, shape| DelaySpec {
        mean: Time::from_nanos(mean),
        jitter: Time::from_nanos(jitter),
        correlation: Share::NONE,
        shape,
        ordered: true,
    };
    match split(value)[..] {
        [text] | ["const" | "constant", text] => {
            Ok(DelaySpec { mean: Time::from_nanos(time(text)?), ..DelaySpec::default() })
        }
        ["uniform", min, max] => {
            let min = time(min)?;
            let max = time(max)?;
            let range = max.checked_sub(min).ok_or_else(wrong)?;
            Ok(jittered(min + range / 2, range / 2, DelayShape::Uniform))
        }
        ["exp", average, min] => {
            let average = time(average)?;
            let min = time(min)?;
            let jitter = average.checked_sub(min).ok_or_else(wrong)?;
            Ok(jittered(average, jitter, if jitter == 0 { DelayShape::Uniform } else { DelayShape::Exponential }))
        }
        _ => Err(wrong()),
    }
}

fn bandwidth(value: &str) -> Result<LinkSpec, TlemError> {
    let expected = "constant,RATE or ether,RATE in bits per second, such as ether,10m";
    let wrong = || TlemError::Value { option: "-B", value: value.to_string(), expected };
    let (overhead, text) = match split(value)[..] {
        [text] | ["const" | "constant", text] => (0, text),
        ["ether", text] => (FRAMING, text),
        _ => return Err(wrong()),
    };
    let rate = Rate::from_bits(number(text, &RATES).ok_or_else(wrong)?);
    Ok(LinkSpec { rate, overhead, cell: 0, cell_overhead: 0, queue: None })
}

fn loss(value: &str) -> Result<Loss, TlemError> {
    let expected = "plr,PART of frames or ber,PART of bits, from 0 to 1";
    let wrong = |_: units::QuantityError| TlemError::Value { option: "-L", value: value.to_string(), expected };
    match split(value)[..] {
        [text] | ["plr", text] => {
            let share = Share::from_part(text).map_err(wrong)?;
            Ok(Loss::Random(Chance { share, correlation: Share::NONE }))
        }
        ["ber", text] => text.parse::<BitErrors>().map(Loss::Bits).map_err(wrong),
        _ => Err(TlemError::Value { option: "-L", value: value.to_string(), expected }),
    }
}

fn queue(value: &str) -> Result<Size, TlemError> {
    let wrong = || TlemError::Value { option: "-Q", value: value.to_string(), expected: "bytes, such as 50k" };
    number(value, &SIZES).map(Size::from_bytes).ok_or_else(wrong)
}

/// Splits a value into its parts, as tlem does.
fn split(value: &str) -> Vec<&str> {
    value.split([' ', '\t', '\r', '\n', ',']).filter(|part| !part.is_empty()).collect()
}

/// The possible suffixes of a number: a unit, then a tail without meaning.
struct NumberSuffixes {
    units: [(&'static str, u64); 4],
    tails: &'static [&'static str],
}

/// Times, in nanoseconds. A number without a unit is in seconds.
const TIMES: NumberSuffixes =
    NumberSuffixes { units: [("", 1_000_000_000), ("m", 1_000_000), ("u", 1_000), ("n", 1)], tails: &["", "s"] };
/// Rates, in bits per second.
const RATES: NumberSuffixes = NumberSuffixes {
    units: [("", 1), ("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)],
    tails: &["", "b", "bit", "bps"],
};
/// Sizes, in bytes.
const SIZES: NumberSuffixes =
    NumberSuffixes { units: [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)], tails: &["", "b"] };

/// Reads a number with one of the units of `kind`; `None` if the text is not such a number, or the number is too large.
fn number(text: &str, kind: &NumberSuffixes) -> Option<u64> {
    let (number, suffix) = Decimal::read(text)?;
    let suffix = suffix.to_ascii_lowercase();
    let is_unit = |(name, _): &&(&str, u64)| suffix.strip_prefix(name).is_some_and(|tail| kind.tails.contains(&tail));
    let (_, unit) = kind.units.iter().find(is_unit)?;
    u64::try_from(number.times(u128::from(*unit), 1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the specification of the first direction of `words`, without the limit of frames.
    fn said(words: &str) -> String {
        let [there, _] = directions(words.split(' ')).unwrap();
        assert_eq!(there.to_string().parse(), Ok(there.clone()));
        there.to_string().strip_prefix("limit 4294967295").unwrap().trim_start().to_string()
    }

    fn refused(words: &str) -> String {
        directions(words.split(' ')).unwrap_err().to_string()
    }

    /// Objective: each kind of value of each option has tlem's meaning.
    #[test]
    fn each_option_has_the_meaning_of_tlem() {
        for (options, words) in [
            ("-D 0.05", "delay 50ms"),
            ("-D50m", "delay 50ms"),
            ("-D constant,50ms", "delay 50ms"),
            ("-D uniform,10ms,30ms", "delay 20ms 10ms ordered"),
            ("-D exp,5ms,2ms", "delay 5ms 3ms distribution exponential ordered"),
            ("-D exp,5ms,5ms", "delay 5ms ordered"),
            ("-B 10m", "rate 10mbit queue 50000b"),
            ("-B const,1.5g -Q 100k", "rate 1500mbit queue 100kb"),
            ("-B ether,10Mbps -Q 0", "rate 10mbit 24 queue 50000b"),
            ("-B 0 -Q 1m", ""),
            ("-L plr,0.01", "loss 1%"),
            ("-L 0.5", "loss 50%"),
            ("-L ber,1e-6", "loss ber 1e-6"),
        ] {
            assert_eq!(said(options), words, "{options}");
        }
    }

    /// Objective: the limit of bytes in flight is large enough for the bytes that the rate sends during the delay.
    #[test]
    fn room_for_rate_and_delay() {
        assert_eq!(said("-D 1 -B 10g"), "bytes 1251300000b delay 1s rate 10gbit queue 50000b");
        assert_eq!(said("-D 1"), "delay 1s");
    }

    /// Objective: an option applies to both directions unless it is given twice.
    #[test]
    fn an_option_applies_to_both_directions_unless_given() {
        let both = directions("-D 20ms -B 10m -B 1m -Q 9k".split(' ')).unwrap().map(|spec| spec.to_string());
        let [there, back] = both;
        assert!(there.ends_with("delay 20ms rate 10mbit queue 9kb"), "{there}");
        assert!(back.ends_with("delay 20ms rate 1mbit queue 9kb"), "{back}");
    }

    /// Objective: options and values that tlem does not have are refused, and the error names the expected options or
    /// values.
    #[test]
    fn unknown_values_are_refused_by_name() {
        assert_eq!(refused("-i eth0"), "unknown option \"-i\": expected -D, -B, -L or -Q");
        assert_eq!(refused("é"), "unknown option \"é\": expected -D, -B, -L or -Q");
        assert_eq!(refused("-D"), "-D has no value");
        assert_eq!(refused("-D 1 -D 2 -D 3"), "-D is given more than twice");
        for options in ["-D uniform,2ms,1ms", "-D exp,1ms,2ms", "-D 5x", "-D constant,1,2", "-D 1e99"] {
            assert!(refused(options).contains("expected constant,T or uniform,MIN,MAX"), "{options}");
        }
        for options in ["-B slow", "-B ether", "-L 1.1", "-L burst,0.1,1,3", "-L ber,2", "-Q x"] {
            assert!(refused(options).starts_with(options), "{}", refused(options));
        }
    }
}
