//! The fourth document's experiments: frames from a generator through a vhost port to a guest that forwards them back
//! (PVP).

use super::{Column, PaperFigure, Reading, Run, Table, TableRow, by, mpps};

/// Creates a column for each path of DPDK's driver, in a guest with the given forwarding mode.
macro_rules! paths {
    ($mode:literal) => {
        &[
            mpps("mergeable", concat!($mode, " mergeable")),
            mpps("non-mergeable", concat!($mode, " non-mergeable")),
            mpps("in-order", concat!($mode, " in-order")),
            mpps("vector", concat!($mode, " vector")),
            mpps("packed", concat!($mode, " packed")),
            mpps("packed, vector", concat!($mode, " packed-vector")),
        ]
    };
}

/// The rows of the figures in which a guest forwards frames unchanged (`io`) or with new addresses (`mac`).
const PVP: &[TableRow] = &[
    TableRow::ours("DPDK's vhost with its driver", "dpdk-pvp"),
    TableRow::ours("netvale's vhost with DPDK's driver", "netvale"),
    TableRow::ours("netvale's vhost with its driver", "netvale-both"),
];

/// Rows for DPDK's releases, and for netvale with the driver of the system's DPDK.
const RELEASES: &[TableRow] = &[
    TableRow::ours("DPDK of Debian 12, vhost and driver", "dpdk-pvp"),
    TableRow::ours("DPDK of Debian 13 (trixie), vhost and driver", "dpdk-pvp-trixie"),
    TableRow::ours("DPDK of Debian sid, vhost and driver", "dpdk-pvp-sid"),
    TableRow::ours("netvale's vhost, with DPDK's driver of Debian 12", "netvale"),
];

/// Rows for the programs that forward between an interface and the guest.
const OUTSIDE: &[TableRow] = &[
    TableRow::ours("DPDK: net_af_xdp and net_vhost", "dpdk-pvp"),
    TableRow::ours("DPDK: net_af_packet and net_vhost", "dpdk-pvp-packet"),
    TableRow::ours("netvale's switch: the interface by AF_XDP, a vhost port", "netvale"),
];

/// A column for each set of features that the device offers to a booted guest.
const MRG_RXBUF: &[Column] = &[
    by("mrg_rxbuf=on, kpps", "mac mergeable", 0, Reading::Kpps),
    by("mrg_rxbuf=off, kpps", "mac non-mergeable", 0, Reading::Kpps),
];

/// A guest that forwards frames without touching them.
pub const FORWARDED_UNTOUCHED: PaperFigure = PaperFigure {
    number: "4.1",
    title: "Forwarding in the guest, frames untouched (io), by the driver's path",
    about: "64-byte frames from a generator through a vhost port to a guest that forwards them, and back, in Mpps. \
        According to the text, the vector path is best, almost 15 % ahead of the mergeable path.",
    here: "The generator is in the host's process, as DPDK's net_null; the guest is a process with the driver. \
        In-order and packed queues are newer than the document.",
    see: "The vector path is ahead of the mergeable path, as in the document. Where the brackets are wide, a path has \
        two rates and changes between them from run to run, with DPDK's device as with netvale's.",
    runs: &[Run { scenario: "pvp", setup: 6 }],
    tables: &[Table { columns: paths!("io"), rows: PVP, ..Table::PLAIN }],
    missing: &[],
};

/// A guest that forwards frames and writes their addresses.
pub const FORWARDED_WRITTEN: PaperFigure = PaperFigure {
    number: "4.2",
    title: "Forwarding in the guest with addresses written (mac), by the driver's path",
    about: "The same, with a guest that writes the Ethernet addresses. According to the text, the three paths are \
        nearly equal.",
    here: "As in 4.1.",
    see: "Writing a cache line that the host has just written transfers it between the caches of two processors. On \
        two virtual processors, the paths differ more than in the document, and have two rates as in 4.1.",
    runs: &[Run { scenario: "pvp", setup: 6 }],
    tables: &[Table { columns: paths!("mac"), rows: PVP, ..Table::PLAIN }],
    missing: &[],
};

/// The same path in releases of DPDK, and in versions of netvale.
pub const BY_RELEASE: PaperFigure = PaperFigure {
    number: "4.3",
    title: "The mergeable path by release",
    about: "The mergeable path, with addresses written, by DPDK release. According to the text, the rate grew by \
        nearly 20 % from 16.07 to 17.05, with a dip in 16.11; no values are printed.",
    here: "The releases are those of Debian 12 and of newer Debian suites, on host and guest; the second column has \
        untouched frames (io). A second table has netvale's own versions; each release appends a row.",
    see: "The path does the same work in all releases; differences show the optimisations of a release.",
    runs: &[Run { scenario: "pvp", setup: 6 }],
    tables: &[Table {
        columns: &[mpps("mac, Mpps", "mac mergeable"), mpps("io, Mpps", "io mergeable")],
        rows: RELEASES,
        base: Some("dpdk-pvp"),
        facts: &[("release", "DPDK")],
        ..Table::PLAIN
    }],
    missing: &["Releases before Debian 12's, which include the document's."],
};

/// A generator at the far end of an interface.
pub const GENERATOR_OUTSIDE: PaperFigure = PaperFigure {
    number: "4.4",
    title: "The generator outside",
    about: "The same test with the generator beyond a network interface of the host. The document uses a hardware \
        generator at a 10 Gbit/s port.",
    here: "The interface is an end of a veth pair, so every figure includes the kernel's copies. On the first of two \
        processors, one program serves the generator (DPDK's net_null, and net_af_xdp at the pair's far end) and the \
        guest (DPDK's driver, addresses written), a burst each in turn; the host has the second. netvale's host is a \
        switch that learns addresses; DPDK's passes everything from one port to the other.",
    see: "A frame crosses the pair twice, at several times the cost of a vhost queue: the kernel limits the rate, and \
        the hosts differ in how they use its sockets.",
    runs: &[Run { scenario: "pvp-outside", setup: 8 }],
    tables: &[Table {
        columns: &[mpps("mergeable, Mpps", "mac mergeable"), mpps("in-order, Mpps", "mac in-order")],
        rows: OUTSIDE,
        base: Some("dpdk-pvp"),
        ..Table::PLAIN
    }],
    missing: &["A hardware generator, and a physical port."],
};

/// A guest that is booted, and that runs testpmd.
pub const BOOTED: PaperFigure = PaperFigure {
    number: "4.5",
    title: "testpmd inside a guest",
    about: "DPDK's testpmd in a virtual machine, on its virtio-net device with `mrg_rxbuf=on` and `off`. No values \
        are printed.",
    here: "The guest is booted, with a processor emulated in software, which limits the rate: only devices and \
        options can be compared. In the guest, uio_pci_generic drives the device. The generator is in the host's \
        process.",
    see: "With `mrg_rxbuf=on`, the driver reads the number of buffers of a frame from its header, and collects them; \
        with `off`, a frame is one buffer.",
    runs: &[Run { scenario: "pvp-booted", setup: 15 }],
    tables: &[Table {
        columns: MRG_RXBUF,
        rows: &[
            TableRow::ours("DPDK's vhost, DPDK's driver in the guest", "dpdk-pvp"),
            TableRow::ours("netvale's vhost, DPDK's driver in the guest", "netvale"),
        ],
        base: Some("dpdk-pvp"),
        ..Table::PLAIN
    }],
    missing: &[],
};
