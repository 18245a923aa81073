//! Parsers of values that several subcommands take.

use clap::builder::RangedI64ValueParser;

/// Parses a socket's mode in octal: `0660`, `660`.
///
/// # Errors
/// The text is not an octal mode.
pub fn mode(text: &str) -> Result<u32, String> {
    netvale_control::options::mode(text).ok_or_else(|| "expected octal permission bits, e.g. 0660".to_owned())
}

/// Parses a time in seconds, above 0.
///
/// # Errors
/// The text is not a number, or the time is not above 0 or is longer than a year.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 366.0 * 86_400.0 => Ok(value),
        _ => Err("expected seconds, above 0, e.g. 0.5".to_owned()),
    }
}

/// Returns the parser of a number above 0.
#[must_use]
pub fn positive() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Parses the length of a virtio-net header in bytes: 0, 10 or 12.
///
/// # Errors
/// The text is any other value.
pub fn vnet_hdr(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ (0 | 10 | 12)) => Ok(bytes),
        _ => Err("expected 10 or 12 bytes, or 0 for no virtio-net header".to_owned()),
    }
}

/// Parses the speed of a replay, as a multiple of the recorded speed; 0 means as fast as possible.
///
/// # Errors
/// The text is not a number, or the number is below 0.
pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => Err("expected a number from 0, e.g. 2.5".to_owned()),
    }
}

/// The keywords for link impairments, for the help of `netvale link` and for completion.
pub const LINK_WORDS: &str = "\
Words:
  delay TIME [JITTER [CORRELATION]] [distribution uniform|normal|pareto|paretonormal|exponential]
  loss [random] PERCENT [CORRELATION]
  loss gemodel P [R [1-H [1-K]]]           bursts of losses (Gilbert-Elliott)
  loss state P13 [P31 [P32 [P23 [P14]]]]   a Markov chain of four states
  duplicate PERCENT [CORRELATION]
  corrupt PERCENT [CORRELATION]
  reorder PERCENT [CORRELATION] [gap N]
  rate RATE [PACKETOVERHEAD [CELLSIZE [CELLOVERHEAD]]]
  limit FRAMES                             in flight at most; default: 100000
  bytes SIZE                               the same in bytes; default: 64mb
  seed N                                   of the random numbers, for repeatable losses

Examples:
  netvale link vale0:r1 delay 70ms 5ms loss 1%
  netvale link vale0:r1 out rate 10mbit
  netvale link vale0:r1 both delay 25ms
  netvale link vale0:r1 off
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: modes are octal and at most 0777.
    #[test]
    fn modes_are_octal_and_bounded() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("600"), Ok(0o600));
        assert!(mode("0888").is_err() && mode("7777").is_err() && mode("").is_err());
    }

    /// Objective: impossible header lengths and speeds are refused.
    #[test]
    fn impossible_headers_and_speeds_are_refused() {
        assert_eq!(["0", "10", "12"].map(vnet_hdr), [Ok(0), Ok(10), Ok(12)]);
        assert!(["11", "-1", ""].iter().all(|text| vnet_hdr(text).is_err()));
        assert_eq!(["0", "2.5"].map(speed), [Ok(0.0), Ok(2.5)]);
        assert!(["-1", "inf", "nan", ""].iter().all(|text| speed(text).is_err()));
    }

    /// Objective: times are finite and above 0.
    #[test]
    fn times_are_finite_and_above_zero() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(["0", "-1", "inf", "nan", "x", "1e300"].iter().all(|text| seconds(text).is_err()));
    }
}
