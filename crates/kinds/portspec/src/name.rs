//! A port's name: its switch or interface, and the end of a pipe.

use std::fmt;

use netvale_abi::name;
use netvale_abi::nmreq::{NETMAP_REQ_IFNAMSIZ, NM_BDG_NAME};

use crate::ParseError;
use crate::cursor::{Cursor, SpecResult, from_str};
use crate::text::{Ident, IfName, SwitchName};
use crate::word::{RingSuffix, before_ring, is_word, write_word};

/// Prefix of an interface's name.
pub(crate) const NETMAP: &str = "netmap:";
const AFTER_NAME: &str = "the end of the port's name";

/// The switch port or interface at the start of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// `switch:port`.
    Vale {
        /// The switch.
        switch: SwitchName,
        /// The port's name on the switch.
        port: Ident,
    },
    /// `netmap:ifname`: a network interface, or only the parent of pipes.
    Netmap {
        /// The interface's name.
        ifname: IfName,
    },
}

/// An end of a pipe. The ends differ in name only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PipeEnd {
    /// The end written `{`.
    Master,
    /// The end written `}`.
    Slave,
}

impl PipeEnd {
    /// Returns the brace that marks this end.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Master => "{",
            Self::Slave => "}",
        }
    }
}

/// A pipe and one of its ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipeName {
    /// The end.
    pub end: PipeEnd,
    /// The pipe's ID, unique among the pipes of its parent.
    pub id: Ident,
}

/// A port's full name, at most 63 bytes in the form of [`Self::nr_name`].
///
/// `Display` writes the name with its prefix, `netmap:` or the switch's name and a colon.
///
/// ```
/// use netvale_portspec::PortName;
/// let name = PortName::parse("netmap:eth0{1")?;
/// assert_eq!(name.nr_name(), "eth0{1");
/// # Ok::<(), netvale_portspec::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    base: Base,
    pipe: Option<PipeName>,
}

impl PortName {
    /// Creates a name; fails if the name is longer than 63 bytes.
    pub fn new(base: Base, pipe: Option<PipeName>) -> Result<Self, ParseError> {
        let name = Self { base, pipe };
        Self::parse(&name.to_string())
    }

