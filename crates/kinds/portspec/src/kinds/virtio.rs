//! `virtio:/PATH`: a virtio-net driver, for the vhost-user device at this socket.

use super::SpecKind;

/// The kind `virtio`: a virtio-net driver for a vhost-user device.
pub(super) const KIND: SpecKind = SpecKind {
    word: "virtio",
    pattern: Some("^virtio:"),
    example: "virtio:/v.sock",
    help: &[("virtio:/PATH", "a virtio-net driver, for the vhost-user back end at this socket")],
    takes: &["rings", "slots", "packed", "no_mergeable", "no_in_order", "vector", "gro"],
    adjusts: &[],
    page: "guide/virtual-machines.md",
};
