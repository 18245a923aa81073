//! `e1000-pci:ADDR`: a driver for the e1000 at that address of the bus.

use super::Kind;

/// A driver of an e1000 on the bus.
pub(super) const KIND: Kind = Kind {
    word: "e1000-pci",
    pattern: Some("^e1000-pci:"),
    example: "e1000-pci:0000:00:04.0",
    help: &[("e1000-pci:ADDRESS", "the same for an e1000")],
    takes: &["slots"],
    adjusts: &[],
    page: "reference/e1000.md",
};
