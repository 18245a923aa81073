//! A guard's checks, and their names.

use std::fmt;
use std::str::FromStr;

use super::Violation;

/// A check of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Checks Ethernet source addresses.
    Mac,
    /// Checks IPv4 and IPv6 source addresses.
    Ip,
    /// Checks the sender addresses in ARP and RARP messages.
    Arp,
    /// Checks the sources of neighbour discovery messages, and the addresses that the messages claim.
    Nd,
    /// Refuses messages of DHCP servers.
    Dhcp,
    /// Refuses messages of IPv6 routers.
    Ra,
}

impl Check {
    /// All checks, in the order in which they are printed.
    pub const ALL: [Self; 6] = [Self::Mac, Self::Ip, Self::Arp, Self::Nd, Self::Dhcp, Self::Ra];

    /// The name of the check in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Ip => "ip",
            Self::Arp => "arp",
            Self::Nd => "nd",
            Self::Dhcp => "dhcp",
            Self::Ra => "ra",
        }
    }

    /// The violation that the check reports.
    pub const fn violation(self) -> Violation {
        match self {
            Self::Mac => Violation::SpoofedMac,
            Self::Ip => Violation::SpoofedIp,
            Self::Arp => Violation::SpoofedArp,
            Self::Nd => Violation::SpoofedNd,
            Self::Dhcp => Violation::RogueDhcp,
            Self::Ra => Violation::RogueRa,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A non-empty set of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checks(u8);

/// The reason why a text is not a set of checks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChecks {
    /// The text has no words.
    #[error("the list of checks is empty: expected `all`, or some of `mac`, `ip`, `arp`, `nd`, `dhcp` and `ra`")]
    Empty,
    /// An unknown word.
    #[error("invalid check `{0}`: expected `all`, or some of `mac`, `ip`, `arp`, `nd`, `dhcp` and `ra`")]
    Unknown(String),
}

impl Checks {
    /// All checks.
    pub const ALL: Self = Self((1 << Check::ALL.len()) - 1);

    /// Returns the set with `check` added.
    #[must_use]
    pub const fn with(self, check: Check) -> Self {
        Self(self.0 | check.bit())
    }

    /// Whether `check` is in the set.
    #[inline]
    pub const fn has(self, check: Check) -> bool {
        self.0 & check.bit() != 0
    }

    /// Whether one of `checks` is in the set.
    #[inline]
    pub fn any(self, checks: &[Check]) -> bool {
        checks.iter().any(|&check| self.has(check))
    }
}

impl From<Check> for Checks {
    fn from(check: Check) -> Self {
        Self(check.bit())
    }
}

impl FromStr for Checks {
    type Err = BadChecks;

    /// Reads names of checks, separated by commas or white space.
    fn from_str(text: &str) -> Result<Self, BadChecks> {
        let mut bits = 0;
        for word in super::addresses::words(text) {
            bits |= match word {
                "all" => Self::ALL.0,
                _ => match Check::ALL.into_iter().find(|check| check.name() == word) {
                    Some(check) => check.bit(),
                    None => return Err(BadChecks::Unknown(word.into())),
                },
            };
        }
        (bits != 0).then_some(Self(bits)).ok_or(BadChecks::Empty)
    }
}

impl fmt::Display for Checks {
    /// Prints `all`, or the names in the order of [`Check::ALL`], separated by commas.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return out.write_str("all");
        }
        let mut between = "";
        for check in Check::ALL.into_iter().filter(|&check| self.has(check)) {
            write!(out, "{between}{}", check.name())?;
            between = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: words in any order, with commas or white space, are read and printed in one order.
    #[test]
    fn words_are_read_and_printed_in_one_way() {
        for (text, canonical) in [
            ("mac", "mac"),
            ("arp,mac", "mac,arp"),
            (" ra  dhcp, nd ", "nd,dhcp,ra"),
            ("mac,mac", "mac"),
            ("all", "all"),
            ("mac ip arp nd dhcp ra", "all"),
            ("ip,all", "all"),
        ] {
            let checks: Checks = text.parse().unwrap();
            assert_eq!(checks.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(checks));
        }
    }

    /// Objective: an empty text and wrong words are refused, and the wrong word is named.
    #[test]
    fn other_words_are_refused() {
        assert_eq!("".parse::<Checks>(), Err(BadChecks::Empty));
        assert_eq!(" , ".parse::<Checks>(), Err(BadChecks::Empty));
        let error = "mac,arps".parse::<Checks>().unwrap_err();
        assert_eq!(error, BadChecks::Unknown("arps".into()));
        assert!(error.to_string().starts_with("invalid check `arps`"));
    }

    /// Objective: every subset of the checks reads back as it prints.
    #[test]
    fn every_set_reads_back() {
        for bits in 1..=Checks::ALL.0 {
            let checks = Checks(bits);
            assert_eq!(checks.to_string().parse(), Ok(checks));
            let built = Check::ALL.into_iter().filter(|&check| checks.has(check)).map(Checks::from);
            assert_eq!(built.fold(0, |bits, one| bits | one.0), bits);
        }
    }
}
