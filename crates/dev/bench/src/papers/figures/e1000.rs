//! The second document's experiments: an e1000, in booted guests and in guests simulated by a process.

use super::{PaperFigure, Run};
use crate::papers::published::*;
use crate::papers::table::{Column, Reading, Table, TableRow};

/// Creates the document's columns from the suffixes of the variants with datagrams and of the variants with TCP: small
/// datagrams, large datagrams, TCP, TCPw, and optionally round trips.
macro_rules! columns {
    ($udp:literal, $tcp:literal $(, $trips:literal)?) => {
        &[
            Column::of("UDP8, kpps", concat!("udp-small", $udp), Reading::Kpps),
            Column::of("UDP-1460, kpps", concat!("udp-large", $udp), Reading::Kpps),
            Column::of("the same, Mbit/s", concat!("udp-large", $udp), Reading::PayloadMbits(1460)),
            Column::of("TCP, Mbit/s", concat!("tcp", $tcp), Reading::Mbits),
            Column::of("TCPw, Mbit/s", concat!("tcp-wide", $tcp), Reading::Mbits),
            $(Column::of("RR, thousands per second", $trips, Reading::Thousands),)?
        ]
    };
}

/// Creates a table with pkt-gen's columns for small and large frames, the given rows, and columns of `$facts`.
macro_rules! pkt_gen {
    ($facts:expr; $title:literal, $small:literal, $large:literal, $($row:expr),+) => {
        Table {
            title: $title,
            columns: &[
                Column::of("60 bytes, kpps", $small, Reading::Kpps),
                Column::of("1,502 bytes, kpps", $large, Reading::Kpps),
                Column::of("the same, Mbit/s", $large, Reading::Mbits),
            ],
            rows: &[$($row),+],
            facts: $facts,
            ..Table::PLAIN
        }
    };
}

/// Columns for counts, which follow the columns for rates. Each is a fact's name and the column's heading.
const FACTS: &[(&str, &str)] = &[("exits_each", "exits per packet"), ("interrupts_each", "interrupts per packet")];
/// Like [`FACTS`], for a driver that polls and gets no interrupts.
const POLLED: &[(&str, &str)] = &[("exits_each", "register accesses per packet")];
/// The base of tables with counts, whose ratios are to the row BASE.
const E1000: Table = Table { base: Some("netvale-base"), facts: FACTS, ..Table::PLAIN };

const SHORT_ITR: TableRow = TableRow::ours("25 µs between interrupts", "netvale-itr-25us");
const QEMU: TableRow = TableRow::ours("QEMU's own e1000, a TAP", "qemu-e1000");
const VHOST: TableRow = TableRow::ours("virtio-net, a vhost-user port", "netvale-vhost");
const NETMAP_E1000: TableRow = TableRow::ours("QEMU's e1000 on its netmap back end", "qemu-e1000-netmap");
const NETMAP_VIRTIO: TableRow = TableRow::ours("QEMU's virtio-net on netmap", "qemu-virtio-netmap");
const BEST: TableRow = TableRow::ours("CSB with moderation", "netvale");

/// A description of guests with two processors, which several figures use.
const TWO_CPUS: &str = "Guests run Linux and are emulated in software. Each guest's two processors are threads of \
        QEMU on the host's two, which also run the switch's worker, QEMU's own thread and the host's stack; a second \
        processor therefore gains a guest less than in the paper. itr 100 is 102 µs here.";

