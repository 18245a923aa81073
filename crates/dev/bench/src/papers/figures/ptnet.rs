//! The third document's experiments: two guests on ptnet ports, compared with virtio-net.

use super::*;

/// Creates a column of round trips for each message size.
const fn round_trips(variant: &'static str) -> [Column; 5] {
    [
        by("1 B", variant, 1, Reading::Thousands),
        by("64 B", variant, 64, Reading::Thousands),
        by("1 KiB", variant, 1024, Reading::Thousands),
        by("8 KiB", variant, 8192, Reading::Thousands),
        by("65,000 B", variant, 65_000, Reading::Thousands),
    ]
}

const UDP_MESSAGES: &[Column] = &[
    by("64 B", "udp-messages-between", 64, Reading::Mbits),
    by("512 B", "udp-messages-between", 512, Reading::Mbits),
    by("1,472 B", "udp-messages-between", 1472, Reading::Mbits),
    by("8 KiB", "udp-messages-between", 8192, Reading::Mbits),
    by("24 KiB", "udp-messages-between", 24_576, Reading::Mbits),
    by("65,000 B", "udp-messages-between", 65_000, Reading::Mbits),
];

/// Rows for two guests, one for each kind of network interface.
const PAIRS: &[TableRow] = &[
    TableRow::ours("ptnet ports of a VALE switch", "netvale"),
    TableRow::ours("virtio-net on vhost ports of the switch", "netvale-vhost"),
    TableRow::ours("QEMU's virtio-net on TAPs, the kernel's bridge", "qemu-virtio"),
];

/// Round trips between two guests.
pub const ROUND_TRIPS: PaperFigure = PaperFigure {
    number: "3.1",
    title: "Round trips between two guests, by size",
    about: "TCP_RR and UDP_RR by message size. According to the text, ptnet is better at small sizes and equal at \
        very large ones.",
    here: EMULATED,
    see: "A round trip takes four wake-ups with any interface. The interfaces differ in what they add; copies matter \
        for long messages only.",
    runs: &[Run { scenario: "pairs", setup: 2 }],
    tables: &[
        Table {
            title: "TCP, thousands per second",
            columns: &round_trips("tcp-rr-between"),
            rows: PAIRS,
            base: Some("netvale-vhost"),
            ..Table::PLAIN
        },
        Table {
            title: "UDP, thousands per second",
            columns: &round_trips("udp-rr-between"),
            rows: PAIRS,
            base: Some("netvale-vhost"),
            ..Table::PLAIN
        },
    ],
    missing: &["vhost-net, the paper's peer: it needs hardware virtualisation."],
};

/// A TCP stream between two guests.
pub const STREAM: PaperFigure = PaperFigure {
    number: "3.2",
    title: "A TCP stream between two guests",
    about: "TCP_STREAM. Printed: ptnet 20 Gbit/s, virtio-net with vhost-net 26.",
    here: EMULATED,
    see: "In the paper, vhost-net was faster, since it makes one copy fewer. Here, virtio-net on vhost ports of the \
        same switch is faster, too: ptnet's driver frees a packet's buffer once the packet is copied, so TCP does not \
        wait for more data, and sends smaller segments. A driver that held the buffers until the switch had taken \
        the packets was no faster, since each completion takes an interrupt.",
    runs: &[Run { scenario: "pairs", setup: 15 }],
    tables: &[Table {
        columns: &[Column::of("Mbit/s", "tcp-between", Reading::Mbits)],
        rows: &[
            TableRow::of(&PTNET_STREAM[0], "netvale"),
            TableRow::of(&PTNET_STREAM[1], "qemu-virtio"),
            TableRow::ours("virtio-net on vhost ports of the switch", "netvale-vhost"),
        ],
        base: Some("qemu-virtio"),
        ..Table::PLAIN
    }],
    missing: &[],
};

/// Datagrams between two guests, by size.
pub const DATAGRAMS: PaperFigure = PaperFigure {
    number: "3.3",
    title: "Datagrams between two guests, by size",
    about: "UDP_STREAM, measured at the sender. According to the text, the rate grows up to 20 or 30 KiB, and ptnet \
        is ahead at all sizes.",
    here: EMULATED,
    see: "Each message costs a system call and a way through the stack, so the rate grows with the size. The dip at \
        1,472 bytes, which is deepest with ptnet, has not been examined.",
    runs: &[Run { scenario: "pairs", setup: 3 }],
    tables: &[Table {
        title: "Mbit/s",
        columns: UDP_MESSAGES,
        rows: PAIRS,
        base: Some("netvale-vhost"),
        ..Table::PLAIN
    }],
    missing: &[],
};

/// Creates a column for one burst size of the kernel's generator, pktgen.
const fn burst(head: &'static str, batch: u32) -> Column {
    Column { batch, ..Column::of(head, "pktgen", Reading::Kpps) }
}

