//! The file of a lab: a configuration file of the daemon, with sections for gateways and members.

use std::net::Ipv4Addr;
use std::path::Path;

use netvale_gateway::net::GatewayAddresses;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::CliError;
use crate::kinds::member::MemberSocket;

/// A gateway: `[[gateway]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabGateway {
    pub switch: String,
    #[serde(deserialize_with = "addresses")]
    pub addresses: GatewayAddresses,
    /// Options of `netvale gateway`.
    #[serde(default)]
    pub options: Vec<String>,
}

/// A member: `[[member]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabMember {
    pub name: String,
    pub switch: String,
    /// How the command connects to the port; `None` if the command runs in namespaces, with a network interface.
    pub socket: Option<MemberSocket>,
    /// The member's address; `None` for the next free address of the gateway's network.
    pub address: Option<Ipv4Addr>,
    /// The command and its arguments; if empty, the namespaces wait for `netvale lab exec`.
    #[serde(default)]
    pub command: Vec<String>,
    /// Options and policies of the port, as the keys of `[[port]]`.
    #[serde(default)]
    pub port: Map<String, Value>,
}

/// The contents of a lab's file.
#[derive(Debug)]
pub(super) struct LabFile {
    pub gateways: Vec<LabGateway>,
    pub members: Vec<LabMember>,
    /// All other sections: the daemon's configuration.
    pub config: String,
}

fn addresses<'de, D: serde::Deserializer<'de>>(from: D) -> Result<GatewayAddresses, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

impl LabFile {
    pub fn read(path: &Path) -> Result<LabFile, CliError> {
        let failed = |why| CliError::failed(format!("cannot read {}: {why}", path.display()), "name the lab's file");
        let text = std::fs::read_to_string(path).map_err(failed)?;
        LabFile::parse(&text).map_err(|why| {
            let what = format!("{}: {}", path.display(), why.trim());
            CliError::failed(what, "nothing was started; `netvale lab up --help` has an example")
        })
    }

    fn parse(text: &str) -> Result<LabFile, String> {
        let mut table: toml::Table = text.parse().map_err(|why: toml::de::Error| why.to_string())?;
        let gateways = section(&mut table, "gateway")?;
        let members = section(&mut table, "member")?;
        let config = toml::to_string(&table).map_err(|why| why.to_string())?;
        Ok(LabFile { gateways, members, config })
    }
}

/// Removes the entries `[[name]]` from the table, and parses them. Returns an empty list if there are no such entries.
fn section<T: serde::de::DeserializeOwned>(table: &mut toml::Table, name: &str) -> Result<Vec<T>, String> {
    let entries = match table.remove(name) {
        None => return Ok(Vec::new()),
        Some(toml::Value::Array(entries)) => entries,
        Some(other) => return Err(format!("{name} is a {}: expected sections [[{name}]]", other.type_str())),
    };
    let parse = |(n, entry): (usize, toml::Value)| {
        entry.try_into().map_err(|why: toml::de::Error| format!("[[{name}]] number {}: {}", n + 1, why.message()))
    };
    entries.into_iter().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_configuration_with_gateways_and_members() {
        let text = "workers = 1\n[[gateway]]\nswitch = 'vale0'\naddresses = '10.0.0.1/24'\n[[port]]\nswitch = 'vale0'\n\
            port = 'tap:x'\n[[member]]\nname = 'a'\nswitch = 'vale0'\nport = { mtu = 9000 }\n";
        let file = LabFile::parse(text).unwrap();
        assert_eq!((file.gateways.len(), file.members.len()), (1, 1));
        assert_eq!(file.members[0].port["mtu"], 9000);
        let rest: toml::Table = file.config.parse().unwrap();
        assert_eq!(rest.keys().collect::<Vec<_>>(), ["port", "workers"]);
    }

    #[test]
    fn mistakes_are_named_with_their_section() {
        for (text, expected) in [
            ("[[member]]\nname = 'a'\n", "[[member]] number 1: missing field `switch`"),
            ("[[member]]\nname = 'a'\nswitch = 'b'\nspeed = 1\n", "[[member]] number 1: unknown field `speed`"),
            ("[[gateway]]\nswitch = 'a'\naddresses = 'x'\n", "[[gateway]] number 1: "),
            ("[member]\nname = 'a'\n", "member is a table: expected sections [[member]]"),
        ] {
            let why = LabFile::parse(text).unwrap_err();
            assert!(why.starts_with(expected), "{why}");
        }
    }
}
