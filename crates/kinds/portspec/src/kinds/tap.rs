//! `tap:NAME`: a TAP device, towards the host's network stack.

use super::{AfterColon, AttachNeeds, SpecKind, fitting};
use crate::cursor::{Cursor, SpecResult};
use crate::text::{Ident, TapName};

/// The kind `tap`: a TAP device.
pub(super) const KIND: SpecKind = SpecKind {
    word: "TAP",
    pattern: Some("^tap:"),
    example: "tap:nv0",
    help: &[("tap:NAME", "a TAP device: the host's network stack")],
    takes: &["rings", "mtu", "netns", "gro", "mac"],
    adjusts: &["mtu"],
    page: "guide/first-switch.md",
};

impl AfterColon for TapName {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        TapName::take(cursor, "a device name after 'tap:'")
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(self.as_str())
    }

    fn needs(&self) -> AttachNeeds<'_> {
        AttachNeeds::Tap(self.as_str())
    }
}
