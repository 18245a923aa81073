//! Reads and writes options as JSON and TOML: the keys of the table, in one map.

use std::fmt;
use std::sync::LazyLock;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{AttachOption, OPTIONS, Policies, PortOptions};

static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| OPTIONS.iter().map(|option| option.key).collect());

impl Serialize for PortOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(OPTIONS.iter().filter_map(|option| Some((option.key, option.given(self)?))))
    }
}

impl Serialize for Policies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.given())
    }
}

impl<'de> Deserialize<'de> for PortOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionMapVisitor(|_| true))
    }
}

impl<'de> Deserialize<'de> for Policies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionMapVisitor(AttachOption::is_policy)).map(|options| options.policies)
    }
}

/// Reads the options that the function admits.
struct OptionMapVisitor(fn(&AttachOption) -> bool);

impl<'de> Visitor<'de> for OptionMapVisitor {
    type Value = PortOptions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PortOptions, A::Error> {
        let mut options = PortOptions::default();
        let mut seen = Vec::new();
        while let Some(option) = map.next_key_seed(OptionKeySeed(self.0))? {
            if seen.contains(&option.key) {
                return Err(Error::duplicate_field(option.key));
            }
            seen.push(option.key);
            map.next_value_seed(OptionValueSeed { option, options: &mut options })?;
        }
        Ok(options)
    }
}

/// Reads a key. The error for a key that is not admitted refers to the key's position in the text.
struct OptionKeySeed(fn(&AttachOption) -> bool);

impl<'de> DeserializeSeed<'de> for OptionKeySeed {
    type Value = &'static AttachOption;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        let option = AttachOption::find(&key).ok_or_else(|| Error::unknown_field(&key, &KEYS))?;
        if (self.0)(option) {
            return Ok(option);
        }
        Err(Error::custom(format_args!("{key} is not a policy: set it in a [[port]]")))
    }
}

/// Reads a value. The error for an invalid value refers to the value's position in the text. `null` counts as omitted.
struct OptionValueSeed<'a> {
    option: &'static AttachOption,
    options: &'a mut PortOptions,
}

impl<'de> DeserializeSeed<'de> for OptionValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Numbers that JSON lacks (TOML's `inf`, `nan`) arrive here as `Some(Value::Null)`, which no option accepts.
        match Option::<Value>::deserialize(deserializer)? {
            None => Ok(()),
            Some(value) => self.option.put(self.options, value).map_err(Error::custom),
        }
    }
}
