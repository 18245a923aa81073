//! The layers, written once: which workspace crate may use which.
//!
//! ```text
//! abi → mem → port → { switch, tap, pcapport, nic, vhost, ptnet } → daemon → cli      mem → pci → vhost      mem → vfio-user → ptnet
//! abi → portspec → control → { client, daemon }      mem, nic, pci → client → { capi, pcap, bench, cli }
//! wire → { port, switch, tap, pcapport, client, daemon }
//! ```
//!
//! An arrow means "is used by". There is no edge between the siblings switch, tap, pcapport, nic, vhost and ptnet: only
//! the daemon knows all kinds of port.

/// One row a crate: its short name, and the short names of the crates it may use. The short name is
/// the package name without `netvale-`; the package `netvale` is `client`.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("wire", &[]),
    ("portspec", &["abi"]),
    ("control", &["abi", "portspec"]),
    ("mem", &["abi"]),
    ("port", &["abi", "mem", "wire"]),
    ("switch", &["abi", "mem", "wire", "port"]),
    ("tap", &["abi", "mem", "wire", "port"]),
    ("pcapport", &["abi", "mem", "wire", "port"]),
    ("nic", &["abi", "mem", "port"]),
    ("pci", &["abi", "mem"]),
    ("vhost", &["abi", "mem", "wire", "port", "pci"]),
    ("vfio-user", &["mem"]),
    ("ptnet", &["abi", "mem", "port", "vfio-user"]),
    ("e1000", &["mem", "wire", "port", "pci", "vfio-user"]),
    ("client", &["abi", "mem", "wire", "port", "nic", "pci", "portspec", "control"]),
    ("capi", &["abi", "mem", "portspec", "control", "client"]),
    ("pcap", &["abi", "mem", "portspec", "control", "client"]),
    (
        "daemon",
        &[
            "abi", "mem", "wire", "port", "portspec", "control", "switch", "tap", "pcapport", "nic", "vhost", "ptnet",
            "e1000",
        ],
    ),
    (
        "bench",
        &[
            "abi", "mem", "wire", "port", "portspec", "control", "switch", "tap", "pcapport", "nic", "vhost", "ptnet",
            "e1000", "client", "daemon",
        ],
    ),
    (
        "cli",
        &[
            "abi", "mem", "wire", "port", "portspec", "control", "switch", "tap", "pcapport", "vhost", "client",
            "daemon",
        ],
    ),
    ("xtask", &[]),
];

/// Siblings: crates of one layer that must not know each other. [`LAYERS`] already forbids the edges;
/// this list lets the message name the rule.
pub const SIBLINGS: &[&str] = &["switch", "tap", "pcapport", "nic", "vhost", "ptnet", "e1000"];

/// Where the table lies, for messages.
pub const TABLE_FILE: &str = "xtask/src/layer_table.rs";
