//! What may be a field of [`PortOptions`](super::PortOptions).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field, as a value of JSON.
pub trait Field {
    /// None if it counts as omitted.
    fn given(&self) -> Option<Value>;

    /// Makes it count as omitted.
    fn clear(&mut self);

    /// Takes a value whose shape has been checked. False if it does not fit the field all the same.
    fn put(&mut self, value: Value) -> bool;
}

impl Field for u32 {
    fn given(&self) -> Option<Value> {
        (*self != 0).then(|| (*self).into())
    }

    fn clear(&mut self) {
        *self = 0;
    }

    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = value).is_ok()
    }
}

impl Field for bool {
    fn given(&self) -> Option<Value> {
        self.then(|| true.into())
    }

    fn clear(&mut self) {
        *self = false;
    }

    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = value).is_ok()
    }
}

impl<T: Serialize + DeserializeOwned> Field for Option<T> {
    fn given(&self) -> Option<Value> {
        self.as_ref().and_then(|value| serde_json::to_value(value).ok())
    }

    fn clear(&mut self) {
        *self = None;
    }

    fn put(&mut self, value: Value) -> bool {
        serde_json::from_value(value).map(|value| *self = Some(value)).is_ok()
    }
}
