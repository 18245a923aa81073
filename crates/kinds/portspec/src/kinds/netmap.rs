//! `netmap:IF…`: a network interface.

use std::fmt;

use super::{AfterColon, AttachNeeds, SpecKind, fitting};
use crate::cursor::{Cursor, SpecResult};
use crate::flags::Rings;
use crate::name::{Base, NETMAP, PortName};
use crate::spec::PortSpec;
use crate::text::{Ident, IfName};

/// The kind `netmap`: a network interface.
pub(super) const KIND: SpecKind = SpecKind {
    word: "netmap",
    pattern: Some("^netmap:"),
    example: "netmap:eth0",
    help: &[("netmap:INTERFACE", "a network interface of this host, through AF_XDP")],
    takes: &["slots", "gro", "host"],
    adjusts: &[],
    page: "guide/interfaces.md",
};

/// A [`PortSpec`] that names an interface, never a switch's port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicSpec {
    spec: Box<PortSpec>,
    ifname: IfName,
}

impl NicSpec {
    /// Returns `spec` if it names an interface; `None` for a switch's port.
    pub fn new(spec: PortSpec) -> Option<Self> {
        let Base::Netmap { ifname } = spec.name.base() else { return None };
        let ifname = ifname.clone();
        Some(Self { spec: Box::new(spec), ifname })
    }

    /// Returns the whole specification.
    pub fn spec(&self) -> &PortSpec {
        &self.spec
    }

    /// Returns the interface's name.
    pub fn ifname(&self) -> &IfName {
        &self.ifname
    }

    /// Returns the interface's name, followed by a ring number if the text means or may mean one.
    fn written(&self) -> String {
        let written = match self.spec.written_name().base() {
            Base::Netmap { ifname } => ifname,
            Base::Vale { .. } => &self.ifname,
        };
        match self.spec.rings {
            Rings::OneNic(ring) if *written == self.ifname => format!("{}-{ring}", written.as_str()),
            _ => written.as_str().to_owned(),
        }
    }
}

impl AfterColon for NicSpec {
    /// Parses from the prefix on, because the prefix is part of netmap's own syntax.
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let start = cursor.pos().saturating_sub(NETMAP.len());
        cursor.rewind(start);
        let spec = PortSpec::take(cursor)?;
        Self::new(spec).ok_or_else(|| cursor.fail_at(start, "an interface"))
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(&self.written())
    }

    fn needs(&self) -> AttachNeeds<'_> {
        AttachNeeds::Interface(self.ifname.as_str())
    }

    fn write(&self, _prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn settled(self, exists: &dyn Fn(&str) -> bool) -> Self {
        let named = |name: &PortName| matches!(name.base(), Base::Netmap { ifname } if exists(ifname.as_str()));
        Self::new(PortSpec::clone(&self.spec).settled(named)).unwrap_or(self)
    }
}

impl fmt::Display for NicSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}
