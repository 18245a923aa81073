//! DNS zones that the user has added ([`DnsZones`]). Zones take precedence over the names of the switch's network and
//! over name servers.

use std::net::IpAddr;

use regex_lite::{Regex, RegexBuilder};

use super::message::record;

/// Maximum number of zones.
const MAX_ZONES: usize = 256;
/// Maximum number of records of a zone.
const MAX_RECORDS: usize = 4096;
/// Maximum size of a compiled regular expression, in bytes.
const MAX_REGEXP: usize = 64 << 10;

/// A zone, as users write it.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct DnsZone {
    /// The zone's name, such as `containers.internal.`. A zone with an empty name contains all names.
    pub name: String,
    /// The address of names that match no record; `None` if such names do not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_ip: Option<IpAddr>,
    /// The records; the first record that matches a name answers.
    #[serde(default)]
    pub records: Vec<ZoneRecord>,
}

/// A record of a zone.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ZoneRecord {
    /// The name within the zone; empty if only the regular expression selects names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A regular expression for names within the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
    /// The address of matching names; `None` if matching names exist without an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
}

/// The reason why a zone is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadZone {
    /// There are too many zones.
    #[error("there are {MAX_ZONES} zones already, the most that a gateway has; add records to one of them")]
    Zones,
    /// The zone has too many records.
    #[error("the zone has {0} records: expected at most {MAX_RECORDS}")]
    Records(usize),
    /// A regular expression is invalid or too large.
    #[error("invalid regular expression {0:?}: {1}")]
    Regexp(String, String),
}

/// A zone's answer for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAnswer {
    /// The name exists; the value is its address, or `None` if it has no address of the requested type.
    Found(Option<IpAddr>),
    /// The name does not exist.
    NoName,
}

#[derive(Debug)]
struct CompiledZone {
    zone: DnsZone,
    /// The regular expression of each record.
    expressions: Vec<Option<Regex>>,
}

/// All zones, in the order in which they are searched: the first zone that contains a name answers.
#[derive(Debug, Default)]
pub struct DnsZones(Vec<CompiledZone>);

impl DnsZones {
    /// Adds a zone at the end, or replaces the zone with the same name, which keeps its place in the order.
    ///
    /// # Errors
    /// There are too many zones or records, or a regular expression is invalid.
    pub fn set(&mut self, zone: DnsZone) -> Result<(), BadZone> {
        let count = zone.records.len();
        if count > MAX_RECORDS {
            return Err(BadZone::Records(count));
        }
        let expressions = zone.records.iter().map(|record| record.regexp.as_deref().map(compiled).transpose());
        let made = CompiledZone { expressions: expressions.collect::<Result<_, _>>()?, zone };
        if let Some(known) = self.0.iter_mut().find(|known| known.zone.name == made.zone.name) {
            *known = made;
        } else if self.0.len() < MAX_ZONES {
            self.0.push(made);
        } else {
            return Err(BadZone::Zones);
        }
        Ok(())
    }

    /// Returns the zones, in the order in which they are searched.
    pub fn all(&self) -> impl Iterator<Item = &DnsZone> {
        self.0.iter().map(|known| &known.zone)
    }

    /// Returns the answer for a name, which is in lower case without the last dot; `None` if no zone contains the name,
    /// or the type is neither A nor AAAA. For other types, name servers are queried.
    pub fn answer(&self, name: &str, kind: u16) -> Option<ZoneAnswer> {
        if !matches!(kind, record::A | record::AAAA) {
            return None;
        }
        let (zone, host) = self.0.iter().find_map(|known| Some((known, known.within(name)?)))?;
        Some(zone.answer(host, kind))
    }
}

fn compiled(text: &str) -> Result<Regex, BadZone> {
    let made = RegexBuilder::new(text).case_insensitive(true).size_limit(MAX_REGEXP).build();
    made.map_err(|why| BadZone::Regexp(text.to_owned(), why.to_string()))
}