    /// Parses a name alone, as in `nr_name`, with or without `netmap:`. A trailing `-` and number belong to the name.
    /// The error points at the first wrong character.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, AFTER_NAME, |cursor| Self::take(cursor, RingSuffix::IsOfTheName))
    }

    /// Takes the name off the front of a specification. Returns the name and the remaining text. A `-` and number at
    /// the end of the name are a ring, and stay in the text. The error points at the first wrong character.
    pub fn split_off(spec: &str) -> Result<(Self, &str), ParseError> {
        let mut cursor = Cursor::new(spec)?;
        let name = Self::take(&mut cursor, RingSuffix::MayFollow)?;
        Ok((name, cursor.rest()))
    }

    /// Returns the switch port or interface at the start of a pipe's name, or the port itself.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Returns the pipe and its end; `None` if the port is not a pipe.
    pub fn pipe(&self) -> Option<&PipeName> {
        self.pipe.as_ref()
    }

    /// Returns the switch; `None` if the port is not on a switch.
    pub fn switch(&self) -> Option<&SwitchName> {
        match &self.base {
            Base::Vale { switch, .. } => Some(switch),
            Base::Netmap { .. } => None,
        }
    }

    /// Returns the name without `netmap:`, as in netmap's requests. The result parses to the same name.
    pub fn nr_name(&self) -> String {
        let full = self.to_string();
        full.strip_prefix(NETMAP).map_or(full.clone(), str::to_owned)
    }

    /// Returns [`Self::nr_name`] as in `nmreq_header.nr_name`, NUL-terminated.
    pub fn nr_name_field(&self) -> [u8; NETMAP_REQ_IFNAMSIZ] {
        name::cut(self.nr_name().as_bytes())
    }

    pub(crate) fn take(cursor: &mut Cursor<'_>, ring: RingSuffix) -> SpecResult<Self> {
        let start = cursor.pos();
        let prefixed = cursor.eat(NETMAP);
        let is_switch = !prefixed && {
            let rest = cursor.rest();
            let word = rest.split(|c: char| !is_word(c)).next().unwrap_or_default();
            word.starts_with(NM_BDG_NAME) || rest.get(word.len()..).is_some_and(|after| after.starts_with(':'))
        };
        let base = if is_switch { take_on_switch(cursor, ring)? } else { take_interface(cursor, ring, prefixed)? };
        let pipe = take_pipe(cursor, ring)?;
        let name = Self { base, pipe };
        let most = NETMAP_REQ_IFNAMSIZ - 1;
        let excess = name.nr_name().len().saturating_sub(most);
        if excess > 0 {
            let at = cursor.pos().saturating_sub(excess).max(start);
            return Err(cursor.fail_at(at, format!("at most {most} bytes in a port's name")));
        }
        Ok(name)
    }

    /// Returns whether a specification with this text would parse as a shorter name and a ring.
    pub(crate) fn ends_like_a_ring(&self) -> bool {
        let last = match (&self.pipe, &self.base) {
            (Some(pipe), _) => pipe.id.as_str(),
            (None, Base::Vale { port, .. }) => port.as_str(),
            (None, Base::Netmap { ifname }) => ifname.as_str(),
        };
        before_ring(last).is_some()
    }

    /// Writes the name with its last word in quotes, so that a following `-` and number are parsed as a ring.
    pub(crate) fn write_closed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pipe, &self.base) {
            (Some(pipe), base) => {
                write!(f, "{base}{}", pipe.end.mark())?;
                write_word(f, pipe.id.as_str(), true)
            }
            (None, Base::Vale { switch, port }) => {
                write!(f, "{switch}:")?;
                write_word(f, port.as_str(), true)
            }
            (None, Base::Netmap { ifname }) => {
                f.write_str(NETMAP)?;
                write_word(f, ifname.as_str(), true)
            }
        }
    }
}

fn take_on_switch(cursor: &mut Cursor<'_>, ring: RingSuffix) -> SpecResult<Base> {
    let switch = SwitchName::take(cursor, ring, "a switch's name before ':', or 'netmap:' and an interface")?;
    cursor.expect(":", "':' and a port name after the switch's name")?;
    let port = Ident::take(cursor, ring, "a port name after ':'")?;
    Ok(Base::Vale { switch, port })
}

fn take_interface(cursor: &mut Cursor<'_>, ring: RingSuffix, prefixed: bool) -> SpecResult<Base> {
    let expected = if prefixed {
        "an interface name after 'netmap:' (not one that begins with 'vale')"
    } else {
        "a port: 'netmap:' and an interface, or a switch, ':' and a name"
    };
    Ok(Base::Netmap { ifname: IfName::take(cursor, ring, expected)? })
}

fn take_pipe(cursor: &mut Cursor<'_>, ring: RingSuffix) -> SpecResult<Option<PipeName>> {
    let end = if cursor.eat("{") {
        PipeEnd::Master
    } else if cursor.eat("}") {
        PipeEnd::Slave
    } else {
        return Ok(None);
    };
    let id = Ident::take(cursor, ring, &format!("a pipe id after '{}'", end.mark()))?;
    if matches!(cursor.peek(), Some('{' | '}')) {
        let once = "the end of the pipe's name: it has one brace, '{' for the master's end or '}' for the slave's";
        return Err(cursor.fail(once));
    }
    Ok(Some(PipeName { end, id }))
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vale { switch, port } => write!(f, "{switch}:{port}"),
            Self::Netmap { ifname } => write!(f, "{NETMAP}{ifname}"),
        }
    }
}

impl fmt::Display for PipeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.end.mark(), self.id)
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)?;
        self.pipe.as_ref().map_or(Ok(()), |pipe| pipe.fmt(f))
    }
}

from_str!(PortName);
