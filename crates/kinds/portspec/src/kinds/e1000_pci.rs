//! `e1000-pci:ADDR`: a driver for the e1000 at this PCI address.

use super::SpecKind;

/// The kind `e1000-pci`: a driver for an e1000 on the PCI bus.
pub(super) const KIND: SpecKind = SpecKind {
    word: "e1000-pci",
    pattern: Some("^e1000-pci:"),
    example: "e1000-pci:0000:00:04.0",
    help: &[("e1000-pci:ADDRESS", "the same for an e1000")],
    takes: &["slots"],
    adjusts: &[],
    page: "reference/e1000.md",
};
