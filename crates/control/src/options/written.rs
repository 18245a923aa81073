//! Values in text form: read once, and kept with the text, which is shown, stored and compared.

use std::fmt;
use std::ops::Deref;

use netvale_policy::guard::{Addresses, Checks};
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{Protocol, VlanSet};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::group::RateGroup;

/// A value with a text form.
pub trait Notation: Sized {
    /// Reads it. `None` if the text does not have its form.
    fn read(text: &str) -> Option<Self>;
}

/// A value, and its original text.
///
/// ```
/// use netvale_control::options::Written;
/// use netvale_policy::units::Rate;
///
/// let rate = Written::<Rate>::read("1000mbit").unwrap();
/// assert_eq!((rate.bits(), rate.text()), (1_000_000_000, "1000mbit"));
/// assert!(Written::<Rate>::read("0").is_none(), "nothing would pass");
/// ```
#[derive(Clone, Debug)]
pub struct Written<T> {
    text: String,
    value: T,
}

impl<T: Notation> Written<T> {
    /// Reads a text. `None` if it does not have the form of `T`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        T::read(text).map(|value| Written { text: text.to_owned(), value })
    }
}

impl<T> Written<T> {
    pub(super) fn of(text: String, value: T) -> Self {
        Written { text, value }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T> Deref for Written<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Uses the usual text of the value.
impl<T: fmt::Display> From<T> for Written<T> {
    fn from(value: T) -> Self {
        Written { text: value.to_string(), value }
    }
}

impl<T> PartialEq for Written<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de, T: Notation> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Written::read(&text).ok_or_else(|| Error::custom(format_args!("{text:?} is written otherwise")))
    }
}

/// Up to 128 bytes for people, without control characters: a text without further meaning.
#[derive(Clone, Copy, Debug)]
pub struct InfoText;

impl Notation for InfoText {
    fn read(text: &str) -> Option<InfoText> {
        ((1..=128).contains(&text.len()) && !text.contains(netvale_portspec::is_hidden)).then_some(InfoText)
    }
}

/// A rate of 0 would let nothing pass.
impl Notation for Rate {
    fn read(text: &str) -> Option<Rate> {
        text.parse().ok().filter(|rate: &Rate| rate.bits() > 0)
    }
}

/// A size of 0 would let nothing pass.
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

parsed! { VlanSet Protocol Addresses Checks RateGroup Spec }
