//! `e1000:/PATH`: an emulated e1000, for a virtual machine.

use super::SpecKind;

/// An Intel 82540EM.
pub(super) const KIND: SpecKind = SpecKind {
    word: "e1000",
    pattern: Some("^e1000:"),
    example: "e1000:/e.sock",
    help: &[("e1000:/PATH", "an Intel 82540EM by vfio-user at this socket: any virtual machine's own driver")],
    takes: &["gro", "itr", "socket_mode", "socket_user", "socket_group", "mac"],
    adjusts: &[],
    page: "reference/e1000.md",
};
