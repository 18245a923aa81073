//! Reads JSON and refuses duplicate members of an object. Most parsers silently use the last of the duplicates.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads exactly one value.
///
/// # Errors
/// Invalid JSON, or a duplicate member, for which [`serde_json::Error::is_data`] is true.
pub fn parse(line: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(line);
    let value = StrictVisitor.deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

struct StrictVisitor;

impl<'de> DeserializeSeed<'de> for StrictVisitor {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(StrictVisitor)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(Error::custom(format_args!("duplicate member {name:?} in an object")));
            }
            let value = members.next_value_seed(StrictVisitor)?;
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Objective: a duplicate member is refused by name, with its position, at any depth.
    #[test]
    fn a_duplicate_member_is_refused_by_name() {
        for text in [r#"{"a":1,"b":2,"a":1}"#, r#"[{"x":{"a":1,"a":null}}]"#] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(
                error.is_data() && error.to_string().contains(r#"duplicate member "a" in an object at line 1"#),
                "{error}"
            );
        }
        assert!(parse(br#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    }

    proptest! {
        /// Objective: all other input is accepted or refused as by serde_json itself.
        #[test]
        fn all_else_is_judged_as_by_serde_json(
            text in concat!(
                r#"(\{("[a-c]":)?|\[|\}|\]|,|-?[0-9]{1,22}|1e[0-9]{1,3}|0\.[0-9]{1,18}|"#,
                r#""[a-zé\\n]{0,4}"|null|true| ){0,12}"#
            ),
        ) {
            match (parse(text.as_bytes()), serde_json::from_str::<Value>(&text)) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
                (Err(ours), theirs) => prop_assert!(theirs.is_err() || ours.to_string().contains("duplicate member")),
                (Ok(ours), Err(theirs)) => prop_assert!(false, "{ours} {theirs}"),
            }
        }
    }
}