/// The packet generator of the guest's kernel (pktgen).
pub const PKTGEN: PaperFigure = PaperFigure {
    number: "3.4",
    title: "The kernel's generator in a guest, by burst",
    about: "In-kernel pktgen, 60-byte frames received on the host, by burst: the number of frames that the driver \
        gets before it is told of the last one. According to the text, virtio-net is flat; ptnet grows with the \
        burst, is best near 50, and then falls.",
    here: "Guests are emulated in software, without hardware virtualisation: the instructions of the generator and \
        the driver limit the rate. The generator sends the same packet repeatedly, so its creation is not measured.",
    see: "A driver notifies the host once per burst: the rate grows with the burst if notifications are expensive, \
        and is flat if the host stays awake and needs none.",
    runs: &[Run { scenario: "pktgen", setup: 2 }],
    tables: &[Table {
        title: "Thousands of frames per second",
        columns: &[
            burst("1", 1),
            burst("2", 2),
            burst("4", 4),
            burst("8", 8),
            burst("16", 16),
            burst("32", 32),
            burst("50", 50),
            burst("64", 64),
            burst("128", 128),
        ],
        rows: &[
            TableRow::ours("a ptnet port of a VALE switch", "netvale"),
            TableRow::ours("virtio-net on a vhost port of the switch", "netvale-vhost"),
            TableRow::ours("QEMU's virtio-net on a TAP", "qemu-virtio"),
        ],
        ..Table::PLAIN
    }],
    missing: &["vhost-net, the paper's peer: it needs hardware virtualisation."],
};

/// Netmap programs in two guests.
pub const PROGRAMS: PaperFigure = PaperFigure {
    number: "3.5",
    title: "pkt-gen between two guests",
    about: "60-byte frames from one guest to another on ptnet ports of a switch, with and without virtio-net headers.",
    here: "In the first table, one process operates both guests' ports in their memory: the receiver shares the \
        sender's processor, and the switch has the other. In the second, both guests are booted, emulated in \
        software: their programs get the rings from the interface's driver, and the receiver counts.",
    see: "As in the paper, the header costs a small part of the rate.",
    runs: &[Run { scenario: "ptnet", setup: 2 }, Run { scenario: "pairs", setup: 6 }],
    tables: &[
        Table {
            title: "One process in place of both guests",
            columns: &[mpps("with headers, Mpps", "guests-header"), mpps("without, Mpps", "guests")],
            rows: &[TableRow::of(&PTNET_PKT_GEN, "netvale")],
            ..Table::PLAIN
        },
        Table {
            title: "Booted guests",
            columns: &[
                Column::of("with headers, kpps", "netmap-header-between", Reading::Kpps),
                Column::of("without, kpps", "netmap-between", Reading::Kpps),
            ],
            rows: &[TableRow::ours("netmap programs in two guests", "netvale")],
            ..Table::PLAIN
        },
    ],
    missing: &[],
};

/// Passthrough to a guest, compared with the same resources on the host.
pub const PASSED: PaperFigure = PaperFigure {
    number: "3.6",
    title: "Ring sizes, a pipe and an interface, in a guest and on the host",
    about: "Frames from guest to guest by ring size, into a pipe, and to and from an interface, all passed through. \
        According to the text, the figures are the same as on the host.",
    here: "One process replaces the guests; frames have 60 bytes. The interface is an end of a veth pair, opened by \
        AF_XDP, which copies. On the host, each process at the pipe has its own processor; passed through, the pipe's \
        worker has one processor, and both programs share the other.",
    see: "Passthrough adds a worker: it exchanges the slots of a pipe's two ends, and moves an interface's frames to \
        and from the guest's buffers. Ring sizes should matter in guests as on the host.",
    runs: &[Run { scenario: "ptnet", setup: 2 }, Run { scenario: "pipe", setup: 2 }, Run { scenario: "nic", setup: 3 }],
    tables: &[
        Table {
            title: "By slots per ring, Mpps",
            columns: &[
                mpps("256", "slots-256"),
                mpps("512", "slots-512"),
                mpps("1,024", "slots-1024"),
                mpps("2,048", "slots-2048"),
            ],
            rows: &[
                TableRow::ours("guests on ptnet ports", "netvale"),
                TableRow::ours("programs on the host", "netvale-local"),
            ],
            base: Some("netvale-local"),
            ..Table::PLAIN
        },
        Table {
            title: "A pipe, Mpps",
            columns: &[
                mpps("passed through, first line touched", "pipe"),
                mpps("on the host", "touched"),
                mpps("passed through, slots only", "pipe-untouched"),
                mpps("on the host", "untouched"),
            ],
            rows: &[TableRow::ours("from end to end", "netvale")],
            ..Table::PLAIN
        },
        Table {
            title: "An interface, Mpps",
            columns: &[mpps("sent", "tx"), mpps("received", "rx")],
            rows: &[TableRow::ours("on the host", "netvale"), TableRow::ours("passed through", "netvale-guest")],
            base: Some("netvale"),
            ..Table::PLAIN
        },
    ],
    missing: &[],
};