/// Frames from a guest with one processor to the host.
pub const OUT: PaperFigure = PaperFigure {
    number: "2.1",
    title: "An e1000 from a guest to the host",
    about: "Datagrams of 8 and 1,460 bytes, TCP with writes of 1,460 bytes and of netperf's default size, and round \
        trips, through a TAP, with one processor: without moderation (BASE), with moderation (itr, in units of 250 \
        ns), with Send Combining (SC), and with the status block in memory (CSB).",
    here: "Guests run Linux and are emulated in software. Their network stack and the emulation limit the rates, so \
        only ratios to BASE and counts per packet are comparable. itr 100 is 102 µs here instead of 25 µs, since an \
        emulated processor needs that long for a few packets; one row has 25 µs. TCP has at most 64 KiB in flight; \
        TCPw, with writes of 16 KiB, 1 MiB. TSO, off in the paper, is at each driver's default.",
    see: "Each variant saves register accesses and interrupts, even where the guest's stack hides that in the rate. \
        Send Combining takes an interrupt, with three register accesses, for the packets queued meanwhile: it saves \
        accesses only if a guest sends more than four packets in that time, as in the paper and in 2.4.",
    runs: &[Run { scenario: "e1000", setup: 3 }],
    tables: &[Table {
        columns: columns!("-tap", "", "tcp-rr"),
        rows: &[
            TableRow::of(&TAP_ONE_CPU[0], "netvale-base"),
            TableRow::of(&TAP_ONE_CPU[1], "netvale-itr"),
            SHORT_ITR,
            TableRow::of(&TAP_ONE_CPU[2], "netvale-itr-sc"),
            TableRow::of(&TAP_ONE_CPU[3], "netvale-csb"),
            TableRow::of(&TAP_ONE_CPU[4], "netvale"),
            QEMU,
            VHOST,
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        ..E1000
    }],
    missing: &[
        "VirtualBox and VMware, which the paper compares with QEMU: they are in none of the registries used here.",
        "Exits of QEMU's own virtio-net: its doorbells bypass the count.",
    ],
};

/// Frames from the host to a guest with one processor.
pub const IN: PaperFigure = PaperFigure {
    number: "2.2",
    title: "An e1000 from the host to a guest",
    about: "Datagrams of 8 and 1,460 bytes at the host's full sending rate, counted in the guest; and TCP from the \
        host.",
    here: "Guests run Linux and are emulated in software. Datagrams come from a port of the switch, as fast as it \
        accepts them (for QEMU's e1000 on a TAP, from a socket); streams come from the host's stack through the TAP. \
        itr 100 is 102 µs here.",
    see: "Moderation and the status block save interrupts, which leaves the guest's processor more time for \
        datagrams. Accesses are those of the receiving driver.",
    runs: &[Run { scenario: "e1000", setup: 1 }],
    tables: &[Table {
        columns: columns!("-in", "-in"),
        rows: &[
            TableRow::of(&TAP_ONE_CPU_IN[0], "netvale-base"),
            TableRow::of(&TAP_ONE_CPU_IN[1], "netvale-itr"),
            SHORT_ITR,
            TableRow::of(&TAP_ONE_CPU_IN[2], "netvale-itr-sc"),
            TableRow::of(&TAP_ONE_CPU_IN[3], "netvale"),
            QEMU,
            VHOST,
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        ..E1000
    }],
    missing: &[],
};

/// Frames between two guests on a VALE switch.
pub const BETWEEN: PaperFigure = PaperFigure {
    number: "2.3",
    title: "Two guests with an e1000 each, on a VALE switch, two processors each",
    about: "The same columns, from one guest to another.",
    here: TWO_CPUS,
    see: "As in the paper, the status block saves most: without it, each sent packet costs an exit. Send Combining \
        helps if the guest is fast enough (2.1). Exits are the sender's; interrupts are the receiver's.",
    runs: &[Run { scenario: "e1000", setup: 4 }],
    tables: &[Table {
        columns: columns!("-between-2cpus", "-between-2cpus", "tcp-rr-between-2cpus"),
        rows: &[
            TableRow::of(&GUESTS_VALE[0], "netvale-base"),
            TableRow::of(&GUESTS_VALE[1], "netvale-itr"),
            TableRow::of(&GUESTS_VALE[2], "netvale-itr-sc"),
            TableRow::of(&GUESTS_VALE[3], "netvale-csb"),
            BEST,
            TableRow::ours("virtio-net, vhost-user ports", "netvale-vhost"),
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        ..E1000
    }],
    missing: &[],
};

/// An e1000 in guests that a process with netvale's driver simulates.
pub const PLAYED: PaperFigure = PaperFigure {
    number: "2.4",
    title: "The same driver without a guest's stack",
    about: "pkt-gen in guests, 60 and 1,500 bytes, between two guests on a VALE switch, and between a guest and the \
        host.",
    here: "One process runs the driver's code in place of both guests, or of a guest and the host's program, so the \
        device and the switch limit the rate instead of the emulation of a processor. Both ends share a processor; \
        the switch has the other.",
    see: "The status block saves nearly all register accesses, Send Combining most of them. As both ends take turns \
        on one processor, little more is sent than received.",
    runs: &[Run { scenario: "e1000", setup: 2 }],
    tables: &[
        pkt_gen!(POLLED; "Sent", "played-sent", "played-large-sent", TableRow::of(&GUESTS_VALE[4], "netvale")),
        pkt_gen!(
            POLLED;
            "Received",
            "played",
            "played-large",
            TableRow::of(&GUESTS_VALE[5], "netvale"),
            TableRow::ours("Send Combining", "netvale-sc"),
            TableRow::ours("BASE", "netvale-base")
        ),
        pkt_gen!(POLLED; "From a guest", "played-out", "played-large-out", TableRow::of(&GUESTS_VALE[6], "netvale")),
        pkt_gen!(POLLED; "To a guest", "played-in", "played-large-in", TableRow::of(&GUESTS_VALE[7], "netvale")),
    ],
    missing: &[],
};

/// Frames from a guest with two processors to the host.
pub const OUT_TWO: PaperFigure = PaperFigure {
    number: "2.5",
    title: "An e1000 from a guest with two processors to the host",
    about: "As 2.1, with a second processor that handles interrupts while the first one sends.",
    here: TWO_CPUS,
    see: "BASE gains most from the second processor, since interrupts no longer stop the sender; the status block has \
        by far the fewest exits per packet here, too.",
    runs: &[Run { scenario: "e1000", setup: 3 }],
    tables: &[Table {
        columns: columns!("-tap-2cpus", "-2cpus", "tcp-rr-2cpus"),
        rows: &[
            TableRow::of(&TAP_TWO_CPUS[0], "netvale-base"),
            TableRow::of(&TAP_TWO_CPUS[1], "netvale-itr"),
            TableRow::of(&TAP_TWO_CPUS[2], "netvale-itr-sc"),
            TableRow::of(&TAP_TWO_CPUS[3], "netvale-csb"),
            TableRow::of(&TAP_TWO_CPUS[4], "netvale"),
            QEMU,
        ],
        ..E1000
    }],
    missing: &[],
};

/// Frames from the host to a guest with two processors.
pub const IN_TWO: PaperFigure = PaperFigure {
    number: "2.6",
    title: "An e1000 from the host to a guest with two processors",
    about: "As 2.2; one processor receives from the card while the other runs the program.",
    here: TWO_CPUS,
    see: "More datagrams reach the program than with one processor, since the card's interrupts no longer take the \
        program's time.",
    runs: &[Run { scenario: "e1000", setup: 1 }],
    tables: &[Table {
        columns: columns!("-in-2cpus", "-in-2cpus"),
        rows: &[
            TableRow::of(&TAP_TWO_CPUS_IN[0], "netvale-base"),
            TableRow::of(&TAP_TWO_CPUS_IN[1], "netvale-itr"),
            TableRow::of(&TAP_TWO_CPUS_IN[2], "netvale-itr-sc"),
            TableRow::of(&TAP_TWO_CPUS_IN[3], "netvale"),
            QEMU,
        ],
        ..E1000
    }],
    missing: &[],
};

/// pkt-gen in guests that are booted.
pub const PKT_GEN: PaperFigure = PaperFigure {
    number: "2.7",
    title: "pkt-gen in a booted guest with two processors",
    about: "A program in the guest sends or receives frames in netmap mode: to and from the host through a TAP, to \
        and from a port of a VALE switch, and to another guest.",
    here: "The guest's two processors are emulated on the host's two. Linux has no netmap: the program opens the card \
        by AF_XDP, which copies frames to and from the driver's buffers. In both tables with frames to a guest, the \
        host sends through a port of the switch. Frames between two guests are counted by the receiver.",
    see: "Without the guest's stack, more frames pass than in 2.3, 2.5 and 2.6. Figure 2.4 shows the rates of the \
        card and the switch without an emulated processor.",
    runs: &[Run { scenario: "e1000", setup: 2 }],
    tables: &[
        pkt_gen!(
            FACTS;
            "To a TAP",
            "netmap-small-tap-2cpus",
            "netmap-large-tap-2cpus",
            TableRow::of(&TAP_TWO_CPUS[5], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "From the host; the paper uses a TAP",
            "netmap-small-in-2cpus",
            "netmap-large-in-2cpus",
            TableRow::of(&TAP_TWO_CPUS_IN[4], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "To a port of the switch",
            "netmap-small-2cpus",
            "netmap-large-2cpus",
            TableRow::of(&GUESTS_VALE[6], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "From a port of the switch",
            "netmap-small-in-2cpus",
            "netmap-large-in-2cpus",
            TableRow::of(&GUESTS_VALE[7], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "To another guest",
            "netmap-small-between-2cpus",
            "netmap-large-between-2cpus",
            TableRow::of(&GUESTS_VALE[5], "netvale")
        ),
    ],
    missing: &[],
};

/// Frames between two guests whose cards are connected by TAPs.
pub const BRIDGED: PaperFigure = PaperFigure {
    number: "2.8",
    title: "Two guests with an e1000 each, by TAPs on the kernel's bridge, two processors each",
    about: "The same columns, from one guest to another, each with its own TAP.",
    here: "Guests run Linux and are emulated in software, with two processors each on the host's two. Each guest's \
        e1000 is on a netvale switch with a TAP, which is a port of the kernel's bridge; one worker serves both \
        switches. itr 100 is 102 µs here.",
    see: "A packet passes two TAPs and the kernel's bridge, which costs the host more than the switch alone (2.3). \
        Exits are the sender's; interrupts are the receiver's.",
    runs: &[Run { scenario: "e1000", setup: 4 }],
    tables: &[Table {
        columns: columns!("-bridged-2cpus", "-bridged-2cpus", "tcp-rr-bridged-2cpus"),
        rows: &[
            TableRow::of(&GUESTS_TAP[0], "netvale-base"),
            TableRow::of(&GUESTS_TAP[1], "netvale-itr"),
            TableRow::of(&GUESTS_TAP[2], "netvale-itr-sc"),
            TableRow::of(&GUESTS_TAP[3], "netvale-csb"),
            BEST,
            TableRow::ours("QEMU's own e1000, TAPs", "qemu-e1000"),
        ],
        ..E1000
    }],
    missing: &[],
};
