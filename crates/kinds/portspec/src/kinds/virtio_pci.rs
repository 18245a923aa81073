//! `virtio-pci:ADDR`: a virtio-net driver, for the PCI device at this address.

use super::SpecKind;

/// The kind `virtio-pci`: a virtio-net driver for a PCI device.
pub(super) const KIND: SpecKind = SpecKind {
    word: "virtio-pci",
    pattern: Some("^virtio-pci:"),
    example: "virtio-pci:0000:00:03.0",
    help: &[(
        "virtio-pci:ADDRESS",
        "drives the virtio-net device at this PCI address, through vfio (inside a virtual machine)",
    )],
    takes: &["rings", "slots", "packed", "no_mergeable", "no_in_order", "vector", "gro"],
    adjusts: &[],
    page: "guide/virtual-machines.md",
};
