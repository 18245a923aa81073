//! Zones of names: in the forms of the file of `--config`, of the HTTP interface, and of the gateway.

use std::net::IpAddr;

use netvale_gateway::dns::zones::{DnsZone, ZoneRecord};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::json::{self, JsonObject};

/// A DNS zone. It is serialized as in gvproxy's HTTP interface, and deserialized as in the file of `--config`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GvZone {
    #[serde(rename(serialize = "Name"))]
    pub name: String,
    /// The records; `None` if they were not given.
    #[serde(rename(serialize = "Records"))]
    pub records: Option<Vec<GvRecord>>,
    #[serde(rename(serialize = "DefaultIP", deserialize = "defaultIP"), serialize_with = "address_or_empty")]
    pub default_ip: Option<IpAddr>,
}

/// A record of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GvRecord {
    #[serde(rename(serialize = "Name"))]
    pub name: String,
    #[serde(rename(serialize = "IP"), serialize_with = "address_or_empty")]
    pub ip: Option<IpAddr>,
    #[serde(rename(serialize = "Regexp"), skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
}

fn address_or_empty<S: Serializer>(address: &Option<IpAddr>, out: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => out.collect_str(address),
        None => out.serialize_str(""),
    }
}

impl GvZone {
    /// Creates a zone of the default network, with records for the gateway and the host.
    pub(super) fn usual(name: &str, gateway: IpAddr, host: IpAddr) -> GvZone {
        let record = |name: &str, ip| GvRecord { name: name.to_owned(), ip: Some(ip), regexp: None };
        let records = vec![record("gateway", gateway), record("host", host)];
        GvZone { name: name.to_owned(), records: Some(records), default_ip: None }
    }

    /// Reads a zone from a request's body.
    ///
    /// # Errors
    /// Returns gvproxy's message.
    pub(super) fn read(body: &[u8]) -> Result<GvZone, String> {
        let zone = JsonObject::of(json::first_value(body)?, "types.Zone", "Zone")?;
        let records = match zone.value("Records") {
            None | Some(Value::Null) => None,
            Some(Value::Array(records)) => Some(records.iter().map(record).collect::<Result<_, _>>()?),
            Some(other) => return Err(zone.wrong("Records", other, "[]types.Record")),
        };
        Ok(GvZone { name: zone.text("Name", "string")?, records, default_ip: address(&zone, "DefaultIP")? })
    }

    /// Returns the zone in the form of the gateway's control interface.
    pub(super) fn for_gateway(&self) -> DnsZone {
        let record = |one: &GvRecord| ZoneRecord { name: one.name.clone(), regexp: one.regexp.clone(), ip: one.ip };
        let records = self.records.iter().flatten().map(record).collect();
        DnsZone { name: self.name.clone(), default_ip: self.default_ip, records }
    }
}

fn record(value: &Value) -> Result<GvRecord, String> {
    let record = JsonObject::of(value.clone(), "types.Record", "Record")?;
    let regexp = record.text("Regexp", "regexp.Regexp")?;
    Ok(GvRecord {
        name: record.text("Name", "string")?,
        ip: address(&record, "IP")?,
        regexp: Some(regexp).filter(|text| !text.is_empty()),
    })
}

fn address(object: &JsonObject, field: &str) -> Result<Option<IpAddr>, String> {
    let text = object.text(field, "net.IP")?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("invalid IP address: {text}"))
}

/// Returns the zones after `new` is added, and the index of the changed zone. If a zone of the same name exists, `new`
/// replaces it, and the records of the previous zone are appended to the records of `new`.
pub(super) fn merged(zones: &[GvZone], mut new: GvZone) -> (Vec<GvZone>, usize) {
    let mut zones = zones.to_vec();
    let at = zones.iter().position(|zone| zone.name == new.name).unwrap_or(zones.len());
    match zones.get_mut(at) {
        Some(zone) => {
            if let Some(records) = zone.records.take() {
                new.records.get_or_insert_default().extend(records);
            }
            *zone = new;
        }
        None => zones.push(new),
    }
    (zones, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> GvZone {
        GvZone::usual("containers.internal.", [192, 168, 127, 1].into(), [192, 168, 127, 254].into())
    }

    #[test]
    fn zones_are_shown_in_gvproxys_form() {
        let records = r#"[{"Name":"gateway","IP":"192.168.127.1"},{"Name":"host","IP":"192.168.127.254"}]"#;
        let expected = format!(r#"{{"Name":"containers.internal.","Records":{records},"DefaultIP":""}}"#);
        assert_eq!(serde_json::to_string(&usual()).unwrap(), expected);
        let read = GvZone::read(br#"{"name":"a.","RECORDS":[{"Name":"x","ip":"10.0.0.1","regexp":"^b"}]} rest"#);
        let expected = r#"{"Name":"a.","Records":[{"Name":"x","IP":"10.0.0.1","Regexp":"^b"}],"DefaultIP":""}"#;
        assert_eq!(serde_json::to_string(&read.unwrap()).unwrap(), expected);
        let empty = GvZone::read(b"{}").unwrap();
        assert_eq!(serde_json::to_string(&empty).unwrap(), r#"{"Name":"","Records":null,"DefaultIP":""}"#);
    }

    #[test]
    fn malformed_zones_get_gvproxys_texts() {
        for (body, expected) in [
            ("", "EOF"),
            (
                r#"{"Records":1}"#,
                "json: cannot unmarshal number into Go struct field Zone.Records of type []types.Record",
            ),
            (r#"{"DefaultIP":"x"}"#, "invalid IP address: x"),
            (r#"[]"#, "json: cannot unmarshal array into Go value of type types.Zone"),
        ] {
            assert_eq!(GvZone::read(body.as_bytes()), Err(expected.to_owned()));
        }
    }

    /// Objective: new records precede the existing records of a zone; the zone keeps its position; a zone with a new
    /// name is appended.
    #[test]
    fn records_are_added_before_those_of_the_same_zone() {
        let zones = [usual(), GvZone { name: "b.".into(), ..GvZone::default() }];
        let new = GvZone::read(br#"{"Name":"containers.internal.","Records":[{"Name":"host","IP":"10.0.0.9"}]}"#);
        let (zones, at) = merged(&zones, new.unwrap());
        let names = |zone: &GvZone| zone.records.iter().flatten().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!((at, zones.len(), names(&zones[0])), (0, 2, vec!["host".into(), "gateway".into(), "host".into()]));
        assert_eq!(merged(&zones, GvZone { name: "c.".into(), ..GvZone::default() }).1, 2);
        assert_eq!(zones[0].for_gateway().records[0].ip, Some([10, 0, 0, 9].into()));
    }
}
