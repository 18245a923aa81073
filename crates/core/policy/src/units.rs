//! Rates, sizes, times and shares in the syntax of iproute2.
//!
//! The reference is tc(8), "PARAMETERS" and "UNITS": unit names are the same and case-insensitive, numbers without a
//! unit have the same default unit, and fractions of the smallest unit are cut off. Numbers are read exactly, without
//! floating point: each value has a text that reads back as the same value.
//!
//! | type | text | without a unit | printed |
//! |---|---|---|---|
//! | [`Rate`] | `1.5gbit`, `512kibit`, `1mbps` (bytes!) | bits per second | `1500mbit` |
//! | [`Size`] | `64kb`, `1m`, `8kbit` | bytes | `64kb` |
//! | [`Time`] | `70ms`, `1.5s`, `10usec` | microseconds | `1500ms` |
//! | [`Share`] | `0.1%` | percent | `0.1%` |

use core::fmt;
use core::str::FromStr;

/// The reason why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a number with a known unit.
    #[error("expected a {expected}, found {text:?}")]
    Malformed {
        /// The given text.
        text: String,
        /// The expected form of the text, with an example.
        expected: &'static str,
    },
    /// The quantity exceeds the maximum.
    #[error("{text:?} is too large: expected at most {most}")]
    TooMuch {
        /// The given text.
        text: String,
        /// The largest accepted value.
        most: &'static str,
    },
}

/// A rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A share of a whole, from nothing to all. Stored as in the kernel, in units of 1 / `u32::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The units and messages of a type of quantity.
struct QuantityKind {
    /// The expected form of the text, for error messages.
    expected: &'static str,
    /// The largest accepted value, for error messages.
    most: &'static str,
    /// The units that are accepted.
    units: &'static [(&'static str, u64)],
    /// The units in which values are printed, largest first.
    shown: &'static [(&'static str, u64)],
}

