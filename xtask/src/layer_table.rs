//! The layers: which crates of the workspace each crate may use.
//!
//! ```text
//! abi → mem → port → { switch, tap, pcapport, nic, virtio, ptnet, e1000, vxlan, socket } → daemon → cli
//! mem → afxdp → { nic, client, daemon }      mem, pci, control → guest → { client, daemon }
//! virtio → { vhost, virtio-pci } → daemon      mem → pci → { virtio-pci, e1000 }
//! mem → vfio-user → { ptnet, e1000 }
//! abi → portspec → control → { client, daemon }      mem, afxdp, guest, pci → client → { capi, pcap, bench, cli }
//! { wire, client, control, fdio, confine } → gateway → cli      confine → { daemon, cli }
//! { netlink, tap } → netns → { cli, cni }      netlink → evpn      portspec, control → cni
//! control → { evpn, observe } → cli      vxlan → { bench, cli }
//! fdio → { mem, port, control, tap, pcapport, afxdp, nic, virtio, vfio-user, vhost, ptnet, e1000, guest, client }
//! fdio → { socket, daemon }
//! wire → { policy, port, switch, tap, pcapport, client, daemon }
//! policy → { control, port, switch, daemon, cli, bench }
//! ```
//!
//! An arrow means "is used by". The siblings switch, tap, pcapport, nic, vhost, virtio-pci, ptnet, e1000, vxlan and
//! socket do not use one another: only the daemon knows all kinds of ports.

/// One row per crate: its short name, and the short names of the crates that it may use. The short name is the package
/// name without `netvale-`; the package `netvale` has the short name `client`.
pub const LAYERS: &[(&str, &str)] = &[
    ("abi", ""),
    ("wire", ""),
    ("fdio", ""),
    ("confine", ""),
    ("portspec", "abi"),
    ("policy", "wire"),
    ("control", "abi portspec policy fdio"),
    ("mem", "abi fdio"),
    ("port", "abi mem wire policy fdio"),
    ("switch", "abi mem wire policy port"),
    ("tap", "abi mem wire port fdio"),
    ("netlink", ""),
    ("netns", "netlink tap"),
    ("pcapport", "abi mem wire port fdio"),
    ("vxlan", "mem wire port"),
    ("socket", "mem wire port fdio"),
    ("afxdp", "abi mem fdio"),
    ("nic", "abi mem port afxdp fdio"),
    ("pci", "abi mem"),
    ("virtio", "abi mem wire port fdio"),
    ("virtio-pci", "abi mem pci virtio"),
    ("vhost", "abi mem wire port virtio fdio"),
    ("vfio-user", "mem fdio"),
    ("ptnet", "abi mem port vfio-user fdio"),
    ("e1000", "mem wire port pci vfio-user fdio"),
    ("guest", "abi mem pci control fdio"),
    ("client", "abi mem wire afxdp pci guest portspec control fdio"),
    ("capi", "abi mem portspec control client"),
    ("pcap", "abi mem portspec control client"),
    ("gateway", "wire policy client control fdio confine"),
    (
        "daemon",
        "abi mem wire fdio confine port portspec control switch policy tap pcapport afxdp guest nic virtio virtio-pci \
         vhost ptnet e1000 vxlan socket",
    ),
    ("evpn", "control netlink"),
    ("observe", "control gateway"),
    ("harness", "control fdio mem virtio vhost"),
    (
        "bench",
        "abi mem wire policy port portspec control switch tap pcapport afxdp guest nic virtio vhost ptnet e1000 vxlan \
         client daemon harness",
    ),
    (
        "cli",
        "abi mem wire port policy portspec control switch tap pcapport vhost vxlan client gateway daemon netns evpn \
         observe harness fdio confine",
    ),
    ("cni", "portspec control tap netns harness"),
    ("soak", "abi mem port control fdio tap pcapport virtio vhost e1000 guest client harness"),
    ("system-tests", "harness fdio"),
    ("xtask", ""),
];

/// Siblings: crates of one layer that must not use one another. [`LAYERS`] forbids this, too; because of this list, the
/// message can state the rule.
pub const SIBLINGS: &[&str] =
    &["switch", "tap", "pcapport", "nic", "vhost", "virtio-pci", "ptnet", "e1000", "vxlan", "socket"];

/// Path of the table, for messages.
pub const TABLE_FILE: &str = "xtask/src/layer_table.rs";
