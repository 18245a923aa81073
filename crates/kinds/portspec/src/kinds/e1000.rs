//! `e1000:/PATH`: an emulated e1000, for a virtual machine.

use super::SpecKind;

/// The kind `e1000`: an emulated Intel 82540EM.
pub(super) const KIND: SpecKind = SpecKind {
    word: "e1000",
    pattern: Some("^e1000:"),
    example: "e1000:/e.sock",
    help: &[("e1000:/PATH", "an Intel 82540EM over vfio-user at this socket, for the driver of any virtual machine")],
    takes: &["gro", "itr", "socket_mode", "socket_user", "socket_group", "mac"],
    adjusts: &[],
    page: "reference/e1000.md",
};
