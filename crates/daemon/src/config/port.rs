//! A `[[port]]` of the file: the parameters of `port.attach`, all in one table.

use std::fmt;

use netvale_control::types::{AttachParams, PortOptions};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A port attached at startup: `switch` (absent with `backend`), `port`, and the options of `netvale attach`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortConfig(pub(super) AttachParams);

impl<'de> Deserialize<'de> for PortConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = PortConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with `port`, and options")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PortConfig, A::Error> {
        let mut rest = Rest { map, switch: None, port: None };
        let options = PortOptions::deserialize(MapAccessDeserializer::new(&mut rest))?;
        let port = rest.port.ok_or_else(|| Error::missing_field("port"))?;
        Ok(PortConfig(AttachParams { switch: rest.switch.unwrap_or_default(), port, options }))
    }
}

/// The table without `switch` and `port`, which are taken out on the way. Options are read from the file's own table,
/// so that errors have its line numbers.
struct Rest<A> {
    map: A,
    switch: Option<String>,
    port: Option<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for &mut Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, mut option: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.map.next_key_seed(Key(option))? {
                Some(Found::Switch(back)) => (self.switch, option) = (Some(self.map.next_value()?), back),
                Some(Found::Port(back)) => (self.port, option) = (Some(self.map.next_value()?), back),
                Some(Found::Option(key)) => return Ok(Some(key)),
                None => return Ok(None),
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads a key. A key other than `switch` and `port` is passed to the reader of options.
struct Key<K>(K);

enum Found<K, V> {
    Switch(K),
    Port(K),
    Option(V),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<K> {
    type Value = Found<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        match key.as_str() {
            "switch" => Ok(Found::Switch(self.0)),
            "port" => Ok(Found::Port(self.0)),
            _ => self.0.deserialize(key.into_deserializer()).map(Found::Option),
        }
    }
}
