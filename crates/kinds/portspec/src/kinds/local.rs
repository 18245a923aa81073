//! `NAME`, `SWITCH:NAME`: a port that local processes open.

use std::fmt;

use super::{AfterColon, Kind};
use crate::cursor::{Cursor, Parsed};
use crate::text::{Ident, SwitchName};
use crate::word::Ring;

/// Rings that local programs open.
pub(super) const KIND: Kind = Kind {
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
pub struct LocalPort {
    /// The switch, where the text names it.
    pub switch: Option<SwitchName>,
    /// The port's name on it.
    pub port: Ident,
}

impl LocalPort {
    /// Takes one off a text that has a colon (`prefixed`) or not. The error also expects the other kinds, `kinds`.
    pub(super) fn take(cursor: &mut Cursor<'_>, prefixed: bool, kinds: &str) -> Parsed<Self> {
        let switch = if prefixed {
            let switch = SwitchName::take(cursor, Ring::IsOfTheName, kinds)?;
            cursor.expect(":", "':' and a port name after the switch's name")?;
            Some(switch)
        } else {
            None
        };
        let expected = if prefixed { "a port name after ':'" } else { kinds };
        Ok(Self { switch, port: Ident::take(cursor, Ring::IsOfTheName, expected)? })
    }
}

impl AfterColon for LocalPort {
    fn read(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        Self::take(cursor, false, "a port name")
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        self.port.clone()
    }

    fn write(&self, _prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for LocalPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.switch {
            Some(switch) => write!(f, "{switch}:{}", self.port),
            None => self.port.fmt(f),
        }
    }
}
