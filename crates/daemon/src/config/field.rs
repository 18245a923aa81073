//! Field types of the configuration: each has a **value**, in the file's form, and parses command-line words.

use std::ffi::OsString;
use std::path::PathBuf;

use netvale_control::options::Shape;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{SocketMode, SwitchPolicies};

/// A field of the configuration, convertible to JSON.
pub trait FieldValue: Default + Serialize + DeserializeOwned {
    /// Returns the value in the file's form; null if the file would omit it.
    fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Sets a value of checked shape. False if it does not fit the field all the same.
    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = value).is_ok()
    }

    /// Parses command-line words; a list appends them. False if they do not have the shape.
    fn take_words(&mut self, shape: Shape, words: &[OsString]) -> bool {
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

/// Without duplicates.
impl FieldValue for Vec<String> {
    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value::<Self>(value).map(|texts| *self = unique(texts)).is_ok()
    }

    fn take_words(&mut self, _: Shape, words: &[OsString]) -> bool {
        self.extend(words.iter().filter_map(|word| word.to_str().map(str::to_owned)));
        *self = unique(std::mem::take(self));
        true
    }
}

/// Words need not be UTF-8.
impl FieldValue for PathBuf {
    fn take_words(&mut self, _: Shape, words: &[OsString]) -> bool {
        words.last().map(|word| *self = word.into()).is_some()
    }
}

/// Words need not be UTF-8; the value contains those that are.
impl FieldValue for Vec<PathBuf> {
    fn value(&self) -> Value {
        self.iter().filter_map(|path| path.to_str()).collect()
    }

    fn take_words(&mut self, _: Shape, words: &[OsString]) -> bool {
        self.extend(words.iter().map(PathBuf::from));
        true
    }
}

/// A field's default: that value, or the type's default if the value is described in words.
pub fn usual<T: FieldValue>(default: &Value) -> T {
    let mut field = T::default();
    if !default.is_string() {
        field.put(default.clone());
    }
    field
}

/// Removes duplicates.
pub fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}
