//! Types of the fields of [`PortOptions`](super::PortOptions) and [`Policies`](super::Policies).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field that is read and written as a JSON value.
pub trait Field: DeserializeOwned {
    /// Returns the value; `None` if the field counts as omitted (unset, 0 or false).
    fn given(&self) -> Option<Value>;

    /// Stores a value whose shape (type and range) has been checked, except for the syntax of texts. Returns false if
    /// the value does not fit the field.
    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = value).is_ok()
    }
}

impl Field for u32 {
    fn given(&self) -> Option<Value> {
        (*self != 0).then(|| (*self).into())
    }
}

impl Field for bool {
    fn given(&self) -> Option<Value> {
        self.then(|| true.into())
    }
}

impl<T: Serialize + DeserializeOwned> Field for Option<T> {
    fn given(&self) -> Option<Value> {
        self.as_ref().and_then(|value| serde_json::to_value(value).ok())
    }
}
