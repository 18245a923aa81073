//! Groups of ports that share a rate, in text form: `tenant1 100mbit`, `tenant1 100mbit burst 1mb`.

use std::fmt;
use std::str::FromStr;

use netvale_policy::units::{Rate, Size};

use super::burst::usual_burst;

/// Maximum length of a name in characters.
const MOST: usize = 32;

/// A group of ports and the rate limit that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateGroup {
    /// Name of the group.
    pub name: String,
    /// Rate in bits per second.
    pub rate: Rate,
    /// Burst in bytes.
    pub burst: Size,
}

impl FromStr for RateGroup {
    type Err = ();

    fn from_str(text: &str) -> Result<RateGroup, ()> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (name, rate, burst) = match words[..] {
            [name, rate] => (name, rate, None),
            [name, rate, "burst", burst] => (name, rate, Some(burst)),
            _ => return Err(()),
        };
        let is_name = name.len() <= MOST && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let rate: Rate = rate.parse().map_err(drop)?;
        let burst: Option<Size> = burst.map(str::parse).transpose().map_err(drop)?;
        let burst = burst.unwrap_or_else(|| usual_burst(rate));
        let fits = is_name && rate.bits() > 0 && burst.bytes() > 0;
        fits.then(|| RateGroup { name: name.to_owned(), rate, burst }).ok_or(())
    }
}

impl fmt::Display for RateGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.rate)?;
        if self.burst == usual_burst(self.rate) { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a group reads back as written; other texts are refused.
    #[test]
    fn a_group_reads_back_as_written() {
        for text in ["tenant1 100mbit", "a.b-c_d 10gbit burst 3kb"] {
            assert_eq!(text.parse::<RateGroup>().map(|group| group.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "tenant1", "tenant1 0", "ten/ant 1mbit", "t 1mbit burst", "t 1mbit burst 0", "t 1mbit 2"] {
            assert_eq!(text.parse::<RateGroup>(), Err(()), "{text}");
        }
    }
}