/// Rates, in bits per second. `bps` is *bytes* per second, as in tc(8).
const RATE: QuantityKind = QuantityKind {
    expected: "rate such as 10mbit",
    most: "18446744073709551615bit",
    units: &[
        ("", 1),
        ("bit", 1),
        ("kbit", 1_000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
        ("tbit", 1_000_000_000_000),
        ("kibit", KIB),
        ("mibit", MIB),
        ("gibit", GIB),
        ("tibit", TIB),
        ("bps", 8),
        ("kbps", 8_000),
        ("mbps", 8_000_000),
        ("gbps", 8_000_000_000),
        ("tbps", 8_000_000_000_000),
        ("kibps", 8 * KIB),
        ("mibps", 8 * MIB),
        ("gibps", 8 * GIB),
        ("tibps", 8 * TIB),
    ],
    shown: &[("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
};

/// Sizes, in bytes. All units are powers of 1024, as in tc(8).
const SIZE: QuantityKind = QuantityKind {
    expected: "size such as 64kb",
    most: "18446744073709551615b",
    units: &[
        ("", 1),
        ("b", 1),
        ("k", KIB),
        ("kb", KIB),
        ("m", MIB),
        ("mb", MIB),
        ("g", GIB),
        ("gb", GIB),
        ("kbit", KIB / 8),
        ("mbit", MIB / 8),
        ("gbit", GIB / 8),
    ],
    shown: &[("gb", GIB), ("mb", MIB), ("kb", KIB), ("b", 1)],
};

/// Times, in nanoseconds.
const TIME: QuantityKind = QuantityKind {
    expected: "time such as 70ms",
    most: "18446744073709551615ns",
    units: &[
        ("", 1_000),
        ("ns", 1),
        ("nsec", 1),
        ("nsecs", 1),
        ("us", 1_000),
        ("usec", 1_000),
        ("usecs", 1_000),
        ("ms", 1_000_000),
        ("msec", 1_000_000),
        ("msecs", 1_000_000),
        ("s", 1_000_000_000),
        ("sec", 1_000_000_000),
        ("secs", 1_000_000_000),
    ],
    shown: &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
};

impl Rate {
    /// Creates a rate of `bits` per second.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The rate in bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl Size {
    /// Creates a size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Time {
    /// Creates a span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

impl Share {
    /// The share 0.
    pub const NONE: Self = Self(0);
    /// The share 1.
    pub const ALL: Self = Self(u32::MAX);

    /// Creates a share of `raw` / `u32::MAX`.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The share in units of 1 / `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The complement of the share: 1 minus this share.
    pub const fn rest(self) -> Self {
        Self(u32::MAX - self.0)
    }

    /// Reads a share as a decimal fraction, as in netmap's tools: `0.01` is one percent. Refuses a share above 1.
    pub fn from_part(part: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed { text: part.to_string(), expected: "share such as 0.01" };
        let (number, "") = Decimal::read(part).ok_or_else(malformed)? else { return Err(malformed()) };
        Self::nearest(number, 1).ok_or_else(|| QuantityError::TooMuch { text: part.to_string(), most: "1" })
    }

    /// Returns the share nearest to `number` / `whole`, as in tc(8); `None` if the share exceeds 1.
    fn nearest(number: Decimal, whole: u128) -> Option<Self> {
        // Compute twice the value, so that its last bit decides the rounding.
        let twice = number.times(2 * u128::from(u32::MAX), whole)?;
        u32::try_from(twice.div_ceil(2)).ok().map(Self)
    }
}

/// Reads and shows quantities by the table of their units.
macro_rules! by_units {
    ($($quantity:ty: $units:expr),+) => {$(
        impl FromStr for $quantity {
            type Err = QuantityError;

            fn from_str(text: &str) -> Result<Self, QuantityError> {
                read(text, $units).map(Self)
            }
        }

        impl fmt::Display for $quantity {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(f, self.0, $units)
            }
        }
    )+};
}

by_units!(Rate: &RATE, Size: &SIZE, Time: &TIME);

impl FromStr for Share {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed { text: text.to_string(), expected: "percentage such as 0.1%" };
        let (number, "" | "%") = Decimal::read(text).ok_or_else(malformed)? else { return Err(malformed()) };
        Self::nearest(number, 100).ok_or_else(|| QuantityError::TooMuch { text: text.to_string(), most: "100%" })
    }
}

impl fmt::Display for Share {
    /// Prints the shortest percentage that reads back as this share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = u128::from(self.0);
        let whole = u128::from(u32::MAX);
        let percent = |unit: u128| (parts * 100 * unit + whole / 2) / whole;
        let is_exact = |unit: &u128| (percent(*unit) * whole + 50 * unit) / (100 * unit) == parts;
        // Eight places distinguish all shares: neighbouring shares differ by 2.3e-8 percent, more than two units of the
        // eighth place.
        let places = (0..8).find(|places| is_exact(&10_u128.pow(*places))).unwrap_or(8);
        let unit = 10_u128.pow(places);
        write!(f, "{}", percent(unit) / unit)?;
        if places > 0 {
            write!(f, ".{:0width$}", percent(unit) % unit, width = places as usize)?;
        }
        f.write_str("%")
    }
}

/// Reads a number with one of the units of `kind`, and cuts off fractions of the smallest unit.
fn read(text: &str, kind: &QuantityKind) -> Result<u64, QuantityError> {
    let malformed = || QuantityError::Malformed { text: text.to_string(), expected: kind.expected };
    let (number, suffix) = Decimal::read(text).ok_or_else(malformed)?;
    let (_, unit) = kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(suffix)).ok_or_else(malformed)?;
    let value = number.times(u128::from(*unit), 1).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| QuantityError::TooMuch { text: text.to_string(), most: kind.most })
}

/// Prints `value` in the largest unit of `kind` that divides it, and 0 in the smallest unit.
fn show(f: &mut fmt::Formatter<'_>, value: u64, kind: &QuantityKind) -> fmt::Result {
    let fits = |(_, unit): &&(&str, u64)| *unit == 1 || (value != 0 && value.is_multiple_of(*unit));
    match kind.shown.iter().find(fits) {
        Some((name, unit)) => write!(f, "{}{name}", value / unit),
        None => write!(f, "{value}"),
    }
}

