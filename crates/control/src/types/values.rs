//! Values with a range, checked when they are read.

use serde::de::{Deserialize, Deserializer, Error};

/// Bytes of virtio-net header before each frame: 0, 10 or 12.
pub fn vnet_hdr<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        len @ (0 | 10 | 12) => Ok(len),
        other => Err(D::Error::custom(format!("vnet_hdr is {other}; it is 0, 10 or 12"))),
    }
}

/// Speed of a replay: a number from 0.
pub fn speed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(from)? {
        Some(factor) if !factor.is_finite() || factor < 0.0 => {
            Err(D::Error::custom(format!("speed is {factor}; it is a number from 0, e.g. 2.5")))
        }
        speed => Ok(speed),
    }
}
