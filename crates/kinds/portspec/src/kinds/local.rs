//! `NAME`, `SWITCH:NAME`: a port that local processes open.

use std::fmt;

use super::{AfterColon, SpecKind};
use crate::cursor::{Cursor, SpecResult};
use crate::text::{Ident, SwitchName};
use crate::word::RingSuffix;

/// The kind of ports that local programs open.
pub(super) const KIND: SpecKind = SpecKind {
    word: "local",
    pattern: None,
    example: "a",
    help: &[("NAME", "a port that local programs open as SWITCH:NAME")],
    takes: &["rings", "slots", "buf_size", "extra_bufs", "huge", "vnet_hdr", "no_segments"],
    adjusts: &[],
    page: "guide/first-switch.md",
};

/// A port that local processes open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalSpec {
    /// The switch; `None` if the text does not name one.
    pub switch: Option<SwitchName>,
    /// The port's name on its switch.
    pub port: Ident,
}

impl LocalSpec {
    /// Takes a port off the cursor: the switch's name and a colon, if `prefixed`, and the port's name. `kinds` is the
    /// expected text in an error at the start.
    pub(super) fn take(cursor: &mut Cursor<'_>, prefixed: bool, kinds: &str) -> SpecResult<Self> {
        let switch = if prefixed {
            let switch = SwitchName::take(cursor, RingSuffix::IsOfTheName, kinds)?;
            cursor.expect(":", "':' and a port name after the switch's name")?;
            Some(switch)
        } else {
            None
        };
        let expected = if prefixed { "a port name after ':'" } else { kinds };
        Ok(Self { switch, port: Ident::take(cursor, RingSuffix::IsOfTheName, expected)? })
    }
}

impl AfterColon for LocalSpec {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        Self::take(cursor, false, "a port name")
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        self.port.clone()
    }

    fn write(&self, _prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for LocalSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.switch {
            Some(switch) => write!(f, "{switch}:{}", self.port),
            None => self.port.fmt(f),
        }
    }
}
