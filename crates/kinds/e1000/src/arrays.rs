//! Serialization and deserialization of arrays of any length, for saved state.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Serializes an array of any length.
pub(crate) fn words<S: Serializer, T: Serialize, const N: usize>(words: &[T; N], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(words)
}

/// Deserializes an array; fails if it does not have `N` elements.
pub(crate) fn read_words<'de, D, T, const N: usize>(from: D) -> Result<[T; N], D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let words = Vec::<T>::deserialize(from)?;
    words.try_into().map_err(|words: Vec<T>| D::Error::invalid_length(words.len(), &"another number of words"))
}
