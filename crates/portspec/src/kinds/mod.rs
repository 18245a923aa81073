//! The words that stand before a colon for a kind of port.

/// Those of what is attached; that of a local port is empty.
pub(crate) const PREFIXES: [&str; 13] = [
    "",
    "tap",
    "pcap",
    "netmap",
    "vhost",
    "virtio",
    "virtio-pci",
    "ptnet",
    "e1000",
    "e1000-pci",
    "vxlan",
    "null",
    "echo",
];

/// Whether that word, before a colon, means a kind of port: of what is attached, or of what programs open.
pub(crate) fn is_kind(word: &str) -> bool {
    PREFIXES.contains(&word) || matches!(word, "ptnet-pci" | "nv")
}