impl CompiledZone {
    /// Returns the part of a name before the zone's name; `None` if the name is not below the zone.
    fn within<'a>(&self, name: &'a str) -> Option<&'a str> {
        let zone = self.zone.name.strip_suffix('.').unwrap_or(&self.zone.name);
        if self.zone.name.is_empty() {
            return Some(name);
        }
        let len = name.len().checked_sub(zone.len())?;
        let (host, end) = name.split_at_checked(len)?;
        host.strip_suffix('.').filter(|host| !host.is_empty() && end.eq_ignore_ascii_case(zone))
    }

    fn answer(&self, host: &str, kind: u16) -> ZoneAnswer {
        let is_wanted = |ip: &IpAddr| ip.is_ipv4() == (kind == record::A);
        let mut records = self.zone.records.iter().zip(&self.expressions);
        let fitting = records.find(|(record, expression)| {
            let is_named = !record.name.is_empty() && record.name.eq_ignore_ascii_case(host);
            is_named || expression.as_ref().is_some_and(|expression| expression.is_match(host))
        });
        match (fitting, self.zone.default_ip) {
            (Some((record, _)), _) => ZoneAnswer::Found(record.ip.filter(is_wanted)),
            (None, Some(ip)) => ZoneAnswer::Found(Some(ip).filter(is_wanted)),
            (None, None) => ZoneAnswer::NoName,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(texts: &[&str]) -> DnsZones {
        let mut zones = DnsZones::default();
        texts.iter().for_each(|text| zones.set(serde_json::from_str(text).unwrap()).unwrap());
        zones
    }

    fn address(text: &str) -> Option<ZoneAnswer> {
        Some(ZoneAnswer::Found(Some(text.parse().unwrap())))
    }

    /// Objective: within a zone, the first matching record answers, otherwise the default address; of several zones,
    /// the first that contains the name answers.
    #[test]
    fn the_first_zone_and_its_first_record_answer() {
        let zones = zones(&[
            r#"{"name":"in.test.","records":[{"name":"a","ip":"10.0.0.1"},{"regexp":"^w[0-9]+$","ip":"10.0.0.2"}]}"#,
            r#"{"name":"test.","default_ip":"10.0.0.3","records":[{"name":"six","ip":"fd00::1"}]}"#,
        ]);
        let ask = |name: &str| zones.answer(name, record::A);
        assert_eq!(ask("a.in.test"), address("10.0.0.1"));
        assert_eq!(ask("w12.in.test"), address("10.0.0.2"));
        assert_eq!(ask("b.in.test"), Some(ZoneAnswer::NoName), "the longer zone is first");
        assert_eq!(ask("b.test"), address("10.0.0.3"));
        assert_eq!(ask("six.test"), Some(ZoneAnswer::Found(None)));
        assert_eq!(zones.answer("six.test", record::AAAA), address("fd00::1"));
        for name in ["test", "atest", "a.example", ".test", ""] {
            assert_eq!(ask(name), None, "{name}");
        }
        assert_eq!(zones.answer("a.in.test", 16), None, "servers have the other types");
    }

    #[test]
    fn all_names_are_below_the_empty_zone() {
        let zones = zones(&[r#"{"name":"","default_ip":"10.0.0.3"}"#]);
        assert_eq!(zones.answer("a.example", record::A), address("10.0.0.3"));
    }

    #[test]
    fn a_zone_of_the_same_name_takes_the_others_place() {
        let mut zones = zones(&[r#"{"name":"a."}"#, r#"{"name":"b."}"#]);
        zones.set(serde_json::from_str(r#"{"name":"a.","default_ip":"10.0.0.9"}"#).unwrap()).unwrap();
        assert_eq!(zones.all().map(|zone| zone.name.as_str()).collect::<Vec<_>>(), ["a.", "b."]);
        assert_eq!(zones.answer("x.a", record::A), address("10.0.0.9"));
    }

    #[test]
    fn zones_that_are_malformed_or_too_large_are_refused() {
        let mut zones = DnsZones::default();
        let zone = |regexp: &str| DnsZone {
            name: "a.".into(),
            records: vec![ZoneRecord { regexp: Some(regexp.into()), ..ZoneRecord::default() }],
            ..DnsZone::default()
        };
        for bad in ["(", "x{1000}{1000}"] {
            assert!(matches!(zones.set(zone(bad)), Err(BadZone::Regexp(..))), "{bad}");
        }
        let records = vec![ZoneRecord::default(); MAX_RECORDS + 1];
        assert_eq!(zones.set(DnsZone { records, ..DnsZone::default() }), Err(BadZone::Records(MAX_RECORDS + 1)));
        for number in 0..MAX_ZONES {
            zones.set(DnsZone { name: number.to_string(), ..DnsZone::default() }).unwrap();
        }
        assert_eq!(zones.set(DnsZone { name: "one more".into(), ..DnsZone::default() }), Err(BadZone::Zones));
    }
}