/// A decimal number: `digits` times ten to the power of `exponent`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Maximum number of decimal places. Further places are ignored, as no unit needs them.
    const PLACES: i32 = 18;

    /// Reads the decimal number at the start of `text`, such as `1.5` or `2e-6`. Returns the number and the rest of the
    /// text; `None` if the text does not start with a valid number, or if the number is too large.
    pub(crate) fn read(text: &str) -> Option<(Self, &str)> {
        let (whole, rest) = digits(text);
        let (places, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && places.is_empty() {
            return None;
        }
        let mut number = Self { digits: 0, exponent: 0 };
        for digit in whole.bytes() {
            number.append(digit)?;
        }
        for digit in places.bytes().take(Self::PLACES as usize) {
            number.append(digit)?;
            number.exponent -= 1;
        }
        let (exponent, rest) = exponent(rest)?;
        number.exponent = number.exponent.saturating_add(exponent);
        Some((number, rest))
    }

    fn append(&mut self, digit: u8) -> Option<()> {
        self.digits = self.digits.checked_mul(10)?.checked_add(u128::from(digit - b'0'))?;
        Some(())
    }

    /// Returns this number times `factor`, divided by `divisor` and rounded down; `None` if an intermediate result is
    /// too large.
    pub(crate) fn times(self, factor: u128, divisor: u128) -> Option<u128> {
        let product = self.digits.checked_mul(factor)?;
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs());
        if product == 0 {
            return Some(0);
        }
        if self.exponent < 0 {
            // A divisor too large for a `u128` exceeds the product, so the quotient is 0.
            return Some(power.and_then(|power| power.checked_mul(divisor)).map_or(0, |divisor| product / divisor));
        }
        Some(product.checked_mul(power?)? / divisor)
    }
}

