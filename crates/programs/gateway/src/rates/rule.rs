//! Rules that limit guests ([`LimitRule`]), as on the command line, and the set of rules ([`LimitRules`]) from which a
//! guest's limits follow.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use netvale_policy::units::Rate;
use netvale_wire::MacAddr;

use crate::guests::{GuestId, NetworkId};
use crate::ports::PortNames;

/// The verb of these rules in a list of rules.
pub const VERB: &str = "limit";
/// Minimum rate that a rule may set. A lower rate would be useless.
const LEAST: Rate = Rate::from_bits(8_000);
/// Maximum number that a rule may set for new flows per second, and for open connections.
const MOST: u32 = 1_000_000;

/// The guests to which a rule applies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LimitedGuests {
    /// Every guest that no other rule names.
    Each,
    /// The guest of the network without tags with this MAC address.
    Mac([u8; 6]),
    /// The guest behind the private port with this name.
    Port(String),
}

/// The limits of a guest. A field is `None` if there is no such limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GuestLimit {
    /// Rate of payload from the guest.
    pub sent: Option<Rate>,
    /// Rate of payload to the guest.
    pub received: Option<Rate>,
    /// Maximum number of new flows per second.
    pub new: Option<u32>,
    /// Maximum number of TCP connections that are open at the same time.
    pub open: Option<u32>,
}

impl GuestLimit {
    fn or(self, other: GuestLimit) -> GuestLimit {
        GuestLimit {
            sent: self.sent.or(other.sent),
            received: self.received.or(other.received),
            new: self.new.or(other.new),
            open: self.open.or(other.open),
        }
    }

    fn strictest(self, other: GuestLimit) -> GuestLimit {
        GuestLimit {
            sent: lower(self.sent, other.sent),
            received: lower(self.received, other.received),
            new: lower(self.new, other.new),
            open: lower(self.open, other.open),
        }
    }
}

fn lower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}

/// A rule that limits guests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitRule {
    /// The guests to which the rule applies.
    pub guests: LimitedGuests,
    /// The limits that the rule sets.
    pub limit: GuestLimit,
}

/// The error for text that is not a rule of this kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid limit {text:?}: {why}; expected [MAC|@PORT] [sent RATE] [received RATE] [new N/s] [open N]")]
pub struct BadLimitRule {
    text: String,
    why: String,
}

impl FromStr for LimitRule {
    type Err = BadLimitRule;

    /// Parses a rule without its verb.
    fn from_str(text: &str) -> Result<Self, BadLimitRule> {
        let bad = |why: String| BadLimitRule { text: text.to_owned(), why };
        let mut words = text.split_whitespace().peekable();
        let guests = words.next_if(|word| is_guest(word)).map(|word| guests(word).map_err(&bad)).transpose()?;
        let mut limit = GuestLimit::default();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| bad(format!("{word} has no value")))?;
            let is_second = match word {
                "sent" => limit.sent.replace(rate(value).map_err(&bad)?).is_some(),
                "received" => limit.received.replace(rate(value).map_err(&bad)?).is_some(),
                "new" => limit.new.replace(per_second(value).map_err(&bad)?).is_some(),
                "open" => limit.open.replace(number(value).map_err(&bad)?).is_some(),
                _ => return Err(bad(format!("{word:?} is not known"))),
            };
            if is_second {
                return Err(bad(format!("{word} occurs twice")));
            }
        }
        if limit == GuestLimit::default() {
            return Err(bad("it limits nothing".to_owned()));
        }
        Ok(LimitRule { guests: guests.unwrap_or(LimitedGuests::Each), limit })
    }
}

fn is_guest(word: &str) -> bool {
    word.starts_with('@') || word.contains(':')
}

/// Parses the guests of a rule: a MAC address or `@PORT`.
fn guests(word: &str) -> Result<LimitedGuests, String> {
    match word.strip_prefix('@') {
        Some("") => Err("@ has no port".to_owned()),
        Some(port) => Ok(LimitedGuests::Port(port.to_owned())),
        None => word
            .parse::<MacAddr>()
            .map(|mac| LimitedGuests::Mac(mac.0))
            .map_err(|_| format!("{word:?} is not a MAC address")),
    }
}

