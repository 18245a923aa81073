//! The configuration file. Each key of its tables is a setting; the keys of a `[[port]]` are the parameters of
//! `port.attach`.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use netvale_control::options::{OptionShape, mode};
use netvale_control::types::{AttachParams, PortOptions};
use netvale_portspec::{AttachSpec, PortSpec};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::field::FieldValue;
use super::{Config, ConfigError, SETTINGS, Setting, SwitchPolicies, TABLES};

/// A parsed configuration file; omitted settings have their defaults.
#[derive(Clone, Debug, Default)]
pub struct ConfigFile(pub(super) Config);

/// A TOML value with its position in the text.
type PlacedValue<'a> = Spanned<DeValue<'a>>;

impl ConfigFile {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read, [`ConfigError::Toml`] if it is malformed or has unknown keys.
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text).map_err(|source| ConfigError::Toml { path: path.into(), source: Box::new(source) })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The error with its line: invalid TOML, unknown keys, values out of range, impossible ports.
    pub fn parse(text: &str) -> Result<ConfigFile, Error> {
        let mut file = ConfigFile::default();
        let read = DeTable::parse(text).and_then(|table| read_table(&mut file.0, "", table.get_ref()));
        read.map(|()| file).map_err(|mut error| {
            error.set_input(Some(text));
            error
        })
    }
}

/// Reads the settings of a table. At the top level, also reads the other tables and the ports.
fn read_table(config: &mut Config, name: &str, table: &DeTable<'_>) -> Result<(), Error> {
    let is_top = name.is_empty();
    for (key, value) in table {
        let below = TABLES.iter().find(|(below, _)| is_top && !below.is_empty() && *below == key.get_ref());
        if let Some(setting) = Setting::find(name, key.get_ref()) {
            read_setting(config, setting, value)?;
        } else if let Some((below, _)) = below {
            read_table(config, below, table_at(value)?)?;
        } else if is_top && key.get_ref() == "port" {
            config.ports = read_ports(value)?;
        } else {
            let place = Spanned::new(key.span(), DeValue::String(key.get_ref().clone()));
            return Err(error_at(&place, unknown(name, key.get_ref())));
        }
    }
    Ok(())
}

fn unknown(table: &str, key: &str) -> String {
    let settings = SETTINGS.iter().filter(|setting| setting.table == table).map(|setting| setting.name);
    let below = TABLES.iter().map(|(below, _)| *below).chain(["port"]).filter(|_| table.is_empty());
    let known: Vec<String> =
        settings.chain(below).filter(|name| !name.is_empty()).map(|name| format!("`{name}`")).collect();
    format!("unknown field `{key}`, expected one of {}", known.join(", "))
}

fn read_setting(config: &mut Config, setting: &Setting, place: &PlacedValue<'_>) -> Result<(), Error> {
    let reader = ValueDeserializer::from(place.clone());
    if setting.shape != OptionShape::Policies {
        return setting.put(config, Value::deserialize(reader)?).map_err(|why| error_at(place, why));
    }
    // The table is read separately, because only its own deserializer knows the positions of its keys.
    let policies = SwitchPolicies::deserialize(reader)?;
    if let Some(misfit) = policies.wrong() {
        let table = place.get_ref().get(misfit.switch.as_str()).unwrap_or(place);
        return Err(error_at(table.get_ref().get(misfit.key).unwrap_or(table), misfit));
    }
    setting.put(config, policies.value()).map_err(|why| error_at(place, why))
}

fn table_at<'a, 'b>(place: &'a PlacedValue<'b>) -> Result<&'a DeTable<'b>, Error> {
    let found = place.get_ref();
    found.as_table().ok_or_else(|| error_at(place, format!("expected a table, found {}", found.type_str())))
}

/// Reads the ports. Checks each port, and that its name is unique.
fn read_ports(places: &PlacedValue<'_>) -> Result<Vec<AttachParams>, Error> {
    let list = places.get_ref().as_array();
    let list = list.ok_or_else(|| error_at(places, "expected a list of tables: write [[port]] above each"))?;
    let mut names = HashSet::new();
    let mut ports = Vec::new();
    for place in list {
        let port = read_port(place)?;
        let at = |key| place.get_ref().get(key).unwrap_or(place);
        let spec = port.check().map_err(|misfit| error_at(at(misfit.key), misfit))?;
        let name = full_name(&port, &spec);
        if !names.insert(name.clone()) {
            let key = if port.options.name.is_some() { "name" } else { "port" };
            return Err(error_at(at(key), format!("duplicate port name {name}: give one of the ports another `name`")));
        }
        ports.push(port);
    }
    Ok(ports)
}

fn read_port(place: &PlacedValue<'_>) -> Result<AttachParams, Error> {
    let mut rest = table_at(place)?.clone();
    let mut text =
        |key: &str| rest.remove(key).map(|value| String::deserialize(ValueDeserializer::from(value))).transpose();
    let switch = text("switch")?.unwrap_or_default();
    let port = text("port")?.ok_or_else(|| error_at(place, "missing field `port`"))?;
    let rest = Spanned::new(place.span(), DeValue::Table(rest));
    let options = PortOptions::deserialize(ValueDeserializer::from(rest))?;
    Ok(AttachParams { switch, port, options })
}

/// Returns the full name that the port has after it is attached.
pub fn full_name(params: &AttachParams, spec: &AttachSpec) -> String {
    match &params.options {
        PortOptions { backend: Some(backend), .. } => {
            PortSpec::parse(backend).map_or_else(|_| backend.clone(), |named| named.written_name().to_string())
        }
        PortOptions { name: Some(name), .. } => format!("{}:{name}", params.switch),
        _ => format!("{}:{}", params.switch, spec.port_name()),
    }
}

/// Returns the parameters in canonical form: port and modes are spelled uniformly, and options whose value is their
/// default are omitted.
#[must_use]
pub fn canonical(params: &AttachParams) -> AttachParams {
    let Ok(spec) = AttachSpec::parse(&params.port) else { return params.clone() };
    let own_name = spec.port_name().to_string();
    let spec = match spec {
        AttachSpec::Local(local) => local.port.to_string(),
        other => other.to_string(),
    };
    let old = params.options.clone();
    let options = PortOptions {
        rings: if old.rings == 1 && old.backend.is_none() { 0 } else { old.rings },
        name: old.name.filter(|name| *name != own_name),
        speed: old.speed.filter(|speed| *speed != 1.0),
        socket_mode: old
            .socket_mode
            .and_then(|text| mode(&text))
            .filter(|bits| *bits != 0o600)
            .map(|bits| format!("{bits:04o}")),
        ..old
    };
    AttachParams { switch: params.switch.clone(), port: spec, options }
}

/// Creates an error with the position of a value. The `toml` crate adds positions only to errors from a value's own
/// deserializer.
fn error_at(place: &PlacedValue<'_>, why: impl fmt::Display) -> Error {
    struct ErrorVisitor<T>(T);
    impl<'de, T: fmt::Display> Visitor<'de> for ErrorVisitor<T> {
        type Value = Error;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_some<D: Deserializer<'de>>(self, _: D) -> Result<Error, D::Error> {
            Err(D::Error::custom(self.0))
        }
    }
    let reader = ValueDeserializer::from(place.clone());
    reader.deserialize_option(ErrorVisitor(why)).unwrap_or_else(|error| error)
}
