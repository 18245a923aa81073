//! A port's name: which switch or interface, and which end of which pipe.

use std::fmt;

use netvale_abi::name;
use netvale_abi::netif::IFNAMSIZ;
use netvale_abi::nmreq::{NETMAP_REQ_IFNAMSIZ, NM_BDG_NAME};

use crate::ParseError;
use crate::cursor::{Cursor, Parsed, from_str};
use crate::text::{Ident, IfName, SwitchName};

/// Prefix of an interface's name.
pub(crate) const NETMAP: &str = "netmap:";
const AFTER_NAME: &str = "the end of the port's name";

/// What a port is a port of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// `valeID:port`.
    Vale {
        /// The switch, with its prefix `vale`.
        switch: SwitchName,
        /// The port's name on it.
        port: Ident,
    },
    /// `netmap:ifname`: a network interface, or nothing but the parent of pipes.
    Netmap {
        /// The interface's name.
        ifname: IfName,
    },
}

/// Which end of a pipe. The ends are alike; they differ in name only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PipeEnd {
    /// `{`
    Master,
    /// `}`
    Slave,
}

impl PipeEnd {
    /// The brace that marks this end.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Master => "{",
            Self::Slave => "}",
        }
    }
}

/// An end of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pipe {
    /// Which end.
    pub end: PipeEnd,
    /// Which pipe, among those of the same parent.
    pub id: Ident,
}

/// A port's full name, at most 63 bytes as [`Self::nr_name`] writes it.
///
/// `Display` writes it with its prefix, `netmap:` or `valeID:`.
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
    pipe: Option<Pipe>,
}

impl PortName {
    /// Puts a name together; an error when it is longer than 63 bytes.
    pub fn new(base: Base, pipe: Option<Pipe>) -> Result<Self, ParseError> {
        let name = Self { base, pipe };
        let text = name.to_string();
        Cursor::all(&text, AFTER_NAME, Self::take)
    }

    /// Parses a name alone, with or without `netmap:`, as it also stands in `nr_name`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, AFTER_NAME, Self::take)
    }

    /// What it is a port of.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Which end of which pipe, if of one.
    pub fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// The switch, for a port of one.
    pub fn switch(&self) -> Option<&SwitchName> {
        match &self.base {
            Base::Vale { switch, .. } => Some(switch),
            Base::Netmap { .. } => None,
        }
    }

    /// The name as netmap's requests carry it: without `netmap:`. Parses to the same name again.
    pub fn nr_name(&self) -> String {
        let full = self.to_string();
        full.strip_prefix(NETMAP).map_or(full.clone(), str::to_owned)
    }

    /// [`Self::nr_name`] as `nmreq_header.nr_name` holds it, NUL-terminated.
    pub fn nr_name_field(&self) -> [u8; NETMAP_REQ_IFNAMSIZ] {
        name::cut(self.nr_name().as_bytes())
    }

    /// [`Self::nr_name`] as `netmap_if.ni_name` holds it, cut to 15 bytes: two long names may look alike there.
    pub fn ni_name_field(&self) -> [u8; IFNAMSIZ] {
        name::cut(self.nr_name().as_bytes())
    }

    pub(crate) fn take(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        let start = cursor.pos();
        let prefixed = cursor.eat(NETMAP);
        let name_start = cursor.pos();
        let base = if !prefixed && cursor.rest().starts_with(NM_BDG_NAME) {
            take_vale(cursor)?
        } else {
            take_interface(cursor, prefixed, start)?
        };
        let pipe = take_pipe(cursor)?;
        let most = NETMAP_REQ_IFNAMSIZ - 1;
        if cursor.pos() - name_start > most {
            return Err(cursor.fail_at(name_start + most, format!("at most {most} bytes in a port's name")));
        }
        Ok(Self { base, pipe })
    }
}

fn take_vale(cursor: &mut Cursor<'_>) -> Parsed<Base> {
    let switch = SwitchName::take(cursor, "a switch name")?;
    cursor.expect(":", "':' and a port name after the switch's name")?;
    let port = Ident::take(cursor, "a port name after ':'")?;
    Ok(Base::Vale { switch, port })
}

fn take_interface(cursor: &mut Cursor<'_>, prefixed: bool, start: usize) -> Parsed<Base> {
    let expected = if prefixed {
        "an interface name after 'netmap:' (not one that begins with 'vale')"
    } else {
        "a port: 'netmap:' and an interface, or 'vale', a switch's id, ':' and a name"
    };
    let ifname = IfName::take(cursor, expected)?;
    if cursor.peek() == Some(':') {
        return Err(cursor.fail_at(start, "'netmap:' or 'vale...:' before ':'"));
    }
    Ok(Base::Netmap { ifname })
}

fn take_pipe(cursor: &mut Cursor<'_>) -> Parsed<Option<Pipe>> {
    let end = if cursor.eat("{") {
        PipeEnd::Master
    } else if cursor.eat("}") {
        PipeEnd::Slave
    } else {
        return Ok(None);
    };
    let id = Ident::take(cursor, &format!("a pipe id after '{}'", end.mark()))?;
    if matches!(cursor.peek(), Some('{' | '}')) {
        let once = "the end of the pipe's name: it has one brace, '{' for the master's end or '}' for the slave's";
        return Err(cursor.fail(once));
    }
    Ok(Some(Pipe { end, id }))
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vale { switch, port } => write!(f, "{switch}:{port}"),
            Self::Netmap { ifname } => write!(f, "{NETMAP}{ifname}"),
        }
    }
}

impl fmt::Display for Pipe {
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