/// Parses the guests at the start of a rule that the user wants to remove: nothing (for every guest), a MAC address or
/// `@PORT`. The rest of the text is ignored. Returns `None` if the guest is malformed.
pub fn named(text: &str) -> Option<LimitedGuests> {
    let word = text.split_whitespace().next().filter(|word| is_guest(word));
    word.map_or(Some(LimitedGuests::Each), |word| guests(word).ok())
}

fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    if rate < LEAST { Err(format!("{text} is less than {LEAST}")) } else { Ok(rate) }
}

fn per_second(text: &str) -> Result<u32, String> {
    let count = text.strip_suffix("/s").ok_or_else(|| format!("{text:?} is not a number a second, such as 100/s"))?;
    number(count)
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a number from 1 to {MOST}"))
}

impl fmt::Display for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERB)?;
        match &self.guests {
            LimitedGuests::Each => {}
            LimitedGuests::Mac(mac) => write!(f, " {}", MacAddr(*mac))?,
            LimitedGuests::Port(port) => write!(f, " @{port}")?,
        }
        let GuestLimit { sent, received, new, open } = self.limit;
        sent.map_or(Ok(()), |rate| write!(f, " sent {rate}"))?;
        received.map_or(Ok(()), |rate| write!(f, " received {rate}"))?;
        new.map_or(Ok(()), |new| write!(f, " new {new}/s"))?;
        open.map_or(Ok(()), |open| write!(f, " open {open}"))
    }
}

/// The rules that limit guests, with at most one rule for the same guests.
#[derive(Clone, Default, Debug)]
pub struct LimitRules(BTreeMap<LimitedGuests, GuestLimit>);

impl LimitRules {
    /// Adds a rule, or replaces the rule for the same guests.
    pub fn add(&mut self, rule: LimitRule) {
        self.0.insert(rule.guests, rule.limit);
    }

    /// Removes the rule for `guests`. Returns whether there was such a rule.
    pub fn remove(&mut self, guests: &LimitedGuests) -> bool {
        self.0.remove(guests).is_some()
    }

    /// Returns the rules.
    pub fn rules(&self) -> impl Iterator<Item = LimitRule> {
        self.0.iter().map(|(guests, limit)| LimitRule { guests: guests.clone(), limit: *limit })
    }

