//! Values in text form: read once, and kept with their text for display, storage and comparison.

use std::fmt;
use std::ops::Deref;

use netvale_policy::guard::{AllowedAddresses, Checks};
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{TagProtocol, VlanSet};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::group::RateGroup;

/// A value with a text form.
pub trait Notation: Sized {
    /// Reads a text; `None` if it does not have the form of this type.
    fn read(text: &str) -> Option<Self>;
}

/// A value with its original text.
///
/// ```
/// use netvale_control::options::WrittenValue;
/// use netvale_policy::units::Rate;
///
/// let rate = WrittenValue::<Rate>::read("1000mbit").unwrap();
/// assert_eq!((rate.bits(), rate.text()), (1_000_000_000, "1000mbit"));
/// assert!(WrittenValue::<Rate>::read("0").is_none(), "nothing would pass");
/// ```
#[derive(Clone, Debug)]
pub struct WrittenValue<T> {
    text: String,
    value: T,
}

impl<T: Notation> WrittenValue<T> {
    /// Reads a text; `None` if it does not have the form of `T`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        T::read(text).map(|value| WrittenValue { text: text.to_owned(), value })
    }
}

impl<T> WrittenValue<T> {
    pub(super) fn of(text: String, value: T) -> Self {
        WrittenValue { text, value }
    }

    /// Returns the original text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T> Deref for WrittenValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The text is the value's `Display` form.
impl<T: fmt::Display> From<T> for WrittenValue<T> {
    fn from(value: T) -> Self {
        WrittenValue { text: value.to_string(), value }
    }
}

impl<T> PartialEq for WrittenValue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> Serialize for WrittenValue<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de, T: Notation> Deserialize<'de> for WrittenValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        WrittenValue::read(&text).ok_or_else(|| Error::custom(format_args!("{text:?} does not have the expected form")))
    }
}

/// The value of a [`WrittenValue`] whose text has 1 to 128 bytes and no control characters.
#[derive(Clone, Copy, Debug)]
pub struct InfoText;

impl Notation for InfoText {
    fn read(text: &str) -> Option<InfoText> {
        ((1..=128).contains(&text.len()) && !text.contains(netvale_portspec::is_hidden)).then_some(InfoText)
    }
}

/// Refuses a rate of 0, which would let nothing pass.
impl Notation for Rate {
    fn read(text: &str) -> Option<Rate> {
        text.parse().ok().filter(|rate: &Rate| rate.bits() > 0)
    }
}

/// Refuses a size of 0, which would let nothing pass.
impl Notation for Size {
    fn read(text: &str) -> Option<Size> {
        text.parse().ok().filter(|size: &Size| size.bytes() > 0)
    }
}

macro_rules! parsed {
    ($($type:ty)+) => {$(
        impl Notation for $type {
            fn read(text: &str) -> Option<$type> {
                text.parse().ok()
            }
        }
    )+};
}

parsed! { VlanSet TagProtocol AllowedAddresses Checks RateGroup Spec }
