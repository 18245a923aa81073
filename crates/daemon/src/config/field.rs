//! Field types of the configuration. Each type converts to and from a JSON **value** in the form that the file uses,
//! and parses the arguments of its command-line flag.

use std::ffi::OsString;
use std::path::PathBuf;

use netvale_control::options::OptionShape;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{SocketMode, SwitchPolicies};

/// A field type of the configuration, convertible to JSON.
pub trait FieldValue: Default + Serialize + DeserializeOwned {
    /// Returns the value as JSON, in the form of the configuration file; null if the key would be omitted from the
    /// file.
    fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Sets the field to a value whose type and range have been checked. Returns false if the value is nevertheless
    /// invalid for the field.
    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = value).is_ok()
    }

    /// Sets the field to the last of its flag's arguments; if the field is a list, appends all arguments. Returns false
    /// if an argument does not have the type and range of `shape`.
    fn take_words(&mut self, shape: OptionShape, words: &[OsString]) -> bool {
        let value = words.last().and_then(|word| shape.parse(word.to_str()?).ok());
        value.is_some_and(|value| self.put(value))
    }
}

impl FieldValue for bool {}
impl FieldValue for u32 {}
impl FieldValue for u64 {}
impl FieldValue for usize {}
impl FieldValue for SwitchPolicies {}
impl FieldValue for Option<u8> {}
impl FieldValue for Option<String> {}
impl FieldValue for Option<SocketMode> {}
impl FieldValue for Option<Vec<usize>> {}

/// A list of texts. Values are stored without duplicates.
impl FieldValue for Vec<String> {
    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value::<Self>(value).map(|texts| *self = unique(texts)).is_ok()
    }

    fn take_words(&mut self, _: OptionShape, words: &[OsString]) -> bool {
        self.extend(words.iter().filter_map(|word| word.to_str().map(str::to_owned)));
        *self = unique(std::mem::take(self));
        true
    }
}

/// A path. The argument of its flag need not be UTF-8.
impl FieldValue for PathBuf {
    fn take_words(&mut self, _: OptionShape, words: &[OsString]) -> bool {
        words.last().map(|word| *self = word.into()).is_some()
    }
}

/// A list of paths. The arguments of its flag need not be UTF-8. [`FieldValue::value`] omits paths that are not UTF-8.
impl FieldValue for Vec<PathBuf> {
    fn value(&self) -> Value {
        self.iter().filter_map(|path| path.to_str()).collect()
    }

    fn take_words(&mut self, _: OptionShape, words: &[OsString]) -> bool {
        self.extend(words.iter().map(PathBuf::from));
        true
    }
}

/// Returns a field's default: `default`, or the type's own default if `default` is a description in words.
pub fn usual<T: FieldValue>(default: &Value) -> T {
    let mut field = T::default();
    if !default.is_string() {
        field.put(default.clone());
    }
    field
}

/// Collects the items in order, but each item only once.
pub fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}
