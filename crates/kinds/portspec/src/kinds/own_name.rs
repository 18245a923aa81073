//! The text after the colon of kinds without a device: the port's name, or nothing.

use std::fmt;

use super::{AfterColon, fitting};
use crate::cursor::{Cursor, SpecResult};
use crate::text::Ident;
use crate::word::RingSuffix;

/// The port's name, if given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnName(pub Option<Ident>);

impl AfterColon for OwnName {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        if cursor.rest().is_empty() {
            return Ok(OwnName(None));
        }
        Ident::take(cursor, RingSuffix::IsOfTheName, "a port name").map(|name| OwnName(Some(name)))
    }

    fn port_name(&self, prefix: &str) -> Ident {
        self.0.clone().unwrap_or_else(|| fitting(prefix))
    }
}

impl fmt::Display for OwnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("", Ident::as_str))
    }
}