/// Splits `text` after its leading digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Reads an exponent such as `e-6` at the start of `text`, and returns the exponent and the rest of the text. Without
/// an `e`, the exponent is 0. `None` if no number follows the `e`, or the number is too large.
fn exponent(text: &str) -> Option<(i32, &str)> {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return Some((0, text)) };
    let (negative, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix('+').unwrap_or(rest)),
    };
    let (value, rest) = digits(rest);
    let value = value.parse::<i32>().ok()?;
    Some((if negative { -value } else { value }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(text: &str) -> u64 {
        text.parse::<Rate>().unwrap().bits()
    }

    fn bytes(text: &str) -> u64 {
        text.parse::<Size>().unwrap().bytes()
    }

    fn nanos(text: &str) -> u64 {
        text.parse::<Time>().unwrap().nanos()
    }

    fn raw(text: &str) -> u32 {
        text.parse::<Share>().unwrap().raw()
    }

    /// Objective: rates have the units of tc(8), in either case; `bps` is bytes per second.
    #[test]
    fn rates_as_in_tc() {
        assert_eq!(
            [bits("10mbit"), bits("1.5gbit"), bits("1000bit"), bits("1000")],
            [10_000_000, 1_500_000_000, 1000, 1000]
        );
        assert_eq!([bits("1bps"), bits("2KBps"), bits("1mbps"), bits("1gibps")], [8, 16_000, 8_000_000, 8 << 30]);
        assert_eq!(
            [bits("1Kibit"), bits("0.5mibit"), bits("1e3kbit"), bits(".5kbit")],
            [1024, 1 << 19, 1_000_000, 500]
        );
        assert_eq!([bits("1000000tbit"), bits("0"), bits("0.9bit")], [1_000_000_000_000_000_000, 0, 0]);
    }

    /// Objective: units of sizes are powers of 1024, and times without a unit are microseconds.
    #[test]
    fn sizes_and_times_as_in_tc() {
        assert_eq!([bytes("10kb"), bytes("1K"), bytes("2mb"), bytes("1g")], [10_240, 1024, 2 << 20, 1 << 30]);
        assert_eq!([bytes("8kbit"), bytes("1mbit"), bytes("1500"), bytes("1500b")], [1024, 131_072, 1500, 1500]);
        assert_eq!(
            [nanos("70ms"), nanos("1.5s"), nanos("10us"), nanos("100ns")],
            [70_000_000, 1_500_000_000, 10_000, 100]
        );
        assert_eq!([nanos("20"), nanos("2secs"), nanos("1.5e-3s")], [20_000, 2_000_000_000, 1_500_000]);
    }

    /// Objective: a share is a percentage with or without the percent sign, rounded as tc rounds it.
    #[test]
    fn shares_as_in_tc() {
        assert_eq!([raw("1%"), raw("1"), raw("0.1%"), raw("50%")], [42_949_673, 42_949_673, 4_294_967, 2_147_483_648]);
        assert_eq!([raw("0"), raw("100%"), raw("1e-9%"), raw("1e-99%")], [0, u32::MAX, 0, 0]);
        assert_eq!(Share::from_part("0.01"), "1%".parse());
        assert_eq!(Share::ALL.rest(), Share::NONE);
    }

    /// Objective: an error names the given text and the expected form.
    #[test]
    fn errors_say_what_is_expected() {
        let shown = |error: QuantityError| error.to_string();
        assert_eq!(shown("fast".parse::<Rate>().unwrap_err()), "expected a rate such as 10mbit, found \"fast\"");
        assert_eq!(shown("1mb/s".parse::<Rate>().unwrap_err()), "expected a rate such as 10mbit, found \"1mb/s\"");
        assert_eq!(shown("-1".parse::<Size>().unwrap_err()), "expected a size such as 64kb, found \"-1\"");
        assert_eq!(shown("1 s".parse::<Time>().unwrap_err()), "expected a time such as 70ms, found \"1 s\"");
        assert_eq!(shown("1e".parse::<Time>().unwrap_err()), "expected a time such as 70ms, found \"1e\"");
        assert_eq!(shown("".parse::<Share>().unwrap_err()), "expected a percentage such as 0.1%, found \"\"");
        assert_eq!(shown("101%".parse::<Share>().unwrap_err()), "\"101%\" is too large: expected at most 100%");
        assert_eq!(shown(Share::from_part("1.1").unwrap_err()), "\"1.1\" is too large: expected at most 1");
        let error = "20000000tbit".parse::<Rate>().unwrap_err();
        assert_eq!(shown(error), "\"20000000tbit\" is too large: expected at most 18446744073709551615bit");
        assert!(matches!("1e99s".parse::<Time>(), Err(QuantityError::TooMuch { .. })));
    }

    /// Objective: quantities are printed in the largest suitable unit.
    #[test]
    fn shown_in_large_units() {
        let rates = [10_000_000, 1_500_000_000, 0, 1_000_001].map(|bits| Rate::from_bits(bits).to_string());
        assert_eq!(rates, ["10mbit", "1500mbit", "0bit", "1000001bit"]);
        let sizes = [64 << 20, 1536, 1500].map(|bytes| Size::from_bytes(bytes).to_string());
        assert_eq!(sizes, ["64mb", "1536b", "1500b"]);
        let times = [70_000_000, 1_500_000_000, 0].map(|nanos| Time::from_nanos(nanos).to_string());
        assert_eq!(times, ["70ms", "1500ms", "0ns"]);
        let shares = ["1", "0.1", "33.3", "0.00000001", "100"].map(|text| text.parse::<Share>().unwrap().to_string());
        assert_eq!(shares, ["1%", "0.1%", "33.3%", "0%", "100%"]);
    }

    proptest! {
        /// Objective: each value has a text that reads back as the same value.
        #[test]
        fn each_value_reads_back_from_its_text(value: u64, parts: u32) {
            prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
            prop_assert_eq!(Size(value).to_string().parse(), Ok(Size(value)));
            prop_assert_eq!(Time(value).to_string().parse(), Ok(Time(value)));
            prop_assert_eq!(Share(parts).to_string().parse(), Ok(Share(parts)));
        }

        /// Objective: no text makes reading panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.eE+-]{0,50}[a-z%]{0,5}|\\PC*") {
            let _ = (text.parse::<Rate>(), text.parse::<Size>(), text.parse::<Time>());
            let _ = (text.parse::<Share>(), Share::from_part(&text));
        }
    }
}