    /// Returns whether there is a rule for these guests.
    pub fn has(&self, guests: &LimitedGuests) -> bool {
        self.0.contains_key(guests)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a rule names a guest by its MAC address; the guest must be in the network without tags.
    pub fn names(&self, who: GuestId) -> bool {
        self.0.contains_key(&LimitedGuests::Mac(who.mac.0))
    }

    /// Returns whether any rule names a private port.
    pub fn name_ports(&self) -> bool {
        self.0.keys().any(|guests| matches!(guests, LimitedGuests::Port(_)))
    }

    /// Returns the limits of a guest. Each kind of limit comes from the rule that names the guest or, if that rule does
    /// not set it, from the rule for every guest. A network with several ports has the strictest of the ports' limits.
    /// A network without a known port may belong to any port, so it has the strictest limits of all ports. `who` is
    /// `None` for guests that no rule names.
    pub fn limit(&self, who: Option<GuestId>, ports: &PortNames) -> GuestLimit {
        let of = |guests: &LimitedGuests| self.0.get(guests).copied().unwrap_or_default();
        let each = of(&LimitedGuests::Each);
        let Some(who) = who else { return each };
        if who.network == NetworkId::UNTAGGED {
            return of(&LimitedGuests::Mac(who.mac.0)).or(each);
        }
        let of_ports = ports.names(who.network).map(|name| of(&LimitedGuests::Port(name.to_owned())).or(each));
        let strictest = of_ports.reduce(GuestLimit::strictest);
        strictest.unwrap_or_else(|| {
            let of_any = self.0.iter().filter(|(guests, _)| matches!(guests, LimitedGuests::Port(_)));
            of_any.map(|(_, limit)| limit.or(each)).fold(each, GuestLimit::strictest)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::PortChange;

    fn rule(text: &str) -> LimitRule {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read_and_printed() {
        for (text, printed) in [
            ("sent 10mbit", "limit sent 10mbit"),
            ("received 1mbps open 7", "limit received 8mbit open 7"),
            (
                "02:00:00:00:00:05 open 7 new 100/s sent 1.5gbit",
                "limit 02:00:00:00:00:05 sent 1500mbit new 100/s open 7",
            ),
            ("@vm7 received 512kbit", "limit @vm7 received 512kbit"),
        ] {
            assert_eq!(rule(text).to_string(), printed);
            assert_eq!(rule(printed.strip_prefix("limit ").unwrap()), rule(text));
        }
    }

    #[test]
    fn text_that_is_no_limit_is_refused() {
        for text in [
            "",
            "@vm7",
            "@ sent 1mbit",
            "sent",
            "sent fast",
            "sent 1kbit",
            "sent 1mbit sent 2mbit",
            "new 5",
            "new 0/s",
            "open 0",
            "open 1000001",
            "02:00 open 1",
            "vm7 open 1",
        ] {
            let error = text.parse::<LimitRule>().unwrap_err().to_string();
            assert!(error.contains("expected [MAC|@PORT]"), "{error}");
        }
    }

    #[test]
    fn the_rule_that_names_a_guest_comes_first() {
        let mut rules = LimitRules::default();
        for text in ["sent 10mbit new 5/s", "02:00:00:00:00:05 sent 1mbit", "@vm7 new 9/s"] {
            rules.add(rule(text));
        }
        let mut ports = PortNames::default();
        let network = NetworkId::of_vlan(7).unwrap();
        ports.apply(PortChange { name: "vm7".into(), network: Some(network) });
        let limit = |who: GuestId| rules.limit(Some(who), &ports);
        let mac = MacAddr([2, 0, 0, 0, 0, 5]);
        let words = |limit: GuestLimit| (limit.sent.map(|rate| rate.to_string()), limit.new);
        assert_eq!(words(limit(NetworkId::UNTAGGED.station(mac))), (Some("1mbit".into()), Some(5)));
        assert_eq!(words(limit(NetworkId::UNTAGGED.station(MacAddr([2; 6])))), (Some("10mbit".into()), Some(5)));
        assert_eq!(words(limit(network.station(mac))), (Some("10mbit".into()), Some(9)));
    }

    /// Objective: a VLAN without a known port may belong to any port, so it has the strictest limits of all ports.
    #[test]
    fn a_network_without_a_known_port_has_the_strictest_limit() {
        let mut rules = LimitRules::default();
        for text in ["@vm7 sent 1mbit new 9/s", "@vm8 sent 2mbit new 5/s", "open 7"] {
            rules.add(rule(text));
        }
        let [network, other] = [7, 8].map(|vlan| NetworkId::of_vlan(vlan).unwrap());
        let station = |network: NetworkId| Some(network.station(MacAddr([2; 6])));
        let words = |limit: GuestLimit| (limit.sent.map(|rate| rate.to_string()), limit.new, limit.open);
        let mut ports = PortNames::default();
        let strictest = (Some("1mbit".into()), Some(5), Some(7));
        assert_eq!(words(rules.limit(station(network), &ports)), strictest);
        for name in ["vm7", "vm8"] {
            ports.apply(PortChange { name: name.into(), network: Some(network) });
        }
        ports.apply(PortChange { name: "vm9".into(), network: Some(other) });
        assert_eq!(words(rules.limit(station(network), &ports)), strictest, "two ports");
        assert_eq!(words(rules.limit(station(other), &ports)), (None, None, Some(7)), "no rule names it");
        assert_eq!(words(rules.limit(None, &ports)), (None, None, Some(7)));
    }

    #[test]
    fn a_rule_is_removed_by_its_guests() {
        let mut rules = LimitRules::default();
        rules.add(rule("@vm7 open 5"));
        rules.add(rule("open 5"));
        rules.add(rule("open 6"));
        assert_eq!(
            rules.rules().map(|rule| rule.to_string()).collect::<Vec<_>>(),
            ["limit open 6", "limit @vm7 open 5"]
        );
        assert!(rules.remove(&named("@vm7 open 5").unwrap()) && !rules.remove(&named("@vm7").unwrap()));
        assert!(rules.remove(&named("").unwrap()) && rules.is_empty());
        assert_eq!(named("02:00"), None);
    }
}
